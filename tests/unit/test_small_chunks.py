"""Which chunks a settler reads whole: small ones that it needs more than one share of, within a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.log.read import small_chunks
from pyspark_commitlog.log.read.small_chunks import plan_chunks
from pyspark_commitlog.log.read.unsettled import Source
from pyspark_commitlog.log.state import ChunkRef, Extent

ENTRY = Entry("topic", "append", "", 1, "", "", {})


def shares(name: str, length: int, count: int) -> Iterator[Source]:
    """Yield so many shares of a chunk."""
    for partition in range(count):
        yield Source(ENTRY, Extent(0, partition, 0, 10, 1, 0), ChunkRef(name, length, 0))


def test_only_shared_and_small_ones_are_read_whole() -> None:
    sources = [*shares("shared", 100, 2), *shares("alone", 100, 1), *shares("large", small_chunks.CHUNK_BYTES + 1, 2)]
    assert plan_chunks(sources) == {"shared"}


def test_all_of_them_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_chunks, "MOST_BYTES", 250)
    sources = [source for number in range(4) for source in shares(f"{number}", 100, 2)]
    assert plan_chunks(sources) == {"0", "1"}

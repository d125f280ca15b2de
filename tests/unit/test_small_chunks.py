"""Which chunks a settler reads whole: small ones that it needs more than one share of, within a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.log.read import small_chunks
from pyspark_commitlog.log.read.small_chunks import SmallChunks, plan_chunks
from pyspark_commitlog.log.read.unsettled import Source
from pyspark_commitlog.log.state import ChunkRef, Extent

ENTRY = Entry("topic", "append", "", 1, "", "", {})


def shares(name: str, length: int, count: int) -> Iterator[Source]:
    """Yield so many shares of a chunk."""
    for partition in range(count):
        yield Source(ENTRY, Extent(0, partition, 0, 10, 1, 0), ChunkRef(name, length, 0))


def test_only_small_ones_are_read_whole() -> None:
    large, alone = small_chunks.CHUNK_BYTES, small_chunks.ALONE_BYTES
    sources = [
        *shares("shared", large, 2),
        *shares("large", large + 1, 2),
        *shares("alone", alone, 1),
        *shares("long", alone + 1, 1),
    ]
    assert list(plan_chunks(sources)) == ["shared", "alone"]


def test_all_of_them_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_chunks, "MOST_BYTES", 250)
    sources = [source for number in range(4) for source in shares(f"{number}", 100, 2)]
    assert list(plan_chunks(sources)) == ["0", "1"]


class Chunks:
    """A store of which some chunks are gone; it notes what was asked for at a time."""

    def __init__(self, *gone: str) -> None:
        self.gone, self.asked = set(gone), list[str]()

    def read(self, path: str, position: int, length: int) -> bytes:
        """Return as many bytes."""
        name = path.rpartition("/")[2].removesuffix(".chunk")
        self.asked.append(name)
        if name in self.gone:
            raise FileNotFoundError(path)
        return name.encode() * length


def small(store: Chunks, sources: list[Source]) -> SmallChunks:
    """Return the chunks of a run of one partition."""
    return SmallChunks(store, TopicPaths("t", "id"), [sources])  # type: ignore[arg-type]


def test_those_that_come_next_are_read_at_once() -> None:
    sources = [source for number in range(10) for source in shares(f"{number}", 1, 1)]
    store = Chunks()
    chunks = small(store, sources)
    for count, source in zip([8] * 8 + [10] * 2, sources, strict=True):
        assert source.chunk is not None
        assert chunks.data(source.chunk) == source.chunk.name.encode()
        assert len(store.asked) == count
    assert chunks.data(ChunkRef("another", 1, 0)) is None


def test_one_that_is_gone_is_asked_for_in_its_turn() -> None:
    """Its partition ends there, and no other one, and not before."""
    sources = [source for number in range(4) for source in shares(f"{number}", 1, 1)]
    store = Chunks("2")
    chunks = small(store, sources)
    found = [source.chunk for source in sources if source.chunk is not None]
    assert chunks.data(found[0]) == b"0"
    assert chunks.data(found[1]) == b"1"
    with pytest.raises(FileNotFoundError):
        chunks.data(found[2])
    assert chunks.data(found[3]) == b"3"
    assert sorted(store.asked) == ["0", "1", "2", "2", "3"]

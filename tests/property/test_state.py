"""What entries say, through JSON and back."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.state.settle_state import (
    Active,
    Manifest,
    Sealed,
    SealedSegments,
    SettledPartition,
    SettleState,
)
from pyspark_commitlog.topic.state.side_files import place_tables
from pyspark_commitlog.topic.state.tail import Slices
from pyspark_commitlog.topic.state.topic_state import (
    ChunkRef,
    Extent,
    Mark,
    TopicState,
    WriterRow,
    Writers,
    chunks_to_json,
    read_chunks,
    read_extents,
)
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.property.strategies import offsets, quick, sequences, uuids

kinds = st.sampled_from(("extents", "chunks", "partitions"))
numbers = st.integers(0, 2**62)
or_none = st.integers(-1, 2**62)
crcs = st.integers(0, 2**32 - 1)
ranges = st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple)
writer_rows = st.builds(WriterRow, numbers, numbers, sequences, numbers) | st.builds(
    WriterRow, numbers, numbers, sequences, numbers, st.integers(0, 32767), ranges
)
actives = st.builds(
    Active,
    st.builds(IndexState, *(numbers for _ in range(3)), or_none, or_none, or_none, numbers, numbers, or_none),
    crcs,
    st.integers(0, 99),
)
manifests = st.builds(Manifest, st.text(max_size=9), st.builds(Checked, numbers, crcs), numbers, numbers)
states = st.builds(
    TopicState,
    topic_id=uuids,
    deleted=st.booleans(),
    config=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    log_start=st.lists(offsets, max_size=4).map(tuple),
    log_end=st.lists(offsets, max_size=4).map(tuple),
    created=sequences,
    writers=st.builds(Writers, st.none(), st.dictionaries(st.text(max_size=5), writer_rows, max_size=3)),
    staged_floor=sequences,
    leader_epoch=numbers,
    marks=st.lists(st.builds(Mark, sequences, numbers), max_size=3).map(tuple),
    former_ids=st.lists(st.tuples(uuids, numbers), max_size=3).map(tuple),
    former_queries=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@quick
@given(states)
def test_a_topics_state(state: TopicState) -> None:
    assert TopicState.from_entry(state.topic_id, {"state": through_json(state.to_json())}) == state


@quick
@given(writer_rows)
def test_a_writers_row(row: WriterRow) -> None:
    assert WriterRow.from_json(through_json(row.to_json())) == row


@quick
@given(st.builds(SettledPartition, offsets, actives, st.none() | manifests))
def test_a_settled_partition(row: SettledPartition) -> None:
    assert SettledPartition.from_json(through_json(row.to_json())) == row


@quick
@given(st.builds(Sealed, *(numbers for _ in range(8))))
def test_a_sealed_segment(segment: Sealed) -> None:
    assert Sealed(*through_json(segment.to_json())) == segment


@quick
@given(st.lists(st.builds(ChunkRef, st.text(max_size=9), numbers, crcs), max_size=3))
def test_chunks(chunks: list[ChunkRef]) -> None:
    assert read_chunks(through_json(chunks_to_json(chunks))) == tuple(chunks)


@quick
@given(st.lists(st.builds(Extent, or_none, numbers, numbers, numbers, numbers, numbers), max_size=3))
def test_extents(extents: list[Extent]) -> None:
    assert read_extents(through_json([extent.to_json() for extent in extents])) == tuple(extents)


@quick
@given(st.dictionaries(kinds, st.integers(0, 40_000) | st.integers(16_380, 16_384)), sequences, uuids)
def test_a_table_lies_in_the_entry_or_in_the_side_file_that_the_entry_names(
    sizes: dict[str, int], sequence: int, write_id: str
) -> None:
    tables = {kind: "x" * size for kind, size in sizes.items()}

    placed = place_tables(tables, sequence, write_id)

    for kind, table in tables.items():
        if kind in placed.sides:
            named = placed.body[kind]
            assert json.loads(Checked.from_json(named).check(placed.sides[kind], kind)) == table
            assert len(placed.sides[kind]) > 16 * 1024
        else:
            assert placed.body[kind] == table
            assert len(json.dumps(table)) <= 16 * 1024


# --- look-ups in a manifest -------------------------------------------------------------------------------


@st.composite
def sealed_segments(draw: st.DrawFn) -> list[Sealed]:
    """Segments one behind the other, whose largest timestamps come in any order."""
    bases = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=12)))
    latest = draw(st.lists(st.integers(-1, 9), min_size=len(bases), max_size=len(bases)))
    return [Sealed(base, end, 0, 1, 1, 0, 0, at) for (base, end), at in zip(pairwise(bases), latest, strict=False)]


@given(found=sealed_segments(), offset=st.integers(0, 16), timestamp=st.integers(-1, 10))
@quick
def test_segments_are_found_as_by_a_look_at_all(found: list[Sealed], offset: int, timestamp: int) -> None:
    segments = SealedSegments.of([sealed.to_json() for sealed in found])

    below = [sealed for sealed in found if sealed.base_offset <= offset]
    assert segments.holding(offset) == (below[-1] if below else None)
    late = [sealed for sealed in found if sealed.end_offset > offset and sealed.max_timestamp >= timestamp]
    assert list(segments.not_before(timestamp, offset)) == late


class Counted(list[list[int]]):
    """Rows that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        raise AssertionError("a look at all of them")


def test_a_look_up_among_10_000_segments_looks_at_few() -> None:
    rows = _rows(0, 100_000)
    counted = Counted(rows)
    segments = SealedSegments(counted, SealedSegments.of(rows).latest)

    assert segments.holding(77_777) == Sealed(77_770, 77_780, 0, 1, 1, 0, 0, 7_777_000)
    found = next(segments.not_before(7_777_700, 5))

    assert found == Sealed(77_780, 77_790, 0, 1, 1, 0, 0, 7_778_000)
    assert counted.looks < 40


def test_an_offset_of_the_tail_is_found_without_a_look_at_all_own_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = TopicLog(LocalStorage(tmp_path), "t"), _rows(0, 100_000)
    own = SealedSegments(Counted(rows), SealedSegments.of(rows).latest)
    tail = _rows(100_020, 100_050)
    monkeypatch.setattr(topic, "own_segments", lambda settle, partition: own)
    monkeypatch.setattr(topic, "_slices", lambda settle, partition: Slices(tail))

    def found(offset: int) -> tuple[int, int] | None:
        sealed = topic.holding(cast(SettleState, None), 0, offset)
        return None if sealed is None else (sealed.base_offset, sealed.end_offset)

    assert [found(offset) for offset in (99_999, 100_030, 100_060)] == [
        (99_990, 100_000),
        (100_030, 100_040),
        (100_040, 100_050),
    ]
    assert found(100_010) == (99_990, 100_000), "the last that does not start after it"


def _rows(start: int, end: int) -> list[list[Any]]:
    return [[base, base + 10, 0, 1, 1, 0, 0, base * 100, None, None] for base in range(start, end, 10)]

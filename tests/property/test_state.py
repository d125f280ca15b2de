"""What entries say, through JSON and back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.log.state import (
    Active,
    ChunkRef,
    Extent,
    Manifest,
    Mark,
    Sealed,
    SettledPartition,
    TopicState,
    WriterRow,
    Writers,
    chunks_to_json,
    place_tables,
    read_chunks,
    read_extents,
)
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

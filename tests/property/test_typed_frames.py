"""Typed frames: whatever columns they have, what is read is what was written, whole, in part, cut, joined or sparse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.topic.read.unsettled import Unsettled
from pyspark_commitlog.topic.segments.cutting import parts_of
from pyspark_commitlog.topic.segments.encoding import encode_frame
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.rewrite import rows_of
from pyspark_commitlog.topic.settle.frame_joiner import FrameJoiner
from tests.property.strategies import codecs, kinds, quick, quicker, typed_batches
from tests.support.typed_rows import batch_of_kinds

TOPIC = "00000000-0000-4000-8000-000000000001"


def framed(rows: pa.RecordBatch, codec: str, base_offset: int = 0, chunk: str | None = None) -> Frame:
    """Return rows as a staged frame."""
    data = encode_frame(
        rows, codec=codec, topic_id=TOPIC, partition=3, log_append_time=False, base_offset=base_offset, chunk=chunk
    )
    return frame.parse_encoded(data.joined())


def decoded(data: Frame, columns: list[str] | None = None) -> pa.RecordBatch:
    return frame_rows.decode(frame.open_payload(data), columns)


def without_unused_headers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as their frame has them."""
    if "headers" in rows.schema.names and rows.column("headers").null_count == rows.num_rows:
        return rows.drop_columns(["headers"])
    return rows


@quick
@given(typed_batches, codecs)
def test_a_frame_has_the_rows_that_it_was_made_of(rows: pa.RecordBatch, codec: str) -> None:
    data = framed(rows, codec)

    found = decoded(data)
    found.validate(full=True)
    assert found.equals(without_unused_headers(rows), check_metadata=True)
    assert frame_rows.decoded_bytes(frame.open_payload(data)) >= found.nbytes - found.num_columns * rows.num_rows // 8


@quick
@given(typed_batches, codecs, st.data())
def test_some_columns_are_those_of_all(rows: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.sampled_from([*rows.schema.names, "9", "key", "value"]), unique=True))

    found = decoded(framed(rows, codec), asked)
    stored = without_unused_headers(rows)
    present = [name for name in stored.schema.names if name in asked] or ["timestamp"]
    assert found.equals(stored.select(present), check_metadata=True)


@quick
@given(typed_batches, codecs, st.data())
def test_a_sparse_frame_has_its_rows_and_offsets(rows: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    size = rows.num_rows
    deltas = np.sort(data.draw(st.permutations(range(size + 50)))[:size]).astype(np.int32)

    encoded = frame_rows.encode(frame_rows.with_deltas(rows, pa.array(deltas)), codec)
    identity = frame.Identity(TOPIC, 3, codec, encoded.kind, 1000, columns=encoded.columns)
    bytes_ = frame.encode(encoded.value, rows=size + 50, times=frame.Times(0, 0), identity=identity, base_offset=1000)
    sparse = frame.parse_encoded(bytes_)
    found, offsets = rows_of(sparse, frame.open_payload(sparse))
    assert found.equals(without_unused_headers(rows), check_metadata=True)
    assert np.array_equal(offsets, deltas + 1000)


@quicker
@given(typed_batches, codecs, st.data())
def test_the_parts_of_a_frame_have_the_rows_between_their_offsets(
    rows: pa.RecordBatch, codec: str, data: st.DataObject
) -> None:
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, rows.num_rows)] * 2)))
    whole = framed(rows, codec, base_offset=500)
    payload = frame.open_payload(whole)

    parts = [part for part, _ in parts_of(whole, payload, 3, 500 + first, 500 + last, ())]
    assert [part.base_offset for part in parts] == [500 + first] * (first < last)
    for part in parts:
        assert part.next_offset == 500 + last
        found, offsets = rows_of(part, frame.open_payload(part))
        assert found.equals(without_unused_headers(rows.slice(first, last - first)), check_metadata=True)
        assert np.array_equal(offsets, np.arange(500 + first, 500 + last))


@quicker
@given(
    st.integers(0, 2**32),
    st.lists(kinds, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=2, max_size=6),
    codecs,
)
def test_neighbours_of_one_schema_are_joined(
    seed: int, columns: list[pa.DataType], sizes: list[tuple[int, bool]], codec: str
) -> None:
    joiner = FrameJoiner(2**24, codec, TOPIC, 3)
    runs: list[list[pa.RecordBatch]] = []
    stamped, base = list[Stamped](), 0
    for at, (size, is_other) in enumerate(sizes):
        rows = batch_of_kinds(seed + at, [pa.date32(), *columns] if is_other else columns, size)
        if not runs or runs[-1][0].schema != rows.schema:
            runs.append([])
        runs[-1].append(rows)
        staged = framed(rows, codec)
        payload = frame.open_payload(staged)
        stamped += joiner.offer(Unsettled(staged, payload, base, frame_rows.decoded_bytes(payload), leader_epoch=1))
        base += size
    stamped += joiner.drain()

    frames = [frame.parse_encoded(b"".join(map(bytes, each.pieces))) for each in stamped]
    assert [each.base_offset for each in frames] == [0, *(each.next_offset for each in frames[:-1])]
    for run, each in zip(runs, frames, strict=True):
        assert decoded(each).equals(pa.concat_batches(run), check_metadata=True)


@quicker
@given(typed_batches, codecs)
def test_a_restaged_frame_has_the_same_rows(rows: pa.RecordBatch, codec: str) -> None:
    staged = framed(rows, codec, chunk="one")

    again = frame.parse_encoded(frame.restage(staged, "two"))
    payload = frame.open_payload(again)
    assert payload.identity == replace(frame.open_payload(staged).identity, chunk="two")
    assert decoded(again).equals(decoded(staged), check_metadata=True)

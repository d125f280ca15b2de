"""Large columns (64-bit offsets) of more than 2 GiB: bound in pieces, cast by slices, refused by name.

Memory that nobody touches is only promised: none of these takes more than a few megabytes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS, TOGETHER_BYTES
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.records.batches import as_pieces
from pyspark_commitlog.producer.records.topic_columns import TopicColumns
from pyspark_commitlog.topic.write.records import TopicLimits, prepare
from tests.support.producers import producer_on
from tests.support.records import read_topic
from tests.support.world import World

NOW = 1_700_000_000_000
GIB = 2**30


def large(*lengths: int, kind: pa.DataType | None = None, end: bytes = b"") -> pa.Array:
    """Return a column of zeros, values of these lengths; `end` is the last value."""
    offsets = np.concatenate(([0], np.cumsum([*lengths, len(end)] if end else lengths))).astype(np.int64)
    data = np.zeros(int(offsets[-1]), np.uint8)
    if end:
        data[-len(end) :] = np.frombuffer(end, np.uint8)
    rows = len(offsets) - 1
    return pa.Array.from_buffers(kind or pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def limits() -> TopicLimits:
    return TopicLimits.of("t", 2, TopicConfig({"max.message.bytes": str(2**31 - 1)}))


@pytest.mark.parametrize("name", ["value", "key"])
@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string()], ids=str)
def test_a_slice_of_a_large_column_counts_by_its_own_rows(name: str, kind: pa.DataType) -> None:
    """Its offsets count from the start of the whole column."""
    column = large(2 * GIB + 10, kind=kind, end=b"abc").slice(1)
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), name: column})
    assert prepare(batch, limits(), NOW).batch.column(name).to_pylist() == [b"abc"]


@pytest.mark.parametrize("name", ["value", "key"])
@pytest.mark.parametrize("lengths", [(2 * GIB + 10,), (GIB, GIB + 10)])
def test_more_than_32_bits_can_count_is_refused_by_name(name: str, lengths: tuple[int, ...]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * len(lengths)), name: large(*lengths)})
    with pytest.raises(
        InvalidRecordError, match=rf"topic 't': column '{name}' has \d+ bytes in {len(lengths)} records"
    ):
        prepare(batch, limits(), NOW)


def of_headers(values: pa.Array) -> pa.Array:
    """Return a column of headers, one a record, with these values."""
    pairs = pa.StructArray.from_arrays([pa.array(["k"] * len(values)), values], ["key", "value"])
    return pa.LargeListArray.from_arrays(pa.array(range(len(values) + 1), pa.int64()), pairs)


def test_headers_count_by_their_own_rows_and_too_many_are_refused_by_name() -> None:
    column = of_headers(large(2 * GIB + 10, end=b"abc"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"1", b"2"]), "headers": column})
    found = prepare(batch.slice(1), limits(), NOW).batch.column("headers")
    assert found.type == HEADERS
    assert found.to_pylist() == [[{"key": "k", "value": b"abc"}]]
    with pytest.raises(InvalidRecordError, match="column 'headers' has"):
        prepare(batch, limits(), NOW)


def test_an_arrow_batch_is_bound_in_pieces_of_bounded_bytes() -> None:
    """Each can be cast, unless it is one record."""
    sizes = [GIB // 2 + 1, GIB // 2 + 1, 100, 100, GIB + 1]
    pieces = as_pieces("t", pa.table({"value": large(*sizes)}), TopicColumns("t", None))
    ends = np.cumsum([0, *(piece.num_rows for piece in pieces)]).tolist()
    assert ends[-1] == len(sizes)
    for piece, (start, end) in zip(pieces, pairwise(ends), strict=True):
        assert piece.nbytes <= TOGETHER_BYTES or end - start == 1


def test_a_producer_refuses_what_is_too_large_by_name_and_goes_on(world: World) -> None:
    world.create()
    with producer_on(world, buffer_memory=2**34) as producer:
        refused = producer.send_batch("t", pa.table({"value": large(2 * GIB + 10)}))
        with pytest.raises(InvalidRecordError, match="column 'value' has"):
            refused.result(60)
        column = large(2 * GIB + 10, end=b"abc").slice(1)
        assert producer.send_batch("t", pa.table({"value": column})).result(60).records == 1
    assert world.values() == [b"abc"]


def test_a_record_that_no_topic_takes_is_refused_at_once(world: World) -> None:
    """Its bytes are not looked at: they need no memory."""
    world.create()
    with producer_on(world, buffer_memory=2**34) as producer:
        with pytest.raises(InvalidRecordError, match="topic 't': a record has 2147483649 bytes: no topic takes more"):
            producer.send("t", bytes(2 * GIB), key=b"k")
        assert producer.send("t", b"abc").result(60).offset == 0


def test_a_partitioner_of_the_application_gets_keys_of_a_large_column(world: World) -> None:
    world.create(2)
    column = large(2 * GIB + 10, end=b"abc").slice(1)
    with Producer(str(world.path), partitioner=lambda key, partitions: 1 if key == b"abc" else 0) as producer:
        sent = producer.send_batch("t", pa.table({"value": pa.array([b"v"]), "key": column}))
        assert dict(sent.result(60).offsets) == {1: (0, 1)}


def test_a_producer_takes_views_and_dictionaries(world: World) -> None:
    """Polars gives them."""
    world.create()
    texts = pa.array(["a", None, "b", "a"], pa.large_string())
    pairs = [[{"key": "h", "value": b"1"}], None, [], None]
    headers = pa.array(pairs, pa.large_list_view(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])))
    batch = pa.table({"key": texts.dictionary_encode(), "value": texts.cast(pa.string_view()), "headers": headers})
    with producer_on(world) as producer:
        producer.send_batch("t", batch).result(60)
    found = read_topic(world.log().root.topic("t"))
    assert [record.key for record in found] == [record.value for record in found] == [b"a", None, b"b", b"a"]
    assert [record.headers for record in found] == [(("h", b"1"),), None, (), None]

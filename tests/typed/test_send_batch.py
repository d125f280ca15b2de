"""`Producer` and typed topics: batches of declared columns; what does not fit is refused at the call."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS
from pyspark_commitlog.producer.records.batches import ArrowBatch, SentFuture
from pyspark_commitlog.producer.records.topic_columns import TopicColumns
from tests.support.producers import lost_reply, producer_on
from tests.support.typed import KEPT, START, START_MS, placed_rows, read_rows, row, rows, typed_batch
from tests.support.world import World


@pytest.mark.parametrize("producer_id", [None, "loader"])
def test_a_batch_is_read_as_it_was_sent(typed: World, producer_id: str | None) -> None:
    with producer_on(typed, producer_id=producer_id) as producer:
        sent = producer.send_batch("t", pa.Table.from_batches([typed_batch(rows(0, 5), 1), typed_batch(rows(5, 9), 1)]))
        assert sent.result().offsets == {1: (0, 9)}
        assert asyncio.run(producer.asend_batch("t", typed_batch([row(9)], 0))).offsets == {0: (0, 1)}
    assert read_rows(typed.handle(), 1) == rows(0, 9)


def test_rows_go_by_their_key_column_or_where_a_function_says(typed: World) -> None:
    keys: list[bytes | None] = []

    def choose(key: bytes | None, partitions: int) -> int:
        keys.append(key)
        return partitions - 1

    with producer_on(typed) as producer:
        producer.send_batch("t", typed_batch(rows(0, 20), None)).result()
    places = {found["user"]: partition for (partition, _), found in placed_rows(typed.handle()).items()}
    assert all(places[found["user"]] == partition for (partition, _), found in placed_rows(typed.handle()).items())
    with producer_on(typed, partitioner=choose) as producer:
        assert producer.send_batch("t", typed_batch(rows(0, 2), None)).result().offsets.keys() == {1}
        assert producer.send_batch("t", typed_batch(rows(0, 2), 0)).result().offsets.keys() == {0}
    assert keys == [b"user 0", b"user 1"]


def test_the_columns_of_the_log_that_a_batch_may_have(world: World) -> None:
    schema = pa.schema([("partition", pa.string()), ("timestamp", pa.int64())])
    world.create(2, KEPT, schema=schema)
    batch = pa.table(
        {
            "partition": ["x"], "_partition_id": [1], "_timestamp": pa.array([START], pa.timestamp("ms", "UTC")),
            "_headers": pa.array([[{"key": "h", "value": b"1"}]], HEADERS), "_offset": [7],
        }
    )  # fmt: skip
    world.clock.advance(START_MS - world.clock.now_ms())
    with producer_on(world) as producer:
        producer.send_batch("t", batch).result()
    (found,) = world.log().topic("t").to_arrow(["*", "_offset", "_partition_id", "_timestamp", "_headers"]).to_pylist()
    assert found == {
        "partition": "x", "timestamp": None, "_offset": 0, "_partition_id": 1, "_timestamp": START,
        "_headers": [{"key": "h", "value": b"1"}],
    }  # fmt: skip


def test_rows_of_a_batch_keep_their_partitions_in_a_second_try(typed: World) -> None:
    with producer_on(typed, lost_reply()) as producer:
        assert producer.send_batch("t", typed_batch(rows(0, 9), None)).result().records == 9
    assert sorted(found["n"] for found in read_rows(typed.handle())) == [each["n"] for each in rows(0, 9)]
    piece, name = (
        pa.record_batch({"partition": ["x", "y"]}),
        TopicColumns("t", typed.handle().newest()[1].schema).partition,
    )
    (bound,) = ArrowBatch("t", 0.0, [piece], 2, 1, SentFuture(), partition=name).bound([np.array([1, 0])]).pieces
    assert bound.to_pydict() == {"partition": ["x", "y"], "_partition_id": [1, 0]}


def table(**columns: Any) -> pa.Table:
    """Return two good rows with some columns changed; None takes one out."""
    good = pa.Table.from_batches([typed_batch(rows(1, 3), None)])
    for name, values in columns.items():
        good = good.drop_columns([name]) if name in good.schema.names else good
        good = good if values is None else good.append_column(name, values)
    return good


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"n": pa.array([1, None])}, "column 'n' is null in record 1 of its batch, and is declared NOT NULL"),
        ({"user": pa.array([None, "a"])}, "column 'user' is null in record 0 .* the key"),
        ({"n": None}, "column 'n' is missing, and is declared NOT NULL: add it"),
        ({"n": pa.array(["1", "2"])}, "column 'n' is string, declared is int64: cast it"),
        ({"more": pa.array([1, 2])}, "there is no column 'more'; it has user, at, n"),
        ({"_topic": pa.array(["t", "t"])}, "a batch goes to one topic; leave its column '_topic' out"),
        ({"_headers": pa.array([1, 2])}, "column '_headers' is int64; it takes array"),
        ({"_timestamp": pa.array([1, 2])}, "column '_timestamp' is int64; it takes a timestamp column"),
        ({"_partition_id": pa.array(["0", "1"])}, "column '_partition_id' is string; it takes an int column"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_taken(typed: World, columns: dict[str, Any], why: str) -> None:
    with producer_on(typed, producer_id="loader") as producer:
        with pytest.raises(InvalidRecordError, match=f"topic 't': {why}"):
            producer.send_batch("t", table(**columns))
        with pytest.raises(InvalidRecordError, match=why):
            asyncio.run(producer.asend_batch("t", table(**columns)))
        assert producer.send_batch("t", table()).result().records == 2, "the producer goes on"
        assert producer.last_sequence("t") == 1


def test_records_of_key_and_value_are_refused(typed: World) -> None:
    with producer_on(typed) as producer:
        for send in (lambda: producer.send("t", b"v", b"k"), lambda: asyncio.run(producer.asend("t", b"v"))):
            with pytest.raises(
                InvalidRecordError, match=r"topic 't' is typed: send takes a dict of the columns user, at, .*send_ba"
            ):
                send()
        with pytest.raises(InvalidRecordError, match=r"topic .t. is typed: .* not key and value"):
            producer.send_batch("t", pa.table({"value": ["v"]}))
    assert typed.entries() == [1]


def test_a_producer_follows_a_topic_that_was_made_again(typed: World) -> None:
    with producer_on(typed) as producer:
        producer.send_batch("t", typed_batch(rows(0, 1))).result()
        typed.log().topic("t").delete()
        typed.create(1, KEPT, schema=pa.schema([("b", pa.string())]))
        assert producer.send_batch("t", pa.table({"b": ["x"]})).result().records == 1
        with pytest.raises(InvalidRecordError, match="there is no column 'user'"):
            producer.send_batch("t", typed_batch(rows(0, 1)))
    assert read_rows(typed.handle()) == [{"b": "x"}]


def test_a_batch_larger_than_the_buffer_is_sent_in_parts(typed: World) -> None:
    many = pa.Table.from_batches([typed_batch(rows(0, 400, 500), None)])
    with producer_on(typed, buffer_memory=50_000, batch_size=10_000) as producer:
        assert producer.send_batch("t", many).result().records == 400
    assert sorted(found["n"] for found in read_rows(typed.handle())) == [each["n"] for each in rows(0, 400)]

"""An Arrow batch that is larger than `buffer_memory`: it is cut, goes part by part, and one future tells of it."""

from __future__ import annotations

import asyncio
from threading import Event, Thread

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.errors import BufferExhaustedError, InvalidRecordError, NotSentError
from pyspark_commitlog.producer.records.batch_parts import joined, size_of, split_batch
from pyspark_commitlog.producer.records.batches import BatchMetadata
from tests.support.producers import Gate, producer_on, wait_until
from tests.support.records import read_partition
from tests.support.world import World

LIMIT = 20_000


def numbered(count: int, size: int = 1000) -> list[bytes]:
    """Return values that ascend."""
    return [b"%06d" % n + b"." * (size - 6) for n in range(count)]


def table(values: list[bytes], partitions: int = 1) -> pa.Table:
    """Return records dealt out to partitions."""
    return pa.table({"value": pa.array(values, pa.binary()), "partition": [n % partitions for n in range(len(values))]})


def test_a_table_larger_than_the_buffer_arrives_whole_and_in_order(world: World) -> None:
    topic = world.create(2)
    values = numbered(100)
    with producer_on(world, buffer_memory=LIMIT) as producer:
        told = producer.send_batch("t", table(values, 2)).result(60)
    for partition in range(2):
        assert [record.value for record in read_partition(topic, partition)] == values[partition::2]
    assert told == BatchMetadata("t", 100, {0: (0, 50), 1: (0, 50)})


def test_memory_stays_bounded_while_the_call_waits(world: World) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate, buffer_memory=LIMIT) as producer:
        sending = Thread(target=lambda: producer.send_batch("t", table(numbered(100))))
        sending.start()
        assert gate.reached.wait(60)
        wait_until(lambda: producer._buffer.blocked == 1)
        assert LIMIT / 2 < producer._buffer._used <= LIMIT
        gate.release()
        sending.join(60)
    assert world.values() == numbered(100)


def test_one_that_fits_becomes_visible_as_a_whole(world: World) -> None:
    topic = world.create()
    before = topic.newest()[0].sequence
    batch = table(numbered(100))
    with producer_on(world, buffer_memory=size_of(batch.to_batches())) as producer:
        producer.send_batch("t", batch).result(60)
    assert topic.newest()[0].sequence == before + 1


def test_behind_a_part_that_is_refused_nothing_more_is_taken(world: World) -> None:
    world.create(1, {"max.message.bytes": 2000})
    values = numbered(100)
    values[50] = b"x" * 3000
    with producer_on(world, buffer_memory=LIMIT) as producer:
        sent = producer.send_batch("t", table(values))
        with pytest.raises(InvalidRecordError, match=r"max\.message\.bytes is 2000"):
            sent.result(60)
        assert producer.send("t", b"after").result(60).offset == len(world.values()) - 1
    *landed, last = world.values()
    assert last == b"after"
    assert 0 < len(landed) <= 50 + 2 * LIMIT // 1000
    assert set(landed) <= set(values) - {values[50]}
    assert landed[: len(landed) // 2] == values[: len(landed) // 2]


def test_without_room_for_the_next_part_the_future_tells_and_what_was_taken_lands(world: World) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate, buffer_memory=LIMIT, max_block_ms=50) as producer:
        sent = producer.send_batch("t", table(numbered(100)))
        assert not sent.done()
        gate.release()
        with pytest.raises(BufferExhaustedError, match="within max_block_ms=50"):
            sent.result(60)
        producer.flush()
        landed = world.values()
        assert 0 < len(landed) < 100
        assert landed == numbered(100)[: len(landed)]


def test_a_record_that_can_never_fit_is_refused_before_anything_is_taken(world: World) -> None:
    world.create()
    values = [*numbered(50), b"x" * (LIMIT + 1)]
    with (
        producer_on(world, buffer_memory=LIMIT) as producer,
        pytest.raises(BufferExhaustedError, match=rf"a record takes 2\d+ bytes, .* buffer_memory={LIMIT}: raise it"),
    ):
        producer.send_batch("t", table(values))
    assert world.values() == []


def test_a_durable_producer_s_parts_have_their_numbers_and_are_sent_again_from_where_it_ended(world: World) -> None:
    world.create()
    gate, values, opened = Gate(), numbered(100), Event()

    def hook(*call: str) -> None:
        if opened.is_set():
            gate(*call)

    with producer_on(world, hook, buffer_memory=LIMIT, max_block_ms=50, producer_id="p") as producer:
        assert producer.last_sequence("t") == -1
        opened.set()
        sent = producer.send_batch("t", table(values), sequence=0)
        gate.release()
        with pytest.raises(BufferExhaustedError):
            sent.result(60)
        with pytest.raises(NotSentError, match=r"a batch was not taken whole.* after its last_sequence"):
            producer.send("t", b"after", sequence=100)  # else what is missing would count as sent
    with producer_on(world, buffer_memory=LIMIT, producer_id="p") as producer:
        done = producer.last_sequence("t")
        assert 0 <= done < 99
        assert producer.send_batch("t", table(values), sequence=0).result(60).records == 99 - done
    assert world.values() == values


def test_a_coroutine_sends_one_that_is_cut(world: World) -> None:
    world.create()

    async def main() -> BatchMetadata:
        async with producer_on(world, buffer_memory=LIMIT) as producer:
            return await producer.asend_batch("t", table(numbered(100)))

    assert asyncio.run(main()) == BatchMetadata("t", 100, {0: (0, 100)})
    assert world.values() == numbered(100)


@given(sizes=st.lists(st.integers(0, 3000), max_size=60), limit=st.integers(600, 40_000))
def test_parts_hold_every_row_once_in_order_and_fit_where_a_row_does(sizes: list[int], limit: int) -> None:
    values = [b"%d" % n + b"." * size for n, size in enumerate(sizes)]
    pieces = pa.table({"value": pa.array(values, pa.binary())}).to_batches(max_chunksize=7)
    parts = split_batch(pieces, limit)
    assert [v for part in parts for piece in part.pieces for v in piece.column(0).to_pylist()] == values
    first = 0
    for part in parts:
        rows = sum(piece.num_rows for piece in part.pieces)
        assert part.first == first
        assert size_of(part.pieces) <= limit or rows == 1
        first += rows
    assert [part.is_all for part in parts] == [size_of(pieces) <= limit] * len(parts)


def test_what_is_told_of_parts() -> None:
    one, two = BatchMetadata("t", 3, {0: (5, 7), 1: (1, 2)}), BatchMetadata("t", 2, {0: (9, 11)})
    assert joined("t", [one, two]) == BatchMetadata("t", 5, {0: (5, 11), 1: (1, 2)})
    assert joined("t", [BatchMetadata("t", 0, {}), two]) == BatchMetadata("t", 2, {0: (9, 11)})
    assert joined("t", [BatchMetadata("t", 3, {}), two]) == BatchMetadata("t", 5, {}), "nobody remembers the first's"

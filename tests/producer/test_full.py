"""A disk that is nearly full: what fits lands, in order, and what does not is told so."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import (
    DeliveryTimeoutError,
    NotSentError,
    OutcomeUnknownError,
    ProducerClosedError,
    StorageFullError,
)
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.records.batches import ArrowBatch, Item, RecordRun, SentFuture, cut_out, divided
from pyspark_commitlog.testing.faults import FaultyStorage, io_error, on_path
from tests.support.full import SmallDisk
from tests.support.producers import options
from tests.support.world import World, raising

_VALUE = 5_000
#: Records of which none can be compressed, and room for about half of them.
VALUES = [b"%04d" % n + random.Random(n).randbytes(_VALUE - 4) for n in range(600)]
ROOM = 300 * _VALUE
#: All records of a test in one commit, unless that is divided.
TOGETHER = {"linger_ms": 60_000, "batch_size": 2**25, "buffer_memory": 2**26}


def producer_on(disk: Any, **changed: Any) -> Producer:
    return Producer.on(disk, options(**{**TOGETHER, **changed}))


def send(producer: Producer, values: list[bytes], **sequences: int) -> list[Future[Any]]:
    futures = [producer.send("t", value, partition=0) for value in values]
    producer.flush()
    return futures


def landed(futures: list[Future[Any]]) -> int:
    """Return how many records landed: the first so many, at the offsets that follow."""
    offsets = [None if future.exception() else future.result().offset for future in futures]
    count = sum(offset is not None for offset in offsets)
    assert offsets == [*range(count), *[None] * (len(offsets) - count)]
    return count


def test_what_fits_lands_and_in_order(world: World) -> None:
    """Nothing of it did, for `delivery_timeout_ms`, where all was to be one commit."""
    world.create()
    disk = SmallDisk(world, ROOM)
    with producer_on(disk) as producer:
        futures = send(producer, VALUES)
        count = landed(futures)
    assert count * _VALUE > ROOM * 0.9
    assert disk.free < 2 * _VALUE
    assert world.values() == VALUES[:count]
    errors = [future.exception() for future in futures[count:]]
    assert all(isinstance(error, DeliveryTimeoutError) for error in errors)
    assert all("free space and run again" in str(error) for error in errors)
    assert disk.refused < 400, "it is tried again after pauses that grow"


def test_all_lands_when_there_is_room_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    disk = SmallDisk(world, ROOM)
    sleep = world.clock.sleep

    def freed(seconds: float) -> None:
        disk.free = 10 * ROOM
        sleep(seconds)

    monkeypatch.setattr(world.clock, "sleep", freed)
    with producer_on(disk) as producer:
        assert landed(send(producer, VALUES)) == 600
    assert world.values() == VALUES


def test_an_id_that_lasts_loses_nothing_and_leaves_nothing_out(world: World) -> None:
    """What did not land is above `last_sequence`, all of it, numbered by the application and with gaps."""
    world.create()
    disk = SmallDisk(world, ROOM)
    with producer_on(disk, producer_id="p") as producer:
        futures = [producer.send("t", value, partition=0, sequence=3 * n) for n, value in enumerate(VALUES)]
        producer.flush()
        count = landed(futures)
    assert 0 < count < 600
    assert all(isinstance(future.exception(), NotSentError) for future in futures[count:])
    disk.free = 10 * ROOM
    with producer_on(disk, producer_id="p") as again:
        assert again.last_sequence("t") == 3 * (count - 1)
        rest = [again.send("t", value, partition=0, sequence=3 * n) for n, value in enumerate(VALUES)]
        again.flush()
    assert [each.result().offset for each in rest[count:]] == list(range(count, 600))
    assert world.values() == VALUES


def test_an_id_that_lasts_sends_nothing_behind_what_found_no_room(world: World) -> None:
    """A large record is first in its part, small ones behind it would fit: they are above it, and must not land."""
    world.create()
    disk = SmallDisk(world, 20 * _VALUE)
    large = random.Random(1).randbytes(40 * _VALUE)
    with producer_on(disk, producer_id="p") as producer:
        futures = send(producer, [VALUES[0], large, *VALUES[1:4]])
        assert landed(futures) == 1
    assert world.values() == VALUES[:1]
    with producer_on(SmallDisk(world, 20 * _VALUE)) as other:  # without an id a record stands for itself
        found = [future.exception() is None for future in send(other, [large, *VALUES[1:4]])]
    assert found == [False, True, True, True]


def test_what_may_have_landed_is_not_divided(world: World) -> None:
    """Its numbers may be taken: divided, its first part would be taken for what landed under them, and the rest doubled."""
    world.create()
    lost = on_path("topics/t/journal/", "put_if_absent", raising(io_error()), times=5)  # so often one commit tries it
    full = on_path("topics/t/journal/", "put_if_absent", raising(StorageFullError("injected: full")), times=10_000)
    with producer_on(world.storage(lambda *call: lost(*call) or full(*call))) as producer:
        futures = send(producer, VALUES)
        assert all(isinstance(future.exception(), OutcomeUnknownError) for future in futures)


def test_an_arrow_batch_stays_whole(world: World) -> None:
    world.create()
    disk = SmallDisk(world, ROOM)
    tables = [pa.table({"value": VALUES[start : start + 150]}) for start in range(0, 600, 150)]
    with producer_on(disk) as producer:
        futures = [producer.send_batch("t", table) for table in tables]
        producer.flush()
        assert [future.exception() is None for future in futures] == [True, False, False, False]
    assert world.values() == VALUES[:150]


def test_a_producer_that_is_closed_gives_what_was_divided_off_no_other_try(world: World) -> None:
    world.create()
    disk = SmallDisk(world, ROOM)
    closed: list[bool] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and moment == "after" and "/journal/" in path:
            closed.append(True)
            with producer._buffer.lock:
                producer._accumulators["t"].abandon()
            disk.free = 10 * ROOM

    producer = producer_on(FaultyStorage(disk, hook))  # type: ignore[abstract]
    futures = send(producer, VALUES)
    count = landed(futures)
    assert len(closed) == 1
    assert 100 < count < 300
    assert all(isinstance(future.exception(), ProducerClosedError) for future in futures[count:])
    producer.close()
    assert world.values() == VALUES[:count]


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [([1], 1), ([1, 1], 1), ([1, 1, 1], 2), ([9000, 1, 1], 1), ([1, 1, 9000], 2), ([1] * 10, 5)],
)
def test_a_run_is_divided_by_bytes(sizes: list[int], cut: int) -> None:
    run = RecordRun("t", 0.0)
    for number, size in enumerate(sizes):
        run.add(bytes(size), None, None, 0, None, SentFuture(), size, number)
    first, rest = divided([run])
    assert [each.rows for each in first] == [cut]
    assert [each.rows for each in rest] == ([len(sizes) - cut] if cut < len(sizes) else [])
    assert first[0].last_sequence == cut - 1
    whole = ArrowBatch("t", 0.0, [pa.RecordBatch.from_pydict({"value": [b"x"]})], 1, 1, SentFuture())
    assert divided([whole]) == ([whole], [])
    assert divided([whole, whole]) == ([whole], [whole])


def test_a_record_is_cut_out_of_its_run() -> None:
    run, whole = (
        RecordRun("t", 0.0),
        ArrowBatch("t", 0.0, [pa.RecordBatch.from_pydict({"value": [b"x"]})], 1, 1, SentFuture()),
    )
    for number in range(3):
        run.add(b"", None, None, 0, None, SentFuture(), 1, number)

    def numbers(items: list[Item]) -> list[list[int]]:
        return [each.sequences if isinstance(each, RecordRun) else [] for each in items]

    for row in range(3):
        before, it, after = cut_out([whole, run, whole], 1, row)
        assert numbers([it]) == [[row]]
        assert numbers(before) == [[], *([[0], [0, 1]][row - 1 : row] if row else [])]
        assert numbers(after) == [*([[1, 2], [2]][row : row + 1]), []]
    assert cut_out([run, whole], 1, 0) == ([run], whole, [])

"""What others may do between two steps of a producer: each of these lost or doubled a record, or hung, without its guard."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import (
    AccessDeniedError,
    CommitLogError,
    InvalidRecordError,
    NotSentError,
    StorageError,
    SyncFailedError,
    WriterFencedError,
)
from pyspark_commitlog.producer.delivery import Delivery
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.write import writers as module
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.producers import lost_reply, producer_on
from tests.support.records import append, batch_of
from tests.support.world import Recorder, World, once, several

_JOURNAL = "topics/t/journal/"


class Waiting:
    """A thread that sends while there is no room."""

    def __init__(self, producer: Producer, act: Any) -> None:
        self.got: list[Future[Any]] = []
        self.error: list[Exception] = []

        def run() -> None:
            try:
                self.got.append(act())
            except CommitLogError as error:
                self.error.append(error)

        self.thread = Thread(target=run, daemon=True)
        self.thread.start()
        while producer._buffer.blocked == 0 and self.thread.is_alive():  # the watchdog may have been faster
            Event().wait(0.001)


@pytest.mark.parametrize("whole", [False, True])
def test_a_durable_send_that_waited_for_room_does_not_land_behind_what_failed(world: World, whole: bool) -> None:
    world.create()
    waiting: list[Waiting] = []
    fails = [True]

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path and moment == "before" and fails:
            gate.set()
            assert go.wait(60)
            raise StorageError("injected: no disk")

    gate, go = Event(), Event()
    with producer_on(
        world, hook, producer_id="p", buffer_memory=4000, request_timeout_ms=0, delivery_timeout_ms=0
    ) as p:
        lost = p.send("t", b"0" * 1000, sequence=0)
        assert gate.wait(60)
        second = (
            (lambda: p.send_batch("t", pa.table({"value": [b"1" * 1000]}), sequence=1))
            if whole
            else (lambda: p.send("t", b"1" * 1000, sequence=1))
        )
        waiting.append(Waiting(p, second))
        fails.clear()  # the disk is mended just now
        go.set()
        assert lost.exception(60) is not None
        waiting[0].thread.join(60)
        assert [type(error) for error in waiting[0].error] == [NotSentError]
    with producer_on(world, producer_id="p") as again:
        assert again.last_sequence("t") == -1, "record 0 is lost: the application goes on behind it"
        assert again._buffer._used == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_send_that_waited_for_room_is_told_when_the_thread_died(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    gate, go = Event(), Event()

    def fault(*_: Any) -> None:
        gate.set()
        assert go.wait(60)
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(Delivery, "_try", fault)
    producer = producer_on(world, buffer_memory=4000, producer_id="p")
    producer.send("t", b"0" * 1000)
    assert gate.wait(60)
    waiting = Waiting(producer, lambda: producer.send("t", b"1" * 1000))
    go.set()
    waiting.thread.join(60)
    assert producer.flush(2) == 0, "nobody will ever send it"
    assert waiting.error
    producer.close()  # pytest tells of a thread that dies behind the test in the next one


def test_two_threads_that_wait_for_room_do_not_swap_their_sequences(world: World) -> None:
    """Else the last number is the lower one, and what landed is sent again after a restart."""
    world.create()
    gate, go = Event(), Event()

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and _JOURNAL in path and moment == "before" and armed and not gate.is_set():
            gate.set()
            assert go.wait(60)

    armed: list[int] = []
    with producer_on(world, hook, producer_id="p", buffer_memory=5000) as producer:
        producer.last_sequence("t")
        armed.append(1)
        producer.send("t", b"0" * 1000, sequence=0)
        assert gate.wait(60)
        large = Waiting(producer, lambda: producer.send("t", b"1" * 3000, sequence=1))
        small = producer.send("t", b"2" * 100, sequence=2)
        go.set()
        assert small.result(60).offset == 1
        large.thread.join(60)
        assert large.error, "1 was sent behind 2"
    with producer_on(world, producer_id="p") as again:
        assert again.last_sequence("t") == 2


def test_a_retry_that_finds_its_entry_syncs_it(world: World) -> None:
    """R5, I4: the first try linked the entry, and the fsync of the directory failed."""
    world.create()
    recorder = Recorder()
    failed: list[int] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and _JOURNAL in path and moment == "after" and not failed:
            failed.append(len(recorder.calls))
            raise SyncFailedError("injected: the directory was not synced")

    with producer_on(world, several(recorder, hook)) as producer:
        assert producer.send("t", b"a").result(60).offset == 0
    later = recorder.calls[failed[0] :]
    assert ("sync_directory", "topics/t/journal") in later


def test_a_row_is_remembered_for_as_long_as_retries_count_on_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic forgets such producers after ten minutes; a retry comes after eleven."""
    monkeypatch.setattr(module, "WRITER_ROWS", 1)
    world.create(1, {"producer.id.expiration.ms": 600_000, "retention.ms": -1})

    def meanwhile() -> None:
        world.clock.advance(660_000)
        for number in range(5):
            append(world.handle(), batch_of([b"%d" % number]), writer=Transaction(f"other{number}", 1))

    with producer_on(world, delivery_timeout_ms=3_000_000) as producer:
        producer.send("t", b"a").result(60)
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply(once(meanwhile)))
        future = producer.send("t", b"b")
        future.exception(60)
    assert world.values().count(b"b") == 1


def forget_all(world: World) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "DURABLE_IDS", 1)
        for number in range(3):
            append(world.handle(), batch_of([b"other"]), writer=Transaction(f"w{number}", 1))


def test_a_zombie_of_a_forgotten_id_is_fenced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A was opened, and slept while thousands of ids came; B has the id since, from epoch 0 on, as A had."""
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    world.create()
    with producer_on(world, producer_id="p") as sleeper:
        sleeper.last_sequence("t")
        forget_all(world)
        with producer_on(world, producer_id="p") as new:
            new.send("t", b"new").result(60)
            with pytest.raises(WriterFencedError):
                sleeper.send("t", b"old").result(60)
    assert b"old" not in world.values()


def test_a_zombie_of_a_forgotten_id_does_not_swallow_the_new_ones_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    world.create()
    with producer_on(world, producer_id="p") as sleeper:
        sleeper.last_sequence("t")
        forget_all(world)
        with producer_on(world, producer_id="p") as new:
            new.last_sequence("t")
            with pytest.raises(WriterFencedError):
                sleeper.send("t", b"old").result(60)
            new.send("t", b"new").result(60)
    assert b"new" in world.values()


def test_a_forgotten_id_does_not_put_its_first_batch_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row is made when it is opened: where there is none, nobody can tell whether the batch landed."""
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    world.create()
    with producer_on(world, producer_id="p", delivery_timeout_ms=3_000_000) as producer:
        producer.last_sequence("t")
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply(once(lambda: forget_all(world))))
        assert producer.send("t", b"a").exception(60) is not None
    assert world.values().count(b"a") == 1


@pytest.mark.parametrize("partition", [2**63, -(2**70)])
def test_one_bad_record_does_not_end_the_others(world: World, partition: int) -> None:
    world.create()
    with producer_on(world) as producer:
        try:
            bad = producer.send("t", b"bad", partition=partition)
        except InvalidRecordError:
            pass
        else:
            with pytest.raises(InvalidRecordError):
                bad.result(60)
        assert producer.send("t", b"good").result(60).has_offset()


def test_a_batch_with_two_columns_of_one_name_is_refused_alone(world: World) -> None:
    world.create()
    twice = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with producer_on(world) as producer:
        with pytest.raises(InvalidRecordError):
            producer.send_batch("t", twice).result(60)
        assert producer.send("t", b"good").result(60).has_offset()


def test_a_producer_needs_the_right_to_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    access = world.log().acting_as("ops").access
    access.allow("ops", Operation.ADMIN)
    access = world.log().acting_as("ops").access
    access.allow("reader", "read", "t")
    access.allow("writer", "write", "t")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "reader")
    with producer_on(world) as producer, pytest.raises(AccessDeniedError):
        producer.send("t", b"a").result(60)
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "writer")
    with producer_on(world) as producer:
        assert producer.send("t", b"a").result(60).offset == 0


def test_what_settles_beside_a_producer_follows_the_roots_defaults(world: World) -> None:
    """An operator raises file.delete.delay.ms: a producer that runs on must not delete by the old one (R10, R13)."""
    world.create(1, {})
    producer = producer_on(world)
    producer.send("t", b"a").result(60)
    settler = producer._accumulators["t"].delivery._settler
    settler.join(60)
    topic = settler._topic
    assert topic is not None
    topic.config(topic.newest()[1])
    world.log().config.alter({"file.delete.delay.ms": 7_200_000})
    producer.send("t", b"b").result(60)
    producer.close()
    assert settler._topic is topic
    assert topic.config(topic.newest()[1]).number("file.delete.delay.ms") == 7_200_000


def test_records_that_the_topic_refuses_by_now_are_told_so_and_the_others_land(world: World) -> None:
    """R9: the topic is compacted from the moment between staging and the put on: what has no key is refused."""
    world.create()
    compacted = once(lambda: world.log().topic("t").alter({"cleanup.policy": "compact"}))
    with producer_on(world, on_path(_JOURNAL, "put_if_absent", compacted)) as producer:
        refused, kept = producer.send("t", b"refused"), producer.send("t", b"kept", key=b"k")
        with pytest.raises(InvalidRecordError, match="no key"):
            refused.result(60)
        kept.result(60)
    assert world.values() == [b"kept"]

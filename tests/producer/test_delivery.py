"""R6, I5: tries that fail, tries whose outcome is unknown, and producers that have an id."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path
from threading import Event, enumerate as all_threads
from typing import Any

import numpy as np
import pytest

from pyspark_commitlog.errors import (
    CorruptionError,
    DeliveryTimeoutError,
    InvalidRecordError,
    NotSentError,
    OutcomeUnknownError,
    ProducerClosedError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    UnknownTopicError,
    UsageError,
    WriterFencedError,
)
from pyspark_commitlog.producer import delivery
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.records.batches import BatchMetadata, RecordMetadata
from pyspark_commitlog.producer.records.bundle import offsets_of
from pyspark_commitlog.producer.records.delivery_errors import is_retriable
from pyspark_commitlog.storage import NotPutError
from pyspark_commitlog.testing.faults import Hook, io_error, on_path
from pyspark_commitlog.topic.state.topic_state import WriterRow
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import writers as module
from pyspark_commitlog.topic.write.producers import init_producer, opened
from pyspark_commitlog.topic.write.staging import Stager
from pyspark_commitlog.topic.write.writers import TRANSIENT, ProducerBatch, Transaction, check_remembered
from tests.support.producers import Gate, lost_reply, producer_on, wait_until
from tests.support.records import append, batch_of, read_topic
from tests.support.world import CHUNKS, DELAY_MS, World, failing, many, once, raising, several

_JOURNAL = "topics/t/journal/"
_HOUR_MS = 3_600_000
#: A watchdog that looks every 20 ms.
_SHORT = {"request_timeout_ms": 50, "delivery_timeout_ms": 200}
#: What is sent waits for what is sent after it, until a flush.
_TOGETHER = {"linger_ms": _HOUR_MS, "delivery_timeout_ms": 2 * _HOUR_MS}
_CONFIGS = pytest.mark.parametrize("config", [CHUNKS, {"retention.ms": -1}], ids=["chunks", "inline"])


# --- trying again -----------------------------------------------------------------------------------------


@_CONFIGS
@pytest.mark.parametrize("error", [StorageError("injected"), NotPutError("injected"), io_error()])
def test_storage_trouble_is_tried_again(world: World, config: dict[str, Any], error: Exception) -> None:
    world.create(1, config)
    trouble = on_path(_JOURNAL, "put_if_absent", raising(error), times=3)
    with producer_on(world, trouble) as producer:
        futures = [producer.send("t", value) for value in many(5)]
        assert [future.result().offset for future in futures] == list(range(5))
    assert world.values() == many(5)


def test_an_outcome_that_the_system_refuses_to_tell_is_unknown_at_once(world: World) -> None:
    """It landed, nobody knows; and what would make sure of it is refused from then on."""
    world.create(1)

    def refused(operation: str, path: str, moment: str) -> None:
        if operation == "sync_directory" and path == "topics/t/journal" and moment == "before":
            raise StorageReadOnlyError("injected: refused")

    began = world.clock.monotonic()
    with producer_on(world, several(lost_reply(), refused)) as producer:
        error = producer.send("t", b"x").exception()
    assert isinstance(error, OutcomeUnknownError)
    assert "injected: refused" in str(error)
    assert world.clock.monotonic() - began < 5
    assert world.values() == [b"x"]


def test_trouble_while_staging_is_tried_again(world: World) -> None:
    world.create()
    with producer_on(world, on_path("/staged/", "create", raising(StorageError("injected")), times=2)) as producer:
        assert producer.send("t", b"a").result().offset == 0
    assert world.values() == [b"a"]


@pytest.mark.parametrize("trouble", [StorageError("injected"), StorageFullError("injected: full")])
@pytest.mark.parametrize("refused", [0, 1, 2])
def test_what_was_refused_is_not_sent_by_a_later_try_that_would_take_it(
    world: World, trouble: Exception, refused: int
) -> None:
    """Its future says so: whoever sends it again would have it twice. The topic was altered between both tries."""
    world.create(1, {**CHUNKS, "max.message.bytes": 10})

    def fails() -> None:
        world.log().topic("t").alter({"max.message.bytes": 1000})
        raise trouble

    values = [*many(2)]
    values.insert(refused, b"x" * 11)
    with producer_on(world, on_path("/staged/", "create", fails, times=1), **_TOGETHER) as producer:
        futures = [producer.send("t", value) for value in values]
        producer.flush()
        error = futures.pop(refused).exception()
        assert isinstance(error, InvalidRecordError)
        assert "Nothing staged" in str(error)
        assert [future.result().offset for future in futures] == [0, 1]
    assert world.values() == many(2)


def test_after_delivery_timeout_a_record_fails_and_is_not_there(world: World) -> None:
    """It certainly is not in the log; a later one that finds the disk mended is."""
    world.create()
    fails = [True]

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path and fails:
            raise StorageError("injected: no disk")

    with producer_on(world, hook) as producer:
        started = world.clock.monotonic()
        with pytest.raises(
            DeliveryTimeoutError, match=r"1 record could not .*delivery_timeout_ms=120000.* no disk"
        ) as told:
            producer.send("t", b"lost").result()
        assert isinstance(told.value.__cause__, StorageError)
        assert 120 <= world.clock.monotonic() - started < 123
        fails.clear()
        assert producer.send("t", b"later").result().offset == 0
    assert world.values() == [b"later"]


def _out_until(world: World, seconds: float, error: Exception) -> Hook:
    """Return a hook under which no entry of the topic can be put before that time."""
    return on_path(
        _JOURNAL, "put_if_absent", lambda: raising(error)() if world.clock.monotonic() < seconds else None, times=10**6
    )


@pytest.mark.parametrize("whole", [False, True], ids=["record", "batch"])
@pytest.mark.parametrize(
    ("error", "producer_id", "ends", "lands"),
    [
        (NotPutError("no disk"), None, DeliveryTimeoutError, True),
        (NotPutError("no disk"), "p", DeliveryTimeoutError, False),
        (io_error(), None, OutcomeUnknownError, False),
    ],
    ids=["", "id", "doubt"],
)
def test_what_has_time_left_outlives_what_was_sent_before_it(
    world: World, error: Exception, producer_id: str | None, ends: type[Exception], lands: bool, whole: bool
) -> None:
    """An outage of 130 seconds ends what was sent as it began, and not what was sent 30 seconds later.

    Nothing of an id that lasts lands after what failed; and where a try may have landed, all of it did.
    """
    world.create()

    def send(value: bytes) -> Future[Any]:
        return producer.send_batch("t", batch_of([value])) if whole else producer.send("t", value)

    hooks: list[Hook] = []
    with producer_on(
        world, lambda *call: [hook(*call) for hook in hooks].clear(), producer_id=producer_id, linger_ms=60_000
    ) as producer:
        began = world.clock.monotonic()
        first = send(b"first")
        hooks.append(_out_until(world, began + 130, error))  # opening puts an entry, too
        world.clock.advance(30_000)
        second, third = send(b"second"), send(b"third")
        producer.flush()
        with pytest.raises(ends, match=f"{3 - 2 * lands} record"):
            first.result()
        assert (second.exception() is None, third.exception() is None) == (lands, lands)
        assert 130 * lands <= world.clock.monotonic() - began < (133 if lands else 124)
        assert producer._buffer._used == 0
        if producer_id is None:
            later = send(b"later")
            producer.flush()
            assert later.exception() is None
    assert world.values() == [b"second", b"third"] * lands + [b"later"] * (producer_id is None)


def ends_of_batches(world: World, producer: Producer, many: int, *, every_ms: int) -> list[float]:
    """Send batches one after the other; return when each ended."""
    ended = list[float]()
    for _ in range(many):
        batch = producer.send_batch("t", batch_of([b"x"]))
        batch.add_done_callback(lambda _: ended.append(world.clock.monotonic()))
        world.clock.advance(every_ms)
    producer.flush()
    return ended


def test_what_runs_out_of_time_one_after_the_other_is_not_staged_again_for_each(world: World) -> None:
    """A hundred batches within a second; they end within two, after a few tries."""
    world.create()
    tries = list[float]()
    broken = on_path("/staged/", "create", lambda: tries.append(world.clock.monotonic()) or failing()(), times=10**6)
    with producer_on(world, broken, linger_ms=60_000) as producer:
        began = world.clock.monotonic()
        ended = ends_of_batches(world, producer, 100, every_ms=10)
    assert len([each for each in tries if each >= began + 120]) <= 4
    assert all(120 <= end - began - number / 100 < 122.5 for number, end in enumerate(ended))
    assert len(set(ended)) > 1


@_CONFIGS
def test_a_chunk_is_not_staged_again_every_second_while_no_commit_succeeds(
    world: World, config: dict[str, Any]
) -> None:
    """Fifty batches within five seconds: where they are in a chunk, they end together, else a second's at a time."""
    world.create(1, config)
    staged = list[float]()
    counted = on_path("/staged/", "create", lambda: staged.append(world.clock.monotonic()), times=10**6)
    out = _out_until(world, float("inf"), NotPutError("no disk"))
    with producer_on(world, several(out, counted), linger_ms=60_000) as producer:
        began = world.clock.monotonic()
        ended = ends_of_batches(world, producer, 50, every_ms=100)
    in_chunk = config is CHUNKS
    assert len(staged) == 2 * in_chunk
    assert (len(set(ended)) == 2) == in_chunk
    assert all(120 <= end - began - number / 10 < 122.5 + 6 * in_chunk for number, end in enumerate(ended))


def test_a_storage_that_hangs_keeps_nobody_waiting_beyond_delivery_timeout(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """What is under way may land later; what waits after it is certainly not there. Then all goes on."""
    world.create()
    gate = Gate()
    with producer_on(world, gate, **_SHORT) as producer:
        under_way = producer.send("t", b"first")
        assert gate.reached.wait(60)
        behind = producer.send("t", b"second")
        world.clock.sleep(0.06)
        wait_until(lambda: "has not answered for request_timeout_ms=50" in caplog.text)
        assert not under_way.done()
        assert not behind.done()
        world.clock.sleep(0.2)
        with pytest.raises(OutcomeUnknownError, match=r"'t': .* delivery_timeout_ms=200 is over: 1 record may or"):
            under_way.result(60)
        with pytest.raises(
            DeliveryTimeoutError, match=r"'t': .*1 record waited .*ms=200\. Nothing of it is in the log"
        ):
            behind.result(60)
        assert producer.flush(60) == 0
        gate.release()
        assert producer.send("t", b"third").result(60).offset == 1
        assert producer.flush(60) == 0
        fourth = producer.send("t", b"fourth")
        assert producer.flush(60) == 0
        assert fourth.done(), "nothing was counted twice"
    assert world.values() == [b"first", b"third", b"fourth"]
    assert caplog.text.count("has not answered") == 1
    wait_until(lambda: not [thread for thread in all_threads() if thread.name.startswith("commitlog-producer")])


def test_what_has_time_left_is_not_given_up_for_what_failed_before_it_when_storage_hangs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create()
    gate = Gate()
    out = _out_until(world, world.clock.monotonic() + 125, NotPutError("no disk"))
    with producer_on(world, several(out, gate), linger_ms=10_000, request_timeout_ms=50) as producer:
        first = producer.send("t", b"first")
        world.clock.advance(30_000)
        second = producer.send("t", b"second")
        producer.flush(0.01)
        with pytest.raises(DeliveryTimeoutError):
            first.result(60)
        assert gate.reached.wait(60)
        world.clock.advance(1000)
        wait_until(lambda: "has not answered for request_timeout_ms=50" in caplog.text)
        with producer._buffer.lock:
            given_up = producer._accumulators["t"].overdue(world.clock.monotonic())
        gate.release()
        assert not given_up
        assert second.result(60).offset == 0
    assert world.values() == [b"second"]


@pytest.mark.parametrize("divided", [False, True], ids=["", "divided"])
@pytest.mark.parametrize("error", [StorageError("injected"), None], ids=["fails", "answers"])
def test_what_was_given_up_while_storage_hung_does_not_land_after_it_was_sent_again(
    world: World, error: Exception | None, divided: bool
) -> None:
    """The second record has time left when the call comes back; its future has failed with the first one's."""
    world.create()
    staged, reached, go = list[str](), Event(), Event()

    def hook(operation: str, path: str, moment: str) -> None:
        if operation != "create" or "/staged/" not in path or moment != "before":
            return
        staged.append(path)
        if reached.is_set():
            return
        if divided and len(staged) == 1:
            raise StorageFullError("injected: full")
        reached.set()
        assert go.wait(60)
        if error is not None:
            raise error

    with producer_on(world, hook, linger_ms=90_000, request_timeout_ms=50) as producer:
        first = producer.send("t", b"first")
        world.clock.advance(69_000)
        second = producer.send("t", b"second")
        producer.flush(0.01)
        assert reached.wait(60)
        world.clock.advance(52_000)
        for each in (first, second):
            assert isinstance(each.exception(60), OutcomeUnknownError)
        again = producer.send("t", b"second")
        go.set()
        assert producer.flush(60) == 0
        assert again.result(60).offset == 0
        wait_until(lambda: producer._buffer._used == 0)
    assert world.values() == [b"second"]
    assert len(staged) == 2 + divided, "nothing of it is staged again"


@pytest.mark.parametrize(
    ("place", "error"), [("at_leader", StorageError("injected")), ("is_away", StorageReadOnlyError("injected"))]
)
def test_a_storage_that_hangs_after_a_try_keeps_nobody_waiting(
    world: World, place: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the topic's leader is looked up for the next try."""
    world.create()
    reached, go, real = Event(), Event(), getattr(TopicLog, place)

    def hangs(topic: TopicLog) -> Any:
        reached.set()
        assert go.wait(60)
        return real(topic)

    monkeypatch.setattr(TopicLog, place, hangs)
    with producer_on(world, on_path("/staged/", "create", raising(error), times=1), **_SHORT) as producer:
        future = producer.send("t", b"1")
        assert reached.wait(60)
        world.clock.advance(300)
        try:
            assert isinstance(future.exception(20), OutcomeUnknownError)
        finally:
            go.set()
    assert world.values() == []


def test_a_slow_storage_is_waited_for_until_delivery_timeout(world: World) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate, **_SHORT) as producer:
        slow = producer.send("t", b"a")
        assert gate.reached.wait(60)
        world.clock.sleep(0.19)
        with pytest.raises(TimeoutError):
            slow.result(0.2)
        gate.release()
        assert slow.result(60).offset == 0


def test_a_durable_producer_ends_with_a_storage_that_hangs(world: World) -> None:
    world.create()
    gate = Gate()
    hooks: list[Hook] = []
    with producer_on(
        world, lambda *call: [hook(*call) for hook in hooks].clear(), producer_id="p", **_SHORT
    ) as producer:
        producer.last_sequence("t")
        hooks.append(gate)  # opening puts an entry, too
        under_way = producer.send("t", b"first")
        assert gate.reached.wait(60)
        behind = producer.send("t", b"second")
        world.clock.sleep(0.3)
        with pytest.raises(OutcomeUnknownError):
            under_way.result(60)
        with pytest.raises(NotSentError, match="records before them failed"):
            behind.result(60)
        with pytest.raises(NotSentError, match="go on after its last_sequence"):
            producer.send("t", b"third")
        gate.release()
        wait_until(lambda: world.values() == [b"first"])
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 0


@pytest.mark.parametrize("producer_id", [None, "p"])
def test_a_callback_that_takes_its_time_is_no_storage_that_hangs(
    world: World, producer_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    world.create()
    called, go = Event(), Event()

    def slow(_: object) -> None:
        called.set()
        assert go.wait(60)

    with producer_on(world, producer_id=producer_id, linger_ms=150, **_SHORT) as producer:
        first, second = producer.send("t", b"first"), producer.send("t", b"second")
        first.add_done_callback(slow)
        assert called.wait(60)
        world.clock.sleep(0.3)
        with producer._buffer.lock:
            given_up = producer._accumulators["t"].overdue(world.clock.monotonic())
        go.set()
        assert not given_up
        assert second.result(60).offset == 1
        assert producer.send("t", b"third").result(60).offset == 2
    assert not caplog.records


@pytest.mark.parametrize("whole", [False, True], ids=["record", "batch"])
def test_a_callback_of_what_is_refused_is_no_storage_that_hangs(
    world: World, whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What is committed with it would fail, and be there."""
    world.create(1, {**CHUNKS, "max.message.bytes": 10})
    called, go = Event(), Event()

    def slow(_: object) -> None:
        called.set()
        assert go.wait(60)

    with producer_on(world, linger_ms=150, **_SHORT) as producer:
        large = b"x" * 11
        refused: Future[Any] = producer.send_batch("t", batch_of([large])) if whole else producer.send("t", large)
        refused.add_done_callback(slow)
        good = producer.send("t", b"good")
        assert called.wait(60)
        world.clock.sleep(0.3)
        with producer._buffer.lock:
            given_up = producer._accumulators["t"].overdue(world.clock.monotonic())
        go.set()
        for fail in given_up:
            fail()
        assert not given_up
        assert good.result(60).offset == 0
        assert isinstance(refused.exception(60), InvalidRecordError)
    assert "has not answered" not in caplog.text


def test_a_storage_that_hangs_after_such_a_callback_keeps_nobody_waiting(world: World) -> None:
    world.create(1, {**CHUNKS, "max.message.bytes": 10})
    gate = Gate()
    with producer_on(world, gate, linger_ms=150, **_SHORT) as producer:
        producer.send("t", b"x" * 11)
        good = producer.send("t", b"good")
        assert gate.reached.wait(60)
        world.clock.sleep(0.3)
        try:
            assert isinstance(good.exception(20), OutcomeUnknownError)
        finally:
            gate.release()


@pytest.mark.parametrize(("producer_id", "fails"), [(None, False), (None, True), ("p", False)])
def test_what_a_callback_waits_for_that_comes_behind_it_fails_in_time(
    world: World, producer_id: str | None, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.create()
    gate, sent, ended = Gate(), list[Future[RecordMetadata]](), list[BaseException | None]()

    def hook(operation: str, path: str, moment: str) -> None:
        if producer._accumulators:  # the id is opened before
            gate(operation, path, moment)
        if fails and operation == "put_if_absent" and moment == "before" and _JOURNAL in path and not sent:
            raise StorageReadOnlyError("injected")

    def wait(_: object) -> None:
        sent.append(producer.send("t", b"second"))
        ended.append(sent[0].exception(60))

    with producer_on(world, hook, producer_id=producer_id, **_SHORT) as producer:
        first = producer.send("t", b"first")
        assert gate.reached.wait(60)
        first.add_done_callback(wait)
        gate.release()
        wait_until(lambda: bool(sent))
        world.clock.advance(5000)
        wait_until(lambda: bool(ended))
        assert isinstance(ended[0], DeliveryTimeoutError)
        assert "a callback of a future has not returned, and 1 record waited for it" in str(ended[0])
        assert caplog.text.count("a callback of a future has kept others of its records waiting") == 1
        if producer_id is None:
            assert producer.send("t", b"third").result(60).offset == (not fails)
        else:
            with pytest.raises(NotSentError, match="Make a new Producer with the same producer_id"):
                producer.send("t", b"third")


@pytest.mark.parametrize("hangs", [True, False])
def test_a_callback_that_exits_ends_no_thread(world: World, hangs: bool, caplog: pytest.LogCaptureFixture) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate, **_SHORT) as producer:
        first = producer.send("t", b"first")
        first.add_done_callback(lambda _: sys.exit(1))
        assert gate.reached.wait(60)
        second = producer.send("t", b"second")
        if hangs:
            world.clock.sleep(0.3)
            with pytest.raises(DeliveryTimeoutError):
                second.result(60)
        gate.release()
        assert producer.flush(60) == 0
        assert producer.send("t", b"third").result(60).has_offset()
    assert "a callback of a future raised SystemExit(1)" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("landed", [False, True])
def test_no_memory_ends_a_try_and_not_the_topic(
    world: World, landed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.create()
    place = (delivery, "commit") if landed else (Stager, "add")
    real, left = getattr(*place), [MemoryError("malloc failed")]

    def fails(*arguments: Any, **named: Any) -> Any:
        done = real(*arguments, **named)
        if left:
            raise left.pop()
        return done

    monkeypatch.setattr(*place, fails)
    with producer_on(world) as producer:
        with pytest.raises(OutcomeUnknownError if landed else NotSentError, match="malloc failed"):
            producer.send("t", b"1").result(60)
        assert producer.send("t", b"2").result(60).offset == landed
        assert producer.flush(60) == 0
        wait_until(lambda: producer._buffer._used == 0)
        world.clock.advance(100_000)
        wait_until(lambda: not producer._accumulators)  # nothing keeps it
    assert world.values() == ([b"1", b"2"] if landed else [b"2"])
    assert "not committed: 1 record" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_memory_ends_a_durable_producer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind must not land before it."""
    world.create()
    monkeypatch.setattr(Stager, "add", lambda *_: raising(MemoryError("malloc failed"))())
    with producer_on(world, producer_id="p", **_TOGETHER) as producer:
        first = producer.send("t", b"1")
        assert producer.flush(60) == 0
        with pytest.raises(NotSentError, match=r"malloc failed.*Nothing of it is in the log"):
            first.result(0)
        with pytest.raises(NotSentError, match="Make a new Producer with the same producer_id"):
            producer.send("t", b"2")


def test_what_is_flushed_is_done_even_if_storage_hangs(world: World) -> None:
    world.create()
    gate, called, go = Gate(), Event(), Event()

    def slow(_: object) -> None:
        called.set()
        assert go.wait(60)

    with producer_on(world, gate, **_SHORT) as producer:
        first = producer.send("t", b"first")
        first.add_done_callback(slow)
        assert gate.reached.wait(60)
        second = producer.send("t", b"second")
        world.clock.sleep(0.3)
        assert called.wait(60)
        left = producer.flush(0.05)
        done = second.done()
        go.set()
        assert (left, done) == (2, False)
        assert producer.flush(60) == 0
        assert second.done()
        gate.release()


def test_closing_waits_for_no_storage_that_hangs(world: World) -> None:
    world.create()
    gate = Gate()
    producer = producer_on(world, gate, **_SHORT)
    under_way = producer.send("t", b"first")
    assert gate.reached.wait(60)
    world.clock.sleep(0.3)
    producer.close()
    assert isinstance(under_way.exception(0), OutcomeUnknownError)
    gate.release()
    wait_until(lambda: world.values() == [b"first"])


def test_failures_are_logged_with_their_number(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Who does not look at futures is told by the log."""
    world.create()
    with producer_on(world, on_path("/staged/", "create", raising(StorageError("no disk")), times=10**6)) as producer:
        producer.send("t", b"lost")
    assert "topic 't': not committed: 1 record: " in caplog.text
    assert {record.name for record in caplog.records} == {"pyspark_commitlog.producer"}


def test_damage_is_not_tried_again(world: World) -> None:
    world.create()
    damage = on_path(_JOURNAL, "fetch", raising(CorruptionError("injected")), times=2)
    with producer_on(world) as producer:
        producer.send("t", b"a").result()
        producer._accumulators["t"].delivery._topic = world.handle(damage)
        with pytest.raises(CorruptionError, match="injected"):
            producer.send("t", b"b").result()
        producer._accumulators["t"].delivery._topic = world.handle()
        assert producer.send("t", b"c").result().offset == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StorageError("x"), True),
        (OutcomeUnknownError("x"), True),
        (StorageReadOnlyError("x"), False),
        (OSError("x"), True),
        (CorruptionError("x"), False),
        (WriterFencedError("x"), False),
        (UnknownTopicError("x"), False),
    ],
)
def test_what_is_retriable(error: Exception, expected: bool) -> None:
    assert is_retriable(error) is expected


# --- outcome unknown --------------------------------------------------------------------------------------


@_CONFIGS
@pytest.mark.parametrize("producer_id", [None, "billing-1"])
def test_a_commit_that_landed_but_reported_failure_is_not_repeated_and_tells_its_offsets(
    world: World, config: dict[str, Any], producer_id: str | None
) -> None:
    """I5: the retry is skipped; offsets come from the entry that landed, whoever has appended since."""
    topic = world.create(2, config)
    append(topic, batch_of(many(3), partition=[0, 1, 1]))
    with producer_on(world, producer_id=producer_id) as warm:
        if producer_id is None:
            warm.send("t", b"warm", partition=0).result()
    meanwhile = lambda: append(world.handle(), batch_of([b"other"] * 4, partition=[0, 1, 0, 1]))  # noqa: E731
    with producer_on(world, producer_id=producer_id) as producer:
        if producer_id is not None:
            producer.last_sequence("t")
        else:
            producer.send("t", b"warm", partition=0).result()
        start = world.handle().newest()[1].log_end
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply(once(meanwhile)))
        table = batch_of(many(4, b"w"), partition=[1, 0, 1, 1])
        told = producer.send_batch("t", table).result()
        after = producer.send("t", b"after", partition=1).result()
    assert told == BatchMetadata("t", 4, {0: (start[0], start[0] + 1), 1: (start[1], start[1] + 3)})
    assert after.offset == start[1] + 3 + 2
    values = world.values()
    assert [values.count(value) for value in many(4, b"w")] == [1] * 4


def test_a_commit_that_did_not_land_is_repeated(world: World) -> None:
    """I5: five tries without an answer, none of which landed: unknown, and then committed once."""
    world.create()
    with producer_on(world, on_path(_JOURNAL, "put_if_absent", raising(io_error()), times=5)) as producer:
        assert producer.send("t", b"a").result().offset == 0
    assert world.values() == [b"a"]


def test_where_nobody_remembers_the_place_there_is_no_offset(world: World) -> None:
    """As in Kafka: it landed, its entry is settled and collected; the row tells that much, and no more."""
    world.create()

    def forget() -> None:
        for number in range(3):
            append(world.handle(), batch_of([b"%d" % number]))
        world.collect_all()

    with producer_on(world) as producer:
        producer.send("t", b"a").result()
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply(once(forget)))
        future = producer.send("t", b"b")
        told = future.result()
        assert (told.offset, told.has_offset()) == (-1, False)
        assert producer.send("t", b"c").result().has_offset()
    assert sorted(v or b"" for v in world.values()) == [b"0", b"1", b"2", b"a", b"b", b"c"]


def test_what_can_not_be_told_in_time_is_told_as_unknown_and_what_follows_is_not_taken_for_it(world: World) -> None:
    """R6, I5: the next records get numbers under another id, so that neither is skipped for the other."""
    world.create()
    broken = [True]

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and _JOURNAL in path and moment == "after" and broken:
            broken.append(True)
            raise io_error()
        if operation == "fetch" and path.endswith("2.json") and len(broken) > 1:
            raise io_error()

    with producer_on(world, hook) as producer:
        with pytest.raises(OutcomeUnknownError, match="1 record may or may not have landed"):
            producer.send("t", b"landed").result()
        broken.clear()
        assert producer.send("t", b"next").result().offset == 1
    assert world.values() == [b"landed", b"next"]


def test_closing_in_time_ends_the_tries(world: World) -> None:
    world.create()
    gate = Gate("/staged/")
    stuck: list[bool] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path:
            gate.reached.set()
            assert gate._go.wait(60)
            stuck.append(True)
            raise StorageError("injected")

    producer = producer_on(world, hook)
    future = producer.send("t", b"a")
    assert gate.reached.wait(60)
    producer.close(0)
    gate.release()
    with pytest.raises(ProducerClosedError, match="closed before sending 1 record: injected"):
        future.result(60)
    assert stuck == [True]


# --- rows of producers without an id ----------------------------------------------------------------------


def test_a_retry_that_comes_after_its_row_may_be_forgotten_is_refused(world: World) -> None:
    """R6, R10: the process slept for an hour; by storage's times the row may be gone, so it is not put again."""
    world.create()
    sleep = once(lambda: world.clock.advance(_HOUR_MS + 1))

    def forget() -> None:
        sleep()
        for number in range(5):
            append(world.handle(), batch_of([b"%d" % number]), writer=Transaction(f"other{number}", 1))

    with pytest.MonkeyPatch.context() as patched, producer_on(world, delivery_timeout_ms=2 * _HOUR_MS) as producer:
        patched.setattr(module, "WRITER_ROWS", 1)
        producer.send("t", b"a").result()
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply(once(forget)))
        with pytest.raises(OutcomeUnknownError, match="Look for them in the topic"):
            producer.send("t", b"b").result()
        assert producer.send("t", b"c").result().has_offset()
    assert world.values().count(b"b") == 1


def test_an_idle_producer_goes_on_when_its_row_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    world.create()
    with producer_on(world) as producer:
        producer.send("t", b"a").result()
        world.clock.advance(10 * _HOUR_MS)
        for number in range(3):
            append(world.handle(), batch_of([b"other"]), writer=Transaction(f"w{number}", 1))
        assert producer.send("t", b"b").result().offset == 4


def test_thousands_of_short_lived_producers_leave_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: only durable ids are kept; a txnAppId is one, whatever it begins with."""
    monkeypatch.setattr(module, "WRITER_ROWS", 2)
    topic = world.create()
    append(topic, batch_of([b"x"]), writer=Transaction(f"{TRANSIENT}mine", 1))
    with producer_on(world, producer_id="kept") as durable:
        durable.send("t", b"x").result()
    for _ in range(10):
        with producer_on(world) as producer:
            producer.send("t", b"x").result()
        world.clock.advance(_HOUR_MS // 2 + 1)
    _, state = world.handle().newest()
    known = {**world.handle().snapshot(state), **state.writers.rows}
    assert {f"{TRANSIENT}mine", "producer:kept"} <= set(known)
    assert len(known) <= 6


def test_when_a_row_may_be_forgotten() -> None:
    late = ProducerBatch("transient:x", 0, 5, 9, since=7)
    check_remembered(None, late, 7, "t")
    check_remembered(WriterRow(4, 5, 1, 0, 0), late, 10**15, "t")
    check_remembered(None, ProducerBatch("producer:x", 0, 5, 9), 10**15, "t")
    with pytest.raises(OutcomeUnknownError, match="records 5 to 9"):
        check_remembered(None, late, 8, "t")


# --- durable ids ------------------------------------------------------------------------------------------


def test_sequences_go_on_over_restarts(world: World) -> None:
    """I5: what landed is not sent again, whether it comes one by one or in a batch."""
    world.create()
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == -1
        for number in range(5):
            producer.send("t", b"%d" % number)
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 4
        for number in range(3, 8):
            again = producer.send("t", b"%d" % number, sequence=number)
            assert again.result().has_offset() == (number > 4)
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 7
        assert producer.send_batch("t", batch_of(many(3)), sequence=2).result() == BatchMetadata("t", 0, {})
        batch = batch_of([b"%d" % number for number in range(6, 11)])
        assert producer.send_batch("t", batch, sequence=6).result() == BatchMetadata("t", 3, {0: (8, 11)})
        assert producer.send("t", b"11").result().offset == 11
    assert world.values() == [b"%d" % number for number in range(12)]
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 11


def test_the_last_sequence_follows_what_lands(world: World) -> None:
    world.create()
    gate, hangs = Gate(), Event()
    hook: Hook = lambda *call: gate(*call) if hangs.is_set() else None  # noqa: E731
    with producer_on(world, hook, producer_id="p") as producer:
        producer.send("t", b"0", sequence=4).result(60)
        assert producer.last_sequence("t") == 4
        producer.send_batch("t", batch_of([b"1", b"2"]), sequence=7).result(60)
        assert producer.last_sequence("t") == 8
        hangs.set()
        late = producer.send("t", b"3")
        assert gate.reached.wait(60)
        assert producer.last_sequence("t") == 8, "it is under way"
        gate.release()
        late.result(60)
        assert producer.last_sequence("t") == 9


def test_sequences_may_skip_but_not_go_back(world: World) -> None:
    """Positions in a file will do as sequence numbers."""
    world.create()
    with producer_on(world, producer_id="p") as producer:
        for number in (10, 11, 400):
            producer.send("t", b"%d" % number, sequence=number)
        for number in (400, 12):
            with pytest.raises(UsageError, match=f"sequence {number} is not above 400"):
                producer.send("t", b"", sequence=number)
        with pytest.raises(UsageError, match="sequence 399 is not above 400"):
            producer.send_batch("t", batch_of(many(5)), sequence=399)
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 400
    assert world.values() == [b"10", b"11", b"400"]


def test_a_sequence_that_64_bits_can_not_hold_is_refused(world: World) -> None:
    """Its entry could not be read, by anybody."""
    world.create()
    with producer_on(world, producer_id="p") as producer:
        with pytest.raises(UsageError, match=f"sequence {2**63} is too large"):
            producer.send("t", b"", sequence=2**63)
        with pytest.raises(UsageError, match=f"sequence {2**63} is too large"):
            producer.send_batch("t", batch_of(many(2)), sequence=2**63 - 1)
        producer.send("t", b"last", sequence=2**63 - 1)
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 2**63 - 1
        with pytest.raises(UsageError, match="nothing was committed"):
            producer.send("t", b"one more").result(20)
    assert world.values() == [b"last"]


@pytest.mark.parametrize("sequence", [-1, True, np.True_, 0.0, 0.5, np.float64(0), "0", b"0", np.int64(-1)], ids=repr)
def test_a_sequence_that_is_no_whole_number_from_zero_on_is_refused_at_once(world: World, sequence: Any) -> None:
    """One below 0 counted as landed, and was never sent; others ended the producer, with an error that named no cause."""
    world.create()
    with producer_on(world, producer_id="p") as producer:
        for send in (
            lambda: producer.send("t", b"x", sequence=sequence),
            lambda: producer.send_batch("t", batch_of([b"x"]), sequence=sequence),
            lambda: producer.send_batch("t", batch_of([]), sequence=sequence),
        ):
            with pytest.raises(UsageError, match=r"sequence is .*: it takes whole numbers from 0 on"):
                send()
        assert producer.send("t", b"0", sequence=0).result().offset == 0
    assert world.values() == [b"0"]


@pytest.mark.parametrize("whole", [np.int64, np.uint8, np.array])
def test_a_sequence_may_be_a_whole_number_of_another_library(world: World, whole: Any) -> None:
    world.create()
    with producer_on(world, producer_id="p") as producer:
        assert producer.send("t", b"0", sequence=whole(0)).result().offset == 0
        assert producer.send_batch("t", batch_of(many(2)), sequence=whole(7)).result().offsets == {0: (1, 3)}
        assert producer.send("t", b"9", sequence=whole(9)).result().offset == 3
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 9


def test_the_parts_of_a_batch_have_numbers_that_the_type_of_the_first_can_not_hold(world: World) -> None:
    """In that type the sum wraps around."""
    world.create()
    with producer_on(world, producer_id="p", buffer_memory=4000) as producer:
        told = producer.send_batch("t", batch_of([b"x" * 500] * 10), sequence=np.uint8(250)).result()
        assert told.records == 10
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 259


def test_a_sequence_needs_an_id(world: World) -> None:
    world.create()
    with producer_on(world) as producer:
        for act in (
            lambda: producer.last_sequence("t"),
            lambda: producer.send("t", b"", sequence=0),
            lambda: producer.send_batch("t", batch_of([b""]), sequence=0),
        ):
            with pytest.raises(UsageError, match="producer_id"):
                act()


def _another(topic: TopicLog) -> TopicLog:
    """Return what stands for the topic at a new leader."""
    return TopicLog(topic.storage, topic.name)


@pytest.mark.parametrize("whole", [False, True], ids=["record", "batch"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_refused_record_ends_a_producer_with_an_id(world: World, before: int, whole: bool) -> None:
    """Else `last_sequence` would pass over it: mended and sent again, it would count as sent."""
    world.create(1, {**CHUNKS, "max.message.bytes": 10})
    values = [b"%d" % number for number in range(before)] + [b"x" * 11, *many(4)]

    def sent(producer: Producer, after: int) -> list[Future[Any]]:
        if not whole:
            numbered = list(enumerate(values))[after + 1 :]
            return [producer.send("t", value, sequence=number) for number, value in numbered]
        parts = [part for part in (values[:before], values[before : before + 2], values[before + 2 :]) if part]
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        return [
            producer.send_batch("t", batch_of(part), sequence=first) for part, first in zip(parts, starts, strict=False)
        ]

    with producer_on(world, producer_id="p", **_TOGETHER) as producer:
        futures = sent(producer, -1)
        producer.flush()
        errors = [type(future.exception()) for future in futures]
        landed = 0 if not before else 1 if whole else before
        assert errors == [type(None)] * landed + [InvalidRecordError] + [NotSentError] * (len(errors) - landed - 1)
        with pytest.raises(NotSentError, match=r"max\.message\.bytes is 10.* after its last_sequence"):
            producer.send("t", b"")
    values[before] = b"mended"
    with producer_on(world, producer_id="p", **_TOGETHER) as producer:
        assert producer.last_sequence("t") == before - 1
        sent(producer, before - 1)
    assert world.values() == values


def test_what_is_refused_only_now_may_have_landed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged again at another leader; nobody waits until `delivery_timeout_ms` is over."""
    world.create(1, {"max.message.bytes": 100})
    monkeypatch.setattr(TopicLog, "at_leader", _another)
    began = world.clock.monotonic()
    shrunk = once(lambda: world.log().topic("t").alter({"max.message.bytes": 1}))
    with producer_on(world, lost_reply(shrunk)) as producer:
        future = producer.send("t", b"large")
        with pytest.raises(OutcomeUnknownError, match=r"may or may not have landed.*max\.message\.bytes is 1\b"):
            future.result(60)
    assert world.clock.monotonic() - began < 10
    assert world.values() == [b"large"]


def test_what_landed_at_a_doubtful_try_is_found_where_it_was_placed_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another root leads by now, and what was staged is staged again: a record without a key keeps its partition."""
    world.create(5)
    monkeypatch.setattr(TopicLog, "at_leader", _another)
    with producer_on(world, lost_reply(), **_TOGETHER) as producer:
        one, two = producer.send("t", b"one"), producer.send_batch("t", batch_of([b"two", b"three"]))
        producer.flush()
    assert {one.result().partition: (1, 3)} == two.result().offsets
    found = {(record.partition, record.offset): record.value for record in read_topic(world.handle())}
    assert found == {(one.result().partition, offset): value for offset, value in enumerate([b"one", b"two", b"three"])}


def test_the_older_of_two_is_fenced(world: World) -> None:
    """R6: from the moment the new one asks for the last sequence, nothing of the old one lands any more."""
    world.create()
    gate = Gate()
    with producer_on(world, gate, producer_id="p") as old:
        gate.reached.set()  # the put that opens the id
        old.send("t", b"0").result()
        gate.reached.clear()
        under_way = old.send("t", b"zombie")
        assert gate.reached.wait(60)
        behind = old.send("t", b"behind")
        with producer_on(world, producer_id="p") as new:
            assert new.last_sequence("t") == 0
            gate.release()
            for future in (under_way, behind):
                with pytest.raises(WriterFencedError, match="epoch 3 has taken over"):
                    future.result()
            with pytest.raises(WriterFencedError, match="epoch 3 has taken over"):
                old.send("t", b"late")
            new.send("t", b"1").result()
    assert world.values() == [b"0", b"1"]


def test_what_comes_behind_a_failed_batch_does_not_land(world: World) -> None:
    """Else last_sequence would count the failed records, and a restart would leave them out for ever."""
    world.create()
    fails = [True]

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path and fails:
            raise StorageError("injected")

    with producer_on(world, hook, producer_id="p") as producer:
        first = producer.send("t", b"0")
        with pytest.raises(DeliveryTimeoutError):
            first.result()
        fails.clear()
        with pytest.raises(NotSentError, match="last_sequence"):
            producer.send("t", b"1")
    assert world.values() == []
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == -1
        producer.send("t", b"0")
    assert world.values() == [b"0"]


def test_a_commit_that_landed_unheard_is_known_to_the_next_instance(world: World) -> None:
    """I5: killed between put and answer; the offsets too, as long as the entry is there."""
    topic = world.create()
    with producer_on(world, producer_id="p") as dead:
        dead.last_sequence("t")
        handle = world.handle(lost_reply())
        dead._accumulators["t"].delivery._topic = handle
        dead.send("t", b"0").result()
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 0
        assert producer.send("t", b"0", sequence=0).result() == RecordMetadata("t", -1, -1, world.clock.now_ms())
    assert world.values() == [b"0"]
    assert topic.newest()[1].log_end == (1,)


def test_ids_count_per_topic(world: World) -> None:
    for name in ("t", "u"):
        world.create(name=name)
    with producer_on(world, producer_id="p") as producer:
        producer.send("t", b"0")
        producer.send("t", b"1")
        producer.send("u", b"0")
    with producer_on(world, producer_id="p") as producer:
        assert (producer.last_sequence("t"), producer.last_sequence("u")) == (1, 0)


def test_a_topic_made_again_knows_no_ids_and_ends_a_durable_producer(world: World) -> None:
    """R14: its sequence numbers meant the topic that is gone."""
    world.create()
    with producer_on(world, producer_id="p") as producer:
        producer.send("t", b"0").result()
        world.log().topic("t").delete()
        world.create()
        with pytest.raises(Exception, match="made again"):
            producer.send("t", b"1").result()
        with pytest.raises(NotSentError):
            producer.send("t", b"1")
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == -1
    assert world.values() == []


def test_opening_an_id_keeps_what_it_committed(world: World) -> None:
    """R6: an entry raises the epoch, and the producer is not the longest silent any more; the last ranges stay."""
    before = WriterRow(9, 3, 17, 1000, 4, ((0, 4), (5, 9)))
    assert opened(before, 2000, 18) == WriterRow(9, 3, 18, 2000, 5, ((0, 4), (5, 9)))
    assert opened(None, 2000, 18) == WriterRow(-1, 0, 18, 2000, 18)
    topic = world.create()
    assert init_producer(topic, "producer:p")[1].epoch == 2
    assert init_producer(topic, "producer:p")[1].epoch == 3
    assert topic.newest()[0].entry.kind == "init-producer"
    assert world.values() == []


def test_a_forgotten_id_starts_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    world.create()
    with producer_on(world, producer_id="p") as producer:
        producer.send("t", b"0")
    monkeypatch.setattr(module, "DURABLE_IDS", 1)
    for number in range(2):
        append(world.handle(), batch_of([b"other"]), writer=Transaction(f"w{number}", 1))
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == -1


def test_settled_and_collected_a_durable_id_is_still_known(world: World, tmp_path: Path) -> None:
    world.create()
    with producer_on(world, producer_id="p") as producer:
        for number in range(3):
            producer.send("t", b"%d" % number)
    world.collect_all()
    world.clock.advance(DELAY_MS)
    world.maintain()
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("t") == 2


def test_without_acks_the_commit_says_that_its_chunks_may_be_unsynced(world: World) -> None:
    """R5: acks=0."""
    topic = world.create()
    with producer_on(world, acks=0) as producer:
        assert producer.send("t", b"a").result().offset == 0
    assert topic.newest()[1].unsynced_from == 2
    with producer_on(world) as producer:
        producer.send("t", b"b").result()
    assert topic.newest()[1].unsynced_from is None


def test_every_row_of_a_large_batch_has_the_offset_of_its_place_in_its_partition() -> None:
    """I7: rows of a partition keep their order, also where a sort that is not stable would mix them."""
    chance = np.random.default_rng(1)
    partitions = chance.integers(0, 3, 5000)
    following = np.array([5, 0, 70], np.int64)
    expected, at = [], following.tolist()
    for partition in partitions.tolist():
        expected.append(at[partition])
        at[partition] += 1
    assert offsets_of(partitions, following).tolist() == expected
    assert following.tolist() == at

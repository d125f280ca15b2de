"""The one lock of a producer, and signals: Ctrl-C may meet a wait as it takes the lock back, and handlers send."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.producer.buffer_pool import Buffer
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.records.record_queue import RecordQueue
from pyspark_commitlog.storage.shared.pool import Pool
from pyspark_commitlog.testing.faults import on_path
from tests.support.producers import producer_on, wait_until
from tests.support.records import batch_of
from tests.support.world import World, failing

_ACTS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"handler"),
    "batch": lambda producer: producer.send_batch("t", batch_of([b"handler"])),
    "flush": lambda producer: producer.flush(1),
    "close": lambda producer: producer.close(1),
}


def test_a_wait_that_two_interrupts_end_holds_the_lock_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the caller would release what another thread holds, and that thread would end."""
    buffer = Buffer(limit=10, max_block_ms=1)
    real: Callable[[object], None] = buffer.room._acquire_restore  # type: ignore[attr-defined]
    interrupts = [KeyboardInterrupt()]

    def restore(state: object) -> None:
        if interrupts:
            raise interrupts.pop()
        real(state)

    monkeypatch.setattr(buffer.room, "_acquire_restore", restore)
    with buffer.lock:
        buffer.take(10, "t", [0])
        with pytest.raises(KeyboardInterrupt):
            buffer.take(1, "t", [0])
        assert not interrupts
        assert buffer.lock._is_owned()  # type: ignore[attr-defined]
    with buffer.lock:
        buffer.give(10)


@contextmanager
def handler(act: Callable[[], Any]) -> Iterator[list[BaseException | None]]:
    """Have a signal handled by `act`; yield how it ended, each time."""
    ended: list[BaseException | None] = []

    def handle(*_: object) -> None:
        try:
            act()
        except UsageError as error:
            ended.append(error)
        else:
            ended.append(None)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("act", _ACTS)
def test_a_handler_of_a_signal_that_interrupts_a_send_is_refused(
    world: World, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for what the interrupted send is about to add, or change it half-way."""
    world.create()
    mark = RecordQueue.mark

    def interrupted(queue: RecordQueue) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return mark(queue)

    with producer_on(world) as producer, handler(lambda: _ACTS[act](producer)) as ended:
        producer.send("t", b"0").result(60)
        with monkeypatch.context() as patched:
            patched.setattr(RecordQueue, "mark", interrupted)
            sent = [producer.send("t", b"1"), producer.send_batch("t", batch_of([b"2"]))]
        assert all("handler interrupted this producer at work" in str(error) for error in ended)
        assert len(ended) == 2
        assert producer.flush(60) == 0
        assert all(each.done() for each in sent)
    assert world.values() == [b"0", b"1", b"2"]


def test_a_handler_of_a_signal_that_interrupts_the_first_send_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    opened = Producer._open

    def interrupted(producer: Producer, topic: str) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return opened(producer, topic)

    monkeypatch.setattr(Producer, "_open", interrupted)
    with producer_on(world) as producer, handler(lambda: producer.send("t", b"handler")) as ended:
        producer.send("t", b"1").result(60)
        assert [type(error) for error in ended] == [UsageError]
    assert world.values() == [b"1"]


@pytest.mark.parametrize("act", _ACTS)
def test_a_handler_of_a_signal_that_interrupts_nothing_of_a_producer_is_served(world: World, act: str) -> None:
    world.create()
    with producer_on(world) as producer, handler(lambda: _ACTS[act](producer)) as ended:
        sent = producer.send("t", b"1")
        signal.raise_signal(signal.SIGUSR1)
        assert ended == [None]
        assert sent.result(60).has_offset()
    assert world.values()[0] == b"1"


class LockSeen(logging.Handler):
    """Notes of each warning whether it is logged with a producer's lock held: a handler that sends is refused then."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(logging.WARNING)
        self.held, self._lock_of = list[bool](), producer._buffer.lock

    def emit(self, record: logging.LogRecord) -> None:
        self.held.append(self._lock_of._is_owned())  # type: ignore[attr-defined]


def _given_up_in_pause(producer: Producer) -> bool:
    accumulator = producer._accumulators["t"]
    with producer._buffer.lock:
        later = producer._storage.clock.monotonic() + 200
        callbacks = accumulator.overdue(later) if accumulator._paused else []
    for callback in callbacks:
        callback()
    return bool(callbacks)


def _given_up_before_pause(producer: Producer) -> None:
    accumulator = producer._accumulators["t"]
    with producer._buffer.lock:
        items, accumulator._under_way = accumulator._under_way, []
    accumulator._fail_dropped(items, accumulator.delivery.give_up(1))


@pytest.mark.parametrize("moment", ["paused", "pauses", "closed"])
def test_a_handler_of_the_log_may_send(world: World, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error would end the thread that looks whether storage answers, and futures would never be done."""
    world.create()
    broken = on_path("/staged/", "create", failing(), times=10**6)

    def is_wanted(*_: object) -> bool:
        if moment == "pauses":
            _given_up_before_pause(producer)
        return True

    monkeypatch.setattr(Pool, "is_wanted", is_wanted)
    log, producer = logging.getLogger("pyspark_commitlog.producer"), producer_on(world, broken)
    seen = LockSeen(producer)
    log.addHandler(seen)
    try:
        future = producer.send("t", b"1")
        if moment == "paused":
            wait_until(lambda: _given_up_in_pause(producer))
        elif moment == "closed":
            producer.close(0)
        assert future.exception(60) is not None
        wait_until(lambda: seen.held != [])
    finally:
        log.removeHandler(seen)
        producer.close(0)
    assert not any(seen.held)

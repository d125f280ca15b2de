"""Topics that share the threads of a process: what fails in some of them holds up no other."""

from __future__ import annotations

import time
from concurrent.futures import Future
from threading import Event, Thread

import pytest

from pyspark_commitlog.errors import DeliveryTimeoutError, NotSentError, OutcomeUnknownError
from pyspark_commitlog.producer import pools
from pyspark_commitlog.producer.records.batches import Item, RecordMetadata
from pyspark_commitlog.storage import NotPutError
from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.shared.pool import Pool
from tests.support.producers import producer_on, wait_until
from tests.support.records import batch_of, read_topic
from tests.support.world import World

#: Topics that fail: as many as one root gets threads.
_FAILING = 6


@pytest.fixture(autouse=True)
def threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each test share its threads with none before it."""
    monkeypatch.setattr(pools.process_pools, "value", pools.Pools())
    assert limits().threads >= 32


@pytest.fixture
def tries_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pauses between tries last, by another clock than the one that deadlines go by."""
    monkeypatch.setattr(world.clock, "sleep", lambda seconds: time.sleep(min(seconds, 0.05)))


class Trouble:
    """A hook: no entry of topics `f…` can be put until `over`, nor any of `h…` before `go`."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error or OSError(5, "no disk")
        self.over, self.go, self.hangs = Event(), Event(), Event()

    def __call__(self, operation: str, path: str, moment: str) -> None:
        """Fail, or hang."""
        if operation != "put_if_absent" or moment != "before":
            return
        if "topics/f" in path and not self.over.is_set():
            raise self._error
        if "topics/h" in path and not self.go.is_set():
            self.hangs.set()
            assert self.go.wait(60)


@pytest.mark.usefixtures("tries_pause")
def test_topics_that_are_tried_again_leave_their_threads_to_the_others(world: World) -> None:
    names = [f"f{n}" for n in range(_FAILING)]
    for name in (*names, "good"):
        world.create(name=name)
    trouble = Trouble()
    with producer_on(world, trouble) as producer:
        sent: list[Future[RecordMetadata]] = []
        for number in range(3):
            sent += [producer.send(name, b"%d" % number) for name in names]
            time.sleep(0.2)
        try:
            producer.send("good", b"1").result(20)
            producer.send("good", b"2").result(20)
        finally:
            trouble.over.set()
        assert producer.flush(60) == 0
        assert all(each.result(0).has_offset() for each in sent)
        assert producer._buffer._used == 0
    for name in names:  # in their order, and once
        assert [record.value for record in read_topic(world.handle(name=name))] == [b"0", b"1", b"2"]


def test_what_waits_too_long_for_a_thread_ends_a_producer_with_an_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent after it is not late yet: if it landed, `last_sequence` would pass over what is not there."""
    monkeypatch.setattr(pools.process_pools, "value", pools.Pools(senders=Pool("one", 1000)))  # has one thread
    for name in ("f", "h"):
        world.create(name=name)
    trouble = Trouble()
    trouble.over.set(), trouble.go.set()
    with producer_on(world, trouble, request_timeout_ms=50, delivery_timeout_ms=20_000, producer_id="p") as producer:
        for name in ("f", "h"):
            producer.send_batch(name, batch_of([b"0"]), sequence=0).result(60)
        trouble.go.clear()
        try:
            producer.send("h", b"1")
            assert trouble.hangs.wait(20)
            late = producer.send_batch("f", batch_of([b"1"]), sequence=1)
            world.clock.advance(18_000)
            early = producer.send_batch("f", batch_of([b"2"]), sequence=2)
            world.clock.advance(10_000)
            with pytest.raises(DeliveryTimeoutError):
                late.result(20)
            with pytest.raises(NotSentError):
                early.result(20)
        finally:
            trouble.go.set()
    with producer_on(world, producer_id="p") as producer:
        assert producer.last_sequence("f") == 0


@pytest.mark.usefixtures("tries_pause")
@pytest.mark.parametrize("durable", [None, "p"])
def test_what_no_thread_comes_for_to_try_it_again_fails_in_time(
    world: World, durable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools.process_pools, "value", pools.Pools(senders=Pool("one", 1000)))  # has one thread
    for name in ("f", "h"):
        world.create(name=name)
    trouble = Trouble()
    with producer_on(
        world, trouble, request_timeout_ms=50, delivery_timeout_ms=20_000, producer_id=durable
    ) as producer:
        trouble.over.set(), trouble.go.set()
        producer.send("f", b"0").result(60)
        producer.send("h", b"0").result(60)
        trouble.over.clear(), trouble.go.clear()
        failing = producer.send("f", b"1")
        wait_until(lambda: producer._accumulators["f"].delivery.trying is not None)
        behind = producer.send("f", b"2")
        try:
            hanging = producer.send("h", b"3")
            assert trouble.hangs.wait(20)
            world.clock.advance(25_000)
            with pytest.raises(OutcomeUnknownError, match=r"'f': 1 record may or may not have landed: .*no disk"):
                failing.result(20)
            with pytest.raises(NotSentError if durable else DeliveryTimeoutError):
                behind.result(20)
        finally:
            trouble.go.set()
            trouble.over.set()
        assert producer.flush(60) == 0
        assert hanging.done()
        wait_until(lambda: producer._buffer._used == 0)  # what hung comes back
        if durable is None:
            assert producer.send("f", b"4").result(60).has_offset()
    assert [record.value for record in read_topic(world.handle(name="f"))] == ([b"0"] if durable else [b"0", b"4"])


@pytest.mark.usefixtures("tries_pause")
@pytest.mark.parametrize(
    ("error", "durable", "ends"),
    [
        (NotPutError("no disk"), None, DeliveryTimeoutError),
        (NotPutError("no disk"), "p", DeliveryTimeoutError),
        (OSError(5, "no disk"), None, OutcomeUnknownError),
    ],
    ids=["", "id", "doubt"],
)
def test_what_has_time_left_waits_on_for_a_thread_to_try_it_again(
    world: World, error: Exception, durable: str | None, ends: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with an id that lasts: nothing lands after what failed; nor where a try may have landed: then all of it did."""
    monkeypatch.setattr(pools.process_pools, "value", pools.Pools(senders=Pool("one", 1000)))  # has one thread
    for name in ("f", "h"):
        world.create(name=name)
    trouble, all_ends = Trouble(error), durable is not None or ends is OutcomeUnknownError
    trouble.over.set(), trouble.go.set()
    with producer_on(
        world, trouble, linger_ms=10_000, request_timeout_ms=50, delivery_timeout_ms=20_000, producer_id=durable
    ) as producer:
        for name in ("f", "h"):
            producer.send(name, b"0")
        producer.flush()
        trouble.over.clear(), trouble.go.clear()
        first = producer.send("f", b"1")
        world.clock.advance(10_000)
        second = producer.send("f", b"2")
        producer.flush(0.01)
        accumulator = producer._accumulators["f"]
        wait_until(lambda: accumulator._under_way != [])
        try:
            producer.send("h", b"3")
            producer.flush(0.01)
            assert trouble.hangs.wait(20)
            world.clock.advance(12_000)
            with pytest.raises(ends, match=rf"{2 if all_ends else 1} record.*no disk"):
                first.result(20)
            assert producer._buffer._used > 0
        finally:
            trouble.over.set()
            trouble.go.set()
        assert producer.flush(60) == 0
        assert (second.exception(0) is None) != all_ends
        wait_until(lambda: producer._buffer._used == 0)
    found = [record.value for record in read_topic(world.handle(name="f"))]
    assert found == ([b"0"] if all_ends else [b"0", b"2"])


def test_what_a_thread_took_before_it_was_due_keeps_no_close_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has begun, for nothing any more, when the first record is sent, which lingers: it takes that with it."""
    world.create(1)
    producer = producer_on(world, linger_ms=3_600_000, delivery_timeout_ms=4_000_000)
    accumulator = producer._opened("t")
    begun, sent, real = Event(), Event(), accumulator._next

    def held() -> list[Item]:
        begun.set()
        assert sent.wait(60)
        return real()

    monkeypatch.setattr(accumulator, "_next", held)
    pools.process_pools.value.senders.schedule(accumulator)
    assert begun.wait(60)
    future = producer.send("t", b"v")
    sent.set()
    assert future.result(60).offset == 0

    closing = Thread(target=producer.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert world.values() == [b"v"]

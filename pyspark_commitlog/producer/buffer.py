"""The memory that all topics of a producer share, and its one lock (Kafka: ``BufferPool``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, RLock, get_ident
from typing import Protocol

from pyspark_commitlog.errors import BufferExhaustedError, ProducerClosedError, UsageError


class Hurried(Protocol):
    """Owner of waiting records."""

    def hurry(self) -> None:
        """Schedule a commit of ready items."""


class BufferFullError(Exception):
    """There is no room now, and the caller does not wait; it never leaves the producer."""

    def __init__(self, size: int, topic: str) -> None:
        super().__init__(size, topic)
        self.size, self.topic = size, topic


class Buffer:
    """Bytes that records take from ``send`` until their future is done.

    Those of a record that fails before others of its commit are given back when that commit ends.

    Args:
        limit: ``buffer_memory``, bytes.
        max_block_ms: how long ``take`` waits for room.

    ``lock`` guards this and the queues of all topics. ``room`` wakes threads that wait for memory, ``progress``
    those that flush. ``waiting`` are the accumulators with records that wait, in their order; ``watched`` has them
    looked after. Threads inside ``calling`` call back, and must not wait for each other.
    """

    def __init__(self, limit: int, max_block_ms: int) -> None:
        self.lock = RLock()  # it knows its owner, so nobody releases what another thread holds
        self.room, self.progress = Condition(self.lock), Condition(self.lock)
        self.waiting: dict[Hurried, None] = {}
        self.watched: Callable[[], None] = lambda: None
        self._calling: set[int] = set()
        self._awaited: dict[object, Callable[[], None]] = {}
        self.closed = False
        self.blocked = 0
        self.limit, self._max_block_ms = limit, max_block_ms
        self._used = 0

    def take(self, size: int, topic: str, taken: list[int], *, wait: bool = True) -> None:
        """Take memory, when there is enough; the lock is held, and let go of while this waits.

        ``taken[0]`` becomes ``size`` in the same step: after it the caller may be interrupted anywhere (Ctrl-C).

        Raises:
            BufferFullError: there is none now, and ``wait`` is false.
            BufferExhaustedError: there was none for ``max_block_ms``, or ``size`` is more than there is at all.
            ProducerClosedError: the producer was closed meanwhile.
        """
        self.check_fits(size, topic)
        if self._used + size > self.limit:
            if not wait:
                raise BufferFullError(size, topic)
            if not self._wait_for(size):
                raise self.exhausted(size, topic)
        self.check_open()
        self._used, taken[0] = self._used + size, size

    def check_fits(self, size: int, topic: str) -> None:
        """Refuse what there will never be room for.

        Raises:
            BufferExhaustedError: it is more than ``buffer_memory``.
        """
        if size > self.limit:
            raise BufferExhaustedError(
                f"topic {topic!r}: a record takes {size} bytes, which are more than buffer_memory={self.limit}: raise "
                "it. Nothing was taken"
            )

    def exhausted(self, size: int, topic: str) -> BufferExhaustedError:
        """Return the error of a wait for room that exceeded ``max_block_ms``."""
        return BufferExhaustedError(
            f"topic {topic!r}: no room for {size} bytes within max_block_ms={self._max_block_ms}: {self._used} of "
            f"buffer_memory={self.limit} wait to be committed. Send more slowly or raise it. Nothing was taken"
        )

    def _wait_for(self, size: int) -> bool:
        self.blocked += 1
        try:
            self._hurry()
            enough = lambda: self.closed or self._used + size <= self.limit  # noqa: E731
            return self.wait_for(self.room, enough, self._max_block_ms / 1000)
        finally:
            self.blocked -= 1

    def wait_for(self, condition: Condition, is_met: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a condition of the lock, which is held, and is held again afterwards, whatever interrupts.

        ``Condition.wait`` comes back without the lock where a second Ctrl-C meets it as it takes the lock back.
        """
        try:
            return condition.wait_for(is_met, timeout)
        except BaseException:
            while not self.lock._is_owned():  # type: ignore[attr-defined]
                with suppress(KeyboardInterrupt):
                    self.lock.acquire()
            raise

    def _hurry(self) -> None:
        for accumulator in list(self.waiting):  # nobody lingers for more while somebody has to wait
            accumulator.hurry()

    @contextmanager
    def awaited(self, wake: Callable[[], None]) -> Iterator[None]:
        """Count a coroutine as one that waits for room; the lock is not held.

        Args:
            wake: called, by any thread, with the lock held, when there may be room, and when the producer is closed.
        """
        me = object()
        with self.lock:
            self.blocked += 1
            self._awaited[me] = wake
            self._hurry()
        try:
            yield
        finally:
            with self.lock:
                self.blocked -= 1
                del self._awaited[me]

    def give(self, size: int) -> None:
        """Give memory back; the lock is held."""
        self._used -= size
        self.wake()

    def wake(self) -> None:
        """Wake all that wait for room; the lock is held."""
        self.room.notify_all()
        for wake in self._awaited.values():
            wake()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Mark this thread as one that calls back."""
        self._calling.add(get_ident())
        try:
            yield
        finally:
            self._calling.discard(get_ident())

    def check_not_interrupted(self) -> None:
        """Refuse what interrupts this thread at work here: what it does would be half done.

        That is a signal's handler, a finalizer or a logging handler.

        Raises:
            UsageError: this thread has the lock.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise interrupted()

    def check_may_wait(self) -> None:
        """Refuse to wait in a thread that others wait for, or that would wait for itself.

        Raises:
            UsageError: this is a callback of a future, or interrupts this thread at work here.
        """
        self.check_not_interrupted()
        if get_ident() in self._calling:
            raise UsageError("flush and close wait for this thread: do not call them in a callback of a future")

    def check_open(self) -> None:
        """Refuse work after ``close``.

        Raises:
            ProducerClosedError: it was closed.
        """
        if self.closed:
            raise ProducerClosedError("this Producer is closed: make a new one. Nothing was sent")


def interrupted() -> UsageError:
    """Return the error of a call that interrupted this thread's own call."""
    return UsageError(
        "a signal's handler, a finalizer or a logging handler interrupted this producer at work: do not call it there, "
        "but set a flag, and send, flush or close where the program looks at it. Nothing was sent"
    )

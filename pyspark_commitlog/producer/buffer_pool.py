"""Memory and lock shared by a producer's topics (Kafka: `BufferPool`)."""

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
    """Internal: there is no room, and the caller does not wait."""

    def __init__(self, size: int, topic: str) -> None:
        super().__init__(size, topic)
        self.size, self.topic = size, topic


class Buffer:
    """Bytes of records from `send` until their futures are done.

    Those of a record that fails early return when its commit ends. `lock` also guards the queues of all topics.
    `room` wakes threads that wait for memory, `progress` those that flush. Threads inside `calling` run
    callbacks, and must not wait for each other.
    """

    def __init__(self, limit: int, max_block_ms: int) -> None:
        self.lock = RLock()  # reentrant, so that ownership is known
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
        """Take memory; the lock is held, and released while waiting.

        `taken[0]` becomes `size` in the same step, so that an interrupted caller (Ctrl-C) can undo it.

        Raises:
            BufferFullError: there is no room, and `wait` is false.
            BufferExhaustedError: none for `max_block_ms`, or `size` exceeds the limit.
            ProducerClosedError: closed meanwhile.
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
        """Refuse a size above the limit.

        Raises:
            BufferExhaustedError: it exceeds `buffer_memory`.
        """
        if size > self.limit:
            raise BufferExhaustedError(
                f"topic {topic!r}: a record takes {size} bytes, which are more than buffer_memory={self.limit}: raise "
                "it. Nothing was taken"
            )

    def exhausted(self, size: int, topic: str) -> BufferExhaustedError:
        """Error of a wait for room."""
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
        """Wait for a condition; the lock is held before and after.

        A second Ctrl-C makes `Condition.wait` return without the lock.
        """
        try:
            return condition.wait_for(is_met, timeout)
        except BaseException:  # Ctrl-C: the caller releases the lock
            while not self.lock._is_owned():  # type: ignore[attr-defined]
                with suppress(KeyboardInterrupt):
                    self.lock.acquire()
            raise

    def _hurry(self) -> None:
        for accumulator in list(self.waiting):  # no lingering while a sender is blocked
            accumulator.hurry()

    @contextmanager
    def awaited(self, wake: Callable[[], None]) -> Iterator[None]:
        """Register a coroutine that waits for room; lock not held.

        Any thread calls `wake`, with the lock held, when there may be room or the producer is closed.
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
        """Memory; the lock is held."""
        self._used -= size
        self.wake()

    def wake(self) -> None:
        """Wake all that wait for room; the lock is held."""
        self.room.notify_all()
        for wake in self._awaited.values():
            wake()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Mark this thread as running callbacks."""
        self._calling.add(get_ident())
        try:
            yield
        finally:
            self._calling.discard(get_ident())

    def check_not_interrupted(self) -> None:
        """Refuse a handler or finalizer that interrupts this thread's own call.

        Raises:
            UsageError: this thread has the lock.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise interrupted()

    def check_may_wait(self) -> None:
        """Refuse to wait in a thread that others wait for.

        Raises:
            UsageError: a future's callback, or an interrupted call.
        """
        self.check_not_interrupted()
        if get_ident() in self._calling:
            raise UsageError("flush and close wait for this thread: do not call them in a callback of a future")

    def check_open(self) -> None:
        """Refuse work after `close`.

        Raises:
            ProducerClosedError: the producer is closed.
        """
        if self.closed:
            raise ProducerClosedError("this Producer is closed: make a new one. Nothing was sent")


def interrupted() -> UsageError:
    """Error for calls from interrupting handlers."""
    return UsageError(
        "a signal's handler, a finalizer or a logging handler interrupted this producer at work: do not call it there, "
        "but set a flag, and send, flush or close where the program looks at it. Nothing was sent"
    )

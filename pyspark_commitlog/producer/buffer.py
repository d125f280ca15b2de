"""The memory that all topics of a producer share, and its one lock (Kafka: ``BufferPool``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Lock, get_ident
from typing import Protocol

from pyspark_commitlog.errors import BufferExhaustedError, ProducerClosedError, UsageError


class Hurried(Protocol):
    """What has records that wait."""

    def hurry(self) -> None:
        """Have committed now what is ready."""


class Buffer:
    """Bytes that records take from ``send`` until their future is done.

    Args:
        limit: ``buffer_memory``, bytes.
        max_block_ms: how long ``take`` waits for room.

    ``lock`` guards this and the queues of all topics. ``room`` wakes who waits for memory, ``progress`` who flushes.
    ``waiting`` are the senders with records that wait, in their order; ``watched`` has them looked after. Threads
    inside ``calling`` call back, and must not wait for each other.
    """

    def __init__(self, limit: int, max_block_ms: int) -> None:
        self.lock = Lock()
        self.room, self.progress = Condition(self.lock), Condition(self.lock)
        self.waiting: dict[Hurried, None] = {}
        self.watched: Callable[[], None] = lambda: None
        self._calling: set[int] = set()
        self.closed = False
        self.blocked = 0
        self._limit, self._max_block_ms = limit, max_block_ms
        self._used = 0

    def take(self, size: int, topic: str) -> None:
        """Take memory, when there is enough; the lock is held, and let go of while this waits.

        Raises:
            BufferExhaustedError: there was none for ``max_block_ms``, or ``size`` is more than there is at all.
            ProducerClosedError: the producer was closed meanwhile.
        """
        if size > self._limit:
            raise BufferExhaustedError(
                f"topic {topic!r}: {size} bytes are more than buffer_memory={self._limit}: send smaller batches or "
                "raise it. Nothing was taken"
            )
        if self._used + size > self._limit and not self._wait_for(size):
            raise BufferExhaustedError(
                f"topic {topic!r}: no room for {size} bytes within max_block_ms={self._max_block_ms}: {self._used} of "
                f"buffer_memory={self._limit} wait to be committed. Send more slowly or raise it. Nothing was taken"
            )
        self.check_open()
        self._used += size

    def _wait_for(self, size: int) -> bool:
        self.blocked += 1
        try:
            for each in list(self.waiting):  # nobody lingers for more while somebody has to wait
                each.hurry()
            enough = lambda: self.closed or self._used + size <= self._limit  # noqa: E731
            return self.room.wait_for(enough, self._max_block_ms / 1000)
        finally:
            self.blocked -= 1

    def give(self, size: int) -> None:
        """Give memory back; the lock is held."""
        self._used -= size
        self.room.notify_all()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Mark this thread as one that calls back."""
        self._calling.add(get_ident())
        try:
            yield
        finally:
            self._calling.discard(get_ident())

    def check_may_wait(self) -> None:
        """Refuse to wait in a thread that others wait for.

        Raises:
            UsageError: this is a callback of a future.
        """
        if get_ident() in self._calling:
            raise UsageError("flush and close wait for this thread: do not call them in a callback of a future")

    def check_open(self) -> None:
        """Refuse work behind ``close``.

        Raises:
            ProducerClosedError: it was closed.
        """
        if self.closed:
            raise ProducerClosedError("this Producer is closed: make a new one. Nothing was sent")

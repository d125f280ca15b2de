"""How a coroutine waits for a producer: for room in the buffer in its turn, and for the outcome of its record.

No thread waits for it, so as many coroutines may wait as there are. They wait for room in the order of the
calls, topic by topic. Imported where the first coroutine calls: asyncio is not needed else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark_commitlog.producer.buffer import Buffer, BufferFullError

_T = TypeVar("_T")


class AppendOrder:
    """The order of the calls of ``asend``: one coroutine at a time of each event loop and topic appends its records."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]]
        self._locks = WeakKeyDictionary()

    def of(self, topic: str) -> asyncio.Lock:
        """Return the lock of a topic, for the loop that runs."""
        locks = self._locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        return locks.setdefault(topic, asyncio.Lock())

    async def take(self, give: Callable[[], _T], until: float) -> _T:
        """Call ``give`` until it finds room; where it does at once, nothing else runs in between.

        Args:
            give: raises ``BufferFullError`` where there is no room, and has taken nothing then.
            until: the loop's time (s) at which this gives up.

        Raises:
            BufferExhaustedError: there was no room until then.
        """
        try:
            return give()
        except BufferFullError as full:
            last = full
        loop, room = asyncio.get_running_loop(), asyncio.Event()
        with self._buffer.awaited(lambda: _wake(loop, room)):
            while True:
                room.clear()
                try:
                    return give()
                except BufferFullError as full:
                    last = full
                try:
                    async with asyncio.timeout_at(until):
                        await room.wait()
                except TimeoutError:
                    raise self._buffer.exhausted(last.size, last.topic) from None


def _wake(loop: asyncio.AbstractEventLoop, room: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(room.set)

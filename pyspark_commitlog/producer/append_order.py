"""Coroutines that wait for room in the buffer, in call order.

Imported lazily: only coroutines need asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark_commitlog.producer.buffer_pool import Buffer, BufferFullError

_T = TypeVar("_T")


class AppendOrder:
    """Locks that admit one coroutine per event loop and topic."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]]
        self._locks = WeakKeyDictionary()

    def of(self, topic: str) -> asyncio.Lock:
        """Lock of a topic, for the running loop."""
        locks = self._locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        return locks.setdefault(topic, asyncio.Lock())

    async def take(self, give: Callable[[], _T], until: float) -> _T:
        """Call `give` until it finds room, at first without yielding.

        `give` raises `BufferFullError` without side effects; `until` is the loop's time, in seconds.

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

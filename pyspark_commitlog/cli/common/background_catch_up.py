"""Catch-up of lagging roots in a thread, beside the rounds of a service."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Self

from pyspark_commitlog.storage.process import start_thread


class CatchingUp:
    """Background catch-up of lagging roots by at most one thread.

    Args:
        catch_up: ends soon when `stop` is set, and raises nothing.
        stop: is set at the end of the block, and by signals before.
    """

    def __init__(self, catch_up: Callable[[], object], stop: Event) -> None:
        self._catch_up, self._stop = catch_up, stop
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until the thread ends, whatever ended the service: none is left in the midst of a copy."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def go_on(self) -> None:
        """Begin, unless it is at work; without a free thread, in this one."""
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            self._thread = start_thread("commitlog-catch-up", self._catch_up, reserved=True)
        except RuntimeError:
            self._catch_up()

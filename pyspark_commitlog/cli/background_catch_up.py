"""Beside the rounds of a service: roots that lag catch up in a thread, however long one of them needs."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Self

from pyspark_commitlog.storage.process import start_thread


class CatchingUp:
    """Background catch-up of lagging roots by at most one thread.

    Args:
        catch_up: what `CommitLog.catch_up` does; it ends soon when `stop` is set, and raises nothing.
        stop: is set at the end of the block, and by signals before.
    """

    def __init__(self, catch_up: Callable[[], object], stop: Event) -> None:
        self._catch_up, self._stop = catch_up, stop
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until it is at work no more, whatever ended the service: no thread is left in the midst of a copy."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def go_on(self) -> None:
        """Begin, unless it is at work. A process that gets no more threads waits for it."""
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            self._thread = start_thread("commitlog-catch-up", self._catch_up, reserved=True)
        except RuntimeError:
            self._catch_up()

"""The running process: its id, and what is done anew in a child that was forked from it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from threading import Lock, Thread


def process_id() -> int:
    """Return the id of this process: another one in a forked child."""
    return os.getpid()


def after_fork(act: Callable[[], None]) -> None:
    """Have ``act`` run in every child forked from now on, before anything else of it runs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def process_name() -> str:
    """Return what tells this process to people: host/pid."""
    return f"{platform.node()}/{os.getpid()}"


class WhileNeeded:
    """A thread that there is only while somebody needs it.

    ``run`` returns when nobody does, having called ``ends`` under ``lock``; what tells it that somebody does is
    changed under ``lock``, too, before ``needed``.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.lock = Lock()
        self._name, self._run = name, run
        self._running = False

    def needed(self) -> None:
        """Start the thread where it does not run.

        Raises:
            RuntimeError: this process gets no more threads; the next call tries again.
        """
        with self.lock:
            start, self._running = not self._running, True
        if start:
            try:
                Thread(target=self._guarded, name=self._name, daemon=True).start()
            except BaseException:
                self.ended()
                raise

    def ends(self) -> None:
        """Say, holding ``lock``, that ``run`` is about to return."""
        self._running = False

    def ended(self) -> None:
        """Say that the thread is no more: whoever needs it next starts another."""
        with self.lock:
            self.ends()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException:
            self.ended()
            raise

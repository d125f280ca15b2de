"""Waiting for one's turn on this machine: an OS lock on a directory, with a time limit.

Raw ``flock``, not a lock library: those poll, which is neither fair nor cheap with many who wait. Linux wakes one
waiter at a time, in the order in which they came. It knows no time limit, so whoever has to wait does it in a thread
that is left behind when the time is up.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from threading import Event, Lock, Thread

from pyspark_commitlog.storage.process import after_fork

#: Descriptors that hold, or wait for, a turn.
_open: set[int] = set()


def _close_inherited() -> None:
    """Close a forked child's copies: the parent's turn must end with the parent."""
    while _open:
        with suppress(OSError):
            os.close(_open.pop())


after_fork(_close_inherited)


def _close(fd: int) -> None:
    _open.discard(fd)
    os.close(fd)


class Turns:
    """The turns that this process takes; each is a file descriptor that holds the lock."""

    def __init__(self) -> None:
        self._left_behind: dict[str, _Waiter] = {}

    def take(self, directory: str, seconds: float) -> int | None:
        """Return the descriptor that holds the lock, or None: not in time, or the system has no such lock.

        Who was not served in time did not come back for its turn: while it waits, nobody of us waits behind it.
        """
        left = self._left_behind.get(directory)
        if left is not None and left.is_alive():
            return None
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        _open.add(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                waiter = _Waiter(fd)
            except RuntimeError:  # no more threads, or the interpreter ends: go on without
                _close(fd)
                return None
            if waiter.served(seconds):
                return fd
            self._left_behind[directory] = waiter
            return None
        except OSError:
            _close(fd)
            return None
        return fd

    def give(self, fd: int) -> None:
        """Let the next one have its turn, also where a forked child has a copy of the descriptor."""
        with suppress(OSError):  # what was done in the turn is done
            fcntl.flock(fd, fcntl.LOCK_UN)
            _close(fd)


class _Waiter:
    """Waits for a lock in a thread; owns the descriptor when it is left behind."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decision, self._served, self._given_up = Lock(), Event(), False
        self._thread = Thread(target=self._wait, name="commitlog-turn", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._decision:
            if not self._given_up:
                self._served.set()
                return
        _close(self._fd)

    def served(self, seconds: float) -> bool:
        """Wait; return whether the lock is held. If not, the thread lets go of it as soon as it gets it."""
        try:
            self._served.wait(seconds)
        except BaseException:  # Ctrl-C: the caller will not come back to let go of it
            if not self._leave():
                _close(self._fd)
            raise
        return not self._leave()

    def _leave(self) -> bool:
        """Leave the thread behind; return False if it is served already."""
        with self._decision:
            self._given_up = not self._served.is_set()
            return self._given_up

    def is_alive(self) -> bool:
        """Return whether it still waits."""
        return self._thread.is_alive()

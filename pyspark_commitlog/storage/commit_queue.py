"""Waiting for one's turn on this machine: an OS lock on a directory, with a time limit.

Raw ``flock``, not a lock library: those poll, which is neither fair nor cheap with many waiters. Linux wakes one
waiter at a time, in the order in which they came. It knows no time limit, so a process waits in a thread
that is left behind when the time is up.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from threading import Event, Lock

from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.descriptors import open_file
from pyspark_commitlog.storage.process import after_fork, start_thread
from pyspark_commitlog.storage.turn_queues import TurnPlace, TurnQueues

#: Descriptors that hold, or wait for, a turn.
_open: set[int] = set()


def _close_inherited() -> None:
    """Close a forked child's copies: the parent's turn must end with the parent."""
    while _open:
        with suppress(OSError):
            os.close(_open.pop())


def _close(fd: int) -> None:
    _open.discard(fd)
    os.close(fd)


def _let_go(fd: int) -> None:
    """Give the turn up, also where a child that was forked just now has a copy of the descriptor."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    _close(fd)


#: How long a process does not wait for a turn that did not come in time, where no thread waits for it meanwhile.
_PATIENCE_SECONDS = 10.0
#: Directories whose turn did not come that are remembered.
_REMEMBERED = 256
#: Threads that wait for turns at a time, in one process.
_WAITERS = 4
#: How often a turn is asked for where there is no thread to wait for it.
_ASK_SECONDS = 0.02


class Turns:
    """The turns that a process takes; each is a file descriptor that holds the lock.

    However many of a process wait for a directory, one descriptor and at most one thread do.
    """

    def __init__(self) -> None:
        self._left_behind: dict[str, _Waiter] = {}
        self._in_vain: dict[str, float] = {}
        self._waiting: set[_Waiter] = set()
        self._lines = TurnQueues()
        self._taken: dict[int, TurnPlace] = {}
        self._lock = Lock()

    def take(self, directory: str, seconds: float) -> int | None:
        """Return the descriptor that holds the lock, or None: not in time, or the system has no such lock.

        A thread that was not served in time did not come back for its turn: while it waits, none of us queues after it.
        """
        if self._is_in_vain(directory):
            return None
        until, me = monotonic() + seconds, TurnPlace(directory)
        try:
            if not self._lines.enter(me, seconds):
                return None
            me.fd = self._ask(directory, max(0.0, until - monotonic()))
            if me.fd is not None:
                with self._lock:
                    self._taken[me.fd] = me
            return me.fd
        finally:
            if me.fd is None:
                self._lines.leave(me)

    def _is_in_vain(self, directory: str) -> bool:
        left = self._left_behind.get(directory)
        if left is not None:
            if left.is_alive():
                return True
            self._left_behind.pop(directory, None)
        since = self._in_vain.get(directory)
        return since is not None and monotonic() - since < _PATIENCE_SECONDS

    def _ask(self, directory: str, seconds: float) -> int | None:
        """Ask the system for the turn; only the first of a queue does."""
        if self._is_in_vain(directory):  # the one before us in the queue waited in vain
            return None
        try:
            fd = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            _open.add(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait(directory, fd, seconds)
        except OSError:
            _close(fd)
            return None
        except BaseException:  # Ctrl-C: nobody will come back to let go of it
            _close(fd)
            raise
        return fd

    def _wait(self, directory: str, fd: int, seconds: float) -> int | None:
        try:
            waiter = _Waiter(fd, self._waiting)
        except RuntimeError:  # no more threads, or the interpreter ends
            return self._poll(directory, fd, seconds)
        except BaseException:
            _close(fd)
            raise
        if waiter.served(seconds):
            return fd
        self._left_behind[directory] = waiter
        return None

    def _poll(self, directory: str, fd: int, seconds: float) -> int | None:
        """Ask for the turn now and then: not in the order of arrival, and at the price of no thread."""
        until, held = monotonic() + seconds, False
        try:
            while not held and monotonic() < until:
                time.sleep(min(_ASK_SECONDS, seconds))
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held = True
        finally:
            if not held:
                _close(fd)
        if held:
            return fd
        with self._lock:
            self._in_vain[directory] = monotonic()
            if len(self._in_vain) > _REMEMBERED:
                del self._in_vain[next(iter(self._in_vain))]
        return None

    def forget(self) -> None:
        """Forget what was taken, in a forked child: its copies are closed, and other files may get their numbers."""
        self._taken.clear()

    def give(self, fd: int) -> None:
        """Let the next one have its turn, also where a forked child has a copy of the descriptor; twice is once."""
        place = self._taken.get(fd)
        if place is None:
            return
        try:
            with suppress(OSError):  # what was done in the turn is done
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            try:
                with self._lock:  # before the number can be another file's
                    self._taken.pop(fd, None)
                with suppress(OSError):
                    _close(fd)
            finally:
                self._lines.leave(place)


_process = Turns()


def of_process() -> Turns:
    """Return the turns of this process."""
    return _process


def _reset_in_child() -> None:
    """Close a forked child's copies, as the parent's turn must end with the parent; nobody waits in it."""
    global _process
    _close_inherited()
    _process.forget()
    _process = Turns()


after_fork(_reset_in_child)


class _Waiter:
    """Waits for a lock in a thread; owns the descriptor when it is left behind.

    Args:
        fd: of the directory.
        waiting: those of the process that wait; it is among them meanwhile.

    Raises:
        RuntimeError: there is no thread for it.
    """

    def __init__(self, fd: int, waiting: set[_Waiter]) -> None:
        self._fd, self._waiting = fd, waiting
        self._decision, self._served, self._given_up = Lock(), Event(), False
        if len(waiting) >= _WAITERS:
            raise RuntimeError(f"{_WAITERS} threads wait for turns already")
        self._thread = start_thread("commitlog-turn", self._work)

    def _work(self) -> None:
        self._waiting.add(self)
        try:
            self._wait()
        finally:
            self._waiting.discard(self)

    def _wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._decision:
            if not self._given_up:
                self._served.set()
                return
        _let_go(self._fd)

    def served(self, seconds: float) -> bool:
        """Wait; return whether the lock is held. If not, the thread lets go of it as soon as it gets it."""
        try:
            self._served.wait(seconds)
        except BaseException:  # Ctrl-C: the caller will not come back to let go of it
            if not self._leave():
                _let_go(self._fd)
            raise
        return not self._leave()

    def _leave(self) -> bool:
        """Let go of the thread; return False if it is served already."""
        with self._decision:
            self._given_up = not self._served.is_set()
            return self._given_up

    def is_alive(self) -> bool:
        """Return whether it still waits."""
        return self._thread.is_alive()

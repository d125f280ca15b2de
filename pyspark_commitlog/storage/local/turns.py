"""Turns of committers on this machine: OS locks on directories, with deadlines.

`flock`, as polling lock libraries are neither fair nor cheap; Linux serves waiters in order. Since it has no
deadline, a thread waits, and is abandoned when time is up.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from threading import Event, Lock

from pyspark_commitlog.storage.clock import Deadline, SystemClock, monotonic
from pyspark_commitlog.storage.local.descriptors import open_file
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import start_thread
from pyspark_commitlog.storage.turn_queues import TurnPlace, TurnQueues


def _close_inherited(fds: set[int]) -> None:
    while fds:
        with suppress(OSError):
            os.close(fds.pop())


#: Descriptors that hold, or wait for, a turn.
_open = PerProcess(set[int], _close_inherited)


def _close(fd: int) -> None:
    _open.value.discard(fd)
    os.close(fd)


def _let_go(fd: int) -> None:
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    _close(fd)


#: After a turn that did not come by polling, none is tried for so long.
_PATIENCE_SECONDS = 10.0
#: Capacity of the memory of these.
_REMEMBERED = 256
#: Maximum waiting threads of a process.
_WAITERS = 4
#: Polling interval without a waiting thread.
_ASK_SECONDS = 0.02


class Turns:
    """Turns taken by this process, as descriptors that hold locks."""

    def __init__(self) -> None:
        self._left_behind: dict[str, _Waiter] = {}
        self._in_vain: dict[str, float] = {}
        self._waiting: set[_Waiter] = set()
        self._lines = TurnQueues()
        self._taken: dict[int, TurnPlace] = {}
        self._lock = Lock()

    def take(self, directory: str, seconds: float) -> int | None:
        """Return a descriptor that holds the lock; None if late or unsupported.

        Nobody queues while an abandoned thread waits for the directory.
        """
        if self._is_in_vain(directory):
            return None
        deadline, me = Deadline(SystemClock(), seconds), TurnPlace(directory)
        try:
            if not self._lines.enter(me, seconds):
                return None
            me.fd = self._ask(directory, deadline.remaining())
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
        if self._is_in_vain(directory):  # the previous one in the queue waited in vain
            return None
        try:
            fd = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            _open.value.add(fd)
            if _lock_now(fd):
                return fd
            waiter = _Waiter(fd, self._waiting)
        except RuntimeError:  # no more threads, or the interpreter ends
            return self._poll(directory, fd, seconds)
        except OSError:
            _close(fd)
            return None
        except BaseException:  # Ctrl-C: the caller won't release it
            _close(fd)
            raise
        if waiter.served(seconds):
            return fd
        self._left_behind[directory] = waiter
        return None

    def _poll(self, directory: str, fd: int, seconds: float) -> int | None:
        """Poll for the lock, without a thread: unfair."""
        deadline, held = Deadline(SystemClock(), seconds), False
        try:
            while not held and not deadline.is_over:
                time.sleep(min(_ASK_SECONDS, seconds))
                held = _lock_now(fd)
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
        """Forget all turns, in a forked child."""
        self._taken.clear()

    def give(self, fd: int) -> None:
        """End a turn, even if a forked child has a copy; idempotent."""
        place = self._taken.get(fd)
        if place is None:
            return
        try:
            with suppress(OSError):  # the turn's work is done
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            try:
                with self._lock:  # before the number is reused
                    self._taken.pop(fd, None)
                with suppress(OSError):
                    _close(fd)
            finally:
                self._lines.leave(place)


process_turns = PerProcess(Turns, Turns.forget)


def _lock_now(fd: int) -> bool:
    """Take a lock without waiting for it; return success."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Waiter:
    """A thread's wait for a lock; it owns the descriptor if abandoned.

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
        """Wait; return whether the lock is held. Else the thread releases it."""
        try:
            self._served.wait(seconds)
        except BaseException:  # Ctrl-C: the caller won't release it
            if not self._leave():
                _let_go(self._fd)
            raise
        return not self._leave()

    def _leave(self) -> bool:
        with self._decision:
            self._given_up = not self._served.is_set()
            return self._given_up

    def is_alive(self) -> bool:
        return self._thread.is_alive()

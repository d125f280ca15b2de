"""Calls of one root that nobody waits for longer than their limit: each is made by a thread that the roots share.

A call of a filesystem that hangs can't be stopped: it keeps its thread. What can be done is to give it up. So a root
that hangs fills a few threads, then fails at once, until what was given up returns.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from threading import Condition
from typing import Any, TypeVar, cast

from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.process import after_fork, start_thread
from pyspark_commitlog.storage.turn_queues import TurnQueues

_Result = TypeVar("_Result")

#: Calls of one root at a time, of each kind.
MOST_CALLS = 8
#: Of these, those that may take longer than so many seconds: they leave places for looks and for puts.
MOST_LONG_CALLS, _LONG_SECONDS = 6, 10.0
#: How long a thread waits for a call before it ends.
_IDLE_SECONDS = 5.0
#: How often the one that waits for several steps looks whether one of them is late.
_LOOK_SECONDS = 0.5
#: How long a call may wait until it begins; one that may take longer than this, as long as it may take.
_BEGIN_SECONDS = 10.0
#: How long after a call that was given up a root is tried again, although that has not returned.
RETRY_SECONDS = 30.0


class _Kind(Enum):
    """What has places of its own: no kind waits for the calls of another."""

    OWN = "a call"
    WITHIN = "a call that is made within one of another root, and waits for nobody"
    TURN = "a wait for others of this machine, which may themselves need a call to be done"


class _Call:
    """What a thread does for somebody: one step, or several that each have a limit."""

    def __init__(
        self,
        calls: Calls,
        what: str,
        act: Callable[[], object],
        undo: Callable[[Any], object] | None = None,
        *,
        changes: bool = True,
        seconds: float | None = None,
        waits: bool = False,
    ) -> None:
        self.calls, self.what, self.act, self.undo, self.changes = calls, what, act, undo, changes
        self.seconds = seconds
        self.kind = _Kind.TURN if waits else _Kind.OWN if _current_call() is None else _Kind.WITHIN
        self.is_long = not waits and seconds is not None and seconds > _LONG_SECONDS
        self.done = threading.Lock()
        self.done.acquire()
        self.until: float | None = None
        self.left = False
        #: What is done once it and others have ended. Kept here: its thread holds it, also while the process ends.
        self.handed: list[tuple[set[_Call], Callable[[], object]]] = []
        self.result: object = None
        self.failure: BaseException | None = None

    def step(self, what: str, act: Callable[[], _Result], seconds: float) -> _Result:
        """Do one step of several; nothing more is done where the caller has left."""
        if self.left:
            raise self.calls.hangs(self.what)
        self.what, self.until = what, monotonic() + seconds
        try:
            return act()
        finally:
            self.until = None


#: The calls that threads make now, by the thread's number: of those of ours alone, so as many at most.
_making: dict[int, _Call] = {}


def _current_call() -> _Call | None:
    """Return the call that this thread makes."""
    return _making.get(threading.get_ident())


class Calls:
    """The calls of one root.

    Args:
        url: of the root, for messages.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._changed = Condition()
        self._running, self._long = Counter[_Kind](), Counter[_Kind]()
        #: Where those who want a turn stand in line, with no call.
        self.lines = TurnQueues()
        self._left: set[_Call] = set()
        self._late_calls: set[_Call] = set()
        self._left_at = 0.0

    @classmethod
    def of(cls, url: str) -> Calls:
        """Return the calls of a root of this process."""
        found = _known.get(url)
        if found is not None:
            return found
        with _lock:
            return _known.setdefault(url, cls(url))

    def hangs(self, what: str) -> ReplicaNotAvailableError:
        """Return the error of a call that took too long."""
        return ReplicaNotAvailableError(
            f"{self.url} hangs: {what} has not returned in time. It counts as a root that fails until it does; check "
            "the disk, or the server that it is mounted from"
        )

    def run(
        self,
        what: str,
        act: Callable[[], _Result],
        seconds: float,
        undo: Callable[[_Result], object] | None = None,
        *,
        changes: bool = True,
    ) -> _Result:
        """Return, or raise, what ``act`` does.

        Args:
            what: it is, for the error.
            act: one call of the root.
            seconds: how long it may take, once it has begun.
            undo: what is done with a result that comes after its caller has left.
            changes: whether it may change what others read, so that it matters when it is done late.

        Raises:
            ReplicaNotAvailableError: it takes longer; it may be done all the same, later. Or the root hangs already.
        """
        call = _current_call()
        if call is not None and call.calls is self:
            return call.step(what, act, seconds)
        made = _Call(self, what, act, undo, changes=changes, seconds=seconds)
        self._begin(made, max(seconds, _BEGIN_SECONDS))
        return cast(_Result, self._wait(made))

    def check(self) -> None:
        """Raise what a call would that began now, where the root is known to hang: for those that wait first."""
        if _current_call() is not None:
            return
        with self._changed:
            if self._left and monotonic() - self._left_at < RETRY_SECONDS:
                raise self.hangs(next(iter(self._left)).what)

    def wait(
        self, what: str, act: Callable[[], _Result], seconds: float, undo: Callable[[_Result], object]
    ) -> _Result | None:
        """Do as ``run`` what waits for others, and takes no place of what they may need; None where many do already."""
        call = _current_call()
        if call is not None and call.calls is self:
            return call.step(what, act, seconds)
        made = _Call(self, what, act, undo, changes=False, seconds=seconds, waits=True)
        if not self._wait_for_place(made, 0.0):
            return None
        self._give(made)
        return cast(_Result, self._wait(made))

    def begin(self, what: str, act: Callable[[], _Result], *, changes: bool = True) -> Callable[[], _Result]:
        """Have several calls of the root begun, each of which has a limit; return what waits for them.

        Args:
            what: they are, for the error.
            act: makes them. Within another call of several each of them is one of its own.
            changes: as of ``run``.

        Raises, here or there:
            ReplicaNotAvailableError: as ``run``. Nothing more is done then.
        """
        if _current_call() is not None:
            return act
        made = _Call(self, what, act, changes=changes)
        self._begin(made, _BEGIN_SECONDS)
        return lambda: cast(_Result, self._wait(made))

    def late_calls(self) -> frozenset[_Call]:
        """Return the calls that were left behind, may change something, and have not ended."""
        with self._changed:
            return frozenset(self._late_calls)

    def let_go(self, what: str, act: Callable[[], object], seconds: float, before: frozenset[_Call]) -> None:
        """Do what ends a lock; if calls were left behind under it, at the end of the last of them.

        Args:
            what, act, seconds: as of ``run``.
            before: what ``late_calls`` returned before the lock was taken.

        Raises:
            ReplicaNotAvailableError: as ``run``; or one of these calls hangs.
        """
        with self._changed:
            waits = set(self._late_calls - before)
            for call in waits:
                call.handed.append((waits, act))
            hanging = next((call.what for call in waits if call in self._left), None)
        if not waits:
            self.run(what, act, seconds, changes=False)
        elif hanging is not None:
            raise self.hangs(hanging)

    # --- the caller --------------------------------------------------------------------------------------

    def _begin(self, call: _Call, patience: float) -> None:
        if not self._wait_for_place(call, patience):
            raise self.hangs(f"one of {MOST_CALLS} calls before {call.what}")
        self._give(call)

    def _wait_for_place(self, call: _Call, patience: float) -> bool:
        """Wait for a call's place; return whether it has one. Its limit begins with that.

        Raises:
            ReplicaNotAvailableError: the root hangs, or is found to meanwhile.
        """
        until = monotonic() + patience
        with self._changed:
            if self._left:
                now = monotonic()
                if now - self._left_at < RETRY_SECONDS:
                    raise self.hangs(next(iter(self._left)).what)
                self._left_at = now  # this one tries it
            seen = self._left_at
            while not self._has_place(call):
                if not self._changed.wait(max(0.0, until - monotonic())):
                    return False
                if self._left and self._left_at != seen:
                    raise self.hangs(next(iter(self._left)).what)
            self._count(call, 1)
            call.until = None if call.seconds is None else monotonic() + call.seconds
            return True

    def _has_place(self, call: _Call) -> bool:
        if call.is_long and self._long[call.kind] >= MOST_LONG_CALLS:
            return False
        return self._running[call.kind] < MOST_CALLS

    def _count(self, call: _Call, one: int) -> None:
        self._running[call.kind] += one
        self._long[call.kind] += one if call.is_long else 0

    def _give(self, call: _Call) -> None:
        """Have a call made that has its place."""
        if _idle.give(call):
            return
        with self._changed:
            if self._left:  # the caller's own thread could not be given up: it does not try the root again
                self._count(call, -1)
                self._changed.notify_all()
                raise self.hangs(next(iter(self._left)).what)
        _make(call)

    def _wait(self, call: _Call) -> object:
        try:
            while not call.done.acquire(timeout=self._patience(call)):
                until = call.until  # read once: the call's thread takes it back where a step ends
                if until is not None and monotonic() >= until and self._leave(call, hangs=True):
                    raise self.hangs(call.what)
        except ReplicaNotAvailableError:
            raise
        except BaseException:  # Ctrl-C
            self._leave(call, hangs=False)
            raise
        if call.failure is not None:
            raise call.failure
        return call.result

    def _patience(self, call: _Call) -> float:
        until = call.until
        return _LOOK_SECONDS if until is None else max(0.0, until - monotonic())

    def _leave(self, call: _Call, *, hangs: bool) -> bool:
        """Give up a call; return False where it has ended."""
        with self._changed:
            if call.act is _no_action:
                return False
            call.left = True
            if call.changes:
                self._late_calls.add(call)
            if hangs:
                self._left.add(call)
                self._left_at = monotonic()
                self._changed.notify_all()  # those who wait for a place fail now, too
            return True

    # --- the threads -------------------------------------------------------------------------------------

    def ended(self, call: _Call) -> None:
        """Take that a call was made: a result that nobody waits for is undone."""
        with self._changed:
            call.act = _no_action
            self._count(call, -1)
            self._left.discard(call)
            left = call.left
            self._changed.notify_all()
        call.done.release()
        if left and call.failure is None and call.undo is not None:
            with suppress(Exception):
                call.undo(call.result)
        if left:
            self._hand_on(call)

    def _hand_on(self, call: _Call) -> None:
        """Do what was left to the last of several calls, if this is it."""
        with self._changed:
            self._late_calls.discard(call)
            for waits, _ in call.handed:
                waits.discard(call)
            due = [act for waits, act in call.handed if not waits]
            call.handed = []
        for act in due:
            with suppress(Exception):
                act()


def _no_action() -> None:
    """Stand in the place of an action that has ended."""


class _Idle:
    """The threads that wait for a call, of whatever root."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[_Thread] = []

    def give(self, call: _Call) -> bool:
        """Have a call made by a thread that is free, or a new one; False where the process gets no more."""
        with self._lock:
            thread = self._threads.pop() if self._threads else None
        if thread is not None:
            thread.give(call)
            return True
        try:
            start_thread("commitlog-root", _Thread(self, call).work)
        except RuntimeError:
            return False
        return True

    def take(self, thread: _Thread) -> None:
        """Take that a thread is free."""
        with self._lock:
            self._threads.append(thread)

    def retire(self, thread: _Thread) -> bool:
        """Take a thread out unless a call came; return whether it ends."""
        with self._lock:
            if thread not in self._threads:
                return False
            self._threads.remove(thread)
            return True


class _Thread:
    """A thread that makes calls; it begins with the one that it was started for."""

    def __init__(self, idle: _Idle, call: _Call) -> None:
        self._idle = idle
        self._call: _Call | None = call
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, call: _Call) -> None:
        """Have it make a call; it waits for one."""
        self._call = call
        self._given.release()

    def work(self) -> None:
        """Make calls while some come."""
        while True:
            call, self._call = self._call, None  # what it holds is not kept
            assert call is not None
            _make(call)
            del call
            self._idle.take(self)
            while not self._given.acquire(timeout=_IDLE_SECONDS):
                if self._idle.retire(self):
                    return


def _make(call: _Call) -> None:
    me, before = threading.get_ident(), _current_call()
    _making[me] = call
    try:
        call.result = call.act()
    except BaseException as failure:  # noqa: BLE001 raised where it is waited for
        call.failure = failure
    finally:
        if before is None:
            _making.pop(me, None)  # a child that was forked within the call has forgotten it
        else:
            _making[me] = before
        call.calls.ended(call)


def _begin_again() -> None:
    """Begin again in a forked child: it has none of these threads, and locks that they held are let go of by nobody."""
    global _idle, _lock
    _lock = threading.Lock()
    for calls in _known.values():
        calls._changed = Condition()  # for those that wait for a call of the parent's
        calls.lines.begin_again()  # for those that end a turn of the parent's
    _known.clear()
    _making.clear()
    _idle = _Idle()


_idle = _Idle()
_known: dict[str, Calls] = {}
_lock = threading.Lock()
after_fork(_begin_again)

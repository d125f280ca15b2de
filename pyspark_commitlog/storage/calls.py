"""Calls of a root with deadlines, on threads shared by all roots.

A hanging filesystem call can't be stopped and keeps its thread; its caller gives up. Such a root fills a few threads,
then fails at once until an abandoned call returns.
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
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import start_thread
from pyspark_commitlog.storage.turn_queues import TurnQueues

_Result = TypeVar("_Result")

#: Maximum concurrent calls of a root, per kind.
MOST_CALLS = 8
#: Maximum of these with a longer deadline than this: the rest is for looks and puts.
MOST_LONG_CALLS, _LONG_SECONDS = 6, 10.0
#: Idle time after which a thread ends.
_IDLE_SECONDS = 5.0
#: Interval at which the waiter for several steps checks their deadlines.
_LOOK_SECONDS = 0.5
#: Maximum wait for a place; the call's own deadline, if longer.
_BEGIN_SECONDS = 10.0
#: Delay after an abandoned call until a root is tried again.
RETRY_SECONDS = 30.0


class _Kind(Enum):
    OWN = "a call"
    WITHIN = "a call that is made within one of another root, and waits for nobody"
    TURN = "a wait for others of this machine, which may themselves need a call to be done"


class _Call:
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
        #: Releases to run once this and other calls have ended; referenced from here as the thread lives longest.
        self.handed: list[tuple[set[_Call], Callable[[], object]]] = []
        self.result: object = None
        self.failure: BaseException | None = None

    def step(self, what: str, act: Callable[[], _Result], seconds: float) -> _Result:
        if self.left:
            raise self.calls.hangs(self.what)
        self.what, self.until = what, monotonic() + seconds
        try:
            return act()
        finally:
            self.until = None


def _current_call() -> _Call | None:
    return _process.value.making.get(threading.get_ident())


class Calls:
    """The calls of one root; `url` is for messages."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._changed = PerProcess(Condition)  # a child leaves calls of its parent
        self._running, self._long = Counter[_Kind](), Counter[_Kind]()
        #: Queues for turns, which take no call.
        self.lines = PerProcess(TurnQueues)
        self._left: set[_Call] = set()
        self._late_calls: set[_Call] = set()
        self._left_at = 0.0

    @classmethod
    def of(cls, url: str) -> Calls:
        """Return this process's calls of a root."""
        process = _process.value
        found = process.known.get(url)
        if found is not None:
            return found
        with process.lock:
            return process.known.setdefault(url, cls(url))

    def hangs(self, what: str) -> ReplicaNotAvailableError:
        """Error of a missed deadline."""
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
        """Or raise the outcome of `act`, within a deadline.

        Args:
            what: the call's name, for errors.
            act: one call of the root.
            seconds: deadline, from its start.
            undo: handles a result that comes too late.
            changes: whether a late effect matters.

        Raises:
            ReplicaNotAvailableError: too late, but perhaps done later; or the root hangs already.
        """
        call = _current_call()
        if call is not None and call.calls is self:
            return call.step(what, act, seconds)
        made = _Call(self, what, act, undo, changes=changes, seconds=seconds)
        self._begin(made, max(seconds, _BEGIN_SECONDS))
        return cast(_Result, self._wait(made))

    def check(self) -> None:
        """Raise if the root is known to hang."""
        if _current_call() is not None:
            return
        with self._changed.value:
            if self._left and monotonic() - self._left_at < RETRY_SECONDS:
                raise self.hangs(next(iter(self._left)).what)

    def wait(
        self, what: str, act: Callable[[], _Result], seconds: float, undo: Callable[[_Result], object]
    ) -> _Result | None:
        """Like `run`, for a call that waits for others.

        It has places of its own; None if all are taken.
        """
        call = _current_call()
        if call is not None and call.calls is self:
            return call.step(what, act, seconds)
        made = _Call(self, what, act, undo, changes=False, seconds=seconds, waits=True)
        if not self._wait_for_place(made, 0.0):
            return None
        self._give(made)
        return cast(_Result, self._wait(made))

    def begin(self, what: str, act: Callable[[], _Result], *, changes: bool = True) -> Callable[[], _Result]:
        """Begin several calls with deadlines; return a function that awaits them.

        Arguments as for `run`; inside another begun call `act` runs as part of that.

        Raises, here or there:
            ReplicaNotAvailableError: as `run`; then no further call is made.
        """
        if _current_call() is not None:
            return act
        made = _Call(self, what, act, changes=changes)
        self._begin(made, _BEGIN_SECONDS)
        return lambda: cast(_Result, self._wait(made))

    def late_calls(self) -> frozenset[_Call]:
        """Abandoned calls that may change data and still run."""
        with self._changed.value:
            return frozenset(self._late_calls)

    def let_go(self, what: str, act: Callable[[], object], seconds: float, before: frozenset[_Call]) -> None:
        """Release a lock once the calls abandoned under it have ended.

        `before` is `late_calls()` from before the lock, the rest as for `run`.

        Raises:
            ReplicaNotAvailableError: as `run`; or one of these calls hangs.
        """
        with self._changed.value:
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
        until = monotonic() + patience
        with self._changed.value:
            if self._left:
                now = monotonic()
                if now - self._left_at < RETRY_SECONDS:
                    raise self.hangs(next(iter(self._left)).what)
                self._left_at = now  # this call tries the root
            seen = self._left_at
            while not self._has_place(call):
                if not self._changed.value.wait(max(0.0, until - monotonic())):
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
        if _process.value.idle.give(call):
            return
        with self._changed.value:
            if self._left:  # the caller would run it itself and could hang
                self._count(call, -1)
                self._changed.value.notify_all()
                raise self.hangs(next(iter(self._left)).what)
        _make(call)

    def _wait(self, call: _Call) -> object:
        try:
            while not call.done.acquire(timeout=self._patience(call)):
                until = call.until  # read once: the call's thread resets it at the end of a step
                if until is not None and monotonic() >= until and self._leave(call, hangs=True):
                    raise self.hangs(call.what)
        except ReplicaNotAvailableError:
            raise
        except BaseException:  # Ctrl-C: the call goes on, and nobody waits for it
            self._leave(call, hangs=False)
            raise
        if call.failure is not None:
            raise call.failure
        return call.result

    def _patience(self, call: _Call) -> float:
        until = call.until
        return _LOOK_SECONDS if until is None else max(0.0, until - monotonic())

    def _leave(self, call: _Call, *, hangs: bool) -> bool:
        with self._changed.value:
            if call.act is _no_action:
                return False
            call.left = True
            if call.changes:
                self._late_calls.add(call)
            if hangs:
                self._left.add(call)
                self._left_at = monotonic()
                self._changed.value.notify_all()  # waiters for a place fail now, too
            return True

    # --- the threads -------------------------------------------------------------------------------------

    def ended(self, call: _Call) -> None:
        """Record a call's end; undo the result of an abandoned one."""
        with self._changed.value:
            call.act = _no_action
            self._count(call, -1)
            self._left.discard(call)
            left = call.left
            self._changed.value.notify_all()
        call.done.release()
        if left and call.failure is None and call.undo is not None:
            with suppress(Exception):
                call.undo(call.result)
        if left:
            self._hand_on(call)

    def _hand_on(self, call: _Call) -> None:
        with self._changed.value:
            self._late_calls.discard(call)
            for waits, _ in call.handed:
                waits.discard(call)
            due = [act for waits, act in call.handed if not waits]
            call.handed = []
        for act in due:
            with suppress(Exception):
                act()


def _no_action() -> None:
    """Stand in for the action of an ended call."""


class _Idle:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[_Thread] = []

    def give(self, call: _Call) -> bool:
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
        with self._lock:
            self._threads.append(thread)

    def retire(self, thread: _Thread) -> bool:
        with self._lock:
            if thread not in self._threads:
                return False
            self._threads.remove(thread)
            return True


class _Thread:
    def __init__(self, idle: _Idle, call: _Call) -> None:
        self._idle = idle
        self._call: _Call | None = call
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, call: _Call) -> None:
        self._call = call
        self._given.release()

    def work(self) -> None:
        while True:
            call, self._call = self._call, None  # drop the reference
            assert call is not None
            _make(call)
            del call
            self._idle.take(self)
            while not self._given.acquire(timeout=_IDLE_SECONDS):
                if self._idle.retire(self):
                    return


def _make(call: _Call) -> None:
    making, me, before = _process.value.making, threading.get_ident(), _current_call()
    making[me] = call
    try:
        call.result = call.act()
    except BaseException as failure:  # noqa: BLE001 raised where it is waited for
        call.failure = failure
    finally:
        if before is None:
            making.pop(me, None)
        else:
            making[me] = before
        call.calls.ended(call)


class _CallRegistry:
    def __init__(self) -> None:
        self.known: dict[str, Calls] = {}
        #: Current call by thread number; only of our threads, so bounded.
        self.making: dict[int, _Call] = {}
        self.idle = _Idle()
        self.lock = threading.Lock()


_process = PerProcess(_CallRegistry)

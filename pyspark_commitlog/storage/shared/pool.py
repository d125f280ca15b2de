"""Bounded process-wide thread pools for single calls and recurring jobs."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Lock
from typing import Protocol, TypeVar, cast

from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.process import RESERVED, start_thread

_Result = TypeVar("_Result")

#: Idle time after which a pool's thread ends.
IDLE_SECONDS = 5.0
#: A started thread that has not begun by then was interrupted (Ctrl-C): start another.
_STARTING_SECONDS = 1.0
#: A job overdue for longer has no thread about to take it.
_SOON_SECONDS = 0.05


def _share(part: int) -> int:
    return max(1, (limits().threads - RESERVED) // part)


class HelperThreads:
    """Threads that run calls concurrently with their owners.

    A waiter runs its call itself if none has begun it. `part`: see `Pool`.
    """

    def __init__(self, name: str, part: int) -> None:
        self._name, self._part = name, part
        self._changed = Condition()
        self._waiting: deque[_Thing] = deque()
        self._running = self._idle = 0

    def begin(self, act: Callable[[], _Result]) -> Callable[[], _Result]:
        """Start `act` in a thread; return a function that awaits its outcome."""
        thing = _Thing(act)
        with self._changed:
            self._waiting.append(thing)
            start = len(self._waiting) > self._idle and self._running < _share(self._part)
            self._running += start
            self._changed.notify()
        if start:
            with suppress(RuntimeError):  # a waiter runs it
                start_thread(self._name, self._work, on_failure=self._forget_thread)

        def result() -> object:
            if thing.claim():
                with self._changed, suppress(ValueError):  # do not keep the result
                    self._waiting.remove(thing)
                thing.do()
            return thing.result()

        return cast(Callable[[], _Result], result)

    def _forget_thread(self) -> None:
        with self._changed:
            self._running -= 1

    def _work(self) -> None:
        try:
            while (thing := self._next()) is not None:
                thing.do()
                del thing  # drop the reference
        finally:
            self._forget_thread()

    def _next(self) -> _Thing | None:
        with self._changed:
            while True:
                while self._waiting:
                    thing = self._waiting.popleft()
                    if thing.claim():
                        return thing
                self._idle += 1
                try:
                    if not self._changed.wait(IDLE_SECONDS):
                        return None
                finally:
                    self._idle -= 1


class _Thing:
    """A call, run by the first thread that claims it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act
        self._claimed = Lock()
        self._done: Future[object] = Future()

    def claim(self) -> bool:
        return self._claimed.acquire(blocking=False)

    def do(self) -> None:
        act, self._act = self._act, None
        assert act is not None
        try:
            self._done.set_result(act())
        except BaseException as failure:  # noqa: BLE001 raised in the waiter
            self._done.set_exception(failure)

    def result(self) -> object:
        return self._done.result()


class Job(Protocol):
    """A recurring job, run by one thread at a time.

    `root`: its owner; no root gets all threads of a pool.
    """

    root: object

    def run(self) -> None:
        """Do the work that is due."""


class Pool:
    """Threads that run jobs when due, and end when none is.

    `part`: the pool gets 1/`part` of the process's threads, and one root three quarters of these, so that a hanging
    root does not block others.
    """

    def __init__(self, name: str, part: int) -> None:
        self._name, self._part = name, part
        lock = Lock()
        self._changed, self._ended = Condition(lock), Condition(lock)
        self._due: list[tuple[float, int, Job]] = []  # a heap; the later of two entries of a job is void
        self._when: dict[Job, float] = {}
        self._busy: dict[object, int] = {}
        self._put_off: dict[object, list[Job]] = {}
        self._running: set[Job] = set()
        self._lent: set[Job] = set()
        self._numbers = count()
        self._threads = self._idle = 0
        self._starts: float | None = None

    def schedule(self, job: Job, seconds: float = 0.0) -> None:
        """Schedule a job in `seconds`, or keep an earlier time.

        Raises:
            RuntimeError: no thread runs, and none can be started.
        """
        when = monotonic() + seconds
        number = next(self._numbers)
        with self._changed:
            if self._when.get(job, when + 1) <= when:
                return
            if job not in self._running:
                heappush(self._due, (when, number, job))
            self._when[job] = when  # last: Ctrl-C before this leaves a void entry
        self.attend()

    def attend(self) -> None:
        """Start a thread if a job needs one and the limit permits.

        Raises:
            RuntimeError: none runs, and none can be started.
        """
        now = monotonic()
        with self._changed:
            starts = self._starts is not None and now - self._starts < _STARTING_SECONDS
            if not self._due or self._idle or starts or self._active() >= _share(self._part):
                self._changed.notify()
                return
            first, self._starts = not self._threads, now
        try:
            start_thread(self._name, self._work, reserved=first)
        except RuntimeError:
            self._starts = None
            if not self._threads:
                raise

    def _active(self) -> int:
        return self._threads - len(self._lent)

    def lend(self, job: Job) -> None:
        """Let another thread replace that of `job`, which now waits."""
        with self._changed:
            if job not in self._running or job in self._lent:
                return
            self._lent.add(job)
            self._free(job)
        self.attend()

    def is_wanted(self, job: Job) -> bool:
        """Whether another job waits for the thread of `job`."""
        since = monotonic() - _SOON_SECONDS
        with self._changed:
            late = (due for due in self._due if due[0] <= since and not self._is_void(*due))
            return bool(self._put_off.get(job.root)) or next(late, None) is not None

    def wait(self, job: Job, seconds: float) -> bool:
        """Run a scheduled job now and wait for its end; return success."""
        with suppress(RuntimeError):  # a busy thread runs it, or the wait fails
            if job in self._when:
                self.schedule(job)
        with self._ended:
            return self._ended.wait_for(lambda: job not in self._running and job not in self._when, seconds)

    def _work(self) -> None:
        with self._changed:
            self._threads, self._starts = self._threads + 1, None
        try:
            while (job := self._next()) is not None:
                self._attend()
                try:
                    job.run()
                except BaseException:  # noqa: BLE001 reported as of any thread, before a waiter learns that the job ended
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
                finally:
                    self._end(job)
                    del job
        finally:
            with self._changed:
                self._threads -= 1
            self._attend()

    def _attend(self) -> None:
        with suppress(RuntimeError):  # a busy thread comes back
            self.attend()

    def _next(self) -> Job | None:
        with self._changed:
            until = monotonic() + IDLE_SECONDS
            while True:
                now = monotonic()
                job = self._take(now)
                if job is not None:
                    return job
                until = max(until, self._due[0][0]) if self._due else until
                if now >= until or self._active() > _share(self._part):
                    return None
                self._idle += 1
                try:
                    self._changed.wait(min(until, self._due[0][0] if self._due else until) - now)
                finally:
                    self._idle -= 1

    def _take(self, now: float) -> Job | None:
        while self._due and (self._due[0][0] <= now or self._is_void(*self._due[0])):
            when, number, job = heappop(self._due)
            if self._is_void(when, number, job):
                continue
            if self._busy.get(job.root, 0) >= max(1, _share(self._part) * 3 // 4):
                self._put_off.setdefault(job.root, []).append(job)
                continue
            del self._when[job]
            self._running.add(job)
            self._busy[job.root] = self._busy.get(job.root, 0) + 1
            return job
        return None

    def _is_void(self, when: float, _: int, job: Job) -> bool:
        return job in self._running or self._when.get(job) != when

    def _end(self, job: Job) -> None:
        with self._changed:
            self._running.discard(job)
            if job in self._lent:
                self._lent.discard(job)
            else:
                self._free(job)
            if job in self._when:
                heappush(self._due, (self._when[job], next(self._numbers), job))
            self._ended.notify_all()

    def _free(self, job: Job) -> None:
        self._busy[job.root] -= 1
        if not self._busy[job.root]:
            del self._busy[job.root]
        for waiting in self._put_off.pop(job.root, ()):
            if waiting in self._when:
                heappush(self._due, (self._when[waiting], next(self._numbers), waiting))

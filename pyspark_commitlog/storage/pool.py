"""Threads that many share, a bounded number of them: for things that are done once, and for jobs that come again."""

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

#: How long a thread of a pool waits for something to do before it ends.
IDLE_SECONDS = 5.0
#: A thread that was started and has not begun by then was interrupted (Ctrl-C): another one is started.
_STARTING_SECONDS = 1.0
#: What has been due for longer has no thread that is about to take it.
_SOON_SECONDS = 0.05


def _share(part: int) -> int:
    return max(1, (limits().threads - RESERVED) // part)


class HelperThreads:
    """Threads of a process that do things beside their owners' threads.

    What waits for a thing does it itself where none of them has begun it: so nobody waits for a thread to be free.

    Args:
        name: of the threads.
        part: see ``Pool``.
    """

    def __init__(self, name: str, part: int) -> None:
        self._name, self._part = name, part
        self._changed = Condition()
        self._waiting: deque[_Thing] = deque()
        self._running = self._idle = 0

    def begin(self, act: Callable[[], _Result]) -> Callable[[], _Result]:
        """Have ``act`` done; return what waits for it, and returns, or raises, what it did."""
        thing = _Thing(act)
        with self._changed:
            self._waiting.append(thing)
            start = len(self._waiting) > self._idle and self._running < _share(self._part)
            self._running += start
            self._changed.notify()
        if start:
            with suppress(RuntimeError):  # a waiter does it
                start_thread(self._name, self._work, on_failure=self._forget_thread)

        def result() -> object:
            if thing.claim():
                with self._changed, suppress(ValueError):  # it must not keep what comes of it
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
                del thing  # what it holds is not kept while nothing comes
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
    """Something to do, by the first thread that claims it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act
        self._claimed = Lock()
        self._done: Future[object] = Future()

    def claim(self) -> bool:
        """Return whether the caller is the first."""
        return self._claimed.acquire(blocking=False)

    def do(self) -> None:
        """Do it; the caller has claimed it."""
        act, self._act = self._act, None
        assert act is not None
        try:
            self._done.set_result(act())
        except BaseException as failure:  # noqa: BLE001 raised in the waiter
            self._done.set_exception(failure)

    def result(self) -> object:
        """Wait; return, or raise, what it did."""
        return self._done.result()


class Job(Protocol):
    """Something of a pool's that is done again and again, by one thread at a time.

    ``root`` is what it belongs to: no root gets all threads of a pool.
    """

    root: object

    def run(self) -> None:
        """Do what is due."""


class Pool:
    """Threads that do jobs when they are due; they end when nothing is.

    Args:
        name: of the threads.
        part: of the threads that the limits allow, one in so many. Three of four of them may do jobs of one root: one
            whose storage hangs does not hold up the others.
    """

    def __init__(self, name: str, part: int) -> None:
        self._name, self._part = name, part
        lock = Lock()
        self._changed, self._ended = Condition(lock), Condition(lock)
        self._due: list[tuple[float, int, Job]] = []  # a heap; of a job that is there twice the later one is void
        self._when: dict[Job, float] = {}
        self._busy: dict[object, int] = {}
        self._put_off: dict[object, list[Job]] = {}
        self._running: set[Job] = set()
        self._lent: set[Job] = set()
        self._numbers = count()
        self._threads = self._idle = 0
        self._starts: float | None = None

    def schedule(self, job: Job, seconds: float = 0.0) -> None:
        """Have a job done in so many seconds, or earlier if that was asked for before.

        Raises:
            RuntimeError: there is no thread for it, and none to be had.
        """
        when = monotonic() + seconds
        number = next(self._numbers)
        with self._changed:
            if self._when.get(job, when + 1) <= when:
                return
            if job not in self._running:
                heappush(self._due, (when, number, job))
            self._when[job] = when  # last: Ctrl-C before this leaves an entry that is void
        self.attend()

    def attend(self) -> None:
        """See to it that a thread waits for what is due next, as far as there may be one more.

        Raises:
            RuntimeError: there is none, and none to be had.
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
        """Have another thread in the place of the one that does ``job``, which waits for something else."""
        with self._changed:
            if job not in self._running or job in self._lent:
                return
            self._lent.add(job)
            self._free(job)
        self.attend()

    def is_wanted(self, job: Job) -> bool:
        """Return whether another job waits for the thread that does ``job``: it may end, and come again later."""
        since = monotonic() - _SOON_SECONDS
        with self._changed:
            late = (due for due in self._due if due[0] <= since and not self._is_void(*due))
            return bool(self._put_off.get(job.root)) or next(late, None) is not None

    def wait(self, job: Job, seconds: float) -> bool:
        """Have a job done now if it is due later; wait until nothing of it is left, and return whether that is so."""
        with suppress(RuntimeError):  # a thread at work does it, or the wait is in vain
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
        with suppress(RuntimeError):  # a thread at work comes back
            self.attend()

    def _next(self) -> Job | None:
        """Return what is due, when it is; None where nothing has been for a while."""
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
        """Give back a root's thread: those of its jobs that were put off are due, the first of them first."""
        self._busy[job.root] -= 1
        if not self._busy[job.root]:
            del self._busy[job.root]
        for waiting in self._put_off.pop(job.root, ()):
            if waiting in self._when:
                heappush(self._due, (self._when[waiting], next(self._numbers), waiting))

"""The running process: its id, its threads, its memory, and what is done anew in a child that was forked from it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
#: Of malloc.h: M_TRIM_THRESHOLD, free bytes at the heap's end that are kept, and M_MMAP_THRESHOLD, at its most: larger
#: blocks go back to the kernel at once.
_MALLOC_LIMITS = {-1: 64 * 2**20, -3: 32 * 2**20}


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


def interpreter() -> str:
    """Return the path of the Python that runs."""
    return sys.executable


def set_environment(name: str, value: str) -> None:
    """Set an environment variable of this process and of those that it starts."""
    os.environ[name] = value


def read_text(path: str) -> str:
    """Return a configuration file's text; nothing where there is none, or none that may be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def beside(file: str, name: str) -> str:
    """Return the path of ``name`` in the directory of ``file``."""
    return str(Path(file).resolve().parent / name)


def executable(path: str) -> str | None:
    """Return ``path``, if it is a file that may be run."""
    return path if Path(path).is_file() and os.access(path, os.X_OK) else None


def is_same(path: str, other: str) -> bool:
    """Return whether two paths lead to one directory."""
    return Path(path).resolve() == Path(other).resolve()


def monotonic() -> float:
    """Return seconds that never go back: for what concerns this process alone, of whatever roots."""
    return time.monotonic()


def start_thread(name: str, run: Callable[[], None]) -> None:
    """Start a thread that the process does not wait for at its end.

    Raises:
        RuntimeError: this process gets no more threads.
    """
    Thread(target=run, name=name, daemon=True).start()


def keep_freed_memory() -> None:
    """Have glibc's allocator keep some dozen MiB that were given back to it; nothing where there is another.

    If nothing is said it returns them to the kernel whenever they are more than twice as much as the largest block so
    far, which clears other pages for the next ones. What the user set (``MALLOC_…``) stays.
    """
    if any(name in os.environ for name in _MALLOC_VARIABLES):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, limit in _MALLOC_LIMITS.items():
            mallopt(parameter, limit)


def share_out(act: Callable[[_Item], None], items: Iterable[_Item], threads: int) -> None:
    """Call ``act`` with each item, in this thread and up to ``threads - 1`` others; items are begun in order.

    Returns, or raises, when no thread is at work any more, whatever interrupts the wait: what the caller holds
    meanwhile (a lock) is held for all of them. A process that gets no more threads does all in this one.

    Raises:
        BaseException: what ``act`` raised first; what had not begun then is left out.
    """
    waiting, failures = deque(items), list[BaseException]()

    def work() -> None:
        while not failures:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                act(item)
            except BaseException as failure:  # noqa: BLE001 raised below
                failures.append(failure)

    others = [Thread(target=work, name="commitlog-share", daemon=True) for _ in range(min(threads, len(waiting)) - 1)]
    started = []
    with suppress(RuntimeError):
        for each in others:
            each.start()
            started.append(each)
    work()
    for each in started:
        while each.is_alive():
            try:
                each.join()
            except BaseException as failure:  # noqa: BLE001 raised below
                failures.append(failure)
    if failures:
        raise failures[0]


class Aside:
    """A thread that does one thing after the other beside its owner's; it starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def begin(self, act: Callable[[], _Result]) -> Callable[[], _Result]:
        """Have ``act`` done; return what waits for it, and returns, or raises, what it did.

        A process that gets no more threads has it done by whoever waits.
        """
        if self._thread is None:
            thread = Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return act
            self._thread = thread
        done: Future[_Result] = Future()

        def work() -> None:
            try:
                done.set_result(act())
            except BaseException as failure:  # noqa: BLE001 raised to whoever waits
                done.set_exception(failure)

        self._waiting.put(work)
        return done.result

    def end(self) -> None:
        """Let the thread end when all is done, and wait for it."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
            del work  # what it holds is not kept while nothing comes


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

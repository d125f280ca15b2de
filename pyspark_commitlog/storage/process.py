"""The running process: its id, its threads, its memory, and what is done again in a child that was forked from it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.limits import limits

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: How many requests of one piece of work are under way at a time.
REQUESTS_AT_ONCE = 8
#: Items that are done before the first of the next ones is handed out.
_AHEAD = 64

_MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
#: Of malloc.h: M_TRIM_THRESHOLD, free bytes at the heap's end that are kept, and M_MMAP_THRESHOLD, at its most: larger
#: blocks go back to the kernel at once.
_MALLOC_LIMITS = {-1: 64 * 2**20, -3: 32 * 2**20}
#: M_ARENA_MAX: each further one reserves 64 MiB of address space for the threads that use it.
_ONE_ARENA = {-8: 1}
_ARENA_VARIABLES = ("MALLOC_ARENA_MAX",)


def process_id() -> int:
    """Return the id of this process: another one in a forked child."""
    return os.getpid()


def after_fork(act: Callable[[], None]) -> None:
    """Have ``act`` run in every child forked from now on, before anything else of it runs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


#: Of the finalizers of ``multiprocessing``, which run by descending priority: ours runs after an application's own.
_EXIT_PRIORITY = -100
_exit_calls = set[Callable[[], None]]()
after_fork(_exit_calls.clear)


def at_worker_exit(act: Callable[[], None]) -> None:
    """Call ``act`` once at the end of this process if ``multiprocessing`` started it, as it skips ``atexit``.

    It clears its finalizers in a new child: call this there, as often as you like. Billiard's processes, which name
    themselves to it, share them.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.current_process()._parent_pid is None or act in _exit_calls:
        return
    from multiprocessing.util import Finalize

    Finalize(None, act, exitpriority=_EXIT_PRIORITY)
    _exit_calls.add(act)


def process_name() -> str:
    """Return what names this process to people: host/pid."""
    return f"{platform.node()}/{os.getpid()}"


def has_address() -> bool:
    """Return whether this machine's name has an address: in a container it may have none."""
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        return False
    return True


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


def sibling_path(file: str, name: str) -> str:
    """Return the path of ``name`` in the directory of ``file``."""
    return str(Path(file).resolve().parent / name)


def executable(path: str) -> str | None:
    """Return ``path``, if it is a file that may be run."""
    return path if Path(path).is_file() and os.access(path, os.X_OK) else None


def is_same(path: str, other: str) -> bool:
    """Return whether two paths lead to one directory."""
    return Path(path).resolve() == Path(other).resolve()


def address_space() -> int | None:
    """Return the bytes of address space that this process may take at most; None if there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def keep_freed_memory() -> None:
    """Have glibc's allocator keep some dozen MiB that were given back to it; nothing where there is another.

    If address space is limited it reserves none for threads instead.

    If nothing is said it returns them to the kernel whenever they are more than twice as much as the largest block so
    far, which clears other pages for the next ones. What the user set (``MALLOC_…``) stays.
    """
    limited = address_space() is not None
    variables, options = (_ARENA_VARIABLES, _ONE_ARENA) if limited else (_MALLOC_VARIABLES, _MALLOC_LIMITS)
    if any(name in os.environ for name in variables):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, limit in options.items():
            mallopt(parameter, limit)


class _Threads:
    """How many threads the package runs in this process."""

    def __init__(self) -> None:
        self.lock, self.running = Lock(), 0


_threads = _Threads()
#: Of the threads that the limits allow, those that are kept for what every process has one of.
RESERVED = 6
#: So long what a process has one of waits for a place, seconds.
_PATIENCE_SECONDS = 1.0


def _no_threads() -> None:
    global _threads
    _threads = _Threads()


after_fork(_no_threads)


def start_thread(
    name: str, run: Callable[[], object], *, reserved: bool = False, on_failure: Callable[[], object] = lambda: None
) -> Thread:
    """Start a thread of the package, if the limits allow one more.

    Args:
        name: of the thread.
        run: what it does.
        reserved: for what a process has one of, whatever else runs.
        on_failure: is called where this raises and the thread will not run. (After Ctrl-C it may run all the same.)

    Raises:
        RuntimeError: there is none left, or the system gives none: do without it.
    """
    mine, most = _threads, limits().threads
    state = {"begun": False, "given up": False}

    def work() -> None:
        with mine.lock:
            if state["given up"]:
                return
            state["begun"] = True
        try:
            run()
        finally:
            with mine.lock:
                mine.running -= 1

    counted = False
    try:
        thread = Thread(target=work, name=name, daemon=True)
        with mine.lock:
            if mine.running >= (most if reserved else most - RESERVED):
                raise RuntimeError(f"{mine.running} threads are at work, and max_threads is {most}")
            mine.running, counted = mine.running + 1, True
        thread.start()
    except BaseException:
        with mine.lock:
            runs = state["begun"]
            state["given up"] = not runs
            mine.running -= counted and not runs
        if not runs:
            on_failure()
        raise
    return thread


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

    started = list[Thread]()
    with suppress(RuntimeError):
        for _ in range(min(threads, len(waiting)) - 1):
            started.append(start_thread("commitlog-share", work))
    work()
    for thread in started:
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as failure:  # noqa: BLE001 raised below
                failures.append(failure)
    if failures:
        raise failures[0]


def results_of(act: Callable[[_Item], _Result], items: Sequence[_Item], threads: int) -> list[_Result]:
    """Return what ``act`` returns for each item, in their order; else as ``share_out``."""
    found = dict[int, _Result]()

    def keep_result(at: int) -> None:
        found[at] = act(items[at])

    share_out(keep_result, range(len(items)), threads)
    return [found[at] for at in range(len(items))]


def results_in_turn(
    act: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Iterator[tuple[_Item, _Result]]:
    """Yield each item and what ``act`` returns for it, in their order, a few of them ahead; else as ``results_of``."""
    for start in range(0, len(items), _AHEAD):
        some = items[start : start + _AHEAD]
        yield from zip(some, results_of(act, some, threads), strict=True)


class WhileNeeded:
    """A thread that there is only while somebody needs it.

    ``run`` returns when nobody does, having called ``ends`` under ``lock``; what shows it that somebody does is
    changed under ``lock``, too, before ``ensure_running``.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.lock = Lock()
        self._name, self._run = name, run
        self._running = False

    def ensure_running(self) -> None:
        """Start the thread where it does not run; for a place this waits a second.

        Raises:
            RuntimeError: this process gets no more threads; the next call tries again.
        """
        until = monotonic() + _PATIENCE_SECONDS
        while not self._runs():
            try:
                start_thread(self._name, self._guarded, reserved=True)
            except RuntimeError:  # many need it at once, and each has started one: all but one of these end
                if monotonic() >= until:
                    raise
                time.sleep(_PATIENCE_SECONDS / 100)
            else:
                return

    def _runs(self) -> bool:
        with self.lock:
            return self._running

    def ends(self) -> None:
        """Say, holding ``lock``, that ``run`` is about to return."""
        self._running = False

    def ended(self) -> None:
        """Say that the thread is no more: the next caller that needs it starts another."""
        with self.lock:
            self.ends()

    def _guarded(self) -> None:
        with self.lock:
            if self._running:  # another one was started at the same time
                return
            self._running = True
        try:
            self._run()
        except BaseException:
            self.ended()
            raise

"""The process: id, threads, memory, environment."""

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

from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.storage.clock import Deadline, SystemClock
from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.per_process import PerProcess

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Descriptors of the standard streams.
STANDARD = range(3)
#: Maximum concurrent requests of one operation.
REQUESTS_AT_ONCE = 8
#: Items of a batch of `results_in_batches`.
_BATCH = 64

_MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
#: From malloc.h: -1 is M_TRIM_THRESHOLD, free bytes kept at the heap's end; -3 is M_MMAP_THRESHOLD, its maximum: larger
#: blocks return to the kernel at once.
_MALLOC_LIMITS = {-1: 64 * 2**20, -3: 32 * 2**20}
#: M_ARENA_MAX: each further arena reserves 64 MiB of address space.
_ONE_ARENA = {-8: 1}
_ARENA_VARIABLES = ("MALLOC_ARENA_MAX",)


def process_id() -> int:
    """Process id."""
    return os.getpid()


#: Priority among `multiprocessing`'s finalizers: after an application's own.
_EXIT_PRIORITY = -100
_exit_calls = PerProcess(set[Callable[[], None]])


def at_worker_exit(act: Callable[[], None]) -> None:
    """Call `act` once when a `multiprocessing` child ends (it skips `atexit`).

    Call this in the child; repeatable. Celery's workers (billiard) end the same way.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.current_process()._parent_pid is None or act in _exit_calls.value:
        return
    from multiprocessing.util import Finalize

    Finalize(None, act, exitpriority=_EXIT_PRIORITY)
    _exit_calls.value.add(act)


def process_name() -> str:
    """Host/pid, for display."""
    return f"{platform.node()}/{os.getpid()}"


def has_address() -> bool:
    """Whether the host name resolves."""
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        return False
    return True


def interpreter() -> str:
    """Path of the running Python."""
    return sys.executable


def set_environment(name: str, value: str) -> None:
    """Set an environment variable, inherited by child processes."""
    os.environ[name] = value


def read_text(path: str) -> str:
    """Return a configuration file's text; "" if unreadable."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def sibling_path(file: str, name: str) -> str:
    """Path of `name` in the directory of `file`."""
    return str(Path(file).resolve().parent / name)


def executable(path: str) -> str | None:
    """Return `path` if it is an executable file."""
    return path if Path(path).is_file() and os.access(path, os.X_OK) else None


def is_same(path: str, other: str) -> bool:
    """Whether two paths resolve to the same."""
    return Path(path).resolve() == Path(other).resolve()


def address_space() -> int | None:
    """Limit of address space in bytes, or None."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def keep_freed_memory() -> None:
    """Tune glibc's allocator to keep some dozen MiB of freed memory.

    Otherwise it returns to the kernel, which clears new pages. With limited address space (RLIMIT_AS), keep malloc to
    one arena instead. The user's `MALLOC_…` win.
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
    def __init__(self) -> None:
        self.lock, self.running = Lock(), 0


_threads = PerProcess(_Threads)
#: Threads of the limit that are kept for `reserved` ones, of which a process has one each.
RESERVED = 6
#: Seconds that a reserved thread waits for a place.
_PATIENCE_SECONDS = 1.0


def start_thread(
    name: str, run: Callable[[], object], *, reserved: bool = False, on_failure: Callable[[], object] = lambda: None
) -> Thread:
    """Start a thread of the package, if the limits permit.

    Args:
        name: of the thread.
        run: its function.
        reserved: for threads that a process has one of.
        on_failure: called if this raises and the thread will not run.

    Raises:
        RuntimeError: none available: do without.
    """
    mine, most = _threads.value, limits().threads
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
    except BaseException:  # Ctrl-C: the thread may run all the same
        with mine.lock:
            runs = state["begun"]
            state["given up"] = not runs
            mine.running -= counted and not runs
        if not runs:
            on_failure()
        raise
    return thread


def share_out(act: Callable[[_Item], None], items: Iterable[_Item], threads: int) -> None:
    """Call `act` for each item on up to `threads` threads, including this.

    Items begin in order. Returns or raises only when no thread works any more, even if interrupted, so a lock of the
    caller covers them.

    Raises:
        BaseException: the first error of `act`; later items are skipped.
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
    """Results of `act` in order, like `share_out`."""
    found = dict[int, _Result]()

    def keep_result(at: int) -> None:
        found[at] = act(items[at])

    share_out(keep_result, range(len(items)), threads)
    return [found[at] for at in range(len(items))]


def results_in_batches(
    act: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Iterator[tuple[_Item, _Result]]:
    """Yield items with their results in order, a batch of `results_of` at a time."""
    for start in range(0, len(items), _BATCH):
        some = items[start : start + _BATCH]
        yield from zip(some, results_of(act, some, threads), strict=True)


class WhileNeeded:
    """A thread that runs only while needed.

    `run` calls `mark_ending` under `lock`, then returns. A need is recorded under `lock` before `ensure_running`.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.lock = Lock()
        self._name, self._run = name, run
        self._running = False

    def ensure_running(self) -> None:
        """Start the thread if needed; wait up to 1 s for it.

        Raises:
            RuntimeError: no thread available; the next call tries again.
        """
        deadline = Deadline(SystemClock(), _PATIENCE_SECONDS)
        while not self._runs():
            try:
                start_thread(self._name, self._guarded, reserved=True)
            except RuntimeError:  # concurrent callers each took a place: all but one give it back at once
                if deadline.is_over:
                    raise
                time.sleep(_PATIENCE_SECONDS / 100)
            else:
                return

    def _runs(self) -> bool:
        with self.lock:
            return self._running

    def mark_ending(self) -> None:
        """Record, under `lock`, that `run` is about to return."""
        self._running = False

    def mark_ended(self) -> None:
        """Record that the thread is gone: the next caller starts another."""
        with self.lock:
            self.mark_ending()

    def _guarded(self) -> None:
        with self.lock:
            if self._running:  # another was started concurrently
                return
            self._running = True
        with call_on_error(self.mark_ended):  # the next need starts another
            self._run()

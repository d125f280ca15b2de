"""Faults of local roots, by name, for tests of programs that open their root by its path."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.os_errors import explain
from pyspark_commitlog.testing.faults import ALL, MUTATING, kill_now

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_READING = tuple(name for name in ALL if name not in MUTATING)
_COMMIT = ("put_if_absent",)


@dataclass(frozen=True, slots=True)
class Fault:
    """Which operations of a root fail, and how.

    `errno` of the system's error; None kills the process. `after`: the operation is done first. `part`: of the path.
    """

    operations: tuple[str, ...]
    errno: int | None
    after: bool = False
    part: str = ""

    def meets(self, operation: str, path: str) -> bool:
        """Whether an operation fails (pure)."""
        return operation in self.operations and self.part in path


FAULTS = {
    "commit-fails": Fault(_COMMIT, errno.EIO, part="/journal/"),
    "commit-reply-lost": Fault(_COMMIT, errno.EIO, after=True, part="/journal/"),
    "disk-full": Fault(MUTATING[:-4], errno.ENOSPC),
    "read-only": Fault(MUTATING, errno.EROFS),
    "unreadable": Fault(_READING, errno.EACCES),
    "disk-fails": Fault(ALL, errno.EIO),
    "killed-before-commit": Fault(_COMMIT, None, part="/journal/"),
    "killed-after-commit": Fault(_COMMIT, None, after=True, part="/journal/"),
}


class Faults:
    """Makes operations of one local root fail in this process, and in processes forked from it.

    Everything that opens the root by its path meets them: `CommitLog`, `Producer`, `Consumer`. Spark's own processes do
    not.
    """

    def __init__(self, root: str) -> None:
        self._url = str(Path(root).absolute())

    def __call__(self, name: str, times: int | None = None) -> AbstractContextManager[None]:
        """Return a context in which a fault of `FAULTS` happens.

        Args:
            name: `commit-fails`, `commit-reply-lost` (it is there, and the writer gets an error), `disk-full`,
                `read-only`, `unreadable`, `disk-fails` (every operation), `killed-before-commit` and
                `killed-after-commit` (SIGKILL, for a process that the test has forked).
            times: how often; None for as long as the context lasts.

        Raises:
            UsageError: there is no such fault.
        """
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}: choose from {', '.join(FAULTS)}")
        return self._while(FAULTS[name], times)

    @contextmanager
    def _while(self, fault: Fault, times: int | None) -> Iterator[None]:
        left = float("inf") if times is None else times

        def fail(storage: LocalStorage, operation: str, path: str) -> None:
            nonlocal left
            if left <= 0 or storage.url != self._url or not fault.meets(operation, path):
                return
            left -= 1
            if fault.errno is None:
                kill_now()
            action = f"read {path}" if operation in _READING else f"write {path}"
            raise explain(OSError(fault.errno, "injected"), Path(storage.url), action)

        with ExitStack() as patched:
            for name in fault.operations:
                patched.enter_context(patch.object(LocalStorage, name, _failing(name, fault.after, fail)))
            yield


def _failing(operation: str, after: bool, fail: Callable[[LocalStorage, str, str], None]) -> Callable[..., Any]:
    original = getattr(LocalStorage, operation)

    def call(storage: LocalStorage, path: str, *args: Any, **kwargs: Any) -> Any:
        if not after:
            fail(storage, operation, path)
        result = original(storage, path, *args, **kwargs)
        if after:
            fail(storage, operation, path)
        return result

    return call

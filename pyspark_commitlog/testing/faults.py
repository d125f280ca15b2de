"""Storage that fails before or after an operation, or by SIGKILL."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

from pyspark_commitlog.storage import Storage

MUTATING = (
    "put_if_absent",
    "write_once",
    "create",
    "open_append",
    "make_directory",
    "sync_directory",
    "sync_file",
    "delete",
    "delete_tree",
    "remove_abandoned",
)
ALL = (*MUTATING, "read", "fetch", "map", "info", "names")

#: Called before and after every operation: (operation, path, "before" or "after"). It may raise, block or kill.
Hook = Callable[[str, str, str], None]


class FaultyStorage(Storage):
    """Delegates to `inner`, and calls `hook` before and after."""

    def __init__(self, inner: Storage, hook: Hook) -> None:
        self._inner, self._hook = inner, hook
        self.url = inner.url
        self.clock = inner.clock
        self.client = inner.client

    def __getattribute__(self, name: str) -> Any:
        if name in ALL:
            inner, hook = object.__getattribute__(self, "_inner"), object.__getattribute__(self, "_hook")

            def call(path: str, *args: Any, **kwargs: Any) -> Any:
                hook(name, path, "before")
                result = getattr(inner, name)(path, *args, **kwargs)
                hook(name, path, "after")
                return result

            return call
        return object.__getattribute__(self, name)

    @property
    def can_append(self) -> bool:  # type: ignore[override]
        """As `inner`."""
        return self._inner.can_append

    @property
    def bills_requests(self) -> bool:  # type: ignore[override]
        """As `inner`."""
        return self._inner.bills_requests

    def expect_root(self) -> None:
        self._inner.expect_root()

    def peer(self, url: str) -> Storage:
        """As `inner`; override it to inject faults of other roots."""
        return self._inner.peer(url)

    @property
    def remedy(self) -> str:
        return self._inner.remedy

    def fault(self, directory: str) -> str | None:
        return self._inner.fault(directory)

    def try_lock(self, path: str) -> Any:
        return self._inner.try_lock(path)

    def holder(self, path: str) -> Any:
        return self._inner.holder(path)

    def now_ms(self) -> int:
        return self._inner.now_ms()

    def new_id(self) -> str:
        return self._inner.new_id()

    def jitter(self) -> float:
        return self._inner.jitter()


for _name in ALL:  # the abstract methods are answered by __getattribute__

    def _fail_unreachable(self: Any, *args: Any) -> Any:
        raise AssertionError

    setattr(FaultyStorage, _name, _fail_unreachable)
FaultyStorage.__abstractmethods__ = frozenset()


def io_error() -> OSError:
    """Error of a lost reply."""
    return OSError(errno.EIO, "injected: the reply was lost")


def lose_reply() -> None:
    """Raise the error of a lost reply."""
    raise io_error()


def kill_now() -> None:
    """SIGKILL this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, act: Callable[[], None], *, when: str = "before", only: tuple[str, ...] = MUTATING) -> Hook:
    """Return a hook that acts at the `number`-th matching operation, from 1."""
    seen = 0

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal seen
        if moment == when and operation in only:
            seen += 1
            if seen == number:
                act()

    return hook


def on_path(part: str, operation: str, act: Callable[[], None], *, when: str = "before", times: int = 1) -> Hook:
    """Return a hook for the first `times` operations on paths with `part`."""
    left = times

    def hook(called: str, path: str, moment: str) -> None:
        nonlocal left
        if left and moment == when and called == operation and part in path:
            left -= 1
            act()

    return hook

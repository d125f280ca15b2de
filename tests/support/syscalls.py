"""What a piece of code asks of the operating system, in order: tests of durability, and of crashes at any point."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pyspark_commitlog.testing.faults import kill_now

#: Calls that change files, or make changes durable.
CHANGING = (
    "fsync",
    "ftruncate",
    "link",
    "mkdir",
    "posix_fallocate",
    "pwrite",
    "pwritev",
    "rename",
    "rmdir",
    "unlink",
    "utime",
    "write",
)

#: Told before each call: (name of the call, path).
Told = Callable[[str, str], None]


def path_of(argument: object, dir_fd: int | None = None) -> str:
    """Return the path behind a path, which may be below an open directory, or a file descriptor."""
    if isinstance(argument, int):
        return os.readlink(f"/proc/self/fd/{argument}")
    path = os.fspath(argument)  # type: ignore[call-overload]
    return path if dir_fd is None else os.path.join(path_of(dir_fd), path)


@contextmanager
def killed_before(number: int) -> Iterator[None]:
    """Kill this process (SIGKILL) before its `number`-th changing call; the first is 1."""
    calls = count(1)  # threads may call at once

    def tell(name: str, path: str) -> None:
        if next(calls) == number:
            kill_now()

    with telling(tell):
        yield


@contextmanager
def telling(tell: Told, names: tuple[str, ...] = CHANGING) -> Iterator[None]:
    """Tell of every changing call, before it is made; `link` and `rename` are told with their target.

    Of `open` only where it may make a file: to look for one that is not there changes nothing.
    """

    def wrap(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or (len(args) > 1 and args[1] & os.O_CREAT):
                second = name in ("link", "rename")
                tell(name, path_of(args[second], kwargs.get("dst_dir_fd" if second else "dir_fd")))
            return real(*args, **kwargs)

        return call

    wrapped: dict[str, Any] = {name: wrap(name) for name in names}
    with mock.patch.multiple(os, **wrapped):
        yield


@contextmanager
def recording() -> Iterator[list[tuple[str, str]]]:
    """Write down (call, path) of every changing call."""
    calls: list[tuple[str, str]] = []
    with telling(lambda name, path: calls.append((name, path))):
        yield calls


def synced(monkeypatch: pytest.MonkeyPatch, under: Path) -> list[str]:
    """Return a list that gets the root, below a directory, of each file or directory that is synced, in order."""
    seen, fsync = list[str](), os.fsync

    def counted(fd: int) -> None:
        fsync(fd)
        path = path_of(fd)
        if path.startswith(f"{under}/"):  # threads that other tests left sync elsewhere
            seen.append(path.removeprefix(f"{under}/").split("/")[0])

    monkeypatch.setattr(os, "fsync", counted)
    return seen

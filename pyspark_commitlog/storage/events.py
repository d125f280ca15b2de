"""inotify: reports of new names in directories by this machine's processes (Linux)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark_commitlog.storage.clock import monotonic

#: From linux/inotify.h: flags, and an event's head (watch descriptor, mask, cookie, name length).
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_HEAD = struct.Struct("=iIII")
_READ_BYTES = 2**16


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "inotify_init1") and hasattr(os, "eventfd") else None


class Events:
    """Watched directories. One thread calls `wait`; `close` is the last call.

    `ignored`: prefix of names not to report.
    """

    def __init__(self, descriptor: int, ignored: str) -> None:
        self._descriptor, self._ignored = descriptor, os.fsencode(ignored)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for source in (descriptor, self._woken):
            self._poll.register(source, select.POLLIN)
        self._numbers: set[int] = set()

    @classmethod
    def open(cls, ignored: str) -> Events | None:
        """Return an instance without watches; None if inotify is not available."""
        libc = _libc()
        descriptor = -1 if libc is None else libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if descriptor < 0:
            return None
        try:
            return cls(descriptor, ignored)
        except OSError:  # no more descriptors
            os.close(descriptor)
            return None

    def follow(self, directory: str) -> int | None:
        """Watch a directory; return its number for `wait`, or None."""
        number = _libc().inotify_add_watch(self._descriptor, os.fsencode(directory), _IN_CREATE | _IN_MOVED_TO)
        if number < 0:
            return None
        self._numbers.add(number)
        return int(number)

    def follows(self, number: int | None) -> bool:
        """Whether a directory is still watched (and not deleted)."""
        return number in self._numbers

    def forget(self, number: int) -> None:
        """Stop watching a directory."""
        self._numbers.discard(number)
        _libc().inotify_rm_watch(self._descriptor, number)

    def keep(self, numbers: set[int]) -> None:
        """Stop watching all others."""
        for number in self._numbers - numbers:
            self.forget(number)

    def wait(self, seconds: float) -> tuple[float, set[int]]:
        """Wait for new names, or `wake`.

        Returns:
            The seconds waited, and the numbers of changed or deleted directories.
        """
        began, numbers = monotonic(), set[int]()
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            if descriptor == self._woken:
                os.eventfd_read(descriptor)
            else:
                numbers |= self._read()
        return monotonic() - began, numbers

    def wake(self) -> None:
        """End another thread's wait, or the next one."""
        with suppress(BlockingIOError):  # it is woken already, some 2**64 times
            os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)
        os.close(self._woken)

    def _read(self) -> set[int]:
        numbers, data, position = set[int](), os.read(self._descriptor, _READ_BYTES), 0
        while position < len(data):
            number, mask, _, size = _HEAD.unpack_from(data, position)
            name = data[position + _HEAD.size : position + _HEAD.size + size]
            position += _HEAD.size + size
            if mask & _IN_Q_OVERFLOW:  # some were lost
                return set(self._numbers)
            if name.startswith(self._ignored) or number not in self._numbers:
                continue
            numbers.add(number)
            if mask & _IN_IGNORED:
                self._numbers.discard(number)
        return numbers

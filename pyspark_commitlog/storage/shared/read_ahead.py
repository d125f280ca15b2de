"""Read-ahead for files that can't be mapped, by concurrent requests.

A reader announces its next ranges, and blocks of them are fetched by a request each. All readers of a process share
`limits().read_ahead_bytes`; at the bound, a reader goes on with its current block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.shared.pool import HelperThreads

#: Bytes of a request, doubled for readers that may hold a lot: an extent of 16 MiB in a chunk then costs two requests
#: with its entry, as many as in a segment.
BLOCK_BYTES = 8 * 2**20
LONG_BLOCK_BYTES = 2 * BLOCK_BYTES
_LONG_BYTES = 8 * BLOCK_BYTES
#: A remainder smaller than this fraction of a block is fetched with it.
_REST_PART = 4
#: A reader starts with this fraction of the bound, so that concurrent ones get as much, and grows as it reads.
_FIRST_PART = 4
#: First request of a careful reader, and its maximum.
FIRST_BYTES = 2**20
MOST_CAREFUL_BYTES = 4 * BLOCK_BYTES
#: Bytes that each reader gets in any case.
LEAST_BYTES = 2**18
#: Maximum blocks of a reader, as they may be small.
_MOST_BLOCKS = 32
#: Half of the process's threads.
_PART = 2


class FileRange(NamedTuple):
    """Byte range of a file, `end` excluded."""

    path: str
    start: int
    end: int


class ReadAheadBudget:
    """Bytes of blocks held by all readers of a process."""

    def __init__(self) -> None:
        self._used = self._readers = 0
        self._returned: deque[tuple[int, int]] = deque()  # lock-free, for finalizers
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Bytes held."""
        with self._lock:
            self._sweep()
            return self._used

    def join(self) -> None:
        """Add a reader."""
        with self._lock:
            self._readers += 1

    def leave(self) -> None:
        """Remove a reader; lock-free, for finalizers."""
        self._returned.append((0, 1))

    def share(self) -> int:
        """Bytes that each reader may hold."""
        with self._lock:
            self._sweep()
            return max(LEAST_BYTES, limits().read_ahead_bytes // max(1, self._readers))

    def take(self, size: int, least: int) -> int:
        """Take up to `size` bytes, at least `least`; return the number."""
        with self._lock:
            self._sweep()
            left = limits().read_ahead_bytes - self._used
            size = size if size <= left else max(least, min(size, left) if least else 0)
            self._used += size
            return size

    def give_back(self, size: int) -> None:
        """Give back taken bytes; lock-free, for finalizers."""
        self._returned.append((size, 0))

    def _sweep(self) -> None:
        while self._returned:
            size, readers = self._returned.popleft()
            self._used -= size
            self._readers -= readers


class _Shared:
    def __init__(self) -> None:
        self.budget = ReadAheadBudget()
        self.threads = HelperThreads("commitlog-reader", _PART)


_shared = PerProcess(_Shared)


class _Block:
    """A piece of a file, fetched by one request.

    It owns `taken` bytes of the budget until dropped.
    """

    def __init__(self, shared: _Shared, storage: Storage, wanted: FileRange, taken: int) -> None:
        self.path, self.start, self.end = wanted
        self._storage, self._budget, self._taken = storage, shared.budget, deque([taken])
        self._begun = self._ended = self._dropped = False
        self._result = shared.threads.begin(self._fetch)

    def data(self) -> pa.Buffer:
        return self._result()

    def _fetch(self) -> pa.Buffer:
        self._begun = True
        try:
            if self._dropped:
                return pa.py_buffer(b"")
            return self._storage.map(self.path, self.start, self.end - self.start)
        finally:
            self._ended = True
            if self._dropped:
                self._return()

    def drop(self) -> None:
        """Give it up; a running fetch holds its memory until done."""
        self._dropped = True
        if self._ended or not self._begun:
            self._return()

    def _return(self) -> None:
        with suppress(IndexError):
            self._budget.give_back(self._taken.popleft())


class ReadAhead:
    """Reads file ranges in order, ahead of its caller; not thread-safe.

    Args:
        storage: the root.
        more: returns the next ranges; none if unknown yet.
        careful: start small, for readers that may stop anywhere.
    """

    def __init__(self, storage: Storage, more: Callable[[], Sequence[FileRange]], *, careful: bool = False) -> None:
        self._storage, self._more = storage, more
        self._ranges: deque[FileRange] = deque()
        self._blocks: deque[_Block] = deque()
        self._held = 0
        everything = limits().read_ahead_bytes
        self._most = FIRST_BYTES if careful else max(LEAST_BYTES, everything // _FIRST_PART)
        self._bound = MOST_CAREFUL_BYTES if careful else max(LEAST_BYTES, everything)
        self._shared = _shared.value
        self._open = True
        self._shared.budget.join()

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        """At least `needed` bytes from `position`, fewer at the file's end.

        `end` limits the range if it was not announced. Raises like `Storage.map`.
        """
        if self._shared is not _shared.value:  # in a forked child
            self._blocks.clear()
            self._held, self._shared = 0, _shared.value
            self._shared.budget.join()
        self._go_to(path, position)
        self._fill(path, position, needed, end)
        first = self._blocks[0]
        data = first.data()
        inside = position - first.start
        if data.size >= inside + needed or data.size < first.end - first.start:
            return data.slice(min(inside, data.size))
        return self._joined(path, data.slice(inside), first.end, needed)

    def forget(self) -> None:
        """Drop announced ranges, which have moved; keep fitting blocks."""
        self._ranges.clear()

    def fetch_again(self) -> None:
        """Drop all blocks: damaged or missing data may be whole now."""
        self._ranges.clear()
        while self._blocks:
            self._drop()

    def close(self) -> None:
        """Cancel outstanding fetches."""
        if self._open:
            self._open = False
            self.fetch_again()
            self._shared.budget.leave()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

    def _drop(self) -> None:
        block = self._blocks.popleft()
        self._held -= block.end - block.start
        block.drop()

    def _go_to(self, path: str, position: int) -> None:
        while self._blocks and not _holds(self._blocks[0], path, position):
            self._drop()
            self._most = min(self._most * 2, self._bound)
        if self._blocks:
            return
        self._has_ranges()
        for at, expected in enumerate(self._ranges):
            if _holds(expected, path, position):
                for _ in range(at):
                    self._ranges.popleft()
                self._ranges[0] = FileRange(path, position, expected.end)
                return

    def _fill(self, path: str, position: int, needed: int, end: int) -> None:
        if not self._blocks and not self._is_next(path, position):
            self._ranges.appendleft(FileRange(path, position, max(end, position + needed)))  # not announced
        while not self._blocks or (self._blocks[-1].end < position + needed and self._goes_on(path)):
            self._cut(LEAST_BYTES)
        while len(self._blocks) < _MOST_BLOCKS and self._held < self._allowed():
            if not self._has_ranges() or not self._cut(0):
                return

    def _has_ranges(self) -> bool:
        """Ask for more ranges if none are left."""
        if not self._ranges:
            self._ranges.extend(self._more())
        return bool(self._ranges)

    def _is_next(self, path: str, position: int) -> bool:
        return bool(self._ranges) and _holds(self._ranges[0], path, position)

    def _goes_on(self, path: str) -> bool:
        last = self._blocks[-1]
        return last.path == path and self._is_next(path, last.end)

    def _allowed(self) -> int:
        return min(self._shared.budget.share(), self._most)

    def _cut(self, least: int) -> bool:
        """Start fetching the next block, at least `least` bytes; return success."""
        path, start, end = self._ranges[0]
        allowed = self._allowed()
        size = block_bytes(end - start, allowed)
        if not least and self._held + size > allowed:
            return False
        taken = self._shared.budget.take(size, min(least, size))
        if not taken:
            return False
        try:
            block = _Block(self._shared, self._storage, FileRange(path, start, start + taken), taken)
        except BaseException:  # Ctrl-C: the budget is all readers'
            self._shared.budget.give_back(taken)
            raise
        self._blocks.append(block)
        self._held += taken
        self._ranges.popleft()
        if start + taken < end:
            self._ranges.appendleft(FileRange(path, start + taken, end))
        return True

    def _joined(self, path: str, head: pa.Buffer, at: int, needed: int) -> pa.Buffer:
        """Return `needed` bytes from several blocks, copied: at most a frame."""
        pieces, missing, following = [head], needed - head.size, list(self._blocks)[1:]
        for block in following:
            if missing <= 0 or (block.path, block.start) != (path, at):
                break
            data = block.data()
            pieces.append(data.slice(0, min(missing, data.size)))
            missing, at = missing - pieces[-1].size, at + data.size
        if missing > 0:  # beyond the announced range, or at the file's end
            pieces.append(self._storage.map(path, at, missing))
        return pa.py_buffer(b"".join(pieces))


def ahead_of(storage: Storage, more: Callable[[], Sequence[FileRange]], *, careful: bool = False) -> ReadAhead | None:
    """Return a read-ahead; None on local disks: the system has its own."""
    return None if storage.can_append else ReadAhead(storage, more, careful=careful)


def block_bytes(length: int, allowed: int) -> int:
    """Size of the next request (pure).

    `length` bytes are left, `allowed` may be held.
    """
    block = LONG_BLOCK_BYTES if allowed >= _LONG_BYTES else min(BLOCK_BYTES, allowed)
    return length if length <= block + block // _REST_PART else block


def _holds(piece: _Block | FileRange, path: str, position: int) -> bool:
    return piece.path == path and piece.start <= position < piece.end

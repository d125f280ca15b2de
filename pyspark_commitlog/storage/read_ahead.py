"""Reading ahead where files can't be mapped: what is read next is under way, in several requests at once.

A reader says in order which ranges of files it will read. They are cut into blocks, and each block is one request;
what was fetched is not fetched again while it is read on. What all readers of a process hold of blocks is bounded
(``limits().read_ahead_bytes``): a reader that gets no more goes on with the block that it stands in.
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
from pyspark_commitlog.storage.pool import HelperThreads
from pyspark_commitlog.storage.process import after_fork

#: A request asks for so many bytes, and for twice as many where the reader may hold a lot: then an extent of 16 MiB in
#: a chunk costs two requests with its entry, what as many bytes of a segment do.
BLOCK_BYTES = 8 * 2**20
LONG_BLOCK_BYTES = 2 * BLOCK_BYTES
_LONG_BYTES = 8 * BLOCK_BYTES
#: A rest after a block that is smaller than this part of it comes with it.
_REST_PART = 4
#: A reader begins with this part of what all may hold, so that those which begin with it get as much; and has the more
#: under way the more was read.
_FIRST_PART = 4
#: What a reader that may stop anywhere asks for first, and the most that it has under way.
FIRST_BYTES = 2**20
MOST_CAREFUL_BYTES = 4 * BLOCK_BYTES
#: A reader gets so many bytes, whatever others hold.
LEAST_BYTES = 2**18
#: Blocks of one reader at a time: there may be many small ones.
_MOST_BLOCKS = 32
#: A half of the threads that the limits allow.
_PART = 2


class FileRange(NamedTuple):
    """Bytes of a file, ``end`` not included."""

    path: str
    start: int
    end: int


class ReadAheadBudget:
    """How many bytes of blocks are held, by all readers of a process."""

    def __init__(self) -> None:
        self._used = self._readers = 0
        self._returned: deque[tuple[int, int]] = deque()  # a finalizer needs no lock for it
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Return how many bytes are held."""
        with self._lock:
            self._sweep()
            return self._used

    def join(self) -> None:
        """Count one more reader."""
        with self._lock:
            self._readers += 1

    def leave(self) -> None:
        """Count one less."""
        self._returned.append((0, 1))

    def share(self) -> int:
        """Return how many bytes each reader may hold."""
        with self._lock:
            self._sweep()
            return max(LEAST_BYTES, limits().read_ahead_bytes // max(1, self._readers))

    def take(self, size: int, least: int) -> int:
        """Take up to ``size`` bytes of what is left, ``least`` of them whatever is left; return how many. 0: none."""
        with self._lock:
            self._sweep()
            left = limits().read_ahead_bytes - self._used
            size = size if size <= left else max(least, min(size, left) if least else 0)
            self._used += size
            return size

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self._returned.append((size, 0))

    def _sweep(self) -> None:
        while self._returned:
            size, readers = self._returned.popleft()
            self._used -= size
            self._readers -= readers


class _Shared:
    """What the readers of a process have in common."""

    def __init__(self) -> None:
        self.budget = ReadAheadBudget()
        self.threads = HelperThreads("commitlog-reader", _PART)


_shared = _Shared()


def _begin_again() -> None:
    """Share nothing with the process that this one was forked from: its threads are not here."""
    global _shared
    _shared = _Shared()


after_fork(_begin_again)


class _Block:
    """A piece of a file, fetched by one request; ``taken`` bytes of the budget are its own until it is dropped."""

    def __init__(self, shared: _Shared, storage: Storage, wanted: FileRange, taken: int) -> None:
        self.path, self.start, self.end = wanted
        self._storage, self._budget, self._taken = storage, shared.budget, deque([taken])
        self._begun = self._ended = self._dropped = False
        self._result = shared.threads.begin(self._fetch)

    def data(self) -> pa.Buffer:
        """Wait; return its bytes, fewer where the file ends before; raises as ``Storage.map`` does."""
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
        """Nobody reads it any more. What is being fetched still takes memory, until it is there."""
        self._dropped = True
        if self._ended or not self._begun:
            self._return()

    def _return(self) -> None:
        with suppress(IndexError):
            self._budget.give_back(self._taken.popleft())


class ReadAhead:
    """Reads ranges of files in order, ahead of the caller that asks for their bytes.

    Args:
        storage: the root.
        more: returns what will be read after all that it returned before; nothing where that is not known yet.
        careful: for who may stop anywhere: begins with little, and reads the further ahead the more was read.

    Not safe for use by several threads at once.
    """

    def __init__(self, storage: Storage, more: Callable[[], Sequence[FileRange]], *, careful: bool = False) -> None:
        self._storage, self._more = storage, more
        self._ranges: deque[FileRange] = deque()
        self._blocks: deque[_Block] = deque()
        self._held = 0
        everything = limits().read_ahead_bytes
        self._most = FIRST_BYTES if careful else max(LEAST_BYTES, everything // _FIRST_PART)
        self._bound = MOST_CAREFUL_BYTES if careful else max(LEAST_BYTES, everything)
        self._shared = _shared
        self._open = True
        self._shared.budget.join()

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        """Return bytes of a file from ``position`` on, at least ``needed`` (fewer only where the file ends before).

        ``end`` is how far it will be read at most, for what was not expected. Raises as ``Storage.map`` does.
        """
        if self._shared is not _shared:  # this is a forked child
            self._blocks.clear()
            self._held, self._shared = 0, _shared
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
        """Ask again what comes next: it lies elsewhere now. What was fetched is used where it still fits."""
        self._ranges.clear()

    def fetch_again(self) -> None:
        """Use nothing any more of what was fetched: some of it was damaged, or missing, and may be whole by now."""
        self._ranges.clear()
        while self._blocks:
            self._drop()

    def close(self) -> None:
        """Give up what is under way."""
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
        """Drop the blocks before a position, and have the ranges begin there where none holds it."""
        while self._blocks and not _holds(self._blocks[0], path, position):
            self._drop()
            self._most = min(self._most * 2, self._bound)
        if self._blocks:
            return
        if not self._ranges:
            self._ranges.extend(self._more())
        for at, expected in enumerate(self._ranges):
            if _holds(expected, path, position):
                for _ in range(at):
                    self._ranges.popleft()
                self._ranges[0] = FileRange(path, position, expected.end)
                return

    def _fill(self, path: str, position: int, needed: int, end: int) -> None:
        """Have blocks under way: those for the bytes that are needed now, and those for what comes next."""
        if not self._blocks and not (self._ranges and _holds(self._ranges[0], path, position)):
            self._ranges.appendleft(FileRange(path, position, max(end, position + needed)))  # nobody expected it
        while not self._blocks or (self._blocks[-1].end < position + needed and self._goes_on(path)):
            self._cut(LEAST_BYTES)
        while len(self._blocks) < _MOST_BLOCKS and self._held < self._allowed():
            if not self._ranges:
                self._ranges.extend(self._more())
            if not self._ranges or not self._cut(0):
                return

    def _goes_on(self, path: str) -> bool:
        """Return whether the next range goes on in a file where the last block ends."""
        last = self._blocks[-1]
        return last.path == path and bool(self._ranges) and _holds(self._ranges[0], path, last.end)

    def _allowed(self) -> int:
        return min(self._shared.budget.share(), self._most)

    def _cut(self, least: int) -> bool:
        """Have the next block fetched, of ``least`` bytes at least; return whether there is room for it."""
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
        except BaseException:
            self._shared.budget.give_back(taken)
            raise
        self._blocks.append(block)
        self._held += taken
        self._ranges.popleft()
        if start + taken < end:
            self._ranges.appendleft(FileRange(path, start + taken, end))
        return True

    def _joined(self, path: str, head: pa.Buffer, at: int, needed: int) -> pa.Buffer:
        """Return ``needed`` bytes that lie in several blocks, copied: no more than a frame."""
        pieces, missing, following = [head], needed - head.size, list(self._blocks)[1:]
        for block in following:
            if missing <= 0 or (block.path, block.start) != (path, at):
                break
            data = block.data()
            pieces.append(data.slice(0, min(missing, data.size)))
            missing, at = missing - pieces[-1].size, at + data.size
        if missing > 0:  # beyond what was expected, or where the file ends
            pieces.append(self._storage.map(path, at, missing))
        return pa.py_buffer(b"".join(pieces))


def ahead_of(storage: Storage, more: Callable[[], Sequence[FileRange]], *, careful: bool = False) -> ReadAhead | None:
    """Return what reads ahead on storage that can't map files; None on local disks: the system does it there."""
    return None if storage.can_append else ReadAhead(storage, more, careful=careful)


def block_bytes(length: int, allowed: int) -> int:
    """Return how many bytes the next request asks for, of so many that are left and may be held (pure)."""
    block = LONG_BLOCK_BYTES if allowed >= _LONG_BYTES else min(BLOCK_BYTES, allowed)
    return length if length <= block + block // _REST_PART else block


def _holds(piece: _Block | FileRange, path: str, position: int) -> bool:
    return piece.path == path and piece.start <= position < piece.end

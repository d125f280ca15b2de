"""Memory-mapped pieces of files that hold no descriptor.

`mmap.mmap` keeps one per piece (before Python 3.13 always), so a thousand pieces exhaust them.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa

#: Maximum mapped pieces; further ones are read. Linux allows a process 65,530 in all (vm.max_map_count).
MOST_PIECES = 4096
_PROT_READ, _MAP_SHARED = 1, 1


#: Addresses of mapped pieces. A set: a finalizer may run at any moment and must take no lock.
_held: set[int] = set()


@cache
def _calls() -> tuple[Any, Any]:
    libc = ctypes.CDLL(None, use_errno=True)
    map_, unmap = getattr(libc, "mmap64", libc.mmap), libc.munmap
    map_.restype = ctypes.c_void_p
    map_.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    unmap.restype = ctypes.c_int
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return map_, unmap


class _Piece:
    __slots__ = ("_unmap", "address", "length")

    def __init__(self, fd: int, length: int, offset: int) -> None:
        map_, self._unmap = _calls()
        self.address = 0
        address = map_(None, length, _PROT_READ, _MAP_SHARED, fd, offset)
        if address in (None, ctypes.c_void_p(-1).value):
            number = ctypes.get_errno()
            if number == errno.ENOMEM:  # the process has no more pieces, or addresses
                raise MemoryError
            raise OSError(number, os.strerror(number))
        self.address, self.length = address, length
        _held.add(address)

    def __del__(self) -> None:
        address, self.address = self.address, 0
        if address:
            _held.discard(address)  # first: the next piece may get the same address
            self._unmap(address, self.length)


def mapped(fd: int, start: int, length: int) -> pa.Buffer:
    """Map existing bytes of an open file; copy beyond `MOST_PIECES`.

    Raises:
        OSError: the file can't be read.
    """
    aligned = start - start % mmap.ALLOCATIONGRANULARITY
    if len(_held) < MOST_PIECES:
        with suppress(MemoryError):
            piece = _Piece(fd, length + start - aligned, aligned)
            return pa.foreign_buffer(piece.address + start - aligned, length, piece)
    return pa.py_buffer(os.pread(fd, length, start))

"""Object being written: one put, or a multipart upload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from awscrt.checksums import crc32c

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Size of a part in bytes.
PART_BYTES = 8 * 2**20
_PARTS_AT_ONCE = 4


class ObjectOutputFile:
    """Output file; memory holds the parts in flight and one that fills.

    Args:
        explained: action -> context that translates errors.
        count: counts requests by verb, and their bytes.
    """

    def __init__(
        self,
        client: ObjectStore,
        name: str,
        explained: Callable[[str], AbstractContextManager[None]],
        count: Callable[[str, int, int], None],
    ) -> None:
        import obstore

        self._name, self._explained, self._count = name, explained, count
        self._writer: Any = obstore.open_writer(client, name, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self._length = self._crc = 0

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append pieces; parts are sent concurrently."""
        with self._explained(f"write {self._name}"):
            for piece in pieces:
                data = pa.py_buffer(piece)
                self._crc = crc32c(data, self._crc)
                self._length += data.size
                self._writer.write(memoryview(data).cast("B"))

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Complete the object; always durable."""
        with self._explained(f"write {self._name}"):
            self._writer.close()
        parts = -(-self._length // PART_BYTES)
        self._count("PUT", max(1, parts), self._length)
        self._count("POST", 2 if parts > 1 else 0, 0)
        return self._length, self._crc

    def discard(self) -> None:
        """Drop it: an incomplete upload is no object."""
        self._writer = None

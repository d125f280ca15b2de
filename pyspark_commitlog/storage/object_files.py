"""An object that is being written: one put, or an upload in parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from awscrt.checksums import crc32c

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: What is written is held until a part has so many bytes.
PART_BYTES = 8 * 2**20
_PARTS_AT_ONCE = 4


class ObjectOutputFile:
    """See ``storage.base.OutputFile``. Memory: the parts that are being sent, and one that fills.

    Args:
        client: of the store.
        name: of the object.
        explained: raises our errors in place of the library's, within what it returns for an action.
        count: counts requests, by verb.
    """

    def __init__(
        self,
        client: ObjectStore,
        name: str,
        explained: Callable[[str], AbstractContextManager[None]],
        count: Callable[[str, int], None],
    ) -> None:
        import obstore

        self._name, self._explained, self._count = name, explained, count
        self._writer: Any = obstore.open_writer(client, name, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self._length = self._crc = 0

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append pieces; parts are sent while the caller goes on."""
        with self._explained(f"write {self._name}"):
            for piece in pieces:
                data = pa.py_buffer(piece)
                self._crc = crc32c(data, self._crc)
                self._length += data.size
                self._writer.write(memoryview(data).cast("B"))

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """See ``OutputFile.close``; always durable."""
        with self._explained(f"write {self._name}"):
            self._writer.close()
        parts = -(-self._length // PART_BYTES)
        self._count("PUT", max(1, parts))
        self._count("POST", 2 if parts > 1 else 0)
        return self._length, self._crc

    def discard(self) -> None:
        """Leave it: an upload that is not completed is no object."""
        self._writer = None

"""Standard output and error that wait for a slow reader, whatever the terminal, ssh or CI set for their descriptors."""

from __future__ import annotations

import io
import select
import sys
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class WaitingFile(io.RawIOBase):
    """A raw file that writes all it is given, and waits until there is room.

    O_NONBLOCK belongs to the open file, which other processes share: it may come at any time, and is theirs to change.

    Args:
        raw: the file; writing to it may return None.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._room = select.poll()
        self._room.register(raw.fileno(), select.POLLOUT)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: Buffer) -> int:
        """Write all of the bytes; return how many."""
        rest = memoryview(data).cast("B")
        while rest:
            written = self._raw.write(rest)
            if written is None:
                self._room.poll()
            else:
                rest = rest[written:]
        return memoryview(data).nbytes


def wait_for_readers() -> None:
    """Have the standard output and error wait; a name that their encoding has no letters for is escaped."""
    sys.stdout, sys.stderr = _waiting(sys.stdout), _waiting(sys.stderr)


def _waiting(stream: TextIO) -> TextIO:
    """Return a standard stream on a ``WaitingFile``; as it is where it is closed (None) or no file."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line = stream.encoding, stream.line_buffering
    buffer = stream.detach()
    raw = buffer.detach() if isinstance(buffer, io.BufferedWriter) else buffer  # PYTHONUNBUFFERED: it is raw already
    file = cast(BinaryIO, WaitingFile(raw))  # without a buffer, which after an error would fail at the end once more
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=by_line)

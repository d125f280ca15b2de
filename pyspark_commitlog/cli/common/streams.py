"""Standard output and error that wait for a slow reader, even if the terminal, ssh or CI made them non-blocking."""

from __future__ import annotations

import io
import select
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class WaitingFile(io.RawIOBase):
    """A raw file that writes everything, waiting for room.

    O_NONBLOCK belongs to the open file, which other processes share: it may come at any time, and is theirs to change.

    `stream` is on the file, which it would close if nobody held it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream
        buffer: Any = stream.buffer
        self._raw: io.RawIOBase = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED it is raw already
        self._room = select.poll()
        self._room.register(stream.fileno(), select.POLLOUT)

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Descriptor of the file."""
        return self._raw.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._raw.isatty()

    def write(self, data: Buffer) -> int:
        """Write all bytes; return their number."""
        rest = memoryview(data).cast("B")
        while rest:
            written = self._raw.write(rest)
            if written is None:
                self._room.poll()
            else:
                rest = rest[written:]
        return memoryview(data).nbytes


def wait_for_readers() -> None:
    """Make standard output and error wait, and escape characters they can't encode."""
    sys.stdout, sys.stderr = _waiting(sys.stdout), _waiting(sys.stderr)


def _waiting(stream: TextIO) -> TextIO:
    """Return a stream on a `WaitingFile`; unchanged if closed or no file."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    file = cast(BinaryIO, WaitingFile(stream))  # without a buffer, which after an error would fail at the end once more
    return io.TextIOWrapper(file, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)

"""The Arrow side of a frame: the columns of an untyped topic, encoded and decoded, compressed by Arrow.

Columns: ``key binary, value binary, headers list<struct<key string, value binary>>, timestamp timestamp[us, UTC]``;
a thinned frame (after compaction or import) has ``offsetDelta int32`` behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", TIMESTAMP),
    ]
)
OFFSET_DELTA = "offsetDelta"
THINNED_SCHEMA = SCHEMA.append(pa.field(OFFSET_DELTA, pa.int32()))
#: Arrow's codecs by ``compression.type``; this lz4 level is faster than the default, and hardly larger.
_CODECS = {"none": None, "lz4": pa.Codec("lz4", compression_level=-3), "zstd": pa.Codec("zstd")}


#: The schema message that a stream starts with.
_HEADS = {id(schema): schema.serialize() for schema in (SCHEMA, THINNED_SCHEMA)}


def instants(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Return a timestamp column without nulls as microseconds since the epoch, without a copy."""
    found: npt.NDArray[np.int64] = timestamps.view(pa.int64()).to_numpy()
    return found


def encode(batch: pa.RecordBatch, compression: str) -> pa.Buffer:
    """Return ``batch`` as one encapsulated IPC RecordBatch message.

    Args:
        batch: rows of ``SCHEMA`` or ``THINNED_SCHEMA``.
        compression: ``none``, ``lz4`` or ``zstd`` (``compression.type``).
    """
    schema = SCHEMA if batch.num_columns == len(SCHEMA) else THINNED_SCHEMA
    options = pa.ipc.IpcWriteOptions(compression=_CODECS[compression], use_threads=False)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.RecordBatchStreamWriter(sink, schema, options=options)
    writer.write_batch(batch)
    stream = sink.getvalue()
    return stream.slice(_HEADS[id(schema)].size)


def decode(message: pa.Buffer, *, thinned: bool, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the rows of a message, decompressing only the columns in ``names`` (None: all).

    The columns come in the order of the schema, whatever the order of ``names``.

    Raises:
        CorruptionError: the message does not parse.
    """
    try:
        return _decode(message, THINNED_SCHEMA if thinned else SCHEMA, names)
    except (pa.ArrowException, OSError) as error:  # Arrow raises OSError for a message that is no flatbuffer
        raise CorruptionError(f"the Arrow message does not parse ({error})") from error


def _decode(message: pa.Buffer, schema: pa.Schema, names: Sequence[str] | None) -> pa.RecordBatch:
    # A stream even for all columns: ``read_record_batch`` has Arrow's threads decompress, and waits for them to wake.
    options = pa.ipc.IpcReadOptions(
        use_threads=False,
        ensure_alignment=pa.ipc.Alignment.DataTypeSpecific,
        included_fields=[i for i, field in enumerate(schema) if names is None or field.name in names],
    )
    stream = pa.PythonFile(_Chain((_HEADS[id(schema)], message)), mode="r")
    return pa.ipc.open_stream(stream, options=options).read_next_batch()


class _Chain:
    """A file that is a few buffers one after the other, read without copying."""

    closed = False

    def __init__(self, parts: Sequence[pa.Buffer]) -> None:
        self._parts = list(parts)
        self._position = 0

    def read(self, size: int) -> pa.Buffer | bytes:
        """Return up to ``size`` bytes, never across two parts (Arrow reads message by message)."""
        while self._parts and self._position == self._parts[0].size:
            self._parts.pop(0)
            self._position = 0
        if not self._parts:
            return b""
        piece = self._parts[0].slice(self._position, min(size, self._parts[0].size - self._position))
        self._position += piece.size
        return piece

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Nothing to close."""
        self.closed = True

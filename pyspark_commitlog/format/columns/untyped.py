"""Columns of an untyped topic, encoded to and decoded from Arrow messages.

`key binary, value binary, headers list<struct<key string, value binary>>, timestamp timestamp[us, UTC]`; a sparse
frame (after compaction or import) adds `offsetDelta int32`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import arrow_metadata, messages
from pyspark_commitlog.format.columns.messages import MessageSchema

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
Ints = npt.NDArray[np.int64]
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", TIMESTAMP),
    ]
)
OFFSET_DELTA = "offsetDelta"
SPARSE_SCHEMA = SCHEMA.append(pa.field(OFFSET_DELTA, pa.int32()))
_MESSAGES = {
    sparse: MessageSchema(schema, ("timestamp", OFFSET_DELTA))
    for sparse, schema in ((False, SCHEMA), (True, SPARSE_SCHEMA))
}

#: Maximum bytes of rows to join: half of what the offsets of a binary column count.
TOGETHER_BYTES = 2**30
#: Maximum decoded size of a frame of several rows, in units of `batch.size`.
_MOST_TIMES = 2


def instants(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Null-free timestamp column as µs since 1970, without a copy."""
    microseconds: npt.NDArray[np.int64] = timestamps.view(pa.int64()).to_numpy()
    return microseconds


def deltas_of(batch: pa.RecordBatch, base_offset: int, last_delta: int) -> Ints:
    """Offset deltas of a sparse frame's rows."""
    deltas: Ints = batch.column(OFFSET_DELTA).to_numpy().astype(np.int64)
    if len(deltas) and (deltas[0] < 0 or deltas[-1] > last_delta or (deltas[1:] <= deltas[:-1]).any()):
        raise CorruptionError(
            f"frame at offset {base_offset}: the offset deltas of its rows do not ascend between 0 and {last_delta}"
        )
    return deltas


def most_decoded(frame_bytes: int) -> int:
    """Maximum decoded bytes of a multi-row frame (pure)."""
    return min(_MOST_TIMES * frame_bytes, TOGETHER_BYTES)


def bounded(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most `most` bytes, or of one row; zero-copy."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from bounded(batch.slice(0, half), most)
    yield from bounded(batch.slice(half), most)


def encode(batch: pa.RecordBatch, compression: str) -> pa.Buffer:
    """Return `batch`, of `SCHEMA` or `SPARSE_SCHEMA`, as one encapsulated IPC RecordBatch message."""
    return messages.encode(batch, _MESSAGES[batch.num_columns > len(SCHEMA)], compression)


def decoded_bytes(message: pa.Buffer, *, sparse: bool) -> int:
    """Return the decoded size of a message's columns, without decoding."""
    return arrow_metadata.checked_bytes(message, _MESSAGES[sparse].shape)


def decode(message: pa.Buffer, *, sparse: bool, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the rows of a message, in the schema's column order.

    Only the columns in `names` (None: all) are decompressed.
    """
    return messages.decode(message, _MESSAGES[sparse], sparse, names)

"""Columns of an untyped topic, encoded to and decoded from Arrow messages.

`key binary, value binary, headers list<struct<key string, value binary>>, timestamp timestamp[us, UTC]`; a sparse
frame (after compaction or import) adds `offsetDelta int32`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import arrow_metadata

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
#: Columns that are never null, though nullable in the schema.
_IN_EVERY_ROW = ("timestamp", OFFSET_DELTA)
_SHAPE, _SPARSE_SHAPE = (arrow_metadata.shape_of(schema) for schema in (SCHEMA, SPARSE_SCHEMA))
#: Arrow's codecs by `compression.type`; this lz4 level is faster than the default, and hardly larger.
_CODECS = {"none": None, "lz4": pa.Codec("lz4", compression_level=-3), "zstd": pa.Codec("zstd")}


#: Schema message at the start of a stream.
_HEADS = {id(schema): schema.serialize() for schema in (SCHEMA, SPARSE_SCHEMA)}

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
    schema = SCHEMA if batch.num_columns == len(SCHEMA) else SPARSE_SCHEMA
    options = pa.ipc.IpcWriteOptions(compression=_CODECS[compression], use_threads=False)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.RecordBatchStreamWriter(sink, schema, options=options)
    writer.write_batch(batch)
    stream = sink.getvalue()
    return stream.slice(_HEADS[id(schema)].size)


def decoded_bytes(message: pa.Buffer, *, sparse: bool) -> int:
    """Return the decoded size of a message's columns, without decoding."""
    return arrow_metadata.checked_bytes(message, _SPARSE_SHAPE if sparse else _SHAPE)


def decode(message: pa.Buffer, *, sparse: bool, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the rows of a message, in the schema's column order.

    Only the columns in `names` (None: all) are decompressed.
    """
    _, metadata = arrow_metadata.decoded_bytes(message, _SPARSE_SHAPE if sparse else _SHAPE)
    wanted = sparse, None if names is None else tuple(names)
    idle = _idle.get(wanted)
    if idle is None:
        idle = _idle.setdefault(wanted, deque(maxlen=_MOST_IDLE))
    try:
        decoder = idle.pop()
    except IndexError:
        decoder = _Decoder(*wanted)
    batch = decoder.decode(message, metadata)
    idle.append(decoder)
    return batch


class _Decoder:
    """Decoder of successive messages as batches of one Arrow stream.

    Opening a stream costs a sixth of a decode; `read_record_batch` waits for threads. Drop it after any error (Ctrl-C,
    too): it may take the next message for a rest.
    """

    def __init__(self, sparse: bool, names: tuple[str, ...] | None) -> None:
        schema = SPARSE_SCHEMA if sparse else SCHEMA
        included = [i for i, name in enumerate(schema.names) if names is None or name in names]
        options = pa.ipc.IpcReadOptions(
            use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, included_fields=included
        )
        self._in_every_row = [at for at, i in enumerate(included) if schema.names[i] in _IN_EVERY_ROW]
        self._feed = _Feed(_HEADS[id(schema)])
        self._stream = pa.ipc.open_stream(pa.PythonFile(self._feed, mode="r"), options=options)

    def decode(self, message: pa.Buffer, metadata: bytes) -> pa.RecordBatch:
        self._feed.give(message, metadata)
        try:
            batch = self._stream.read_next_batch()
            batch.validate(full=True)  # all offsets, too: one beyond its buffer crashes the process
        except pa.ArrowMemoryError:  # the message is fine
            raise
        except (pa.ArrowException, OSError, StopIteration) as error:  # OSError: the message is no flatbuffer
            raise CorruptionError(f"the Arrow message does not parse ({error})") from error
        for at in self._in_every_row:
            if nulls := batch.column(at).null_count:
                raise CorruptionError(f"{batch.schema.names[at]} is null in {nulls} of {batch.num_rows} rows")
        # Arrow checks no offsets of an empty batch.
        return batch if batch.num_rows else pa.RecordBatch.from_pylist([], batch.schema)


#: Idle decoders, by sparse and columns: popped for one message, then put back. Not in `threading.local`: on a thread
#: that Python did not start, its state goes after each call, and the destructor of a stream over a Python file asks for
#: that same state. CPython before 3.12.4 (its issue 119585) then frees it twice and crashes.
_idle: dict[tuple[bool, tuple[str, ...] | None], deque[_Decoder]] = {}
#: Roughly the number of concurrent decoding threads; more are dropped.
_MOST_IDLE = 16
_CONTINUES = b"\xff" * 4


class _Feed:
    """A file that a stream reads `parts` from, last one first.

    Only metadata is copied: the stream keeps it, and would keep the file mapped.
    """

    closed = False

    def __init__(self, head: pa.Buffer) -> None:
        self.parts: list[pa.Buffer | bytes] = [head]

    def give(self, message: pa.Buffer, metadata: bytes) -> None:
        length = len(metadata)
        self.parts = [message.slice(8 + length), metadata, length.to_bytes(4, "little"), _CONTINUES]

    def read(self, size: int) -> pa.Buffer | bytes:
        part = self.parts.pop() if self.parts else b""
        if len(part) != size:  # the schema, or an Arrow that reads in other pieces
            left = pa.py_buffer(b"".join((part, *self.parts[::-1])))
            part, self.parts = left.slice(0, min(size, left.size)), [left.slice(min(size, left.size))]
        return part

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close."""

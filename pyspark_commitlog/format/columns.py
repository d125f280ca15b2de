"""The Arrow side of a frame: the columns of an untyped topic, encoded and decoded, compressed by Arrow.

Columns: ``key binary, value binary, headers list<struct<key string, value binary>>, timestamp timestamp[us, UTC]``;
a sparse frame (after compaction or import) has ``offsetDelta int32`` after them.
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
#: The columns that are never null, though their type would let them.
_IN_EVERY_ROW = ("timestamp", OFFSET_DELTA)
_SHAPE, _SPARSE_SHAPE = (arrow_metadata.shape_of(schema) for schema in (SCHEMA, SPARSE_SCHEMA))
#: Arrow's codecs by ``compression.type``; this lz4 level is faster than the default, and hardly larger.
_CODECS = {"none": None, "lz4": pa.Codec("lz4", compression_level=-3), "zstd": pa.Codec("zstd")}


#: The schema message that a stream starts with.
_HEADS = {id(schema): schema.serialize() for schema in (SCHEMA, SPARSE_SCHEMA)}

#: Rows that are put together at most, bytes: half of what Arrow's offsets of binary columns can count.
TOGETHER_BYTES = 2**30
#: A frame of several rows decodes to at most so many times ``batch.size``.
_MOST_TIMES = 2


def instants(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Return a timestamp column without nulls as microseconds since the epoch, without a copy."""
    microseconds: npt.NDArray[np.int64] = timestamps.view(pa.int64()).to_numpy()
    return microseconds


def deltas_of(batch: pa.RecordBatch, base_offset: int, last_delta: int) -> Ints:
    """Return the offset deltas of a sparse frame's rows.

    Raises:
        CorruptionError: they do not ascend, or lie beside the frame: rows would be passed over, or come twice.
    """
    deltas: Ints = batch.column(OFFSET_DELTA).to_numpy().astype(np.int64)
    if len(deltas) and (deltas[0] < 0 or deltas[-1] > last_delta or (deltas[1:] <= deltas[:-1]).any()):
        raise CorruptionError(
            f"frame at offset {base_offset}: the offset deltas of its rows do not ascend between 0 and {last_delta}"
        )
    return deltas


def most_decoded(frame_bytes: int) -> int:
    """Return what a frame decodes to at most that has several rows, bytes, for a ``batch.size`` (pure)."""
    return min(_MOST_TIMES * frame_bytes, TOGETHER_BYTES)


def bounded(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in slices that take at most so many bytes, or are one row; no row is copied."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from bounded(batch.slice(0, half), most)
    yield from bounded(batch.slice(half), most)


def encode(batch: pa.RecordBatch, compression: str) -> pa.Buffer:
    """Return ``batch`` as one encapsulated IPC RecordBatch message.

    Args:
        batch: rows of ``SCHEMA`` or ``SPARSE_SCHEMA``.
        compression: ``none``, ``lz4`` or ``zstd`` (``compression.type``).
    """
    schema = SCHEMA if batch.num_columns == len(SCHEMA) else SPARSE_SCHEMA
    options = pa.ipc.IpcWriteOptions(compression=_CODECS[compression], use_threads=False)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.RecordBatchStreamWriter(sink, schema, options=options)
    writer.write_batch(batch)
    stream = sink.getvalue()
    return stream.slice(_HEADS[id(schema)].size)


def decoded_bytes(message: pa.Buffer, *, sparse: bool) -> int:
    """Return how many bytes all columns of a message decode to, without decoding it.

    Raises:
        CorruptionError: it says what can't be, or would decode to more than a frame may (``MAX_DECODED_BYTES``).
    """
    return arrow_metadata.checked_bytes(message, _SPARSE_SHAPE if sparse else _SHAPE)


def decode(message: pa.Buffer, *, sparse: bool, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the rows of a message, decompressing only the columns in ``names`` (None: all).

    The columns come in the order of the schema, whatever the order of ``names``.

    Raises:
        CorruptionError: the message does not parse, or would decode to more than it can or may: no memory was taken.
            Or a row lacks what every row has.
        MemoryError: there is not enough for it.
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
    """Decodes one message after the other, as the batches of one Arrow stream; never used again after an error.

    To open a stream for each, schema and all, takes a sixth of what decoding a frame does. And a stream it is because
    ``read_record_batch`` has Arrow's threads decompress, and waits for them to wake. A stream that stopped within a
    message, whatever stopped it (Ctrl-C), would take the next one for its rest.
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
        """Return the rows of a message, with a copy of its metadata; raises as the function does."""
        self._feed.give(message, metadata)
        try:
            batch = self._stream.read_next_batch()
            batch.validate(full=True)  # its rows, and each offset: one that leads beside its buffer crashes the process
        except pa.ArrowMemoryError:  # nothing is wrong with the message
            raise
        except (pa.ArrowException, OSError, StopIteration) as error:  # OSError: the message is no flatbuffer
            raise CorruptionError(f"the Arrow message does not parse ({error})") from error
        for at in self._in_every_row:
            if nulls := batch.column(at).null_count:
                raise CorruptionError(f"{batch.schema.names[at]} is null in {nulls} of {batch.num_rows} rows")
        # Where there are no rows, Arrow checks no offset.
        return batch if batch.num_rows else pa.RecordBatch.from_pylist([], batch.schema)


#: Decoders that no thread uses at the moment, by what they decode: taken out for one message, put back after it.
#: Not kept per thread (``threading.local``): where Python did not start a thread, an embedder's say, its state is taken
#: down after each call, and the destructor of a stream over a Python file asks for that same state. CPython before
#: 3.12.4 (its issue 119585) then frees the state twice, and the process crashes.
_idle: dict[tuple[bool, tuple[str, ...] | None], deque[_Decoder]] = {}
#: As many as threads decode at once, mostly; what is more is dropped.
_MOST_IDLE = 16
_CONTINUES = b"\xff" * 4


class _Feed:
    """A file whose next bytes are those of ``parts``, the first one last, which a stream reads one at a time.

    The body is not copied. The metadata is: a stream holds it until the next message comes, and would hold the mapped
    file with it.
    """

    closed = False

    def __init__(self, head: pa.Buffer) -> None:
        self.parts: list[pa.Buffer | bytes] = [head]

    def give(self, message: pa.Buffer, metadata: bytes) -> None:
        """Have the next bytes be those of a message, of whose metadata there is a copy."""
        length = len(metadata)
        self.parts = [message.slice(8 + length), metadata, length.to_bytes(4, "little"), _CONTINUES]

    def read(self, size: int) -> pa.Buffer | bytes:
        """Return up to ``size`` bytes; fewer at the end only."""
        part = self.parts.pop() if self.parts else b""
        if len(part) != size:  # the schema; or another Arrow than any so far, which reads in other pieces
            left = pa.py_buffer(b"".join((part, *self.parts[::-1])))
            part, self.parts = left.slice(0, min(size, left.size)), [left.slice(min(size, left.size))]
        return part

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

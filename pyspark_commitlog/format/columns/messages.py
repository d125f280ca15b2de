"""RecordBatch messages, encoded and decoded."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns.arrow_metadata import SchemaShape, decoded_bytes, shape_of

#: Arrow's codecs by `compression.type`; this lz4 level is faster than the default, and hardly larger.
CODECS = {"none": None, "lz4": pa.Codec("lz4", compression_level=-3), "zstd": pa.Codec("zstd")}
_CONTINUES = b"\xff" * 4
#: Idle decoders kept of one kind: about the number of concurrent decoding threads.
_MOST_IDLE = 16
#: Kinds of decoders kept.
_MOST_KINDS = 128


@dataclass(frozen=True)
class MessageSchema:
    """Schema of messages, and what decoding them takes.

    Attributes:
        in_every_row: columns that are never null, though nullable in the schema.
        head: the schema message.
    """

    schema: pa.Schema
    in_every_row: tuple[str, ...] = ()
    shape: SchemaShape = field(init=False)
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", shape_of(self.schema))
        object.__setattr__(self, "head", self.schema.serialize().to_pybytes())  # kept: of no pool


def encode(batch: pa.RecordBatch, of: MessageSchema, compression: str) -> pa.Buffer:
    """Return a batch as one encapsulated IPC message."""
    options = pa.ipc.IpcWriteOptions(compression=CODECS[compression], use_threads=False)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.RecordBatchStreamWriter(sink, of.schema, options=options)
    writer.write_batch(batch)
    stream = sink.getvalue()
    return stream.slice(len(of.head))


def decode(message: pa.Buffer, of: MessageSchema, key: Hashable, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the rows of a message, in the schema's column order.

    Args:
        key: equal for messages of one schema.
        names: columns to decompress; None: all.
    """
    _, metadata = decoded_bytes(message, of.shape)
    kind = (key, None if names is None else tuple(names))
    idle = _idle_decoders(kind)
    try:
        decoder = idle.pop()
    except IndexError:
        decoder = _Decoder(of, kind[1])
    batch = decoder.decode(message, metadata)
    idle.append(decoder)
    return batch


#: Idle decoders by key and columns, the oldest kinds dropped: popped for one message, then put back. Not in
#: `threading.local`: on a thread that Python did not start, its state goes after each call, and the destructor of a
#: stream over a Python file asks for that same state. CPython before 3.12.4 (its issue 119585) then frees it twice and
#: crashes.
_idle: OrderedDict[tuple[Hashable, tuple[str, ...] | None], deque[_Decoder]] = OrderedDict()


def _idle_decoders(kind: tuple[Hashable, tuple[str, ...] | None]) -> deque[_Decoder]:
    idle = _idle.get(kind)
    if idle is None:
        idle = _idle.setdefault(kind, deque(maxlen=_MOST_IDLE))
        while len(_idle) > _MOST_KINDS:
            _idle.popitem(last=False)
    return idle


class _Decoder:
    """Decoder of successive messages as batches of one Arrow stream.

    Opening a stream costs a sixth of a decode; `read_record_batch` waits for threads. Drop it after any error (Ctrl-C,
    too): it may take the next message for a rest.
    """

    def __init__(self, of: MessageSchema, names: tuple[str, ...] | None) -> None:
        all_names = of.schema.names
        included = [i for i, name in enumerate(all_names) if names is None or name in names]
        options = pa.ipc.IpcReadOptions(
            use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, included_fields=included
        )
        self._in_every_row = [at for at, i in enumerate(included) if all_names[i] in of.in_every_row]
        self._feed = _Feed(of.head)
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


class _Feed:
    """A file that a stream reads `parts` from, last one first.

    Only metadata is copied: the stream keeps it, and would keep the file mapped.
    """

    closed = False

    def __init__(self, head: bytes) -> None:
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

"""Frame: a Kafka v2 record batch of one Arrow RecordBatch message."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format import varint

# Layout (big-endian; Kafka: DefaultRecordBatch, DefaultRecord):
#
#   0   baseOffset            i64   stamped when settling; 0-based inside a chunk
#   8   batchLength           i32   bytes after this field
#   12  partitionLeaderEpoch  i32   stamped when settling
#   16  magic                 i8    2
#   17  crc                   u32   CRC-32C of all that follows
#   21  attributes            i16   bit 3: LogAppendTime; bit 6: baseTimestamp is a delete horizon
#   23  lastOffsetDelta       i32   rows - 1
#   27  baseTimestamp         i64   ms of the earliest row
#   35  maxTimestamp          i64   ms of the latest row
#   43  producerId            i64   -1
#   51  producerEpoch         i16   -1
#   53  baseSequence          i32   -1
#   57  recordCount           i32   1
#   61  record: length varint, attributes i8, timestampDelta varint, offsetDelta varint,
#       keyLength varint (-1), valueLength varint, value, header count varint,
#       then per header: keyLength varint, key, valueLength varint, value
#
# The record has offsetDelta = lastOffsetDelta and timestamp = maxTimestamp, as Kafka's seek, position and time-index
# checks need. Its headers, under the CRC, are the frame's identity.
_HEADER = struct.Struct(
    ">"
    "q"  # baseOffset
    "i"  # batchLength
    "i"  # partitionLeaderEpoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # lastOffsetDelta
    "q"  # baseTimestamp
    "q"  # maxTimestamp
    "q"  # producerId
    "h"  # producerEpoch
    "i"  # baseSequence
    "i"  # recordCount
)
_STAMP = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">hiqqqhii")  # attributes … recordCount

HEADER_BYTES = _HEADER.size
STAMP_BYTES = _STAMP.size
_LENGTH_COUNTS_FROM = 12
_CRC_COUNTS_FROM = 21
MAGIC = 2
VERSION = "1"
UNTYPED = "0"
DENSE = "arrow-ipc"
SPARSE = "arrow-ipc-thinned"
#: Kinds of a typed topic's frames.
COLUMNS = "arrow-columns"
SPARSE_COLUMNS = "arrow-columns-thinned"
LOG_APPEND_TIME = 1 << 3
DELETE_HORIZON = 1 << 6
MAX_ROWS = 65_536
#: Maximum size of a record's key, value and headers, whatever `max.message.bytes` is: a frame's length is an i32, and
#: no codec expands by more than a 64th.
MAX_RECORD_BYTES = 2000 * 2**20
#: Kafka's `RecordBatch.NO_TIMESTAMP`.
NO_TIMESTAMP = -1
_SPARSE_KINDS = (SPARSE, SPARSE_COLUMNS)
_TYPED_KINDS = (COLUMNS, SPARSE_COLUMNS)
_KNOWN_KINDS = (DENSE, SPARSE, *_TYPED_KINDS)
#: Cached record headers, parsed or encoded: number, and maximum bytes of each.
_KEPT = 256
_KEPT_BYTES = 1024
#: Encoded name of the chunk's header, which we write last.
_CHUNK = varint.encode(len("chunk-uuid")) + b"chunk-uuid"
#: Copying a message of this size costs more than writing a frame's pieces one by one.
_LARGE_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Identity:
    """A frame's identity in its record headers, which reveals swapped files.

    Attributes:
        codec: Arrow's body compression; decoding ignores it.
        base_offset: Of sparse frames only.
        chunk: Unique part of its chunk's name.
        columns: How a typed frame stores its columns, in JSON; None if untyped.
        statistics: Bounds of a typed frame's columns, in JSON; None if it has none.
    """

    topic_id: str
    partition: int
    codec: str
    kind: str = DENSE
    base_offset: int | None = None
    chunk: str | None = None
    columns: str | None = None
    statistics: str | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether rows carry their offsets."""
        return self.kind in _SPARSE_KINDS

    @property
    def is_typed(self) -> bool:
        """Whether the frame has a schema of its own."""
        return self.kind in _TYPED_KINDS

    def encode(self) -> bytes:
        """Return the record's headers: count, then name and value of each."""
        return _headers(self) if self.columns is None else _headers.__wrapped__(self)  # which differ in each frame


@lru_cache(_KEPT)
def _headers(identity: Identity) -> bytes:
    pairs = [
        ("kind", identity.kind),
        ("schema", UNTYPED) if identity.columns is None else ("columns", identity.columns),
        ("version", VERSION),
        ("topic", identity.topic_id),
        ("partition", str(identity.partition)),
        ("codec", identity.codec),
    ]
    if identity.statistics is not None:
        pairs.append(("statistics", identity.statistics))
    if identity.base_offset is not None:
        pairs.append(("base", str(identity.base_offset)))
    if identity.chunk is not None:
        pairs.append(("chunk-uuid", identity.chunk))
    out = [varint.encode(len(pairs))]
    for name, value in pairs:
        for part in (name.encode(), value.encode()):
            out += (varint.encode(len(part)), part)
    return b"".join(out)


@dataclass(frozen=True, slots=True)
class Times:
    """Smallest and largest timestamp of a frame in ms, and their clock.

    `delete_horizon_ms` (KIP-534), from which tombstones may go, replaces `base_ms`.
    """

    base_ms: int
    max_ms: int
    log_append_time: bool = False
    delete_horizon_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's parsed header, and the buffer of the whole frame."""

    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    length: int
    buffer: pa.Buffer = field(repr=False, compare=False)

    @property
    def last_offset(self) -> int:
        """Last offset of the frame."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the frame."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def log_append_time(self) -> bool:
        """Whether timestamps are the write task's clock."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The tombstones' delete horizon in ms; None if unset."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


@dataclass(frozen=True, slots=True)
class Payload:
    """Arrow message and identity of a verified frame."""

    identity: Identity
    message: pa.Buffer


class Pieces(NamedTuple):
    """Bytes of a frame: before its Arrow message, the message, after it."""

    before: bytes
    message: pa.Buffer
    after: bytes

    @property
    def size(self) -> int:
        """The frame's size in bytes."""
        size: int = len(self.before) + self.message.size + len(self.after)
        return size

    def joined(self) -> bytes:
        """Whole frame, as a copy."""
        return b"".join((self.before, memoryview(self.message), self.after))

    def to_write(self) -> tuple[bytes | pa.Buffer, ...]:
        """Buffers to write, small frames joined to save calls."""
        return self if self.message.size >= _LARGE_BYTES else (self.joined(),)


def encode(
    message: pa.Buffer, *, rows: int, times: Times, identity: Identity, base_offset: int = 0, leader_epoch: int = 0
) -> bytes:
    """Return a frame around an IPC RecordBatch message that covers `rows` offsets."""
    return pieces(
        message, rows=rows, times=times, identity=identity, base_offset=base_offset, leader_epoch=leader_epoch
    ).joined()


def pieces(
    message: pa.Buffer, *, rows: int, times: Times, identity: Identity, base_offset: int = 0, leader_epoch: int = 0
) -> Pieces:
    """Like `encode`, without a copy of the message."""
    delta = rows - 1
    horizon = times.delete_horizon_ms
    base_ms = times.base_ms if horizon is None else horizon
    head = b"".join(
        (
            b"\0",
            varint.encode(times.max_ms - base_ms),
            varint.encode(delta),
            varint.encode(-1),
            varint.encode(message.size),
        )
    )
    headers = identity.encode()
    length = len(head) + message.size + len(headers)
    attributes = (LOG_APPEND_TIME if times.log_append_time else 0) | (0 if horizon is None else DELETE_HORIZON)
    covered = _COVERED.pack(attributes, delta, base_ms, times.max_ms, -1, -1, -1, 1)
    before = b"".join((covered, varint.encode(length), head))
    crc = 0
    for part in (before, message, headers):
        crc = crc32c(part, crc)
    size = len(before) + message.size + len(headers) + _CRC_COUNTS_FROM
    stamp = _STAMP.pack(base_offset, size - _LENGTH_COUNTS_FROM, leader_epoch)
    return Pieces(b"".join((stamp, bytes((MAGIC,)), _CRC.pack(crc), before)), message, headers)


def stamp(frame: Frame, base_offset: int, leader_epoch: int) -> tuple[bytes, pa.Buffer]:
    """Return (new head, rest) with final offset and epoch; CRC still valid."""
    head = _STAMP.pack(base_offset, frame.length - _LENGTH_COUNTS_FROM, leader_epoch)
    return head, frame.buffer.slice(STAMP_BYTES)


def restage(frame: Frame, chunk: str) -> bytes:
    """Return a dense frame as if staged for `chunk`."""
    payload = open_payload(frame)
    return encode(
        payload.message,
        rows=frame.last_offset_delta + 1,
        times=Times(frame.base_timestamp, frame.max_timestamp, frame.log_append_time),
        identity=replace(payload.identity, chunk=chunk),
        base_offset=frame.base_offset,
    )


def parse(buffer: pa.Buffer, position: int) -> Frame | None:
    """Return the frame at `position`; None if the buffer ends inside it.

    `open_payload` checks the CRC.
    """
    if position + HEADER_BYTES > buffer.size:
        return None
    (base, length, epoch, magic, crc, attributes, delta, base_ms, max_ms, _, _, _, count) = _HEADER.unpack_from(
        buffer, position
    )
    if magic != MAGIC or length < HEADER_BYTES - _LENGTH_COUNTS_FROM or delta < 0 or count != 1:
        raise CorruptionError(
            f"no frame at position {position}: magic {magic}, batchLength {length}, "
            f"lastOffsetDelta {delta}, recordCount {count}"
        )
    total = length + _LENGTH_COUNTS_FROM
    if position + total > buffer.size:
        return None
    return Frame(base, epoch, crc, attributes, delta, base_ms, max_ms, total, buffer.slice(position, total))


def parse_encoded(data: bytes) -> Frame:
    """Return the frame in just encoded bytes."""
    frame = parse(pa.py_buffer(data), 0)
    assert frame is not None
    return frame


def needed_bytes(buffer: pa.Buffer, position: int) -> int:
    """Return the frame's size from its header; `HEADER_BYTES` if cut off."""
    if position + HEADER_BYTES > buffer.size:
        return HEADER_BYTES
    length: int = _STAMP.unpack_from(buffer, position)[1]
    return max(length + _LENGTH_COUNTS_FROM, HEADER_BYTES)


def open_payload(frame: Frame) -> Payload:
    """Check a frame's CRC and return its Arrow message and identity."""
    crc = crc32c(frame.buffer.slice(_CRC_COUNTS_FROM))
    if crc != frame.crc:
        raise CorruptionError(f"frame at offset {frame.base_offset}: CRC-32C is {crc:08x}, expected {frame.crc:08x}")
    try:
        message, headers = _parse_record(frame.buffer)
        identity = _identity(headers) if len(headers) <= _KEPT_BYTES else _parsed.__wrapped__(headers, 0)
        return Payload(identity, message)
    except (ValueError, KeyError, IndexError) as error:
        raise CorruptionError(f"frame at offset {frame.base_offset}: its record does not parse ({error})") from error


def _parse_record(buffer: pa.Buffer) -> tuple[pa.Buffer, bytes]:
    data = memoryview(buffer).cast("B")  # Arrow's format is signed bytes
    length, position = varint.decode(data, HEADER_BYTES)
    if position + length != buffer.size:
        raise ValueError(f"record length {length}, expected {buffer.size - position}")
    _, position = varint.decode(data, position + 1)  # timestampDelta, after the attributes byte
    _, position = varint.decode(data, position)  # offsetDelta
    key_length, position = varint.decode(data, position)
    if key_length != -1:
        raise ValueError("the record has a key")
    size, position = _length(data, position)
    return buffer.slice(position, size), bytes(data[position + size :])


def _text(data: bytes, position: int) -> tuple[str, int]:
    size, position = _length(data, position)
    return str(data[position : position + size], "utf-8"), position + size


def _length(data: bytes | memoryview, position: int) -> tuple[int, int]:
    size, position = varint.decode(data, position)
    if not 0 <= size <= len(data) - position:
        raise ValueError(f"length {size} at position {position}")
    return size, position


def _identity(headers: bytes) -> Identity:
    """Identity in headers; the part before the chunk is cached."""
    at = headers.rfind(_CHUNK)
    if at >= 0:
        with suppress(ValueError, KeyError):  # the match is inside another header
            chunk, end = _text(headers, at + len(_CHUNK))
            if end == len(headers):
                return replace(_parsed(headers[:at], 1), chunk=chunk)
    return _parsed(headers, 0)


@lru_cache(_KEPT)
def _parsed(data: bytes, fewer: int) -> Identity:
    count, position = varint.decode(data, 0)
    headers: dict[str, str] = {}
    for _ in range(count - fewer):
        name, position = _text(data, position)
        headers[name], position = _text(data, position)
    if position != len(data):
        raise ValueError(f"its headers end {len(data) - position} bytes before it")
    kind, version = headers["kind"], headers["version"]
    schema = UNTYPED if kind in _TYPED_KINDS else headers["schema"]
    if kind not in _KNOWN_KINDS or version != VERSION or schema != UNTYPED:
        raise UnsupportedError(
            f"frame of kind {kind!r}, version {version!r}, schema {schema!r}: "
            f"this version reads kinds {_KNOWN_KINDS}, version {VERSION!r}, schema {UNTYPED!r}; upgrade to read it"
        )
    base = int(headers["base"]) if kind in _SPARSE_KINDS else None
    partition, codec = int(headers["partition"]), headers["codec"]
    columns = headers["columns"] if kind in _TYPED_KINDS else None
    statistics = None if columns is None else headers.get("statistics")
    return Identity(headers["topic"], partition, codec, kind, base, headers.get("chunk-uuid"), columns, statistics)

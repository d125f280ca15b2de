"""What a `.log` holds, read by the test's own few lines: never by the code under test.

Record batch, version 2 (big-endian)::

    0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 (bit 6: baseTimestamp is the delete horizon) | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
    43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 recordCount i32 | 61 records
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_DELETE_HORIZON = 1 << 6
_COUNTED_FROM = 12
ENTRY_BYTES = {".index": 8, ".timeindex": 12}


@dataclass(frozen=True, slots=True)
class Record:
    """A record as Kafka's clients see it: one for each frame."""

    offset: int
    timestamp: int
    value: bytes
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A record batch: where it lies, the offsets that it covers, and the one record in it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    max_timestamp: int
    delete_horizon: int | None
    record: Record

    @property
    def rows(self) -> int:
        """Return the number of offsets that the frame covers."""
        return self.last_offset - self.base_offset + 1


def read_log(path: Path) -> list[Frame]:
    """Return the frames of a `.log` in file order, up to the zeros that `preallocate` leaves behind them."""
    data, position, found = path.read_bytes(), 0, list[Frame]()
    while any(data[position : position + _HEADER.size]):
        found.append(_frame(data, position))
        position += found[-1].size
    return found


def read_partition(directory: Path) -> list[Frame]:
    """Return the frames of a partition in offset order."""
    return [frame for log in sorted(directory.glob("*.log")) for frame in read_log(log)]


def entries(path: Path) -> bytes:
    """Return an index without the zeros that follow its entries while its segment is active."""
    data, step = path.read_bytes(), ENTRY_BYTES[path.suffix]
    assert len(data) % step == 0, f"{path} has {len(data)} bytes, not a multiple of {step}"
    return data.rstrip(b"\0").ljust(-(-len(data.rstrip(b"\0")) // step) * step, b"\0")


def _frame(data: bytes, position: int) -> Frame:
    base, length, epoch, magic, crc, attributes, delta, base_ms, max_ms, *_, count = _HEADER.unpack_from(data, position)
    assert (magic, count) == (2, 1), f"magic {magic}, {count} records at position {position}"
    size = length + _COUNTED_FROM
    record = _record(data[position + _HEADER.size : position + size], base, base_ms)
    horizon = base_ms if attributes & _DELETE_HORIZON else None
    return Frame(position, size, base, base + delta, epoch, crc, max_ms, horizon, record)


def _record(data: bytes, base_offset: int, base_ms: int) -> Record:
    read = _Reader(data)
    length = read.varint()
    assert length == len(data) - read.position, f"record of {length} bytes in a batch with room for {len(data)}"
    read.take(1)  # attributes
    timestamp, offset = base_ms + read.varint(), base_offset + read.varint()
    assert read.varint() == -1, "the record has a key"
    value = read.take(read.varint())
    headers = tuple(
        (read.take(read.varint()).decode(), read.take(read.varint()).decode()) for _ in range(read.varint())
    )
    assert read.position == len(data), f"{len(data) - read.position} bytes behind the record"
    return Record(offset, timestamp, value, headers)


@dataclass(slots=True)
class _Reader:
    """Takes a record's fields from the front of its bytes."""

    data: bytes
    position: int = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        start, self.position = self.position, self.position + count
        return self.data[start : self.position]

    def varint(self) -> int:
        """Return the next zigzag varint."""
        shift = raw = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)

"""Segment object: segments of several partitions in one file, for storage without append."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Checked, to_json_bytes
from pyspark_commitlog.format.shape import Crc, Row, Shape, Timestamp, Whole, damage, decode as decode_json

#   <.log of a slice><.index><.timeindex> …      parts, slice after slice, ascending by partition
#   {"slices":[{"partition":0,…,"parts":[["log",812,3735928559],["index",8,…],["timeindex",12,…]]},…]}
#   <length of that JSON u32><its CRC-32C u32><"CLSEGOB1">                             big-endian
#
# A part is byte for byte one of Kafka's three files; positions are sums of lengths, in listed order. A settle entry
# names length and CRC of the footer; the trailer is for readers that have the object alone.

LOG, INDEX, TIMEINDEX = "log", "index", "timeindex"
#: The parts that every slice has, first and in this order.
PARTS = (LOG, INDEX, TIMEINDEX)
MAGIC = b"CLSEGOB1"
_TRAILER = struct.Struct(">II8s")
TRAILER_BYTES = _TRAILER.size


class SlicePart(Row):
    """A named part of a slice: length in bytes, CRC-32C."""

    name: Annotated[str, Meta(pattern="^[a-z0-9.-]{1,32}$")]
    length: Whole
    crc: Crc


class Slice(Shape):
    """The parts that hold the offsets [base_offset, end_offset) of a partition.

    `min_timestamp` and `lateness` (ms) as in `topic.state.settle_state.Active`.
    """

    partition: Whole
    base_offset: Whole
    end_offset: Whole
    max_timestamp: Timestamp
    min_timestamp: Timestamp | None
    lateness: Timestamp | None
    parts: list[SlicePart]

    @property
    def length(self) -> int:
        """Bytes of all its parts."""
        return sum(part.length for part in self.parts)


class _Footer(Shape):
    slices: list[Slice]


@dataclass(frozen=True, slots=True)
class Footer:
    """The slices of a segment object."""

    slices: tuple[Slice, ...]

    def of(self, partition: int) -> tuple[int, Slice] | None:
        """Return (position of its first part, slice) of a partition, or None."""
        return next(((at, piece) for at, piece in self.positioned() if piece.partition == partition), None)

    def positioned(self) -> Iterator[tuple[int, Slice]]:
        """Yield (position of its first part, slice)."""
        position = 0
        for piece in self.slices:
            yield position, piece
            position += piece.length


def encode_footer(slices: Sequence[Slice]) -> tuple[bytes, Checked]:
    """Return an object's last bytes, and their JSON's length and CRC."""
    data = to_json_bytes(msgspec.to_builtins({"slices": list(slices)}))
    named = Checked.of(data)
    return data + _TRAILER.pack(named.length, named.crc, MAGIC), named


def decode_footer(data: bytes, where: str) -> Footer:
    """Return the footer in its JSON."""
    slices = decode_json(data, _Footer, where).slices
    for number, piece in enumerate(slices):
        names = tuple(part.name for part in piece.parts)
        if names[: len(PARTS)] != PARTS:
            raise damage(where, f"parts of slice {number}", list(names), f"{', '.join(PARTS)} first")
        if not piece.base_offset < piece.end_offset:
            offsets = [piece.base_offset, piece.end_offset]
            raise damage(where, f"offsets of slice {number}", offsets, "a range that is not empty")
        if number and slices[number - 1].partition >= piece.partition:
            raise damage(where, f"partition of slice {number}", piece.partition, "above that of the slice before")
        if max(part.length for part in piece.parts[1:]) > piece.parts[0].length:
            raise damage(where, f"indexes of slice {number}", [p.length for p in piece.parts], "no longer than the log")
    return Footer(tuple(slices))


def decode_trailer(data: bytes, where: str) -> Checked:
    """Return the footer's length and CRC from an object's last `TRAILER_BYTES`."""
    if len(data) != TRAILER_BYTES:
        raise CorruptionError(f"{where}: {len(data)} bytes are left, a segment object ends with {TRAILER_BYTES}")
    length, crc, magic = _TRAILER.unpack(data)
    if magic != MAGIC:
        raise CorruptionError(f"{where}: it ends with {magic!r}, a segment object with {MAGIC!r}")
    return Checked(length, crc)

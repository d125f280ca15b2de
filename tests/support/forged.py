"""Arrow messages that say what they should not: numbers of their metadata, and what their buffers decode to."""

from __future__ import annotations

import struct

import pyarrow as pa

from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.columns.arrow_metadata import _fields, _pairs

GIB = 2**30
_BLOCK = 2**17
_MAGIC = 0xFD2FB528


def numbers_of(message: bytes) -> list[tuple[str, int, int]]:
    """Return every number of a message's metadata: what it is, where it stands in the message, its value."""
    length = struct.unpack_from("<i", message, 4)[0]
    metadata = message[8 : 8 + length]
    header, body = _fields(metadata, 0)[2:4]
    rows, nodes, buffers, *_ = _fields(metadata, header)
    counts = [
        struct.unpack_from("<I", metadata, at + struct.unpack_from("<I", metadata, at)[0])[0] for at in (nodes, buffers)
    ]
    places = [("body", body), ("rows", rows)]
    for at, count, names in zip((nodes, buffers), counts, (("values", "nulls"), ("places", "lengths")), strict=True):
        first = _pairs(metadata, at, count)
        places += [(names[n % 2], first + 8 * n) for n in range(2 * count)]
    return [(what, 8 + at, struct.unpack_from("<q", metadata, at)[0]) for what, at in places]


def prefix_places(message: bytes) -> list[int]:
    """Return where the lengths stand before the compressed buffers that are not empty."""
    start = 8 + struct.unpack_from("<i", message, 4)[0]
    pairs = [(what, value) for what, _, value in numbers_of(message) if what in ("places", "lengths")]
    return [start + place for (_, place), (_, length) in zip(pairs[::2], pairs[1::2], strict=True) if length]


def forged(message: bytes, at: int, value: int) -> bytes:
    """Return a message with another number at `at`."""
    return message[:at] + struct.pack("<q", value) + message[at + 8 :]


def zeros(size: int) -> bytes:
    """Return a frame of Zstandard that holds so many zeros, a multiple of 128 KiB: 4 bytes for each 128 KiB (RFC 8878)."""
    blocks, rest = divmod(size, _BLOCK)
    assert not rest
    head = struct.pack("<IBBQ", _MAGIC, 0b1100_0000, 7 << 3, size)  # 8 bytes of content size; a window of 128 KiB
    block = (_BLOCK << 3 | 1 << 1).to_bytes(3, "little") + b"\0"  # RLE
    last = (_BLOCK << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return head + block * (blocks - 1) + last


def bomb(batch: pa.RecordBatch, buffer: int, size: int) -> bytes:
    """Return a message of rows, compressed by Zstandard, whose buffer of that number holds so many zeros, truly."""
    message = untyped.encode(batch, "zstd").to_pybytes()
    stored = struct.pack("<q", size) + zeros(size)
    found = numbers_of(message)
    body = next(at for what, at, _ in found if what == "body")
    length = [at for what, at, _ in found if what == "lengths"][buffer]
    place = [at for what, at, _ in found if what == "places"][buffer]
    grown = struct.unpack_from("<q", message, body)[0]
    message += stored + bytes(-len(stored) % 8)
    message = forged(message, body, grown + len(stored) + -len(stored) % 8)
    return forged(forged(message, length, len(stored)), place, grown)

"""Zigzag varints of Kafka's records (`ByteUtils.writeVarint`, `writeVarlong`)."""

from __future__ import annotations

from collections.abc import Sequence


def encode(value: int) -> bytes:
    """Return a signed 64-bit integer as a 1 to 10 byte varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode(data: Sequence[int], position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises:
        ValueError: too long, or cut off.
    """
    shift = rest = 0
    while shift < 70:
        if position >= len(data):
            raise ValueError("varint is cut off")
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7
    raise ValueError("varint is longer than 10 bytes")

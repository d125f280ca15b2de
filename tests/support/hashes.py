"""The hashes of a commit's checksum, as FORMAT.md defines them."""

from __future__ import annotations

ALL = 2**64 - 1


def mixed(number: int) -> int:
    """As FORMAT.md says."""
    number ^= number >> 30
    number = number * 0xBF58476D1CE4E5B9 & ALL
    number ^= number >> 27
    number = number * 0x94D049BB133111EB & ALL
    return number ^ number >> 31


def factor(place: int) -> int:
    """As FORMAT.md says."""
    return mixed((place + 1) * 0x9E3779B97F4A7C15 & ALL) | 1


def folded(data: bytes) -> int:
    """As FORMAT.md says."""
    word = int.from_bytes(data, "little")
    return word ^ word >> 29


def of_bytes(data: bytes | None) -> int:
    """As FORMAT.md says."""
    if data is None:
        return 0
    found = (len(data) + 1) * factor(32)
    for number in range(-(-len(data) // 8)):
        block = number // 32
        of_block = factor(2**32 + block) if block else 1
        found += folded(data[8 * number : 8 * number + 8]) * factor(number % 32) * of_block
    return found

"""A long manifest in parts: leaves of ``LEAF_SEGMENTS`` segments, each a file of its own, written once (rule O10).

A new manifest names again the leaves that have not changed, so one more segment costs the same whether it is the tenth
or the ten-thousandth. A short manifest is a plain list of its segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.format.entry import Checked, to_json_bytes
from pyspark_commitlog.log.settle_state import Sealed

#: Segments of a leaf; a manifest with no more than these has no leaves.
LEAF_SEGMENTS = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    """How a manifest names a leaf: its file, and the base offset of its first segment."""

    name: str
    checked: Checked
    base_offset: int
    segments: int

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.name, self.checked.length, f"{self.checked.crc:08x}", self.base_offset, self.segments]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Leaf:
        """Return the value of the JSON form."""
        name, length, crc, base_offset, segments = row
        return cls(name, Checked(length, int(crc, 16)), base_offset, segments)


@dataclass(frozen=True, slots=True)
class NewLeaf:
    """A leaf to be written: the base offset of its first segment, how many it has, and its file's bytes."""

    base_offset: int
    segments: int
    data: bytes

    def to_leaf(self, name: str) -> Leaf:
        """Return the manifest's row for it, in a file of this name."""
        return Leaf(name, Checked.of(self.data), self.base_offset, self.segments)


@dataclass(frozen=True, slots=True)
class ManifestParts:
    """What a manifest is made of: leaves in order, and the segments after them."""

    leaves: tuple[Leaf | NewLeaf, ...]
    last: tuple[Sealed, ...]


def plan_manifest(sealed: Sequence[Sealed], before: Sequence[Leaf]) -> ManifestParts:
    """Return the parts of the manifest of these segments (pure).

    Args:
        sealed: all of a partition's own segments, by base offset.
        before: the leaves of the manifest before: one whose segments are all there, unchanged, is named again.
    """
    if len(sealed) <= LEAF_SEGMENTS:
        return ManifestParts((), tuple(sealed))
    known: Mapping[int, Leaf] = {leaf.base_offset: leaf for leaf in before}
    leaves: list[Leaf | NewLeaf] = []
    at = start = 0
    while at < len(sealed):
        leaf = known.get(sealed[at].base_offset)
        if leaf is not None and leaf.checked == Checked.of(leaf_bytes(sealed[at : at + leaf.segments])):
            leaves += _new(sealed[start:at])
            leaves.append(leaf)
            at = start = at + leaf.segments
        else:
            at += 1
    left = len(sealed) - start
    whole = start + max(0, left - 1) // LEAF_SEGMENTS * LEAF_SEGMENTS
    return ManifestParts((*leaves, *_new(sealed[start:whole])), tuple(sealed[whole:]))


def _new(sealed: Sequence[Sealed]) -> list[NewLeaf]:
    cuts = (sealed[at : at + LEAF_SEGMENTS] for at in range(0, len(sealed), LEAF_SEGMENTS))
    return [NewLeaf(cut[0].base_offset, len(cut), leaf_bytes(cut)) for cut in cuts]


def leaf_bytes(sealed: Sequence[Sealed]) -> bytes:
    """Return the bytes of a leaf's file: the same as of a short manifest with these segments."""
    return to_json_bytes([segment.to_json() for segment in sealed])


def manifest_bytes(leaves: Sequence[Leaf], last: Sequence[Sealed]) -> bytes:
    """Return the bytes of a manifest's file."""
    if not leaves:
        return leaf_bytes(last)
    rows = [segment.to_json() for segment in last]
    return to_json_bytes({"leaves": [leaf.to_json() for leaf in leaves], "segments": rows})

"""Manifests split into write-once leaves of `LEAF_SEGMENTS` segments (rule O10).

A new manifest reuses unchanged leaves, so its cost does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.format.entry import Checked, to_json_bytes
from pyspark_commitlog.topic.state.settle_state import Sealed

#: Segments of a leaf; a manifest with no more than these has no leaves.
LEAF_SEGMENTS = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    """A manifest's reference to a leaf."""

    name: str
    checked: Checked
    base_offset: int
    segments: int

    def to_json(self) -> list[Any]:
        """JSON form."""
        return [self.name, self.checked.length, f"{self.checked.crc:08x}", self.base_offset, self.segments]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Leaf:
        """Value of the JSON form."""
        name, length, crc, base_offset, segments = row
        return cls(name, Checked(length, int(crc, 16)), base_offset, segments)


@dataclass(frozen=True, slots=True)
class NewLeaf:
    """Leaf to be written."""

    base_offset: int
    segments: int
    data: bytes

    def to_leaf(self, name: str) -> Leaf:
        """Return the manifest's row for this leaf, in file `name`."""
        return Leaf(name, Checked.of(self.data), self.base_offset, self.segments)


@dataclass(frozen=True, slots=True)
class ManifestParts:
    """Parts of a manifest: leaves in order, and the segments after them."""

    leaves: tuple[Leaf | NewLeaf, ...]
    last: tuple[Sealed, ...]


def plan_manifest(sealed: Sequence[Sealed], before: Sequence[Leaf]) -> ManifestParts:
    """Return a manifest's parts, reusing unchanged leaves of `before` (pure)."""
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
    """Bytes of a leaf, or of a short manifest."""
    return to_json_bytes([segment.to_json() for segment in sealed])


def manifest_bytes(leaves: Sequence[Leaf], last: Sequence[Sealed]) -> bytes:
    """Bytes of a manifest's file."""
    if not leaves:
        return leaf_bytes(last)
    rows = [segment.to_json() for segment in last]
    return to_json_bytes({"leaves": [leaf.to_json() for leaf in leaves], "segments": rows})

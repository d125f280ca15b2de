"""Estimated stored bytes of offset ranges, without reading frames.

Linear inside segments and extents; at a cut, the segment's offset index is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pyspark_commitlog.errors import TopicChangedError
from pyspark_commitlog.format.index import OFFSET_ENTRY_BYTES, OffsetEntry, decode_offset
from pyspark_commitlog.format.segment_object import INDEX
from pyspark_commitlog.topic.read.extents import ExtentTable, shared_tables
from pyspark_commitlog.topic.read.segment_indexes import part_of
from pyspark_commitlog.topic.read.unsettled import AT_ONCE, read_many
from pyspark_commitlog.topic.state.settle_state import Active, Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.view import View, read_view

#: Samples of an offset index, precise to 1/256 of a segment.
_SAMPLES = 256


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [start, end) of a segment or extent, and their bytes."""

    start: int
    end: int
    bytes: int
    segment: Sealed | Active | None = None


def bytes_between(stretches: Sequence[Stretch], start: int, end: int) -> int:
    """Bytes of [start, end), rounded up (pure)."""
    return sum(_part(stretch, max(start, stretch.start), min(end, stretch.end)) for stretch in stretches)


def reached(stretches: Sequence[Stretch], start: int, budget: int) -> int:
    """Offset up to which records from `start` fit `budget` (pure)."""
    for stretch in stretches:
        first = max(start, stretch.start)
        size = _part(stretch, first, stretch.end)
        if size > budget:
            return first + budget * (stretch.end - stretch.start) // stretch.bytes
        start, budget = max(start, stretch.end), budget - size
    return start


def by_index(stretch: Stretch, entries: Sequence[OffsetEntry]) -> list[Stretch]:
    """Split a segment at its offset index's entries (pure).

    An entry has a frame's last offset and its start: bounds are right to about a frame.
    """
    inside = [e for e in entries if stretch.start < e.offset < stretch.end and 0 < e.position < stretch.bytes]
    knots = [(stretch.start, 0), *((e.offset, e.position) for e in inside), (stretch.end, stretch.bytes)]
    pairs = list(pairwise(knots))
    if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairs):  # damaged: a hint only
        return [stretch]
    return [Stretch(left[0], right[0], right[1] - left[1]) for left, right in pairs]


def _part(stretch: Stretch, start: int, end: int) -> int:
    return -(-stretch.bytes * max(0, end - start) // (stretch.end - stretch.start))


class StoredSizes:
    """Stored bytes of an incarnation, as of the last `look`."""

    def __init__(self, topic: TopicLog, topic_id: str) -> None:
        self._topic, self._id = topic, topic_id
        self._extents: dict[int, ExtentTable] = {}
        self._view: View | None = None

    def look(self) -> None:
        """Read the newest entries; a topic that is gone has no sizes."""
        try:
            self._view = view = read_view(self._topic, self._id)
        except TopicChangedError:
            self._view = None
            return
        wanted = range(max(view.settle.oldest_unsettled, view.topic.created + 1), view.newest.sequence + 1)
        self._extents = {sequence: extents for sequence, extents in self._extents.items() if sequence in wanted}
        missing = [sequence for sequence in wanted if sequence not in self._extents]
        for first in range(0, len(missing), AT_ONCE):  # settled or lost ones are missing: only an estimate
            some = missing[first : first + AT_ONCE]
            for sequence, pending in read_many(self._topic, some, shared_tables, inline=False).items():
                self._extents[sequence] = pending[0].extents

    def estimate_bytes(self, partition: int, start: int, end: int) -> int:
        """Estimate the stored bytes of the records in [start, end)."""
        return bytes_between(self._stretches(partition, start, end), start, end)

    def reached(self, partition: int, start: int, end: int, budget: int) -> int:
        """Return about where `budget` bytes from `start` end, at most `end`."""
        coarse = self._stretches(partition, start, end)
        cut = reached(coarse, start, budget)
        fine: list[Stretch] = []
        for stretch in coarse:
            holds = stretch.start <= start < stretch.end or stretch.start <= cut < stretch.end
            fine += self._closer(partition, stretch) if holds else [stretch]
        return min(reached(fine, start, budget), end)

    def _stretches(self, partition: int, start: int, end: int) -> list[Stretch]:
        return [
            stretch
            for stretch in self._all(partition, start)
            if stretch.start < min(end, stretch.end) and stretch.end > start
        ]

    def _all(self, partition: int, start: int) -> Iterator[Stretch]:
        if self._view is None:
            return
        row = self._view.settle.partition(partition)
        for sealed in self._topic.segments(self._view.settle, partition, start).not_before(-1, start):
            yield Stretch(sealed.base_offset, sealed.end_offset, sealed.length, sealed)
        yield Stretch(row.active.base_offset, row.end_offset, row.active.length, row.active)
        for sequence in sorted(self._extents):
            for extent in self._extents[sequence].of_partition(partition):
                if extent.end_offset > row.end_offset:
                    yield Stretch(extent.base_offset, extent.end_offset, extent.length)

    def _closer(self, partition: int, stretch: Stretch) -> list[Stretch]:
        segment = stretch.segment
        if segment is None:
            return [stretch]
        try:
            index = part_of(self._topic.storage, self._topic.paths(self._id), partition, segment, INDEX)
        except FileNotFoundError:  # a hint only
            return [stretch]
        slots = index.size // OFFSET_ENTRY_BYTES
        sampled = sorted({int(slot) for slot in np.linspace(0, slots - 1, min(slots, _SAMPLES))})
        return by_index(stretch, [decode_offset(index, slot, segment.base_offset) for slot in sampled])

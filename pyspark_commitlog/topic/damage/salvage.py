"""Rewrite of damaged segments with the remaining frames, for `void` and `repair`.

Empty frames cover lost offsets. One settle entry swaps the files; old ones go by R13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark_commitlog.errors import CorruptionError, UsageError
from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.index import OFFSET_ENTRY_BYTES, IndexState, OffsetEntry, decode_offset
from pyspark_commitlog.format.segment_object import INDEX
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage.os_errors import unreadable_is_damage
from pyspark_commitlog.topic.read.damage import Fragment, fragments_of
from pyspark_commitlog.topic.segments.cutting import Timed
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import segment_part, segment_span
from pyspark_commitlog.topic.segments.rewrite import Rules, rewrite_frames
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition, SettleState, latest_of
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Offsets [start, end).
Range = tuple[int, int]


class Remaining(Protocol):
    """Frames in place of damaged ones."""

    def of_segment(self, partition: int, segment: Active | Sealed, end: int, lost: Sequence[Range]) -> Iterator[Timed]:
        """Yield the frames of a segment that has `lost` offsets, in order."""

    def of_gap(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield frames of entirely lost offsets."""


def damaged_fragments(
    topic: TopicLog, settled: SettleState, topic_id: str, ranges: Mapping[int, Range] | None
) -> dict[int, list[Fragment]]:
    """Damage per partition; inside `ranges` also readable fragments.

    Without ranges, reads all segments.

    Raises:
        CorruptionError: a manifest is damaged.
    """
    fragments: dict[int, list[Fragment]] = {}
    for partition in range(len(settled.partitions)):
        wanted = None if ranges is None else ranges.get(partition, (0, 0))
        for segment, end in segments_of(topic, settled, partition):
            if wanted is None or overlap(wanted, (segment.base_offset, end)):
                every = segment_fragments(topic, topic_id, partition, segment, end)
                fragments.setdefault(partition, []).extend(fragment for fragment in every if counts(fragment, wanted))
    return {partition: some for partition, some in fragments.items() if some}


def counts(fragment: Fragment, wanted: Range | None) -> bool:
    """Whether a fragment is unreadable or in the range (pure)."""
    return fragment.located is None or (wanted is not None and overlap(wanted, (fragment.start, fragment.end)))


@dataclass(frozen=True, slots=True)
class WithoutLost:
    """`Remaining` that just leaves out lost frames."""

    topic: TopicLog
    topic_id: str

    def of_segment(self, partition: int, segment: Active | Sealed, end: int, lost: Sequence[Range]) -> Iterator[Timed]:
        """Yield the remaining frames.

        Raises:
            UsageError: the segment has further damage.
        """
        for fragment in segment_fragments(self.topic, self.topic_id, partition, segment, end):
            if any(overlap(offsets, (fragment.start, fragment.end)) for offsets in lost):
                continue
            if fragment.located is None:
                raise UsageError(
                    f"topic {self.topic.name!r} partition {partition}: offsets {fragment.start} to {fragment.end} "
                    f"(exclusive) of the same segment can't be read either ({fragment.why}); nothing was voided: give "
                    "them up, too"
                )
            yield timed(fragment.located.frame, segment)

    def of_gap(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield nothing."""
        yield from ()


def timed(frame: Frame, segment: Active | Sealed) -> Timed:
    """Return a segment's frame with a lower bound of its timestamps."""
    return frame, frame.base_timestamp if frame.delete_horizon_ms is None else segment.min_timestamp


def salvaged(
    topic: TopicLog, state: TopicState, base: Stored, settled: SettleState, lost: Mapping[int, Sequence[Range]]
) -> SettleState:
    """Rewrite segments without `lost` offsets; return the state to publish on `base`.

    Raises:
        UsageError: such a segment has further damage; written files are unnamed.
        StorageError: no space or permission; likewise.
    """
    remaining = WithoutLost(topic, state.topic_id)
    partitions = list(settled.partitions)
    for partition, ranges in lost.items():
        partitions[partition] = rewritten_row(topic, state, base, partition, settled, ranges, remaining)
    return replace(settled, partitions=tuple(partitions))


def rewritten_row(
    topic: TopicLog,
    state: TopicState,
    base: Stored,
    partition: int,
    settled: SettleState,
    lost: Sequence[Range],
    remaining: Remaining,
) -> SettledPartition:
    """Rewrite a partition's segments with `lost` offsets; return the new row.

    Raises:
        StorageError: no space or permission; written files are unnamed.
    """
    row = settled.partition(partition)
    paths, number = topic.paths(state.topic_id), base.sequence + 1
    directory = SegmentDir(topic.storage, paths, partition)
    now_ms = topic.storage.clock.now_ms()
    rules = Rules.of(topic.config(state), log_start=0, cleaned=0, now_ms=now_ms)
    sealed, active = list[Sealed](), row.active
    for segment, end in segments_of(topic, settled, partition):
        if any(overlap(offsets, (segment.base_offset, end)) for offsets in lost):
            left = remaining.of_segment(partition, segment, end, lost)
            sealed += rewrite_frames(
                directory, segment.base_offset, end, left, rules,
                number=number, latest_ms=latest_of(sealed), lost_ms=segment.max_timestamp,
            )  # fmt: skip
            active = Active(IndexState(row.end_offset)) if segment is row.active else active
        elif isinstance(segment, Sealed):
            sealed.append(segment)
    leaves = topic.leaves(state.topic_id, row.manifest)
    manifest = write_manifest(topic.storage, paths, partition, number, sealed, leaves)
    return replace(row, active=active, manifest=manifest)


def segments_of(topic: TopicLog, settled: SettleState, partition: int) -> Iterator[tuple[Active | Sealed, int]]:
    """Yield the nonempty segments, with their end offsets."""
    row = settled.partition(partition)
    for sealed in topic.sealed(settled, partition):
        yield sealed, sealed.end_offset
    if row.active.length:
        yield row.active, row.end_offset


def segment_fragments(
    topic: TopicLog, topic_id: str, partition: int, segment: Active | Sealed, end: int
) -> Iterator[Fragment]:
    """Yield a segment's frames and unreadable ranges."""
    paths = topic.paths(topic_id)
    span = segment_span(paths, partition, segment, unmapped=True)
    part = segment_part(paths, partition, segment, INDEX)
    try:
        with unreadable_is_damage(topic.storage, part.path):
            data = topic.storage.read(part.path, part.start, part.length)
    except (FileNotFoundError, CorruptionError):  # a hint only
        data = b""
    slots = range(len(data) // OFFSET_ENTRY_BYTES)
    entries = (decode_offset(data, slot, segment.base_offset) for slot in slots)
    index = [OffsetEntry(entry.offset, span.start + entry.position) for entry in entries]
    return fragments_of(topic.storage, span, segment.base_offset, end, index)


def overlap(one: Range, other: Range) -> bool:
    """Whether two ranges share an offset (pure)."""
    return one[0] < other[1] and other[0] < one[1]

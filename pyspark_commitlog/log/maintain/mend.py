"""Mend: rewrite damaged segments with the frames that other roots have of the same offsets.

Offsets mean the same records at every root, though each has settled, merged and compacted them by itself. So frames are
taken by offset, checked by their CRC, and cut where they reach beyond what is damaged. Segments are swapped as ``void``
swaps them; under the settlers' lock where there is one.

In a partition that was compacted here all that compaction has seen is taken from the other root, not only what is
damaged: of a key that was deleted since, the tombstone may be gone here and an older record not yet gone there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CommitLogError, ConflictError, CorruptionError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.encoding import empty_frame
from pyspark_commitlog.log.frames import check_whole, crc_of, earliest_ms, earliest_of, segment_span, walk
from pyspark_commitlog.log.maintain.settle import settle_on
from pyspark_commitlog.log.objects.salvage import Salvage, publish
from pyspark_commitlog.log.read.damage import Fragment
from pyspark_commitlog.log.repair.salvage import (
    Range,
    Timed,
    damaged_fragments,
    overlap,
    rewritten_row,
    segment_fragments,
    segments_of,
    timed,
)
from pyspark_commitlog.log.repair.void import settling_stopped
from pyspark_commitlog.log.segments.rewrite import FrameRows, encode_rows, rows_of
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog

logger = logging.getLogger("pyspark_commitlog.log")


@dataclass(frozen=True, slots=True)
class MendedSegments:
    """Offsets whose frames were fetched, (partition, start, end), and what is damaged still, and why."""

    ranges: tuple[tuple[int, int, int], ...] = ()
    left: tuple[str, ...] = ()


def mend_segments(topic: TopicLog, topic_id: str, others: Sequence[TopicLog]) -> MendedSegments:
    """Rewrite what is damaged of a topic's segments at a root with frames of others; all segments are read.

    Args:
        topic: at the root.
        topic_id: of the incarnation.
        others: the topic at other roots, the likeliest first.

    Raises:
        ConflictError: a settler holds the lock all the time, or swapped what is damaged: run it again.
        CorruptionError: a manifest is damaged.
        TopicChangedError: the topic was deleted or made again.
    """
    topic.forget_defaults()
    donors = [Donor(other, topic_id) for other in others]
    if not topic.storage.can_append:
        return _mend_objects(topic, topic_id, donors)
    with settling_stopped(topic, topic_id, "repaired"):
        _, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        damaged = _with_checksums(topic, settled, damaged_fragments(topic, settled, topic_id, None))
        lost = lost_ranges(damaged, state.log_start, [row.cleaned for row in settled.partitions])
        if not lost:
            return MendedSegments()
        base = topic.reserve(base, settled) or base
        rows, ranges, left = list(settled.partitions), list[tuple[int, int, int]](), list[str]()
        for partition, some in lost.items():
            remaining = FramesOfReplicas(topic, state, donors)
            try:
                row = rewritten_row(topic, state, base, partition, settled, some, remaining)
            except CorruptionError as error:  # nobody has it: the other partitions are mended all the same
                left.append(str(error))
                continue
            rows[partition] = replace(row, cleaned=min(row.cleaned, remaining.cleaned))
            ranges += [(partition, start, end) for start, end in some]
        if ranges and topic.publish(base, replace(settled, partitions=tuple(rows))) is None:
            raise _overtaken(topic)
    return MendedSegments(tuple(ranges), tuple(left))


def _mend_objects(topic: TopicLog, topic_id: str, donors: Sequence[Donor]) -> MendedSegments:
    """Do so where nothing can be appended, a partition at a time."""
    ranges, left = list[tuple[int, int, int]](), list[str]()
    for partition in range(topic.newest(topic_id)[1].partitions):
        _, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        remaining = FramesOfReplicas(topic, state, donors)
        salvage = Salvage(topic, state, base, settled, remaining)
        damaged = {p: some for p, some in _objects_damage(topic, settled, salvage).items() if p == partition}
        lost = lost_ranges(damaged, state.log_start, [row.cleaned for row in settled.partitions])
        if not lost:
            continue
        try:
            swaps = salvage.write(lost)
        except CorruptionError as error:
            left.append(str(error))
            continue
        _lower_cleaned(topic, topic_id, partition, remaining.cleaned)
        left_over = [swap for swap in swaps if not publish(topic, topic_id, swap)]
        if left_over:
            raise _overtaken(topic)
        ranges += [(partition, start, end) for start, end in lost[partition]]
    return MendedSegments(tuple(ranges), tuple(left))


def _objects_damage(topic: TopicLog, settled: SettleState, salvage: Salvage) -> dict[int, list[Fragment]]:
    return _with_checksums(topic, settled, salvage.fragments(None))


def _lower_cleaned(topic: TopicLog, topic_id: str, partition: int, cleaned: int) -> None:
    """Say that compaction has seen less, before that is so: at worst it looks again."""

    def lowered(_: Stored, now: SettleState) -> Change | None:
        row = now.partition(partition)
        return None if row.cleaned <= cleaned else Change(now.with_row(partition, replace(row, cleaned=cleaned)))

    topic.change(topic_id, lowered)


def _overtaken(topic: TopicLog) -> ConflictError:
    return ConflictError(
        f"topic {topic.name!r} in {topic.storage.url} was settled, merged or compacted meanwhile; of what is damaged "
        "some is still there: repair it again"
    )


def _with_checksums(
    topic: TopicLog, settled: SettleState, fragments: dict[int, list[Fragment]]
) -> dict[int, list[Fragment]]:
    """Add segments whose frames look right and whose bytes are not those that were published: offsets, epochs, a swap.

    Raises:
        CorruptionError: a manifest is damaged.
    """
    home = topic.paths(settled.topic_id)
    for partition in range(len(settled.partitions)):
        there = fragments.get(partition, [])
        try:
            segments = list(segments_of(topic, settled, partition))
        except (FileNotFoundError, CorruptionError):  # an object of the tail, of which there are fragments
            continue
        for segment, end in segments:
            if any(overlap((segment.base_offset, end), (each.start, each.end)) for each in there):
                continue
            span = segment_span(home, partition, segment)
            crc = crc_of(topic.storage, span.path, segment.length, span.start)
            if crc != segment.crc:
                why = f"{span.path}: CRC-32C of {segment.length} bytes is {crc:08x}, expected {segment.crc:08x}"
                fragments.setdefault(partition, []).append(Fragment(segment.base_offset, end, None, why))
    return fragments


def lost_ranges(
    fragments: Mapping[int, Sequence[Fragment]], log_start: Sequence[int], cleaned: Sequence[int]
) -> dict[int, list[Range]]:
    """Return per partition the offsets that are to be fetched (pure).

    Args:
        fragments: what can't be read, per partition.
        log_start: per partition; nobody needs what is below.
        cleaned: per partition the offset below which compaction has seen all.
    """
    found: dict[int, list[Range]] = {}
    for partition, some in fragments.items():
        start = log_start[partition]
        ranges = sorted((max(each.start, start), each.end) for each in some if each.end > start)
        if ranges and cleaned[partition] > start:
            seen = (start, max(cleaned[partition], ranges[0][1]))
            ranges = [seen, *(each for each in ranges if each[1] > seen[1])]
        if ranges:
            found[partition] = ranges
    return found


class FramesOfReplicas:
    """See ``salvage.Remaining``: what is whole stays, all else comes from other roots.

    ``cleaned``: below it compaction has seen all at each root that frames were taken from.

    Raises:
        CorruptionError: no other root has some of it.
    """

    def __init__(self, topic: TopicLog, state: TopicState, donors: Sequence[Donor]) -> None:
        self._topic, self._state, self._donors = topic, state, donors
        self.cleaned = LONG_MAX

    def of_segment(self, partition: int, segment: Active | Sealed, end: int, lost: Sequence[Range]) -> Iterator[Timed]:
        """Yield the frames of a segment, those of lost offsets from other roots."""
        log_start = self._state.log_start[partition]
        for fragment in segment_fragments(self._topic, self._state.topic_id, partition, segment, end):
            hit = any(overlap(offsets, (fragment.start, fragment.end)) for offsets in lost)
            if fragment.located is not None and not hit:
                yield timed(fragment.located.frame, segment)
            else:
                yield from self.of_gap(partition, max(fragment.start, log_start), fragment.end)

    def of_gap(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield the frames of these offsets, each from the first root that has it whole."""
        failures = []
        for donor in self._donors:
            if start >= end:
                return
            try:
                for frame, least_ms in donor.frames(partition, start, end):
                    self.cleaned = min(self.cleaned, donor.cleaned(partition))
                    yield frame, least_ms
                    start = frame.next_offset
            except (CommitLogError, OSError) as error:
                failures.append(f"{donor.url}: {error}")
        if start < end:
            raise CorruptionError(
                f"topic {self._topic.name!r} partition {partition}: offsets {start} to {end - 1} are damaged in "
                f"{self._topic.storage.url}, and no other root has them: {'; '.join(failures) or 'there is none'}"
            )


class Donor:
    """A topic at another root, from which frames are taken: settled there first, as far as its readers see."""

    def __init__(self, topic: TopicLog, topic_id: str) -> None:
        self._topic, self._topic_id = topic, topic_id
        self.url = topic.storage.url
        self._settled: SettleState | None = None

    def cleaned(self, partition: int) -> int:
        """Return the offset below which compaction has seen all."""
        return self._row(partition).cleaned

    def frames(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield frames that cover these offsets, checked, in order; fewer where it has not settled so far.

        Raises:
            CorruptionError: it has a gap, or damage of its own.
            CommitLogError, OSError: it does not answer.
        """
        row, offset = self._row(partition), start
        home = self._topic.paths(self._topic_id)
        for segment, ends in segments_of(self._topic, self._state(), partition):
            if not overlap((segment.base_offset, ends), (start, end)):
                continue
            span = segment_span(home, partition, segment)
            for located in walk(self._topic.storage, span):
                if located.next_offset <= offset or located.base_offset >= end:
                    continue
                if located.base_offset > offset:
                    break
                payload, _ = check_whole(located, span)
                yield _cut(located.frame, payload, partition, max(start, located.base_offset), end)
                offset = min(located.next_offset, end)
        if offset < min(end, row.end_offset):
            raise CorruptionError(
                f"topic {self._topic.name!r} partition {partition} in {self._topic.storage.url}: offset {offset} is in "
                "no segment"
            )

    def _row(self, partition: int) -> SettledPartition:
        return self._state().partition(partition)

    def _state(self) -> SettleState:
        if self._settled is None:
            settle_on(self._topic, self._topic_id)
            self._settled = self._topic.settled(self._topic_id)[1]
        return self._settled


def _cut(frame: Frame, payload: Payload, partition: int, start: int, end: int) -> Timed:
    """Return a frame with those of its records alone whose offsets are in [start, end); as it is where all are."""
    if start <= frame.base_offset and frame.next_offset <= end:
        return frame, earliest_ms(frame, payload)
    batch, offsets = rows_of(frame, payload)
    kept = (offsets >= start) & (offsets < end)
    batch, offsets = batch.filter(pa.array(kept)), offsets[kept]
    last, identity = min(end, frame.next_offset) - 1, payload.identity
    if not len(offsets):
        count, epoch = last - start + 1, frame.leader_epoch
        data = empty_frame(
            identity.topic_id, partition, identity.codec, start, count, frame.max_timestamp, leader_epoch=epoch
        )
        return codec.made(data), frame.max_timestamp
    rows = FrameRows(batch, offsets, start, last, frame.log_append_time, frame.delete_horizon_ms, frame.leader_epoch)
    data = encode_rows([rows], start, last, identity.topic_id, partition, identity.codec)
    return codec.made(data), earliest_of(batch)

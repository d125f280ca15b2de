"""Donor roots of damaged offsets, and their frames.

All that compaction has seen, at either root, comes from one root: of a deleted key, one may have dropped the tombstone
while another has an older record. Void offsets come without records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.topic.damage.salvage import Range, Remaining, overlap, segment_fragments, segments_of, timed
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.segments.cutting import Timed, parts_of
from pyspark_commitlog.topic.segments.frames import check, segment_span
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState, Void
from pyspark_commitlog.topic.topic_log import TopicLog


def attempts(
    fragments: Sequence[Fragment], log_start: int, seen: int, others: Sequence[int]
) -> list[tuple[list[Range], list[int]]]:
    """Return (ranges to fetch, donors) per attempt (pure).

    Roots that never compacted the damage, like this one, may be mixed; else one root gives all. `seen` and `others`:
    offsets below which compaction may have dropped records here and there.
    """
    damage = lost_ranges(fragments, log_start, 0)
    if not damage:
        return []
    first = damage[0][0]
    alike = [number for number, each in enumerate(others) if max(seen, each) <= first]
    found = [(damage, alike)] if alike else []
    for number, each in enumerate(others):
        if number not in alike:
            found.append((lost_ranges(fragments, log_start, max(seen, each)), [number]))
    return found


def lost_ranges(fragments: Sequence[Fragment], log_start: int, seen: int) -> list[Range]:
    """Damaged offsets to fetch, and all below `seen` (pure)."""
    ranges = sorted((max(each.start, log_start), each.end) for each in fragments if each.end > log_start)
    if ranges and seen > ranges[0][0]:
        whole = (log_start, max(seen, ranges[0][1]))
        ranges = [whole, *(each for each in ranges if each[1] > whole[1])]
    return ranges


class LackingError(CorruptionError):
    """No asked root has some offsets of a partition."""

    def __init__(self, partition: int, why: str) -> None:
        super().__init__(why)
        self.partition = partition


@dataclass(frozen=True)
class ByPartition:
    """`salvage.Remaining` by partition."""

    frames: Mapping[int, Remaining]

    def of_segment(self, partition: int, segment: Active | Sealed, end: int, lost: Sequence[Range]) -> Iterator[Timed]:
        """Yield a segment's frames."""
        return self.frames[partition].of_segment(partition, segment, end, lost)

    def of_gap(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield frames of lost offsets."""
        return self.frames[partition].of_gap(partition, start, end)


class FramesOfReplicas:
    """`salvage.Remaining` of own whole frames and others'; raises `LackingError`."""

    def __init__(self, topic: TopicLog, state: TopicState, donors: Sequence[Donor]) -> None:
        self._topic, self._state, self._donors = topic, state, donors

    def of_segment(self, partition: int, segment: Active | Sealed, end: int, lost: Sequence[Range]) -> Iterator[Timed]:
        """Yield a segment's frames, lost ones from other roots."""
        log_start = self._state.log_start[partition]
        for fragment in segment_fragments(self._topic, self._state.topic_id, partition, segment, end):
            hit = any(overlap(offsets, (fragment.start, fragment.end)) for offsets in lost)
            if fragment.located is not None and not hit:
                yield timed(fragment.located.frame, segment)
            else:
                yield from self.of_gap(partition, max(fragment.start, log_start), fragment.end)

    def of_gap(self, partition: int, start: int, end: int) -> Iterator[Timed]:
        """Yield frames, each from the first root that has it whole."""
        failures, voids = [], self._state.voids_of(partition)
        for donor in self._donors:
            if start >= end:
                return
            try:
                for frame, least_ms in donor.frames(partition, start, end, voids):
                    yield frame, least_ms
                    start = frame.next_offset
            except (CommitLogError, OSError) as error:
                failures.append(f"{donor.url}: {error}")
        if start < end:
            raise LackingError(partition, "; ".join(failures) or f"offsets {start} to {end - 1}: not settled there")


class Donor:
    """A topic at a root to take frames from.

    Settled there first, unless `settled` is given.
    """

    def __init__(self, topic: TopicLog, topic_id: str, settled: SettleState | None = None) -> None:
        self._topic, self._topic_id, self._settled = topic, topic_id, settled
        self.url = topic.storage.url

    def row(self, partition: int) -> SettledPartition:
        """Return the root's settled partition."""
        return self._state().partition(partition)

    def refuse_further(self, partition: int, state: TopicState) -> None:
        """Refuse a root whose compaction is beyond the known log end."""
        seen, learned = self.row(partition).compacted_below, state.log_end[partition]
        if seen > learned:
            raise ReplicaNotAvailableError(
                f"compaction has come to offset {seen} there, and only offsets below {learned} are known here: run "
                "`commitlog replicas sync` first"
            )

    def frames(self, partition: int, start: int, end: int, voids: Sequence[Void]) -> Iterator[Timed]:
        """Yield checked frames of the offsets, as far as settled, without records of `voids`."""
        row, offset = self.row(partition), start
        home = self._topic.paths(self._topic_id)
        for segment, ends in segments_of(self._topic, self._state(), partition):
            if not overlap((segment.base_offset, ends), (start, end)):
                continue
            span = segment_span(home, partition, segment)
            for fragment in segment_fragments(self._topic, self._topic_id, partition, segment, ends):
                if fragment.end <= offset or fragment.start >= end:
                    continue
                if fragment.start > offset:
                    break
                if fragment.located is None:
                    raise CorruptionError(fragment.why)
                payload = check(fragment.located, span)
                yield from parts_of(fragment.located.frame, payload, partition, start, end, voids)
                offset = min(fragment.end, end)
        if offset < min(end, row.end_offset):
            raise CorruptionError(
                f"topic {self._topic.name!r} partition {partition} in {self._topic.storage.url}: offset {offset} is in "
                "no segment"
            )

    def _state(self) -> SettleState:
        if self._settled is None:
            settle_on(self._topic, self._topic_id)
            self._settled = self._topic.settled(self._topic_id)[1]
        return self._settled

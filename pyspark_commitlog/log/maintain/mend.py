"""Mend: rewrite damaged segments with the frames that other roots have of the same offsets.

Offsets mean the same records at every root, though each has settled, merged and compacted them by itself. So frames are
taken by offset, checked by their CRC, and cut where they reach beyond what is damaged. Segments are swapped as ``void``
swaps them; under the settlers' lock where there is one.

In a partition that was compacted, at this root or the other, all that compaction has seen is taken from one root, not
only what is damaged: of a key that was deleted since, the tombstone may be gone at one of them and an older record not
yet at the other. Void offsets are taken without records, whatever the other root has there still.

Records that became void after this root had settled them count as damage: compaction may have dropped what they
superseded. Where it has not seen them they are cut out of this root's own frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CommitLogError, ConflictError, CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.frames import check_whole, crc_of, segment_span, walk
from pyspark_commitlog.log.maintain.settle import settle_on
from pyspark_commitlog.log.objects.salvage import Salvage, Swap, publish
from pyspark_commitlog.log.read.damage import Fragment
from pyspark_commitlog.log.repair.salvage import (
    Range,
    damaged_fragments,
    overlap,
    rewritten_row,
    segment_fragments,
    segments_of,
    timed,
)
from pyspark_commitlog.log.repair.void import settling_stopped
from pyspark_commitlog.log.repair.void_records import void_records
from pyspark_commitlog.log.segments.cutting import Timed, parts_of
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.log.state import TopicState, Void
from pyspark_commitlog.log.topic import TopicLog

logger = logging.getLogger("pyspark_commitlog.log")


@dataclass(frozen=True, slots=True)
class MendedSegments:
    """Offsets whose frames were fetched, (partition, start, end), and what is damaged still, and why."""

    ranges: tuple[tuple[int, int, int], ...] = ()
    left: tuple[str, ...] = ()

    def __add__(self, other: MendedSegments) -> MendedSegments:
        return MendedSegments((*self.ranges, *other.ranges), (*self.left, *other.left))


def mend_segments(
    topic: TopicLog, topic_id: str, others: Sequence[TopicLog], *, void_only: bool = False
) -> MendedSegments:
    """Rewrite what is damaged, or void, of a topic's segments at a root with frames of others; all segments are read.

    Args:
        topic: at the root.
        topic_id: of the incarnation.
        others: the topic at other roots, the likeliest first.
        void_only: only what is void: no segment is read that has none of it.

    Raises:
        ConflictError: a settler holds the lock all the time, or swapped what is damaged: run it again.
        CorruptionError: a manifest is damaged.
        TopicChangedError: the topic was deleted or made again.
    """
    topic.forget_defaults()
    donors = [Donor(other, topic_id) for other in others]
    if not topic.storage.can_append:
        return _mend_objects(topic, topic_id, donors, void_only=void_only)
    with settling_stopped(topic, topic_id, "repaired"):
        _, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        damaged = {} if void_only else damaged_fragments(topic, settled, topic_id, None)
        damaged = _all_damage(topic, state, settled, damaged, void_only=void_only)
        if not damaged:
            return MendedSegments()
        base = topic.reserve(base, settled) or base
        rows, done = list(settled.partitions), MendedSegments()
        for partition, fragments in damaged.items():

            def rewritten(lost: Sequence[Range], frames: FramesOfReplicas, partition: int = partition) -> None:
                row = rewritten_row(topic, state, base, partition, settled, lost, frames)
                rows[partition] = replace(row, cleaned=min(row.cleaned, frames.cleaned))

            done += _mend_partition(topic, state, settled, partition, fragments, donors, rewritten)
        if done.ranges and topic.publish(base, replace(settled, partitions=tuple(rows))) is None:
            raise _overtaken(topic)
    return done


def _mend_objects(topic: TopicLog, topic_id: str, donors: Sequence[Donor], *, void_only: bool) -> MendedSegments:
    """Do so where nothing can be appended, a partition at a time."""
    done = MendedSegments()
    for partition in range(topic.newest(topic_id)[1].partitions):
        _, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        damaged = {} if void_only else Salvage(topic, state, base, settled).fragments(None)
        damaged = _all_damage(topic, state, settled, damaged, void_only=void_only)
        swaps = list[Swap]()

        def written(lost: Sequence[Range], frames: FramesOfReplicas, partition: int = partition) -> None:
            swaps[:] = Salvage(topic, state, base, settled, frames).write({partition: lost})  # noqa: B023 it is called below
            _lower_cleaned(topic, topic_id, partition, frames.cleaned)

        done += _mend_partition(topic, state, settled, partition, damaged.get(partition, []), donors, written)
        overtaken = [swap for swap in swaps if not publish(topic, topic_id, swap)]
        if overtaken:
            raise _overtaken(topic)
    return done


def _mend_partition(
    topic: TopicLog,
    state: TopicState,
    settled: SettleState,
    partition: int,
    fragments: Sequence[Fragment],
    donors: Sequence[Donor],
    write: Callable[[Sequence[Range], FramesOfReplicas], None],
) -> MendedSegments:
    """Write what is damaged of a partition again, with frames of the first roots that have all of it."""
    there, failures = list[tuple[int, Donor]](), list[str]()
    for donor in donors:
        try:
            there.append((donor.cleaned(partition), donor))
        except (CommitLogError, OSError) as error:
            failures.append(f"{donor.url}: {error}")
    log_start, cleaned = state.log_start[partition], settled.partition(partition).cleaned
    damage = lost_ranges(fragments, log_start, 0)
    if damage and cleaned <= damage[0][0]:
        there.append((cleaned, Donor(topic, state.topic_id, settled)))  # it has what is between void records
    for lost, chosen in attempts(fragments, log_start, cleaned, [each for each, _ in there]):
        frames = FramesOfReplicas(topic, state, [there[n][1] for n in chosen])
        try:
            write(lost, frames)
        except CorruptionError as error:
            failures.append(str(error))
            continue
        return MendedSegments(tuple((partition, start, end) for start, end in lost))
    if not damage:
        return MendedSegments()
    why = "; ".join(failures) or "there is none"
    return MendedSegments(
        left=(
            f"topic {topic.name!r} partition {partition}: offsets {damage[0][0]} to {damage[-1][1] - 1} are damaged in "
            f"{topic.storage.url} ({fragments[0].why}), and no other root has them: {why}",
        )
    )


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


def _all_damage(
    topic: TopicLog,
    state: TopicState,
    settled: SettleState,
    fragments: dict[int, list[Fragment]],
    *,
    void_only: bool,
) -> dict[int, list[Fragment]]:
    """Add to what can't be read what no frame proves, and what became void; ascending."""
    if not void_only:
        fragments = _with_checksums(topic, settled, fragments)
    for partition, some in void_records(topic, state, settled).items():
        fragments.setdefault(partition, []).extend(some)
    return {partition: sorted(some, key=lambda each: each.start) for partition, some in fragments.items()}


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


def attempts(
    fragments: Sequence[Fragment], log_start: int, cleaned: int, others: Sequence[int]
) -> list[tuple[list[Range], list[int]]]:
    """Return what of a partition may be fetched, and from which of the other roots, one try after the other (pure).

    Roots where compaction has seen nothing of it, nor here, have the same records: each frame may be of another root.
    Else all is of one.

    Args:
        fragments: what can't be read.
        log_start: nobody needs what is below.
        cleaned: the offset below which compaction has seen all, at this root.
        others: the same at the others.
    """
    damage = lost_ranges(fragments, log_start, 0)
    if not damage:
        return []
    first = damage[0][0]
    alike = [number for number, each in enumerate(others) if max(cleaned, each) <= first]
    found = [(damage, alike)] if alike else []
    for number, each in enumerate(others):
        if number not in alike:
            found.append((lost_ranges(fragments, log_start, max(cleaned, each)), [number]))
    return found


def lost_ranges(fragments: Sequence[Fragment], log_start: int, cleaned: int) -> list[Range]:
    """Return which offsets of a partition are to be fetched (pure).

    Args:
        fragments: what can't be read.
        log_start: nobody needs what is below.
        cleaned: the offset below which compaction has seen all, at this root or the one that has them.
    """
    ranges = sorted((max(each.start, log_start), each.end) for each in fragments if each.end > log_start)
    if ranges and cleaned > ranges[0][0]:
        seen = (log_start, max(cleaned, ranges[0][1]))
        ranges = [seen, *(each for each in ranges if each[1] > seen[1])]
    return ranges


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
        """Yield the frames of these offsets, each from the first root that has it whole; void ones without records."""
        failures, voids = [], self._state.voids_of(partition)
        for donor in self._donors:
            if start >= end:
                return
            try:
                for frame, least_ms in donor.frames(partition, start, end, voids):
                    self.cleaned = min(self.cleaned, donor.cleaned(partition))
                    yield frame, least_ms
                    start = frame.next_offset
            except (CommitLogError, OSError) as error:
                failures.append(f"{donor.url}: {error}")
        if start < end:
            raise CorruptionError("; ".join(failures) or f"offsets {start} to {end - 1}: not settled there")


class Donor:
    """A topic at a root, from which frames are taken: settled there first, as far as its readers see.

    But for ``settled``, which says what is there.
    """

    def __init__(self, topic: TopicLog, topic_id: str, settled: SettleState | None = None) -> None:
        self._topic, self._topic_id, self._settled = topic, topic_id, settled
        self.url = topic.storage.url

    def cleaned(self, partition: int) -> int:
        """Return the offset below which compaction has seen all."""
        return self._row(partition).cleaned

    def frames(self, partition: int, start: int, end: int, voids: Sequence[Void]) -> Iterator[Timed]:
        """Yield frames that cover these offsets, checked, in order; fewer where it has not settled so far.

        ``voids`` are without their records.

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
                yield from parts_of(located.frame, payload, partition, start, end, voids, row.cleaned)
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

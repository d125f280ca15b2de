"""Rewrite of damaged segments with other roots' frames.

Offsets mean the same records everywhere, but each root compacted on its own: frames are taken by offset, CRC-checked,
and cut at the damage. Late voids count as damage if compaction has seen them, as it may have dropped records in their
favour; else they are cut out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark_commitlog.errors import CommitLogError, ConflictError, CorruptionError, missing
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.format.segment_object import INDEX, TIMEINDEX
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import unreadable_is_damage
from pyspark_commitlog.topic.damage.salvage import Range, damaged_fragments, overlap, rewritten_row, segments_of
from pyspark_commitlog.topic.damage.salvage_objects import Salvage, SharedLossError, publish
from pyspark_commitlog.topic.damage.void import settling_stopped
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.replica_fetch.donors import (
    ByPartition,
    Donor,
    FramesOfReplicas,
    LackingError,
    attempts,
    lost_ranges,
)
from pyspark_commitlog.topic.segments.frames import crc_of, segment_part, segment_span
from pyspark_commitlog.topic.state.late_voids import MISLED, is_misled, late_voids
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")


@dataclass(frozen=True, slots=True)
class MendedSegments:
    """Fetched (partition, start, end), and remaining damage."""

    ranges: tuple[tuple[int, int, int], ...] = ()
    left: tuple[str, ...] = ()

    def __add__(self, other: MendedSegments) -> MendedSegments:
        return MendedSegments((*self.ranges, *other.ranges), (*self.left, *other.left))


def mend_segments(
    topic: TopicLog, topic_id: str, others: Sequence[TopicLog], *, void_only: bool = False, alone: bool = False
) -> MendedSegments:
    """Rewrite damaged or void parts of segments with other roots' frames.

    Args:
        others: the topic at other roots, the likeliest first.
        void_only: only void offsets; reads no other segments.
        alone: no other root has the topic: drop voids even if superseded records are lost.

    Raises:
        ConflictError: a settler holds the lock, or changed damaged segments: repeat.
        CorruptionError: a manifest is damaged or missing.
    """
    topic.forget_defaults()
    donors = [Donor(other, topic_id) for other in others]
    if not topic.storage.can_append:
        return _Mending.of(topic, topic_id, donors, alone=alone).mend_objects(void_only=void_only)
    with settling_stopped(topic, topic_id, "repaired"):
        return _Mending.of(topic, topic_id, donors, alone=alone).mend_files(void_only=void_only)


@dataclass(frozen=True)
class _Try:
    """Offsets to rewrite; `donor` is set if one root gives all."""

    lost: tuple[Range, ...]
    frames: FramesOfReplicas
    donor: SettledPartition | None = None


@dataclass
class _Mending:
    topic: TopicLog
    number: int
    state: TopicState
    base: Stored
    settled: SettleState
    donors: Sequence[Donor]
    alone: bool
    failures: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, topic: TopicLog, topic_id: str, donors: Sequence[Donor], *, alone: bool) -> _Mending:
        stored, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        return cls(topic, stored.sequence, state, base, settled, donors, alone)

    def mend_files(self, *, void_only: bool) -> MendedSegments:
        topic, settled = self.topic, self.settled
        damaged = (
            {} if void_only else self._find_damage(lambda: damaged_fragments(topic, settled, self.state.topic_id, None))
        )
        damaged = self._all_damage(damaged, void_only=void_only)
        if not damaged:
            return MendedSegments()
        base = topic.reserve(self.base, settled) or self.base
        rows, done = list(settled.partitions), MendedSegments()
        for partition, fragments in damaged.items():
            for each in self._tries(partition, fragments):
                try:
                    row = rewritten_row(topic, self.state, base, partition, settled, each.lost, each.frames)
                except CorruptionError as error:
                    self.failures[partition].append(str(error))
                    continue
                rows[partition] = self._after(row, each)
                done += _mended(partition, each)
                break
            else:
                done += self._report_unmended(partition, fragments)
        if done.ranges and topic.publish(base, replace(settled, partitions=tuple(rows))) is None:
            raise _overtaken(topic)
        return done

    def _find_damage(self, damage: Callable[[], dict[int, list[Fragment]]]) -> dict[int, list[Fragment]]:
        """Search for damage; a manifest missing after a restore ends it."""
        try:
            return damage()
        except FileNotFoundError as error:
            newest, _ = self.topic.settled(self.state.topic_id)
            raise missing(error) if newest.sequence == self.base.sequence else _overtaken(self.topic) from error

    def mend_objects(self, *, void_only: bool) -> MendedSegments:
        """Mend without append: partitions of a shared object succeed together."""
        topic, settled = self.topic, self.settled
        salvage = partial(Salvage, topic, self.state, settled)
        damaged = {} if void_only else self._find_damage(lambda: salvage().fragments(None))
        damaged = self._all_damage(damaged, void_only=void_only)
        tries = {partition: list(self._tries(partition, some)) for partition, some in damaged.items()}
        left = MendedSegments()
        while True:
            for partition in [partition for partition, some in tries.items() if not some]:
                left += self._report_unmended(partition, damaged[partition])
                del tries[partition]
            if not tries:
                return left
            chosen = {partition: some[0] for partition, some in tries.items()}
            remaining = ByPartition({partition: each.frames for partition, each in chosen.items()})
            lost = {partition: each.lost for partition, each in chosen.items()}
            try:
                swaps = salvage(remaining).write(lost)
            except LackingError as error:
                self.failures[error.partition].append(str(error))
                del tries[error.partition][0]
                continue
            except SharedLossError as error:  # those that share an object with unrecoverable damage; others are mended
                left += MendedSegments(left=(str(error),))
                tries = {partition: some for partition, some in tries.items() if partition not in error.partitions}
                continue
            rows = {partition: partial(self._unless_changed, partition, each) for partition, each in chosen.items()}
            if not publish(topic, settled.topic_id, swaps, rows):
                raise _overtaken(topic)
            return sum((_mended(partition, each) for partition, each in chosen.items()), left)

    def _tries(self, partition: int, fragments: Sequence[Fragment]) -> Iterator[_Try]:
        there, misled_all = self._fit_donors(partition)
        own = self.settled.partition(partition)
        damage = lost_ranges(fragments, self.state.log_start[partition], 0)
        here = Donor(self.topic, self.state.topic_id, self.settled)
        if damage and own.compacted_below <= damage[0][0]:
            there.append((own, here))  # it has the records between void ones
        found = attempts(
            fragments, self.state.log_start[partition], own.compacted_below, [row.compacted_below for row, _ in there]
        )
        for lost, chosen in found:
            frames = FramesOfReplicas(self.topic, self.state, [there[n][1] for n in chosen])
            row = there[chosen[0]][0]
            yield _Try(
                tuple(lost), frames, row if max(own.compacted_below, row.compacted_below) > damage[0][0] else None
            )
        if self.alone and misled_all and not there and damage == late_voids(self.state, partition, own):
            logger.error(
                "topic %r partition %d in %s: records at offsets %s are void and are dropped; a compaction had seen "
                "them, and no other root has what it may have dropped in their favour",
                self.topic.name, partition, self.topic.storage.url, damage,
            )  # fmt: skip
            yield _Try(tuple(damage), FramesOfReplicas(self.topic, self.state, [here]))

    def _fit_donors(self, partition: int) -> tuple[list[tuple[SettledPartition, Donor]], bool]:
        failures, there = self.failures.setdefault(partition, []), list[tuple[SettledPartition, Donor]]()
        misled_all = True
        for donor in self.donors:
            try:
                row = donor.row(partition)
                donor.refuse_further(partition, self.state)
            except (CommitLogError, OSError) as error:
                failures.append(f"{donor.url}: {error}")
                misled_all = False
                continue
            if is_misled(self.state, partition, row):
                failures.append(f"{donor.url}: {MISLED}")
                continue
            misled_all = False
            there.append((row, donor))
        return there, misled_all

    def _after(self, row: SettledPartition, by: _Try) -> SettledPartition:
        if self.state.is_replicated:
            row = replace(row, voids_at=self.number)
        if by.donor is None:
            return row
        return replace(row, cleaned=min(row.cleaned, by.donor.cleaned)).with_dropped_below(by.donor.compacted_below)

    def _unless_changed(self, partition: int, by: _Try, row: SettledPartition) -> SettledPartition | None:
        """Newest row as rewritten; None to examine it again.

        Without a lock, compaction may have dropped more for void records, or an uninformed settler have settled some.
        """
        found = self.settled.partition(partition)
        is_as_found = late_voids(self.state, partition, row) == late_voids(self.state, partition, found)
        return self._after(row, by) if row.compacted_below == found.compacted_below and is_as_found else None

    def _report_unmended(self, partition: int, fragments: Sequence[Fragment]) -> MendedSegments:
        damage = lost_ranges(fragments, self.state.log_start[partition], 0)
        if not damage:
            return MendedSegments()
        why = "; ".join(self.failures.get(partition, ())) or "there is none"
        return MendedSegments(
            left=(
                f"topic {self.topic.name!r} partition {partition}: offsets {damage[0][0]} to {damage[-1][1] - 1} are "
                f"damaged in {self.topic.storage.url} ({fragments[0].why}), and no other root has them: {why}",
            )
        )

    def _all_damage(self, fragments: dict[int, list[Fragment]], *, void_only: bool) -> dict[int, list[Fragment]]:
        if not void_only:
            fragments = _with_checksums(self.topic, self.settled, fragments)
        for partition in range(self.state.partitions):
            late = late_voids(self.state, partition, self.settled.partition(partition))
            if late:
                why = "records there were made void after they were settled"
                fragments.setdefault(partition, []).extend(Fragment(start, end, None, why) for start, end in late)
        return {partition: sorted(some, key=lambda each: each.start) for partition, some in fragments.items()}


def warn_of_void_records(name: str, url: str, why: str) -> None:
    """Warn that void records stay at a root."""
    logger.warning(
        "topic %r: records that were made void stay in %s, unread, and it is not compacted there: %s", name, url, why
    )


def _mended(partition: int, by: _Try) -> MendedSegments:
    return MendedSegments(tuple((partition, start, end) for start, end in by.lost))


def _overtaken(topic: TopicLog) -> ConflictError:
    return ConflictError(
        f"topic {topic.name!r} in {topic.storage.url} was settled, merged or compacted meanwhile; of what is damaged "
        "some is still there: repair it again"
    )


def _with_checksums(
    topic: TopicLog, settled: SettleState, fragments: dict[int, list[Fragment]]
) -> dict[int, list[Fragment]]:
    for partition in range(len(settled.partitions)):
        there = fragments.get(partition, [])
        try:
            with unreadable_is_damage(topic.storage, "a segment object"):
                segments = list(segments_of(topic, settled, partition))
        except (FileNotFoundError, CorruptionError):  # an object of the tail, of which there are fragments
            continue
        for segment, end in segments:
            if any(overlap((segment.base_offset, end), (each.start, each.end)) for each in there):
                continue
            why = _fault(topic.storage, topic.paths(settled.topic_id), partition, segment)
            if why is not None:
                fragments.setdefault(partition, []).append(Fragment(segment.base_offset, end, None, why))
    return fragments


def _fault(storage: Storage, home: TopicPaths, partition: int, segment: Active | Sealed) -> str | None:
    """Fault of a segment with valid frames, or None.

    Its bytes differ from those published, or a sector under an index is unreadable. A wrong index is only a hint.
    """
    span = segment_span(home, partition, segment)
    try:
        with unreadable_is_damage(storage, span.path):
            crc = crc_of(storage, span.path, segment.length, span.start)
        for part in (segment_part(home, partition, segment, suffix) for suffix in (INDEX, TIMEINDEX)):
            with suppress(FileNotFoundError), unreadable_is_damage(storage, part.path):
                storage.read(part.path, part.start, part.length)
    except CorruptionError as error:
        return str(error)
    wrong = f"{span.path}: CRC-32C of {segment.length} bytes is {crc:08x}, expected {segment.crc:08x}"
    return None if crc == segment.crc else wrong

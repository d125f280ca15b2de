"""Copy of a donor's segments to a root that lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError, missing
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.segments.cutting import Timed, parts_of
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import check_whole, segment_span, walk
from pyspark_commitlog.topic.segments.rewrite import Rules, rewrite_frames
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.state.late_voids import MISLED, is_misled, late_voids
from pyspark_commitlog.topic.state.settle_change import MAX_DROPS, Change
from pyspark_commitlog.topic.state.settle_state import (
    Active,
    Manifest,
    Sealed,
    SettledPartition,
    SettleState,
    Shared,
    latest_of,
    objects_of,
)
from pyspark_commitlog.topic.state.topic_state import TopicState, Void
from pyspark_commitlog.topic.topic_log import TopicLog

#: Moves to a newer settled log before giving up, besides one per partition.
_MOVES = 20

_Segments = tuple[Sealed | Active, ...]


@dataclass(frozen=True, slots=True)
class SettledTopic:
    """A root's settled log as of a visible entry; None if deleted."""

    sequence: int
    write_id: str
    state: TopicState
    settled: SettleState | None


def newest_state(into: TopicLog, there: SettledTopic) -> tuple[int, TopicState]:
    """Return number and state of the newest entry that the target knows: `there`, or a later one."""
    head = into.journal.head()
    if head is None or head.sequence <= there.sequence or head.entry.topic_id != there.state.topic_id:
        return there.sequence, there.state
    return head.sequence, into.state_of(head.entry)


class _GoneError(Exception):
    """The copy can't be continued: its source is collected."""


@dataclass(frozen=True, slots=True)
class _Copied:
    sealed: tuple[Sealed, ...]
    row: SettledPartition
    voids: tuple[Void, ...]


def _nothing_dropped(was: SettledPartition, now: SettledPartition) -> bool:
    """Whether no compaction dropped records between two rows (pure).

    An unfinished round does not say which records it dropped.
    """
    return was == now or (was.cleaned == now.cleaned and not was.dropped_below and not now.dropped_below)


@dataclass
class SettledCopy:
    """Copy of a donor's segments as of an entry (`there`).

    The donor may replace and collect segments meanwhile. The copy continues in the newly settled log, which is the same
    up to `there` unless records were dropped: by compaction (perhaps a tombstone not yet copied) or by the log start.
    If so, it moves to the log settled by then (`again`) and keeps each partition that can be continued.
    """

    source: TopicLog
    into: TopicLog
    there: SettledTopic
    known_at: int
    known: TopicState
    again: Callable[[], SettledTopic]
    moved: Callable[[SettledTopic], None]
    stopped: Callable[[], bool]

    @property
    def state(self) -> TopicState:
        """The topic's state as of the copied entry."""
        return self.there.state

    @property
    def settled(self) -> SettleState:
        """The donor's settle state that is copied."""
        assert self.there.settled is not None, "the topic is not deleted"
        return self.there.settled

    @property
    def settled_through(self) -> tuple[int, str]:
        """Number and write id of the copied entry."""
        return self.there.sequence, self.there.write_id

    def publish(self) -> tuple[int, str]:
        """Copy and publish under the settlers' lock; return the last copied entry."""
        base, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.settled_through[0]:
            return before.through
        reserved = self.into.reserve(base, before)
        if reserved is None:
            raise self._overtaken()
        number = reserved.sequence + 1  # kept over all moves: unnamed files of older numbers are collected

        def lacks(partition: int) -> bool:
            return self._lacks(partition, before.partition(partition))

        done, every = self._copied(lacks, lambda: number), range(self.state.partitions)
        rows = [self._row(p, done[p], number) if lacks(p) else before.partition(p) for p in every]
        if self.into.publish(reserved, self._after(before, rows)) is None:
            raise self._overtaken()
        return self.settled_through

    def change(self) -> tuple[int, str]:
        """Copy and publish without a lock, if the rows are unchanged (rule O2)."""
        _, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.settled_through[0]:
            return before.through
        self._refuse_further(before)
        done, number = self._copied(lambda _: True, self._newest_number), self._newest_number()
        rows = [self._row(partition, done[partition], number) for partition in range(self.state.partitions)]
        new = [piece for p in range(len(rows)) for piece in self._pieces(replace(before, partitions=tuple(rows)), p)]
        old = [piece for p in range(len(before.partitions)) for piece in self._pieces(before, p)]
        names = [f"manifests/{row.manifest.name}" for row in rows if row.manifest is not None]

        def operation(_: Stored, now: SettleState) -> Change | None:
            is_as_before = (now.partitions, now.tail) == (before.partitions, before.tail)
            if not is_as_before or now.through[0] >= self.settled_through[0]:
                return None
            dropped = objects_of(old, ())[: MAX_DROPS // 2]  # the rest is the sweep's
            return Change(replace(self._after(now, rows), tail=()), (*names, *objects_of(new, old)), dropped)

        self.into.change(self.state.topic_id, operation, self.state)
        through = self.into.settled(self.state.topic_id)[1].through
        if through[0] < self.settled_through[0]:
            raise self._overtaken()
        return through

    def _refuse_further(self, before: SettleState) -> None:
        for partition in range(self.state.partitions):
            if before.partition(partition).end_offset > self.settled.partition(partition).end_offset:
                where = f"topic {self.into.name!r} partition {partition} in {self.into.storage.url}"
                there = self.source.storage.url
                raise ReplicaNotAvailableError(f"{where} is settled further than in {there}: maintain that first")

    def _newest_number(self) -> int:
        return self.into.settled(self.state.topic_id)[0].sequence

    def _pieces(self, settled: SettleState, partition: int) -> Sequence[Sealed]:
        return tuple(self.into.own_segments(settled, partition).every())

    def _after(self, before: SettleState, rows: Sequence[SettledPartition]) -> SettleState:
        return replace(
            before,
            through=self.settled_through,
            oldest_unsettled=self.settled_through[0] + 1,
            partitions=tuple(rows),
            damaged=(),
            ahead=None,
        )

    def _overtaken(self) -> CommitLogError:
        where = f"topic {self.into.name!r} in {self.into.storage.url}"
        return ReplicaNotAvailableError(f"{where} was settled meanwhile: run `commitlog replicas sync` again")

    def _lacks(self, partition: int, before: SettledPartition) -> bool:
        ends = self.settled.partition(partition).end_offset
        is_whole = before.end_offset == ends and not late_voids(self.known, partition, before)
        return not (before.end_offset > ends or is_whole)

    # --- all partitions ----------------------------------------------------------------------------------

    def _copied(self, lacks: Callable[[int], bool], number: Callable[[], int]) -> dict[int, _Copied]:
        """Copy the partitions that the target `lacks`.

        `number` names the files; asked again after each move, since a partition that restarts overwrites its own.
        """
        done, named, moves = dict[int, _Copied](), number(), 0
        while (partition := self._next(done, lacks)) is not None:
            if partition in done and not self._goes_on(partition, done[partition]):
                del done[partition]  # its files may be written over
            try:
                done[partition] = self._copy_segments(partition, done.get(partition), named)
            except _GoneError as error:
                moves += 1
                if moves > _MOVES + self.state.partitions:
                    raise self._gone_each_time(partition, error) from error
                self._move()
                named = number()
        return done

    def _next(self, done: Mapping[int, _Copied], lacks: Callable[[int], bool]) -> int | None:
        left = (p for p in range(self.state.partitions) if lacks(p) and not (p in done and self._is_whole(p, done[p])))
        return min(left, key=lambda partition: partition in done, default=None)

    def _is_whole(self, partition: int, copied: _Copied) -> bool:
        ends = self.settled.partition(partition).end_offset
        return copied.row.end_offset == ends and self._goes_on(partition, copied)

    def _goes_on(self, partition: int, copied: _Copied) -> bool:
        return (
            _nothing_dropped(copied.row, self.settled.partition(partition))
            and copied.voids == self.known.voids_of(partition)
            and self.state.log_start[partition] <= copied.row.end_offset
        )

    def _move(self) -> None:
        again = self.again()
        if again.settled is None or again.state.topic_id != self.state.topic_id:
            raise self.source.changed(again.state, self.state.topic_id)
        if again.sequence < self.there.sequence:  # between the two nothing was appended
            again = replace(self.there, settled=again.settled)
        self.moved(again)
        self.there = again
        self.known_at, self.known = newest_state(self.into, again)

    def _gone_each_time(self, partition: int, error: _GoneError) -> CommitLogError:
        return ReplicaNotAvailableError(
            f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: segments are compacted, "
            f"or removed, before they are copied, each time ({error}). Raise `file.delete.delay.ms` of the topic"
        )

    # --- one partition -----------------------------------------------------------------------------------

    def _copy_segments(self, partition: int, copied: _Copied | None, number: int) -> _Copied:
        there, voids = self.settled.partition(partition), self.known.voids_of(partition)
        if is_misled(self.known, partition, there):
            raise CorruptionError(
                f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: {MISLED}"
            )
        if copied is not None:
            sealed, begun, latest_ms = copied.sealed, copied.row.end_offset, latest_of(copied.sealed)
            segments = self._segments_from(partition, begun)
            self._check_removed(partition, segments, begun)
        else:
            log_start, sealed, latest_ms = self.state.log_start[partition], (), NO_TIMESTAMP
            segments = self._segments_from(partition, log_start)
            begun = segments[0].base_offset if segments else there.end_offset
            if begun > log_start:  # by an entry after `there`
                raise _GoneError(f"offsets {log_start} to {begun - 1} are in no segment")
        if begun < there.end_offset:
            rules = self._rules(partition)
            directory = SegmentDir(self.into.storage, self.into.paths(self.state.topic_id), partition)
            frames = self._frames(partition, segments, begun)
            made = rewrite_frames(directory, begun, there.end_offset, frames, rules, number=number, latest_ms=latest_ms)
            sealed = (*sealed, *made)
        return _Copied(sealed, there, voids)

    def _check_removed(self, partition: int, segments: _Segments, begun: int) -> None:
        """Refuse to continue below a later entry's log start."""
        if begun < self.settled.partition(partition).end_offset and not _hold(segments, begun):
            log_start = self.source.newest(self.state.topic_id)[1].log_start[partition]
            if log_start > begun:  # else they are lost
                raise _GoneError(f"offsets {begun} to {log_start - 1} were removed")

    def _rules(self, partition: int) -> Rules:
        log_start, cleaned = self.state.log_start[partition], self.settled.partition(partition).cleaned
        config, now_ms = self.source.config(self.state), self.into.storage.now_ms()
        return Rules.of(config, log_start=log_start, cleaned=cleaned, now_ms=now_ms)

    def _row(self, partition: int, copied: _Copied, number: int) -> SettledPartition:
        there, home, manifest = copied.row, self.into.paths(self.state.topic_id), None
        if copied.sealed:
            manifest = write_manifest(self.into.storage, home, partition, number, copied.sealed)
        active, voids_at = Active(IndexState(there.end_offset)), self.known_at if self.state.is_replicated else 0
        return SettledPartition(there.end_offset, active, manifest, there.cleaned, there.dropped_below, voids_at)

    def _segments_from(self, partition: int, offset: int) -> _Segments:
        try:
            return self._segments(self.settled, partition)
        except FileNotFoundError as error:
            return self._segments_now(partition, offset, error, self.settled)

    def _segments(self, settled: SettleState, partition: int) -> _Segments:
        active = settled.partition(partition).active
        sealed = self.source.sealed(settled, partition, self.state.log_start[partition])
        return (*sealed, *([active] if active.length else ()))

    def _frames(self, partition: int, segments: _Segments, begun: int) -> Iterator[Timed]:
        """Yield frames from an offset on, across replacements of segments."""
        offset, looked = begun, -1
        while True:
            try:
                for timed in self._read(partition, segments, offset):
                    yield timed
                    offset = timed[0].next_offset
                return
            except FileNotFoundError as error:
                now = self._segments_now(partition, offset, error)
                if _from(segments, offset)[:1] == _from(now, offset)[:1]:  # the newest settle entry names it (rule R8)
                    raise missing(error) from error
                if offset == looked:
                    raise _GoneError(str(error)) from error
                segments, looked = now, offset

    def _segments_now(
        self, partition: int, offset: int, gone: FileNotFoundError, tried: SettleState | None = None
    ) -> _Segments:
        settled = self.source.settled(self.state.topic_id)[1]
        _, state = self.source.newest(self.state.topic_id)  # after it: removal follows the log start
        was, now = self.settled.partition(partition), settled.partition(partition)
        if tried is not None and _lists(tried, partition) == _lists(settled, partition):  # as in `_frames`
            raise missing(gone) from gone
        if state.log_start[partition] > offset or not _nothing_dropped(was, now):
            raise _GoneError(str(gone)) from gone
        try:
            return self._segments(settled, partition)
        except FileNotFoundError as error:
            raise _GoneError(str(error)) from error

    def _read(self, partition: int, segments: _Segments, offset: int) -> Iterator[Timed]:
        end_offset, home = self.settled.partition(partition).end_offset, self.source.paths(self.state.topic_id)
        voids, begun = self.known.voids_of(partition), offset
        for segment in _from(segments, begun):
            if offset >= end_offset:
                return
            if max(segment.base_offset, begun) != offset:
                raise self._gap(partition, offset, segment.base_offset)
            span = segment_span(home, partition, segment, unmapped=True)
            for located in walk(self.source.storage, span):
                if self.stopped():
                    where = f"topic {self.into.name!r} in {self.into.storage.url}"
                    raise ReplicaNotAvailableError(
                        f"{where}: copying its segments was stopped: the next run begins again"
                    )
                if located.next_offset > offset:
                    payload, _ = check_whole(located, span)
                    yield from parts_of(located.frame, payload, partition, offset, end_offset, voids)
                    offset = located.next_offset
        if offset < end_offset:
            raise self._gap(partition, offset, end_offset)

    def _gap(self, partition: int, start: int, end: int) -> CorruptionError:
        return CorruptionError(
            f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: offsets {start} to "
            f"{end - 1} are in no segment, nothing was copied: `commitlog verify` says more"
        )


def _lists(settled: SettleState, partition: int) -> tuple[Manifest | None, tuple[Shared, ...]]:
    return settled.partition(partition).manifest, settled.tail


def _from(segments: _Segments, offset: int) -> _Segments:
    return tuple(each for each in segments if isinstance(each, Active) or each.end_offset > offset)


def _hold(segments: _Segments, offset: int) -> bool:
    return any(each.base_offset <= offset for each in _from(segments, offset)[:1])

"""Copy what one root has settled of a topic to another root, which begins there, or lags too far to learn (rule 7).

Frames are copied, each checked, into segments of the other root's kind. What counts is published by one settle entry;
until then nobody names what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError, missing
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.frames import check_whole, segment_span, walk
from pyspark_commitlog.log.home import make_home
from pyspark_commitlog.log.late_voids import MISLED, is_misled, late_voids
from pyspark_commitlog.log.maintain.settle import settle_on
from pyspark_commitlog.log.objects.pieces import objects_of
from pyspark_commitlog.log.segments.cutting import Timed, parts_of
from pyspark_commitlog.log.segments.directory import SegmentDir
from pyspark_commitlog.log.segments.rewrite import Rules, rewrite_frames
from pyspark_commitlog.log.segments.writer import write_manifest
from pyspark_commitlog.log.settle_change import MAX_DROPS, Change
from pyspark_commitlog.log.settle_state import (
    Active,
    Manifest,
    Sealed,
    SettledPartition,
    SettleState,
    Shared,
    latest_of,
)
from pyspark_commitlog.log.state import TopicState, Void
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage import Storage

#: How often a root may be appended to, or settled by another process, while it is to have settled all.
_TRIES = 20
_PAUSE_SECONDS = 0.2
#: How often another log may be settled before all is copied, besides once for each partition.
_MOVES = 20

_Segments = tuple[Sealed | Active, ...]


@dataclass(frozen=True, slots=True)
class SettledTopic:
    """A root's settled log, as of an entry that its readers see.

    ``settled`` is None of a topic that is deleted: it has no records.
    """

    sequence: int
    write_id: str
    state: TopicState
    settled: SettleState | None


class TopicSegments:
    """See ``replicas.catching_up.Segments``; of one topic.

    Args:
        name: of the topic.
        stopped: is asked before each frame whether to leave it: nothing is published then.
    """

    def __init__(self, name: str, stopped: Callable[[], bool] = lambda: False) -> None:
        self._name, self._stopped = name, stopped

    def settled(self, donor: Storage) -> SettledTopic:
        """Settle at a root all that its readers see, and return that.

        Raises:
            ReplicaNotAvailableError: it has nothing, or can't settle all of it.
            CommitLogError, OSError: it fails.
        """
        topic = TopicLog(donor, self._name)
        for _ in range(_TRIES):
            stored = topic.journal.newest()
            if stored is None:
                break
            topic.journal.assure(stored)
            state = topic.state_of(stored.entry)
            if state.deleted:
                return SettledTopic(stored.sequence, stored.entry.write_id, state, None)
            settle_on(topic, state.topic_id)
            settled = topic.settled(state.topic_id)[1]
            if settled.damaged:
                raise CorruptionError(
                    f"topic {self._name!r} in {donor.url}: partition {settled.damaged[0].partition} is damaged, so "
                    f"nothing is copied from there: {settled.damaged[0].why}. `commitlog repair {donor.url}` fetches "
                    "from other roots what they have of it"
                )
            if (found := reached(topic, settled)) is not None:
                return SettledTopic(found.sequence, found.entry.write_id, topic.state_of(found.entry), settled)
            donor.clock.sleep(_PAUSE_SECONDS)
        raise ReplicaNotAvailableError(
            f"topic {self._name!r}: {donor.url} has not settled what its readers see: run `commitlog maintain` there"
        )

    def copy(
        self,
        donor: Storage,
        target: Storage,
        there: SettledTopic,
        moved: Callable[[SettledTopic], None] = lambda _: None,
    ) -> tuple[int, str]:
        """Have a root hold in segments what another has settled; return the entry up to which it holds all.

        A later one where it was further already, or where what was settled is another log before all is copied.

        Args:
            donor, target: the roots, ``there`` what the first one has settled.
            moved: is called with what is copied in place of ``there``, each time before that begins.

        Raises:
            ReplicaNotAvailableError: another process settles, or copies, there; or it was stopped.
            CorruptionError: what is to be copied is damaged: nothing was published.
            CommitLogError, OSError: nothing was published, or all.
        """
        state, through = there.state, (there.sequence, there.write_id)
        target.make_directory(paths.journal(self._name))
        if there.settled is None:
            return through
        make_home(target, TopicPaths(self._name, state.topic_id), state.partitions)
        into = TopicLog(target, self._name)
        known, again = _newest_state(into, there), partial(self.settled, donor)
        copy = _Copy(TopicLog(donor, self._name), into, there, *known, again, moved, self._stopped)
        if not target.can_append:
            return copy.change()
        with copy.into.settling(state.topic_id) as held:
            if not held:
                raise ReplicaNotAvailableError(
                    f"topic {self._name!r}: {copy.into.busy} settles at {target.url}: run `commitlog replicate` again"
                )
            return copy.publish()


def _newest_state(into: TopicLog, there: SettledTopic) -> tuple[int, TopicState]:
    """Return the newest entry that says what is void, and its state.

    Either root may have learned of an election first.
    """
    head = into.journal.head()
    if head is None or head.sequence <= there.sequence or head.entry.topic_id != there.state.topic_id:
        return there.sequence, there.state
    return head.sequence, into.state_of(head.entry)


def reached(topic: TopicLog, settled: SettleState) -> Stored | None:
    """Return an entry that readers see and after which the log is exactly what is settled; None where there is none."""
    shown = topic.newest(settled.topic_id)[0]
    found = [shown]
    with suppress(FileNotFoundError):  # collected, or nothing was settled yet
        found.append(topic.journal.read(settled.through[0]))
    for stored in found:
        if stored.sequence <= shown.sequence and stored.entry.topic_id == settled.topic_id:
            ends = topic.state_of(stored.entry).log_end
            if ends == tuple(settled.partition(partition).end_offset for partition in range(len(ends))):
                return stored
    return None


class _GoneError(Exception):
    """What is to be copied next is collected, and what the other root has in its place can't be gone on with."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """A partition's segments, up to the end of ``row``: what the other root had settled, with these offsets void."""

    sealed: tuple[Sealed, ...]
    row: SettledPartition
    voids: tuple[Void, ...]


def _nothing_dropped(was: SettledPartition, now: SettledPartition) -> bool:
    """Return whether no compaction has dropped a record between two rows of a root (pure).

    Each round raises ``cleaned``; of a round that has not ended no row says which records it has dropped.
    """
    return was == now or (was.cleaned == now.cleaned and not was.dropped_below and not now.dropped_below)


@dataclass
class _Copy:
    """One root's segments, as another is to have them after an entry (``there``); ``known`` says what is void.

    The other root goes on: what is not copied yet is merged, compacted or removed, and collected, at any time. Then the
    copy goes on at the offset that it has reached, in what is settled there now. That is the same log up to ``there``
    unless records were dropped: by compaction those of a key that the copy has, say, and with them the tombstone which
    it has not; or by a log start beyond that offset. Then it copies what is settled by then (``again``), and keeps of
    each partition what it has, if that can be gone on with.
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
        """Return the topic's state after the entry."""
        return self.there.state

    @property
    def settled(self) -> SettleState:
        """Return what the other root has settled."""
        assert self.there.settled is not None, "the topic is not deleted"
        return self.there.settled

    @property
    def settled_through(self) -> tuple[int, str]:
        """Return number and write id of the entry to copy up to."""
        return self.there.sequence, self.there.write_id

    def publish(self) -> tuple[int, str]:
        """Copy and publish under the settlers' lock, where there is one."""
        base, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.settled_through[0]:
            return before.through
        reserved = self.into.reserve(base, before)
        if reserved is None:
            raise self._overtaken()
        number = reserved.sequence + 1  # over all moves: what bears an older one, and nobody names, is collected

        def lacks(partition: int) -> bool:
            return self._lacks(partition, before.partition(partition))

        done, every = self._copied(lacks, lambda: number), range(self.state.partitions)
        rows = [self._row(p, done[p], number) if lacks(p) else before.partition(p) for p in every]
        if self.into.publish(reserved, self._after(before, rows)) is None:
            raise self._overtaken()
        return self.settled_through

    def change(self) -> tuple[int, str]:
        """Copy and publish where there is no lock: on the rows that were found, or not at all (rule O2)."""
        _, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.settled_through[0]:
            return before.through
        for partition in range(self.state.partitions):
            if before.partition(partition).end_offset > self.settled.partition(partition).end_offset:
                where = f"topic {self.into.name!r} partition {partition} in {self.into.storage.url}"
                there = self.source.storage.url
                raise ReplicaNotAvailableError(f"{where} is settled further than in {there}: maintain that first")
        done, number = self._copied(lambda _: True, self._newest_number), self._newest_number()
        rows = [self._row(partition, done[partition], number) for partition in range(self.state.partitions)]
        new = [piece for p in range(len(rows)) for piece in self._pieces(replace(before, partitions=tuple(rows)), p)]
        old = [piece for p in range(len(before.partitions)) for piece in self._pieces(before, p)]
        names = [f"manifests/{row.manifest.name}" for row in rows if row.manifest is not None]

        def operation(_: Stored, now: SettleState) -> Change | None:
            if (now.partitions, now.tail) != (before.partitions, before.tail) or now.through[0] >= self.settled_through[
                0
            ]:
                return None
            dropped = objects_of(old, ())[: MAX_DROPS // 2]  # the rest is the sweep's
            return Change(replace(self._after(now, rows), tail=()), (*names, *objects_of(new, old)), dropped)

        self.into.change(self.state.topic_id, operation, self.state)
        through = self.into.settled(self.state.topic_id)[1].through
        if through[0] < self.settled_through[0]:
            raise self._overtaken()
        return through

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
        return ReplicaNotAvailableError(f"{where} was settled meanwhile: run `commitlog replicate` again")

    def _lacks(self, partition: int, before: SettledPartition) -> bool:
        """Return whether a partition's row must change: not where it is further, or ends there with nothing void."""
        ends = self.settled.partition(partition).end_offset
        is_whole = before.end_offset == ends and not late_voids(self.known, partition, before)
        return not (before.end_offset > ends or is_whole)

    # --- all partitions ----------------------------------------------------------------------------------

    def _copied(self, lacks: Callable[[int], bool], number: Callable[[], int]) -> dict[int, _Copied]:
        """Copy the partitions that the root ``lacks``, up to one entry.

        Args:
            lacks: says so of a partition, by what is copied now.
            number: returns that for the names of what is made, after each move again. Under the same one a partition
                that begins again writes over what it had, which nobody names.
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
        """Return the partition to copy next: at last those of which there is more by now, for there is little."""
        left = (p for p in range(self.state.partitions) if lacks(p) and not (p in done and self._is_whole(p, done[p])))
        return min(left, key=lambda partition: partition in done, default=None)

    def _is_whole(self, partition: int, copied: _Copied) -> bool:
        ends = self.settled.partition(partition).end_offset
        return copied.row.end_offset == ends and self._goes_on(partition, copied)

    def _goes_on(self, partition: int, copied: _Copied) -> bool:
        """Return whether what was copied of a partition is what is settled of it now, or the beginning of that."""
        return (
            _nothing_dropped(copied.row, self.settled.partition(partition))
            and copied.voids == self.known.voids_of(partition)
            and self.state.log_start[partition] <= copied.row.end_offset
        )

    def _move(self) -> None:
        """Copy what the other root has settled by now."""
        again = self.again()
        if again.settled is None or again.state.topic_id != self.state.topic_id:
            raise self.source.changed(again.state, self.state.topic_id)
        if again.sequence < self.there.sequence:  # between the two nothing was appended
            again = replace(self.there, settled=again.settled)
        self.moved(again)
        self.there = again
        self.known_at, self.known = _newest_state(self.into, again)

    def _gone_each_time(self, partition: int, error: _GoneError) -> CommitLogError:
        return ReplicaNotAvailableError(
            f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: segments are compacted, "
            f"or removed, before they are copied, each time ({error}). Raise `file.delete.delay.ms` of the topic"
        )

    # --- one partition -----------------------------------------------------------------------------------

    def _copy_segments(self, partition: int, copied: _Copied | None, number: int) -> _Copied:
        """Copy a partition's segments, after what was copied of them, if anything.

        Raises:
            _GoneError: some are gone.
        """
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
            if begun > log_start:  # by an entry after the one that is copied up to
                raise _GoneError(f"offsets {log_start} to {begun - 1} are in no segment")
        if begun < there.end_offset:
            rules = self._rules(partition)
            directory = SegmentDir(self.into.storage, self.into.paths(self.state.topic_id), partition)
            frames = self._frames(partition, segments, begun)
            made = rewrite_frames(directory, begun, there.end_offset, frames, rules, number=number, latest_ms=latest_ms)
            sealed = (*sealed, *made)
        return _Copied(sealed, there, voids)

    def _check_removed(self, partition: int, segments: _Segments, begun: int) -> None:
        """Refuse to go on at an offset that was removed by an entry after the one that is copied up to."""
        if begun < self.settled.partition(partition).end_offset and not _hold(segments, begun):
            log_start = self.source.newest(self.state.topic_id)[1].log_start[partition]
            if log_start > begun:  # else they are lost
                raise _GoneError(f"offsets {begun} to {log_start - 1} were removed")

    def _rules(self, partition: int) -> Rules:
        log_start, cleaned = self.state.log_start[partition], self.settled.partition(partition).cleaned
        config, now_ms = self.source.config(self.state), self.into.storage.now_ms()
        return Rules.of(config, log_start=log_start, cleaned=cleaned, now_ms=now_ms)

    def _row(self, partition: int, copied: _Copied, number: int) -> SettledPartition:
        """Return the row that names what was copied of a partition."""
        there, home, manifest = copied.row, self.into.paths(self.state.topic_id), None
        if copied.sealed:
            manifest = write_manifest(self.into.storage, home, partition, number, copied.sealed)
        active, voids_at = Active(IndexState(there.end_offset)), self.known_at if self.state.is_replicated else 0
        return SettledPartition(there.end_offset, active, manifest, there.cleaned, there.dropped_below, voids_at)

    def _segments_from(self, partition: int, offset: int) -> _Segments:
        """Return a partition's segments at the other root, with all from an offset on; raises as ``_frames``."""
        try:
            return self._segments(self.settled, partition)
        except FileNotFoundError as error:
            return self._segments_now(partition, offset, error, self.settled)

    def _segments(self, settled: SettleState, partition: int) -> _Segments:
        """Return a partition's segments at the other root.

        Raises:
            FileNotFoundError: what lists them is collected.
        """
        active = settled.partition(partition).active
        sealed = self.source.sealed(settled, partition, self.state.log_start[partition])
        return (*sealed, *([active] if active.length else ()))

    def _frames(self, partition: int, segments: _Segments, begun: int) -> Iterator[Timed]:
        """Yield the frames from an offset on, whatever becomes of the segments at the other root meanwhile.

        Raises:
            _GoneError: it can't be gone on with what became of them, or that is gone again already.
        """
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
        """Return a partition's segments as they are settled now; raises as ``_frames``.

        ``tried``: the state of which what lists them is gone.
        """
        settled = self.source.settled(self.state.topic_id)[1]
        _, state = self.source.newest(self.state.topic_id)  # after it: what removes them follows their log start
        was, now = self.settled.partition(partition), settled.partition(partition)
        if tried is not None and _lists(tried, partition) == _lists(settled, partition):  # as in ``_frames``
            raise missing(gone) from gone
        if state.log_start[partition] > offset or not _nothing_dropped(was, now):
            raise _GoneError(str(gone)) from gone
        try:
            return self._segments(settled, partition)
        except FileNotFoundError as error:
            raise _GoneError(str(error)) from error

    def _read(self, partition: int, segments: _Segments, offset: int) -> Iterator[Timed]:
        """Yield the frames from an offset on, checked: one after the other, and all; void offsets without records."""
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
    """Return what lists a partition's segments (pure)."""
    return settled.partition(partition).manifest, settled.tail


def _from(segments: _Segments, offset: int) -> _Segments:
    """Return the segments that end after an offset (pure); where the active one ends they don't say."""
    return tuple(each for each in segments if isinstance(each, Active) or each.end_offset > offset)


def _hold(segments: _Segments, offset: int) -> bool:
    """Return whether a segment begins at an offset, or before it and ends after it (pure)."""
    return any(each.base_offset <= offset for each in _from(segments, offset)[:1])

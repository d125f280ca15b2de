"""Copy what one root has settled of a topic to another root, which begins there, or lags too far to learn (rule 7).

Frames are copied, each checked, into segments of the other root's kind. What counts is published by one settle entry;
until then nobody names what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
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
from pyspark_commitlog.log.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage import Storage

#: How often a root may be appended to, or settled by another process, while it is to have settled all.
_TRIES = 20
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class SettledThere:
    """What a root has settled: exactly the log as it is after an entry, which its readers see.

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

    def settled(self, donor: Storage) -> SettledThere:
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
                return SettledThere(stored.sequence, stored.entry.write_id, state, None)
            settle_on(topic, state.topic_id)
            settled = topic.settled(state.topic_id)[1]
            if settled.damaged:
                raise CorruptionError(
                    f"topic {self._name!r} in {donor.url}: partition {settled.damaged[0].partition} is damaged, so "
                    f"nothing is copied from there: {settled.damaged[0].why}. `commitlog repair {donor.url}` fetches "
                    "from other roots what they have of it"
                )
            if (found := reached(topic, settled)) is not None:
                return SettledThere(found.sequence, found.entry.write_id, topic.state_of(found.entry), settled)
            donor.clock.sleep(_PAUSE_SECONDS)
        raise ReplicaNotAvailableError(
            f"topic {self._name!r}: {donor.url} has not settled what its readers see: run `commitlog maintain` there"
        )

    def copy(self, donor: Storage, target: Storage, there: SettledThere) -> tuple[int, str]:
        """Have a root hold in segments what another has settled; return the entry up to which it holds all.

        A later one where it was further already.

        Raises:
            ReplicaNotAvailableError: another process settles, or copies, there; or it was stopped.
            CorruptionError: what is to be copied is damaged: nothing was published.
            CommitLogError, OSError: nothing was published, or all.
        """
        state, through = there.state, (there.sequence, there.write_id)
        home = TopicPaths(self._name, state.topic_id)
        target.make_directory(paths.journal(self._name))
        if there.settled is None:
            return through
        make_home(target, home, state.partitions)
        into = TopicLog(target, self._name)
        known = _known(into, there)
        copy = _Copy(TopicLog(donor, self._name), into, there.settled, state, through, *known, self._stopped)
        if not target.can_append:
            return copy.change()
        with copy.into.settling(state.topic_id) as held:
            if not held:
                raise ReplicaNotAvailableError(
                    f"topic {self._name!r}: {copy.into.busy} settles at {target.url}: run `commitlog replicate` again"
                )
            return copy.publish()


def _known(into: TopicLog, there: SettledThere) -> tuple[int, TopicState]:
    """Return the newest entry, and its state, that says what is void: a root may have learned of an election first."""
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


@dataclass(frozen=True)
class _Copy:
    """One root's segments, as another is to have them after an entry (``through``); ``known`` says what is void."""

    source: TopicLog
    into: TopicLog
    settled: SettleState
    state: TopicState
    through: tuple[int, str]
    known_at: int
    known: TopicState
    stopped: Callable[[], bool]

    def publish(self) -> tuple[int, str]:
        """Copy and publish under the settlers' lock, where there is one."""
        base, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.through[0]:
            return before.through
        reserved = self.into.reserve(base, before)
        if reserved is None:
            raise self._overtaken()
        rows = [self._row(p, before.partition(p), reserved.sequence + 1) for p in range(self.state.partitions)]
        if self.into.publish(reserved, self._after(before, rows)) is None:
            raise self._overtaken()
        return self.through

    def change(self) -> tuple[int, str]:
        """Copy and publish where there is no lock: on the rows that were found, or not at all (rule O2)."""
        base, before = self.into.settled(self.state.topic_id)
        if before.through[0] >= self.through[0]:
            return before.through
        for partition in range(self.state.partitions):
            if before.partition(partition).end_offset > self.settled.partition(partition).end_offset:
                where = f"topic {self.into.name!r} partition {partition} in {self.into.storage.url}"
                there = self.source.storage.url
                raise ReplicaNotAvailableError(f"{where} is settled further than in {there}: maintain that first")
        rows = [self._new_row(partition, base.sequence) for partition in range(self.state.partitions)]
        new = [piece for p in range(len(rows)) for piece in self._pieces(replace(before, partitions=tuple(rows)), p)]
        old = [piece for p in range(len(before.partitions)) for piece in self._pieces(before, p)]
        names = [f"manifests/{row.manifest.name}" for row in rows if row.manifest is not None]

        def operation(_: Stored, now: SettleState) -> Change | None:
            if (now.partitions, now.tail) != (before.partitions, before.tail) or now.through[0] >= self.through[0]:
                return None
            dropped = objects_of(old, ())[: MAX_DROPS // 2]  # the rest is the sweep's
            return Change(replace(self._after(now, rows), tail=()), (*names, *objects_of(new, old)), dropped)

        self.into.change(self.state.topic_id, operation, self.state)
        through = self.into.settled(self.state.topic_id)[1].through
        if through[0] < self.through[0]:
            raise self._overtaken()
        return through

    def _pieces(self, settled: SettleState, partition: int) -> Sequence[Sealed]:
        return tuple(self.into.own_segments(settled, partition).every())

    def _after(self, before: SettleState, rows: Sequence[SettledPartition]) -> SettleState:
        return replace(
            before,
            through=self.through,
            oldest_unsettled=self.through[0] + 1,
            partitions=tuple(rows),
            damaged=(),
            ahead=None,
        )

    def _overtaken(self) -> CommitLogError:
        where = f"topic {self.into.name!r} in {self.into.storage.url}"
        return ReplicaNotAvailableError(f"{where} was settled meanwhile: run `commitlog replicate` again")

    def _row(self, partition: int, before: SettledPartition, number: int) -> SettledPartition:
        """Return a partition's row: as it is where it is further, or ends there already and has nothing void."""
        ends = self.settled.partition(partition).end_offset
        is_whole = before.end_offset == ends and not late_voids(self.known, partition, before)
        return before if before.end_offset > ends or is_whole else self._new_row(partition, number)

    def _new_row(self, partition: int, number: int) -> SettledPartition:
        """Copy a partition's segments; return the row that names them."""
        there, home = self.settled.partition(partition), self.into.paths(self.state.topic_id)
        if is_misled(self.known, partition, there):
            raise CorruptionError(
                f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: {MISLED}"
            )
        segments: list[Sealed | Active] = [*self.source.sealed(self.settled, partition)]
        if there.active.length:
            segments.append(there.active)
        begun = segments[0].base_offset if segments else there.end_offset
        manifest = None
        if segments:
            log_start = self.state.log_start[partition]
            now_ms = self.into.storage.now_ms()
            rules = Rules.of(self.source.config(self.state), log_start=log_start, cleaned=there.cleaned, now_ms=now_ms)
            directory = SegmentDir(self.into.storage, home, partition)
            frames = self._frames(partition, segments, there.end_offset)
            sealed = rewrite_frames(
                directory, begun, there.end_offset, frames, rules, number=number, latest_ms=NO_TIMESTAMP
            )
            manifest = write_manifest(self.into.storage, home, partition, number, sealed)
        active, voids_at = Active(IndexState(there.end_offset)), self.known_at if self.state.is_replicated else 0
        return SettledPartition(there.end_offset, active, manifest, there.cleaned, there.dropped_below, voids_at)

    def _frames(self, partition: int, segments: Sequence[Sealed | Active], end_offset: int) -> Iterator[Timed]:
        """Yield the frames of segments, checked: one after the other, and all of them; void offsets without records."""
        offset, home = segments[0].base_offset, self.source.paths(self.state.topic_id)
        voids = self.known.voids_of(partition)
        for segment in segments:
            if segment.base_offset != offset:
                raise self._gap(partition, offset, segment.base_offset)
            span = segment_span(home, partition, segment, unmapped=True)
            for located in walk(self.source.storage, span):
                if self.stopped():
                    where = f"topic {self.into.name!r} in {self.into.storage.url}"
                    raise ReplicaNotAvailableError(
                        f"{where}: copying its segments was stopped: the next run begins again"
                    )
                payload, _ = check_whole(located, span)
                yield from parts_of(located.frame, payload, partition, offset, end_offset, voids)
                offset = located.next_offset
        if offset != end_offset:
            raise self._gap(partition, offset, end_offset)

    def _gap(self, partition: int, start: int, end: int) -> CorruptionError:
        return CorruptionError(
            f"topic {self.source.name!r} partition {partition} in {self.source.storage.url}: offsets {start} to "
            f"{end - 1} are in no segment, nothing was copied: `commitlog verify` says more"
        )

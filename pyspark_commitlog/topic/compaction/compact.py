"""Log compaction: the last record per key (Kafka: `LogCleanerManager`, `Cleaner`).

Under the settlers' lock (R3). One settle entry swaps rewritten segments (R4), instead of Kafka's `.cleaned` and `.swap`
renames; old ones stay while a retained settle entry names them (R13). Without append, a round is published in pieces
without a lock (`topic.compaction.compact_pieces`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark_commitlog import metrics
from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.errors import TopicChangedError, missing
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.model import Progress, silent, watched
from pyspark_commitlog.topic.compaction.compact_pieces import eligible, publish_piece, reaches_into, still_own
from pyspark_commitlog.topic.compaction.compaction_plan import (
    Cleanable,
    idle_reason,
    is_overdue,
    plan_compaction,
    plan_groups,
)
from pyspark_commitlog.topic.compaction.keymap import Keys, KeySource, find_superseded
from pyspark_commitlog.topic.each_partition import look_now
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import check, segment_span, walk
from pyspark_commitlog.topic.segments.rewrite import Rules, rewrite, rows_of
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.settle.merge import split
from pyspark_commitlog.topic.state.late_voids import late_voids
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One round of one partition, for a worker.

    `number` is the settle entry in its files' names; without append the newest at the start.
    """

    topic: TopicLog
    topic_id: str
    partition: int
    number: int
    cleanable: Cleanable
    rules: Rules
    buffer_bytes: int
    progress: Progress = silent

    @property
    def directory(self) -> SegmentDir:
        """Partition's directory."""
        return SegmentDir(self.topic.storage, self.topic.paths(self.topic_id), self.partition)

    @property
    def split_bytes(self) -> int:
        """Target size of a piece to publish."""
        return LONG_MAX if self.topic.storage.can_append else self.rules.segment_bytes

    def number_now(self) -> int:
        """Return the number for new files' names (rules R1, O1)."""
        return self.number if self.topic.storage.can_append else self.topic.settled(self.topic_id)[0].sequence


@dataclass(frozen=True, slots=True)
class Replacement:
    """Adjacent segments, and their replacements at the same offsets."""

    old: tuple[Sealed, ...]
    new: tuple[Sealed, ...]


#: Runs a job: returns its replacements, ascending and possibly lazy, and the number of keyless records.
Worker = Callable[[CompactionJob], tuple[Iterable[Replacement], int]]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a round; pairs are before and after."""

    partition: int
    segments: tuple[int, int]
    size_bytes: tuple[int, int]
    keyless: int


def compact(
    topic: TopicLog, topic_id: str, worker: Worker | None = None, progress: Progress = silent
) -> list[Compacted]:
    """Compact partitions until another settler or compactor works (R3, O2), none of a typed topic.

    `worker` None: in this process.

    Raises:
        CorruptionError: a frame is damaged; other partitions were compacted, as after any other error, a worker's too.
        TopicChangedError: the incarnation is gone.
    """
    done: list[Compacted] = []
    topic.forget_defaults()
    _, state = topic.newest(topic_id)
    if not topic.config(state).has_policy("compact"):
        return done
    watched_progress = watched(progress)
    failures = Failures(watched_progress, TopicChangedError)
    if not topic.storage.can_append:
        with failures.collected():
            _split_what_is_due(topic, topic_id, failures)
    for partition in range(state.partitions):
        with failures.collected():
            done += _rounds(topic, topic_id, partition, worker or work_here, watched_progress)
    failures.raise_if_any(f"topic {topic.name!r}: {len(failures)} partitions could not be compacted")
    return done


def idle_reasons(topic: TopicLog, topic_id: str) -> dict[str, int]:
    """Why partitions have nothing to compact: reason -> count.

    Empty without compaction, and without append, as segments are merged there.
    """
    _, state = topic.newest(topic_id)
    config = topic.config(state)
    if not replace(config, can_compact=True).has_policy("compact") or not topic.storage.can_append:
        return {}
    if not config.can_compact:
        return {"it is typed, and cleanup.policy=compact is the root's default": state.partitions}
    reasons = Counter[str]()
    _, settled = topic.settled(topic_id)
    for partition in range(state.partitions):
        sealed, row = topic.sealed(settled, partition), settled.partition(partition)
        start, now_ms = state.log_start[partition], topic.storage.clock.now_ms()
        reasons[idle_reason(sealed, row, log_start=start, config=config, now_ms=now_ms)] += 1
    return dict(reasons)


def _rounds(topic: TopicLog, topic_id: str, partition: int, worker: Worker, progress: Progress) -> Iterator[Compacted]:
    while True:
        with metrics.timed("compaction", topic.storage.clock):
            if topic.storage.can_append:
                with topic.settling(topic_id) as held:
                    one = _compact_locked(topic, topic_id, partition, worker, progress) if held else None
            else:
                one = _compact_pieces(topic, topic_id, partition, worker, progress)
        if one is None:
            return
        yield one


def _compact_locked(
    topic: TopicLog, topic_id: str, partition: int, worker: Worker, progress: Progress
) -> Compacted | None:
    _, state = topic.newest_durable(topic_id, fresh=True)
    base, settled = topic.settled(topic_id)
    sealed = topic.sealed(settled, partition)
    job = _job(topic, state, base, settled, partition, sealed, progress)
    if job is None:
        return None
    reserved = topic.reserve(base, settled)
    if reserved is None:
        return None
    base, row = reserved, settled.partition(partition)
    job = replace(job, number=base.sequence + 1)
    done, keyless = _run_job(job, worker)
    every = list(sealed)
    for each in done:
        at = every.index(each.old[0])
        every[at : at + len(each.old)] = each.new
    leaves = topic.leaves(topic_id, row.manifest)
    manifest = write_manifest(topic.storage, job.directory.paths, partition, job.number, every, leaves)
    partitions = list(settled.partitions)
    partitions[partition] = replace(row, manifest=manifest, cleaned=job.cleanable.dirty[-1].end_offset)
    if topic.publish(base, replace(settled, partitions=tuple(partitions))) is None:
        return None
    return _compacted(job, done, keyless)


def _job(
    topic: TopicLog,
    state: TopicState,
    base: Stored,
    settled: SettleState,
    partition: int,
    sealed: Sequence[Sealed],
    progress: Progress,
) -> CompactionJob | None:
    """Due round, or None.

    None while void records may remain: they supersede nothing.
    """
    if late_voids(state, partition, settled.partition(partition)):
        return None
    plan = _plan(topic, state, settled, partition, sealed)
    if plan is None:
        return None
    config, cleaned = topic.config(state), settled.partition(partition).cleaned
    rules = Rules.of(config, log_start=state.log_start[partition], cleaned=cleaned, now_ms=topic.storage.now_ms())
    rules = replace(rules, seen_ms=topic.storage.clock.now_ms())
    buffer_bytes = config.number("cleaner.dedupe.buffer.size")
    return CompactionJob(topic, state.topic_id, partition, base.sequence, plan, rules, buffer_bytes, progress)


def _plan(
    topic: TopicLog, state: TopicState, settled: SettleState, partition: int, sealed: Sequence[Sealed]
) -> Cleanable | None:
    row, config = settled.partition(partition), topic.config(state)
    return plan_compaction(
        sealed,
        row,
        log_start=state.log_start[partition],
        config=config,
        now_ms=topic.storage.clock.now_ms(),
        oldest_ms=_oldest(topic, state.topic_id, partition, row, sealed, config),
    )


def _run_job(job: CompactionJob, worker: Worker) -> tuple[list[Replacement], int]:
    done, keyless = worker(job)
    _warn_of_keyless(job, keyless)
    return list(done), keyless


def _warn_of_keyless(job: CompactionJob, keyless: int) -> None:
    if keyless:
        name, partition = job.topic.name, job.partition
        logger.warning("topic %r partition %d: compaction dropped %d records without a key", name, partition, keyless)


def _compacted(job: CompactionJob, done: Sequence[Replacement], keyless: int) -> Compacted:
    before = len(job.cleanable.segments)
    after = before + sum(len(each.new) - len(each.old) for each in done)
    size = sum(segment.length for segment in job.cleanable.segments)
    gone = sum(segment.length for each in done for segment in each.old)
    made = sum(segment.length for each in done for segment in each.new)
    return Compacted(job.partition, (before, after), (size, size - gone + made), keyless)


# --- without append ---------------------------------------------------------------------------------------


def _split_what_is_due(topic: TopicLog, topic_id: str, failures: list[Exception]) -> None:
    state = topic.newest_durable(topic_id, fresh=True)[1]

    def look(now: SettleState, partition: int) -> tuple[Sequence[Sealed], Exception | None]:
        return _due_in(topic, state, now, partition)

    settled, due, failed = look_now(topic, topic_id, range(state.partitions), look)
    failures += failed.values()
    count = max((reaches_into(settled.tail, dirty) for dirty in due.values()), default=0)
    split(topic, topic_id, settled.tail[:count])


def _due_in(
    topic: TopicLog, state: TopicState, settled: SettleState, partition: int
) -> tuple[Sequence[Sealed], Exception | None]:
    config = topic.config(state)
    sealed, failure = topic.sealed_before_gap(settled, partition, state.log_start[partition])
    oldest = _oldest(topic, state.topic_id, partition, settled.partition(partition), sealed, config)
    if not is_overdue(oldest, config, topic.storage.clock.now_ms()):
        sealed = eligible(sealed, settled.tail)
    plan = _plan(topic, state, settled, partition, sealed)
    return () if plan is None else plan.dirty, failure


def _compact_pieces(
    topic: TopicLog, topic_id: str, partition: int, worker: Worker, progress: Progress
) -> Compacted | None:
    stored, state = topic.newest_durable(topic_id, fresh=True)
    base, settled, own = _own_now(topic, topic_id, partition)
    done, known_at = list[Replacement](), stored.sequence
    try:
        job = _job(topic, state, base, settled, partition, own, progress)
        if job is None:
            return None
        own, last = job.cleanable.segments, job.cleanable.segments[-1]
        made, keyless = worker(job)
        for each in made:
            cleaned = last.end_offset if each.old[-1] == last else None
            if not publish_piece(topic, topic_id, partition, each.old, each.new, cleaned, last.end_offset, known_at):
                return None
            done.append(each)
    except FileNotFoundError as error:
        left = [segment for segment in own if not any(segment in each.old for each in done)]
        if still_own(topic, topic_id, partition, left):
            raise missing(error) from error
        return None
    _warn_of_keyless(job, keyless)
    return _compacted(job, done, keyless)


def _own_now(topic: TopicLog, topic_id: str, partition: int) -> tuple[Stored, SettleState, tuple[Sealed, ...]]:
    while True:
        base, settled = topic.settled(topic_id)
        try:
            return base, settled, tuple(topic.own_segments(settled, partition).every())
        except FileNotFoundError:
            if topic.settled(topic_id)[1].partition(partition).manifest == settled.partition(partition).manifest:
                raise


def _oldest(
    topic: TopicLog,
    topic_id: str,
    partition: int,
    row: SettledPartition,
    sealed: Sequence[Sealed],
    config: TopicConfig,
) -> int | None:
    """Oldest positive first timestamp of dirty segments (`maxCompactionDelay`)."""
    if config.number("max.compaction.lag.ms") == LONG_MAX:
        return None
    first = (
        next(walk(topic.storage, segment_span(topic.paths(topic_id), partition, segment)), None)
        for segment in sealed
        if segment.end_offset > row.cleaned
    )
    times = (located.frame.max_timestamp for located in first if located is not None)
    return min((time for time in times if time > 0), default=None)


# --- the work, in this process ----------------------------------------------------------------------------


def work_here(job: CompactionJob) -> tuple[Iterator[Replacement], int]:
    """Run a job in this process: find superseded records, then rewrite lazily."""
    plan = job.cleanable
    clean, total = len(plan.clean), len(plan.segments)
    sources = [
        key_source(job.directory, segment, partial(job.progress, "compact: read keys", at, total))
        for at, segment in enumerate(plan.segments)
    ]
    gone, keyless = find_superseded(sources[:clean], sources[clean:], job.buffer_bytes)
    return _rewritten(job, gone), keyless


def _rewritten(job: CompactionJob, gone: Sequence[Ints]) -> Iterator[Replacement]:
    segments = job.cleanable.segments
    for group in groups_of(job, [len(offsets) for offsets in gone], job.split_bytes):
        job.progress("compact: write", group.start, len(segments))
        old, superseded = segments[group.start : group.stop], [gone[i] for i in group]
        latest_ms = latest_before(segments, group)
        new = rewrite(job.directory, old, superseded, job.rules, number=job.number_now(), latest_ms=latest_ms)
        yield Replacement(old, tuple(new))


def groups_of(job: CompactionJob, gone: Sequence[int], split_bytes: int = LONG_MAX) -> list[range]:
    """Return the runs of segments to rewrite."""
    plan = job.cleanable
    touched = [
        bool(gone[i]) or i >= len(plan.clean) or _outdated(job, segment) for i, segment in enumerate(plan.segments)
    ]
    return plan_groups(plan.segments, touched, job.rules.segment_bytes, split_bytes)


def latest_before(segments: Sequence[Sealed], group: range) -> int:
    """Largest timestamp before a group; -1 if none (pure)."""
    return segments[group.start - 1].max_timestamp if group.start else NO_TIMESTAMP


def _outdated(job: CompactionJob, segment: Sealed) -> bool:
    if segment.base_offset < job.rules.log_start:
        return True
    horizons = (located.frame.delete_horizon_ms for located in walk(job.directory.storage, job.directory.span(segment)))
    return any(horizon is not None and job.rules.now_ms >= horizon for horizon in horizons)


def key_source(directory: SegmentDir, segment: Sealed, begun: Callable[[], None] = lambda: None) -> KeySource:
    """Return a segment's keys, read by checked frames (rule R11)."""

    def read() -> Iterator[Keys]:
        begun()
        span = directory.span(segment)
        for located in walk(directory.storage, span):
            batch, offsets = rows_of(located.frame, check(located, span), ("key",))
            yield Keys(offsets, batch.column("key"))

    return KeySource(segment.base_offset, segment.end_offset, read)

"""Compaction: of every key the last record stays, with its offset (Kafka: ``LogCleanerManager``, ``Cleaner``).

Under the settlers' lock (rule R3). Segments are rewritten under new names and swapped by one settle entry (rule R4),
which takes the place of Kafka's ``.cleaned`` and ``.swap`` renames: a reader sees either all old or all new ones,
and the old ones stay until no retained settle entry names them (rule R13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.errors import TopicChangedError, as_reported, together
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.log.frames import check, segment_span, walk
from pyspark_commitlog.log.maintain.keymap import Keys, KeySource, find_superseded
from pyspark_commitlog.log.segments.directory import SegmentDir
from pyspark_commitlog.log.segments.rewrite import Rules, rewrite, rows_of
from pyspark_commitlog.log.segments.writer import write_manifest
from pyspark_commitlog.log.settle_state import Sealed, SettledPartition
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.model import Progress, silent, watched

logger = logging.getLogger("pyspark_commitlog.log")

# What a round holds for an offset that turns out superseded.
_BYTES_AN_OFFSET = 8


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a round takes: segments compacted before, and those after them that were not. Neighbours, ascending."""

    clean: tuple[Sealed, ...]
    dirty: tuple[Sealed, ...]

    @property
    def segments(self) -> tuple[Sealed, ...]:
        """Return all of them."""
        return (*self.clean, *self.dirty)


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One round of one partition, for the worker that does it; what it makes is named for settle entry ``number``."""

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
        """Return where to read and write."""
        return SegmentDir(self.topic.storage, self.topic.paths(self.topic_id), self.partition)


#: Does a job: returns the segments that take the place of the job's, and how many records had no key.
Worker = Callable[[CompactionJob], tuple[list[Sealed], int]]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a round did: the partition, segments and their bytes before and after, records dropped for want of a key."""

    partition: int
    segments: tuple[int, int]
    size_bytes: tuple[int, int]
    keyless: int


def plan_compaction(
    sealed: Sequence[Sealed],
    row: SettledPartition,
    *,
    log_start: int,
    config: TopicConfig,
    now_ms: int,
    oldest_ms: int | None,
) -> Cleanable | None:
    """Return what to compact now; None when it is not due (pure; ``LogCleanerManager.grabFilthiestCompactedLog``).

    Args:
        sealed: the partition's sealed segments; the active one is never compacted.
        row: the partition as published.
        log_start: its log start offset.
        config: of the topic; ``cleaner.dedupe.buffer.size`` also bounds the offsets of the dirty segments in a round.
        now_ms: the storage's time.
        oldest_ms: the oldest timestamp that is not compacted, if ``max.compaction.lag.ms`` asks for it.
    """
    if not config.has_policy("compact"):
        return None
    first_dirty = max(log_start, row.cleaned)
    clean = tuple(s for s in sealed if log_start < s.end_offset <= first_dirty)
    dirty = _old_enough([s for s in sealed if s.end_offset > first_dirty], config, now_ms)
    dirty_bytes = sum(s.length for s in dirty)
    if not dirty_bytes:
        return None
    due = oldest_ms is not None and now_ms - oldest_ms > config.number("max.compaction.lag.ms")
    share = dirty_bytes / (dirty_bytes + sum(s.length for s in clean))
    if not due and share <= config.ratio("min.cleanable.dirty.ratio"):
        return None
    offsets = config.number("cleaner.dedupe.buffer.size") // _BYTES_AN_OFFSET
    return Cleanable(clean, tuple(_bounded(dirty, offsets)))


def _old_enough(dirty: Sequence[Sealed], config: TopicConfig, now_ms: int) -> list[Sealed]:
    """Return the segments before the first that is younger than ``min.compaction.lag.ms``."""
    lag = config.number("min.compaction.lag.ms")
    young = (i for i, s in enumerate(dirty) if lag and s.max_timestamp > now_ms - lag)
    return list(dirty[: next(young, len(dirty))])


def _bounded(dirty: Sequence[Sealed], offsets: int) -> Iterator[Sealed]:
    """Yield the first segments, with so many offsets at most: at least one."""
    taken = 0
    for segment in dirty:
        taken += segment.end_offset - segment.base_offset
        if taken > offsets and segment is not dirty[0]:
            return
        yield segment


def plan_groups(
    segments: Sequence[Sealed], touched: Sequence[bool], segment_bytes: int, split_bytes: int = LONG_MAX
) -> list[range]:
    """Return the runs of neighbours to rewrite; all others stay as they are (pure).

    Those are the touched ones, together with small neighbours, which this is the occasion to join
    (``Cleaner.groupSegmentsBySize``). A run ends before ``split_bytes``, if that leaves one segment at least.
    """
    groups: list[range] = []
    start, size = 0, 0
    for at, segment in enumerate(segments):
        joins = touched[at] or segment.length * 2 < segment_bytes
        if not joins or size + segment.length > split_bytes:
            groups.append(range(start, at))
            start, size = at if joins else at + 1, 0
        size += segment.length if joins else 0
    groups.append(range(start, len(segments)))
    return [run for run in groups if len(run) > 1 or any(touched[i] for i in run)]


def compact(
    topic: TopicLog, topic_id: str, worker: Worker | None = None, progress: Progress = silent
) -> list[Compacted]:
    """Compact what is due, partition by partition; stops where another settler is at work (rule R3).

    Args:
        topic: the topic.
        topic_id: its current incarnation.
        worker: does the rounds; None: this process.
        progress: is called with the segments that are read and written.

    Raises:
        CorruptionError: a frame is damaged; nothing of that partition was swapped, the others were compacted. So it is
            with any other error, of a worker's too.
        TopicChangedError: the topic was deleted or made again.
    """
    done: list[Compacted] = []
    topic.forget_defaults()
    _, state = topic.newest(topic_id)
    if not topic.storage.can_append or not topic.config(state).has_policy("compact"):
        return done
    failures, watched_progress = list[Exception](), watched(progress)
    for partition in range(state.partitions):
        try:
            done += _rounds(topic, topic_id, partition, worker or work_here, watched_progress)
        except TopicChangedError:
            raise
        except Exception as error:
            if watched_progress.ended_by(error):
                raise
            failures.append(as_reported(error))
    if failures:
        raise together(failures, f"topic {topic.name!r}: {len(failures)} partitions could not be compacted")
    return done


def _rounds(topic: TopicLog, topic_id: str, partition: int, worker: Worker, progress: Progress) -> Iterator[Compacted]:
    """Compact a partition until nothing is due; the lock is free between two rounds."""
    while True:
        with topic.settling(topic_id) as held:
            one = _compact_locked(topic, topic_id, partition, worker, progress) if held else None
        if one is None:
            return
        yield one


def _compact_locked(
    topic: TopicLog, topic_id: str, partition: int, worker: Worker, progress: Progress
) -> Compacted | None:
    _, state = topic.newest_durable(topic_id, fresh=True)
    base, settled = topic.settled(topic_id)
    row, config, now = settled.partition(partition), topic.config(state), topic.storage.clock.now_ms()
    log_start, sealed = state.log_start[partition], topic.sealed(settled, partition)
    oldest = _oldest(topic, topic_id, partition, row, sealed, config)
    plan = plan_compaction(sealed, row, log_start=log_start, config=config, now_ms=now, oldest_ms=oldest)
    if plan is None:
        return None
    reserved = topic.reserve(base, settled)
    if reserved is None:
        return None
    base = reserved
    rules = Rules.of(config, log_start=log_start, cleaned=row.cleaned, now_ms=now)
    buffer_bytes = config.number("cleaner.dedupe.buffer.size")
    job = CompactionJob(topic, topic_id, partition, base.sequence + 1, plan, rules, buffer_bytes, progress)
    fresh, keyless = worker(job)
    if keyless:
        logger.warning(
            "topic %r partition %d: compaction dropped %d records without a key", topic.name, partition, keyless
        )
    at = sealed.index(plan.segments[0])
    every = [*sealed[:at], *fresh, *sealed[at + len(plan.segments) :]]
    leaves = topic.leaves(topic_id, row.manifest)
    manifest = write_manifest(topic.storage, job.directory.paths, partition, job.number, every, leaves)
    partitions = list(settled.partitions)
    partitions[partition] = replace(row, manifest=manifest, cleaned=plan.dirty[-1].end_offset)
    if topic.publish(base, replace(settled, partitions=tuple(partitions))) is None:
        return None
    sizes = (sum(s.length for s in plan.segments), sum(s.length for s in fresh))
    return Compacted(partition, (len(plan.segments), len(fresh)), sizes, keyless)


def _oldest(
    topic: TopicLog,
    topic_id: str,
    partition: int,
    row: SettledPartition,
    sealed: Sequence[Sealed],
    config: TopicConfig,
) -> int | None:
    """Return the oldest timestamp above 0 of the dirty segments' first frames (``maxCompactionDelay``)."""
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


def work_here(job: CompactionJob) -> tuple[list[Sealed], int]:
    """Do a job: find what is superseded, then rewrite the segments that hold some of it."""
    plan = job.cleanable
    clean, total = len(plan.clean), len(plan.segments)
    sources = [
        key_source(job.directory, segment, partial(job.progress, "compact: read keys", at, total))
        for at, segment in enumerate(plan.segments)
    ]
    gone, keyless = find_superseded(sources[:clean], sources[clean:], job.buffer_bytes)
    fresh: list[Sealed] = []
    at = 0  # the last group ends with the last segment: that one is dirty
    for group in groups_of(job, [len(offsets) for offsets in gone]):
        job.progress("compact: write", group.start, total)
        fresh += plan.segments[at : group.start]
        segments, superseded = [plan.segments[i] for i in group], [gone[i] for i in group]
        latest_ms = latest_before(plan.segments, group)
        fresh += rewrite(job.directory, segments, superseded, job.rules, number=job.number, latest_ms=latest_ms)
        at = group.stop
    return fresh, keyless


def groups_of(job: CompactionJob, gone: Sequence[int], split_bytes: int = LONG_MAX) -> list[range]:
    """Return the runs of the job's segments to rewrite, given how many records of each are superseded."""
    plan = job.cleanable
    touched = [
        bool(gone[i]) or i >= len(plan.clean) or _outdated(job, segment) for i, segment in enumerate(plan.segments)
    ]
    return plan_groups(plan.segments, touched, job.rules.segment_bytes, split_bytes)


def latest_before(segments: Sequence[Sealed], group: range) -> int:
    """Return the largest timestamp of the segment before a group; -1 where there is none (pure)."""
    return segments[group.start - 1].max_timestamp if group.start else NO_TIMESTAMP


def _outdated(job: CompactionJob, segment: Sealed) -> bool:
    """Return whether a clean segment holds deleted records or tombstones that may go: by headers alone."""
    if segment.base_offset < job.rules.log_start:
        return True
    horizons = (located.frame.delete_horizon_ms for located in walk(job.directory.storage, job.directory.span(segment)))
    return any(horizon is not None and job.rules.now_ms >= horizon for horizon in horizons)


def key_source(directory: SegmentDir, segment: Sealed, begun: Callable[[], None] = lambda: None) -> KeySource:
    """Return a segment's keys, frame by frame, each checked (rule R11); ``begun`` is called each time they are read."""

    def read() -> Iterator[Keys]:
        begun()
        span = directory.span(segment)
        for located in walk(directory.storage, span):
            batch, offsets = rows_of(located.frame, check(located, span), ("key",))
            yield Keys(offsets, batch.column("key"))

    return KeySource(segment.base_offset, segment.end_offset, read)

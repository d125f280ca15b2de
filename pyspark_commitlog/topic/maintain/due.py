"""Work that is due: segments of partitions, and what `maintain` would do to them now. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.topic.compaction.compaction_plan import idle_reason, plan_compaction
from pyspark_commitlog.topic.each_partition import look_now
from pyspark_commitlog.topic.maintain.retention import file_times, plan_log_start
from pyspark_commitlog.topic.read.backlog import backlog
from pyspark_commitlog.topic.state.late_voids import late_voids
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState, earliest
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Segments without a timestamp whose files are asked for their time.
_TIMES_ASKED = 100


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Offsets, bytes and latest timestamp (ms, -1 for none) of a segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class DueWork:
    """A partition's segments, and what is due.

    Attributes:
        log_start, due_log_start: now, and after retention.
        due_segments, due_bytes: those that retention deletes.
        settled_end: offset after the segments.
        unsettled, unsettled_bytes: readable records after it, and about their bytes.
        cleaned: below it every key has one record.
        compact_segments, compact_bytes: those of the next compaction.
        idle: why nothing is compacted; empty without compaction.
    """

    partition: int
    segments: tuple[SegmentRange, ...]
    log_start: int
    due_log_start: int
    due_segments: int
    due_bytes: int
    settled_end: int
    unsettled: int
    cleaned: int
    compact_segments: int = 0
    compact_bytes: int = 0
    idle: str = ""
    unsettled_bytes: int = 0


def plan_due(
    partition: int,
    sealed: Sequence[Sealed],
    row: SettledPartition,
    state: TopicState,
    config: TopicConfig,
    now_ms: int,
    file_ms: Mapping[str, int],
) -> DueWork:
    """Work that is due in a partition (pure).

    `maintain` settles before, so that it may do more. `max.compaction.lag.ms` is judged by the least timestamps that
    segments have recorded. Arguments as of `plan_log_start`.
    """
    start, high = state.log_start[partition], state.log_end[partition]
    after = start if state.is_copy else plan_log_start(sealed, row, start, config, now_ms, file_ms)
    segments = [SegmentRange(s.base_offset, s.end_offset, s.length, s.max_timestamp) for s in sealed]
    if row.active.length:
        active = row.active
        segments.append(SegmentRange(active.base_offset, row.end_offset, active.length, active.max_timestamp, True))
    gone = [segment.size_bytes for segment in segments if segment.end_offset <= after]
    compact_segments, compact_bytes, idle = _plan_compacting(sealed, row, after, config, now_ms)
    if compact_segments and late_voids(state, partition, row):
        compact_segments, compact_bytes, idle = 0, 0, "records that were made void are removed before"
    return DueWork(
        partition=partition,
        segments=tuple(segments),
        log_start=start,
        due_log_start=after,
        due_segments=len(gone),
        due_bytes=sum(gone),
        settled_end=row.end_offset,
        unsettled=max(0, high - row.end_offset),
        cleaned=row.cleaned,
        compact_segments=compact_segments,
        compact_bytes=compact_bytes,
        idle=idle,
    )


def _plan_compacting(
    sealed: Sequence[Sealed], row: SettledPartition, log_start: int, config: TopicConfig, now_ms: int
) -> tuple[int, int, str]:
    """Segments and bytes of the next compaction, or why there is none (pure)."""
    if not config.has_policy("compact"):
        return 0, 0, ""
    oldest = None
    if config.number("max.compaction.lag.ms") < LONG_MAX:
        oldest = earliest([s.min_timestamp for s in sealed if s.end_offset > row.cleaned] or [None])
    plan = plan_compaction(sealed, row, log_start=log_start, config=config, now_ms=now_ms, oldest_ms=oldest)
    if plan is None:
        return 0, 0, idle_reason(sealed, row, log_start=log_start, config=config, now_ms=now_ms)
    return len(plan.segments), sum(segment.length for segment in plan.segments), ""


def due_work(topic: TopicLog, first: int, most: int) -> tuple[list[DueWork], dict[int, Exception]]:
    """Return the work that is due in up to `most` partitions from `first` on, and errors by partition.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    topic.forget_defaults()
    newest, state = topic.newest_durable()
    config, now_ms = topic.config(state), topic.storage.clock.now_ms()

    def look(now: SettleState, partition: int) -> tuple[DueWork, Exception | None]:
        sealed, failure = topic.sealed_before_gap(now, partition, state.log_start[partition])
        row = now.partition(partition)
        times = file_times(topic, state.topic_id, partition, sealed[:_TIMES_ASKED], row)
        return plan_due(partition, sealed, row, state, config, now_ms, times), failure

    chosen = range(min(first, state.partitions), min(first + most, state.partitions))
    settled, found, failures = look_now(topic, state.topic_id, chosen, look)
    waiting = backlog(topic, newest, state, settled).size_bytes
    left = sum(max(0, end - settled.partition(number).end_offset) for number, end in enumerate(state.log_end))
    share = {partition: work.unsettled * waiting // max(1, left) for partition, work in found.items()}
    return [replace(work, unsettled_bytes=share[partition]) for partition, work in sorted(found.items())], failures

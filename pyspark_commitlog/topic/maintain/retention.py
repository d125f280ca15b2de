"""Retention: raise log start offsets, then release the segments below.

First the topic's entry, then the settle entry. Files go once no retained settle entry names them (rule R13), so a
running read can finish.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError, combine_errors
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import parse_segment
from pyspark_commitlog.format.segment_object import LOG
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.collect.collect import read_retained, settle_state
from pyspark_commitlog.topic.each_partition import look_now, look_once
from pyspark_commitlog.topic.maintain.release_objects import let_go
from pyspark_commitlog.topic.segments.frames import segment_part
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.state.settle_state import Active, Manifest, Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

#: Offset that stands for the high watermark (Kafka: `DeleteRecordsRequest.HIGH_WATERMARK`).
HIGH_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class Retained:
    """Result: partition -> (log start before, after), and released segments."""

    log_start: Mapping[int, tuple[int, int]]
    segments: int = 0


def plan_log_start(
    sealed: Sequence[Sealed],
    row: SettledPartition,
    log_start: int,
    config: TopicConfig,
    now_ms: int,
    file_ms: Mapping[str, int],
) -> int:
    """Log start under `retention.bytes`, then `retention.ms` (pure).

    Unchanged with `cleanup.policy=compact` alone. Oldest segment first, up to the first that stays, the active one
    included (Kafka rolls first: `UnifiedLog.deleteOldSegments`). A segment without a positive timestamp is as old as
    its file (`LogSegment.largestTimestamp`): `file_ms` by stem; a missing one stays.
    """
    if not config.has_policy("delete"):
        return log_start
    left = _segments_above(log_start, sealed, row, now_ms, file_ms)
    limit, age = config.number("retention.bytes"), config.number("retention.ms")
    excess = sum(length for _, length, _ in left) - limit
    while limit >= 0 and left and excess >= left[0][1]:
        log_start, length, _ = left.pop(0)
        excess -= length
    while age >= 0 and left and now_ms - left[0][2] > age:
        log_start, _, _ = left.pop(0)
    return log_start


def _segments_above(
    log_start: int, sealed: Sequence[Sealed], row: SettledPartition, now_ms: int, file_ms: Mapping[str, int]
) -> list[tuple[int, int, int]]:
    """End offset, length and latest time of each segment with records from `log_start` on (pure)."""
    above = [(s.end_offset, s.length, _latest(s, file_ms, now_ms)) for s in sealed if s.end_offset > log_start]
    if row.active.length and row.end_offset > log_start:
        above.append((row.end_offset, row.active.length, _latest(row.active, file_ms, now_ms)))
    return above


def _latest(segment: Sealed | Active, file_ms: Mapping[str, int], otherwise_ms: int) -> int:
    return segment.max_timestamp if segment.max_timestamp > 0 else file_ms.get(segment.stem, otherwise_ms)


def file_times(
    topic: TopicLog, topic_id: str, partition: int, segments: Sequence[Sealed], row: SettledPartition
) -> dict[str, int]:
    """File times (ms) by stem, of segments without a positive timestamp."""
    times = {}
    named: list[Sealed | Active] = [*segments, row.active]
    for segment in named:
        if segment.max_timestamp <= 0 and segment.length:
            with suppress(FileNotFoundError):
                path = segment_part(topic.paths(topic_id), partition, segment, LOG).path
                times[segment.stem] = topic.storage.info(path).modified_ms
    return times


def plan_deletion(offsets: Mapping[int, int], state: TopicState, topic: str, config: TopicConfig) -> tuple[int, ...]:
    """Log starts after `delete_records`; never lower (rule R9; pure).

    Raises:
        UsageError: unknown partition, negative offset, or compacted-only topic.
        OffsetOutOfRangeError: an offset beyond the high watermark.
    """
    starts = list(state.log_start)
    if not config.has_policy("delete"):
        raise UsageError(
            f"topic {topic!r} has cleanup.policy=compact, which deletes by key: write records with a null value"
        )
    for partition, offset in offsets.items():
        check_partition(topic, state, partition)
        high = state.log_end[partition]
        if offset < HIGH_WATERMARK:
            raise UsageError(f"topic {topic!r} partition {partition}: {offset} is no offset; -1 is the high watermark")
        if offset > high:
            raise OffsetOutOfRangeError(
                f"topic {topic!r} partition {partition}: cannot delete records up to {offset}, the high watermark is "
                f"{high}; nothing was deleted"
            )
        starts[partition] = max(starts[partition], high if offset == HIGH_WATERMARK else offset)
    return tuple(starts)


def delete_records(topic: TopicLog, topic_id: str, offsets: Mapping[int, int]) -> tuple[int, ...]:
    """Raise log starts by one entry; return all.

    Raises:
        UsageError, OffsetOutOfRangeError: see `plan_deletion`; nothing was changed.
        TopicChangedError: the incarnation is gone.
    """

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        _, state = topic.newest_at(base, topic_id)
        return _raised(state, plan_deletion(offsets, state, topic.name, topic.config(state)))

    topic.journal.append(plan)
    return topic.newest_durable(topic_id)[1].log_start


def _raised(state: TopicState, starts: tuple[int, ...]) -> Draft[None] | Unchanged[None]:
    if starts == state.log_start:
        return Unchanged(None)
    return Draft("delete-records", state.topic_id, {"state": replace(state, log_start=starts).to_json()}, result=None)


def retain(topic: TopicLog, topic_id: str) -> Retained:
    """Apply retention to settled records, unless another settler works (R3).

    Raises:
        CorruptionError: a manifest is damaged; other partitions were retained, as after any other read error.
        TopicChangedError: the incarnation is gone.
    """
    topic.forget_defaults()
    if not topic.storage.can_append:
        return _retain_unlocked(topic, topic_id)
    with topic.settling(topic_id) as held:
        if not held:
            return Retained({})
        _, before = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        sealed, failures = look_once(
            settled, range(len(settled.partitions)), lambda now, partition: (topic.sealed(now, partition), None)
        )
        _raise_log_start(topic, topic_id, settled, sealed)
        _, state = topic.newest_durable(topic_id, fresh=True)
        segments = _let_go(topic, state, base, settled, sealed)
        if not segments and _keeps_files(topic, state, base, settled, sealed):
            topic.publish(base, settled)
    return _retained(topic, before, state, segments, list(failures.values()))


def _retain_unlocked(topic: TopicLog, topic_id: str) -> Retained:
    """Retain without a lock, planned again on every attempt.

    Nothing goes after an unreadable object of the tail.
    """
    _, before = topic.newest(topic_id)

    def look(now: SettleState, partition: int) -> tuple[Sequence[Sealed], Exception | None]:
        return topic.sealed_before_gap(now, partition, before.log_start[partition])

    settled, sealed, failures = look_now(topic, topic_id, range(before.partitions), look)
    for partition in failures:
        row = settled.partition(partition)
        settled = settled.with_row(partition, replace(row, active=Active(IndexState(row.end_offset))))
    _raise_log_start(topic, topic_id, settled, sealed)
    segments = let_go(topic, topic_id)
    return _retained(topic, before, topic.newest_durable(topic_id)[1], segments, list(failures.values()))


def _retained(
    topic: TopicLog, before: TopicState, state: TopicState, segments: int, failures: Sequence[Exception]
) -> Retained:
    if failures:
        raise combine_errors(failures, f"topic {topic.name!r}: {len(failures)} partitions could not be retained")
    pairs = enumerate(zip(before.log_start, state.log_start, strict=False))
    return Retained({p: (old, new) for p, (old, new) in pairs if old != new}, segments)


def _raise_log_start(
    topic: TopicLog, topic_id: str, settled: SettleState, sealed: Mapping[int, Sequence[Sealed]]
) -> None:
    now = topic.storage.clock.now_ms()
    files = {p: file_times(topic, topic_id, p, segments, settled.partition(p)) for p, segments in sealed.items()}

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        _, state = topic.newest_at(base, topic_id)
        if state.is_copy:
            return Unchanged(None)
        starts, config = list(state.log_start), topic.config(state)
        for partition, segments in sealed.items():
            row = settled.partition(partition)
            starts[partition] = plan_log_start(segments, row, starts[partition], config, now, files[partition])
        return _raised(state, tuple(starts))

    topic.journal.append(plan)


def _let_go(
    topic: TopicLog, state: TopicState, base: Stored, settled: SettleState, sealed: Mapping[int, Sequence[Sealed]]
) -> int:
    partitions, gone = list(settled.partitions), 0
    for partition, segments in sealed.items():
        row, start = settled.partition(partition), state.log_start[partition]
        stay = [segment for segment in segments if segment.end_offset > start]
        below = row.active.length > 0 and row.end_offset <= start
        dropped = len(segments) - len(stay)
        if not dropped and not below:
            continue
        gone += dropped + below
        manifest = row.manifest
        if dropped:
            manifest = _write_rest(topic, state.topic_id, partition, row, base.sequence + 1, stay)
        active = Active(IndexState(row.end_offset)) if below else row.active
        partitions[partition] = replace(row, active=active, manifest=manifest)
    if gone:
        topic.publish(base, replace(settled, partitions=tuple(partitions)))
    return gone


def _write_rest(
    topic: TopicLog, topic_id: str, partition: int, row: SettledPartition, number: int, stay: Sequence[Sealed]
) -> Manifest | None:
    leaves = topic.leaves(topic_id, row.manifest)
    return write_manifest(topic.storage, topic.paths(topic_id), partition, number, stay, leaves) if stay else None


def _keeps_files(
    topic: TopicLog, state: TopicState, base: Stored, settled: SettleState, sound: Collection[int]
) -> bool:
    """Whether only the second newest settle entry names released segments.

    The newest two stay (R13), so an idle topic would keep those files for ever. False before the delay; checks `sound`
    partitions only.
    """
    delay = topic.config(state).number("file.delete.delay.ms")
    if base.info.modified_ms + delay > topic.storage.now_ms():
        return False
    try:
        before = settle_state(topic, topic.settle_journal(state.topic_id).read(base.sequence - 1))
        return any(
            before and _referenced_segments(topic, p, [before]) - _referenced_segments(topic, p, [settled])
            for p in sound
        )
    except FileNotFoundError:  # collected meanwhile
        return False


def collect_segments(topic: TopicLog, topic_id: str) -> int:
    """Delete segment files that no retained settle entry names (rule R13).

    Spares those that a settler may be making: from the active segment on, or, unless the lock is free, named for later
    settle entries (R1). Returns their number.
    """
    if not topic.storage.can_append:
        return 0
    with topic.settling(topic_id) as held:
        return _collect_segments(topic, topic_id, idle=held)


def _collect_segments(topic: TopicLog, topic_id: str, *, idle: bool) -> int:
    paths, (states, newest_sequence) = topic.paths(topic_id), _retained_states(topic, topic_id)
    if not states:
        return 0
    removed, most, failures = 0, LONG_MAX if idle else newest_sequence, Failures(passing=FileNotFoundError)
    for partition, newest in enumerate(states[-1].partitions):
        settled = [state for state in states if partition < len(state.partitions)]
        named = None
        # another collector may have removed an entry and its manifest meanwhile, or it is lost
        with suppress(FileNotFoundError), failures.collected():
            named = _referenced_segments(topic, partition, settled)
        if named is not None:
            removed += _delete_unnamed(topic.storage, paths.partition(partition), named, newest, most)
    failures.raise_if_any(f"topic {topic.name!r}: the segments of {len(failures)} partitions were not collected")
    return removed


def _retained_states(topic: TopicLog, topic_id: str) -> tuple[list[SettleState], int]:
    """States of all retained settle entries, and the newest number; none if some can't be read."""
    retained = read_retained(topic.settle_journal(topic_id))
    states = [state for stored in retained if (state := settle_state(topic, stored)) is not None]
    if not states or len(states) < len(retained):  # another collector is at work
        return [], 0
    return states, retained[-1].sequence


def _delete_unnamed(
    storage: Storage, directory: str, named: Collection[tuple[int, int]], newest: SettledPartition, most: int
) -> int:
    removed = 0
    for name in storage.names(directory):
        parsed = parse_segment(name)
        if parsed and _may_go(parsed[0], parsed[1], newest, most) and parsed[:2] not in named:
            storage.delete(f"{directory}/{name}")
            removed += 1
    return removed


def _may_go(base_offset: int, rewrite: int, newest: SettledPartition, sequence: int) -> bool:
    return base_offset < newest.active.base_offset and rewrite <= sequence


def _referenced_segments(topic: TopicLog, partition: int, states: Sequence[SettleState]) -> set[tuple[int, int]]:
    rows = [(state, state.partition(partition)) for state in states]
    manifests = {row.manifest.name: state for state, row in rows if row.manifest is not None}
    named = {(row.active.base_offset, row.active.rewrite) for _, row in rows}
    for state in manifests.values():
        named |= {(segment.base_offset, segment.rewrite) for segment in topic.sealed(state, partition)}
    return named

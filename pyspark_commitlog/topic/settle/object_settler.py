"""Settling without a lock, into one new segment object per settle entry.

Of concurrent settlers the first entry wins; the others give up (rule O2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pyspark_commitlog.errors import CorruptionError, UnsupportedError, combine_errors
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.budget import Budget
from pyspark_commitlog.topic.read.unsettled import Hole, Pending, Source, unsettled_frames
from pyspark_commitlog.topic.read.whole_reads import WholeReads
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits, SliceWriter, Written
from pyspark_commitlog.topic.settle.frame_joiner import FrameJoiner, append_unsettled
from pyspark_commitlog.topic.settle.settle_run import Settled, SettleRun
from pyspark_commitlog.topic.state.settle_change import Change, Operation
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition, SettleState, latest_of
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Approximate maximum of an object; the next run continues.
OBJECT_BYTES = 256 * 2**20
#: Minimum of an object that a time budget may end: the cost is the request.
LEAST_BYTES = 2**20


def settle_to_object(topic: TopicLog, topic_id: str, budget_seconds: float | None, *, retry: bool) -> Settled:
    """Settle committed records, up to the budget and an object's size.

    `retry`: also try partitions published as damaged.

    Raises:
        StorageError: nothing was published.
        UnsupportedError: the topic was settled by append.
        OutcomeUnknownError: it may have been published; safe to repeat.
    """
    done, marked = _run(topic, topic_id, budget_seconds)
    if not retry or not marked:
        return done
    again, _ = _run(topic, topic_id, budget_seconds, retried=True)
    sequence, failures = again.sequence or done.sequence, (*done.failures, *again.failures)
    return Settled(sequence, done.records + again.records, again.complete, 0, failures)


def _run(
    topic: TopicLog, topic_id: str, budget_seconds: float | None, *, retried: bool = False
) -> tuple[Settled, frozenset[int]]:
    """Publish one object; return the result and partitions damaged before.

    `retried`: those partitions alone. They need their own object, as slices ascend by partition.
    """
    stored, state = topic.newest_durable(topic_id, fresh=True)
    base, before = topic.settled(topic_id)
    _refuse_appended(topic, before)
    limits = SliceLimits.of(topic.config(state))
    writer = ObjectWriter(topic.storage, topic.paths(topic_id), base.sequence, limits)
    run = _ObjectRun(topic, stored, state, base, before, Budget(topic.storage.clock, budget_seconds), writer)
    with call_on_error(writer.discard):
        all_pending, others = (run.retried(), []) if retried else run.pending(retry=False)
        written = _finish(topic, topic_id, run, writer)
    published = topic.change(topic_id, run.operation(written, all_pending, others))
    failures = tuple(error for _, error in run.failures)
    now = topic.settled(topic_id)[1]
    complete = now.others_from > stored.sequence
    done = Settled(published.sequence if published else None, run.moved if published else 0, complete, 0, failures)
    return done, before.marked


def _refuse_appended(topic: TopicLog, before: SettleState) -> None:
    """Refuse to settle over a growing segment, which no manifest names."""
    for partition, row in enumerate(before.partitions):
        if row.active.length:
            raise UnsupportedError(
                f"topic {topic.name!r} in {topic.storage.url}: partition {partition} was settled where this directory "
                "is a local disk; on this mount nothing can be appended, so nothing is settled, and all of it can be "
                "read. Settle it on that disk, or copy the topic to a root of its own: `commitlog copy`"
            )


def _finish(topic: TopicLog, topic_id: str, run: _ObjectRun, writer: ObjectWriter) -> Written | None:
    """Put the object, unless another settler was first (rule O13)."""
    _, now = topic.settled(topic_id)
    if not run.may_publish_on(now):
        writer.discard()
        return None
    return writer.finish(tier=0)


class _ObjectRun(SettleRun):
    """Moves partitions in order into the slices of one object."""

    def __init__(
        self,
        topic: TopicLog,
        stored: Stored,
        state: TopicState,
        base: Stored,
        before: SettleState,
        budget: Budget,
        writer: ObjectWriter,
    ) -> None:
        super().__init__(topic, stored, state, base, before, budget)
        self._writer = writer
        self._reads: WholeReads

    def _move_all(self, sources: Mapping[int, Sequence[Source | Hole]]) -> None:
        """Move every partition; a failed write breaks the shared object.

        Raises:
            StorageError, OSError: that write, grouped with earlier failures.
        """
        self._reads = WholeReads(self._topic, self._state.topic_id, sources.values())
        for partition in sorted(sources):
            self._move(partition, sources[partition])
            if self._writer.is_broken:
                *before, failed = (error for _, error in self.failures)
                raise combine_errors([failed, *before], f"topic {self._topic.name!r}: nothing could be settled")

    def _settle(self, partition: int, sources: Sequence[Source | Hole]) -> bool:
        row, topic, state = self.partitions[partition], self._topic, self._state
        config = self._config
        merger = FrameJoiner(config.number("batch.size"), config.codec(), state.topic_id, partition)
        voids = state.voids_of(partition)
        frames = unsettled_frames(topic, state.topic_id, sources, row.end_offset, voids, self._reads)
        into, log_start = self._writer.slice(partition, row.end_offset), state.log_start[partition]
        sink = _Sink(topic, self._before, partition, log_start, into)
        now_ms = topic.storage.clock.now_ms()
        try:
            append_unsettled(sink, merger, frames, now_ms=now_ms, enough=lambda: self._has_enough(sink))
        finally:
            sink.slice.finish()
            end = sink.slice.next_offset
            self.partitions[partition] = replace(row, end_offset=end, active=Active(IndexState(end)))
        return False

    def _has_enough(self, sink: _Sink) -> bool:
        return sink.is_full or self._writer.size_bytes >= OBJECT_BYTES or self._is_over()

    def _is_over(self) -> bool:
        return self._writer.size_bytes >= LEAST_BYTES and self._budget.spent()

    def _read_enough(self) -> Callable[[], bool]:
        least, read = 2 * self._config.number("settle.entries"), count(1)
        return lambda: next(read) > least and self._budget.spent()

    def may_publish_on(self, now: SettleState) -> bool:
        """Whether the moved ranges start where a state ends (rule O2)."""
        return all(
            now.partition(p).end_offset == self._start[p].end_offset
            for p, row in enumerate(self.partitions)
            if row.end_offset > self._start[p].end_offset
        )

    def operation(
        self, written: Written | None, all_pending: Sequence[Pending], others: Sequence[Pending]
    ) -> Operation:
        def settle(_: Stored, now: SettleState) -> Change | None:
            self._look_again(now)
            if not self.may_publish_on(now):
                return None
            after = self._after(now, all_pending, others)
            if written is not None:
                after = replace(after, tail=(*now.tail, written.shared))
            if after == now:
                return None
            return Change(after, made=() if written is None else (f"objects/{written.shared.name}",))

        return settle

    def _look_again(self, now: SettleState) -> None:
        """Forget damage if others settled or voided more.

        A void puts the topic's entry before its settle entry, so the topic's is read after `now`.
        """
        if not any(isinstance(error, CorruptionError) for _, error in self.failures):
            return
        _, newest = self._topic.newest(self._state.topic_id)
        self.failures = [
            (partition, error)
            for partition, error in self.failures
            if not isinstance(error, CorruptionError) or self._stands(partition, now, newest)
        ]

    def _stands(self, partition: int, now: SettleState, newest: TopicState) -> bool:
        is_past = now.partition(partition).end_offset > self.partitions[partition].end_offset
        return not is_past and newest.voids_of(partition) == self._state.voids_of(partition)

    def _after(self, now: SettleState, all_pending: Sequence[Pending], others: Sequence[Pending]) -> SettleState:
        rows = [self._row(now, partition) for partition in range(max(len(now.partitions), len(self.partitions)))]
        return self.after(now, rows, all_pending, others, publish_damage=True)

    def _row(self, now: SettleState, partition: int) -> SettledPartition:
        row = now.partition(partition)
        if partition >= len(self.partitions) or self.partitions[partition] == self._start[partition]:
            return row
        end = self.partitions[partition].end_offset
        return replace(row, end_offset=end, active=Active(IndexState(end)))


class _Sink:
    """A slice that is full once a frame did not fit."""

    def __init__(self, topic: TopicLog, before: SettleState, partition: int, log_start: int, into: SliceWriter) -> None:
        self._topic, self._before, self._partition, self._log_start = topic, before, partition, log_start
        self.slice = into
        self.is_full = False

    def append(self, frame: Stamped) -> None:
        self.is_full = self.is_full or self.slice.full(frame)
        if not self.is_full:
            self.slice.append(frame)

    def latest_timestamp(self) -> int:
        if self.slice.length:
            return self.slice.latest_timestamp
        sealed = _sealed(self._topic, self._before, self._partition, self._log_start)
        return latest_of(sealed)


def _sealed(topic: TopicLog, settled: SettleState, partition: int, low: int) -> Sequence[Sealed]:
    """Return a partition's segments, from a newer state if files were collected.

    Raises:
        FileNotFoundError: the newest settle entry's file is missing.
    """
    while True:
        try:
            return topic.sealed(settled, partition, low)
        except FileNotFoundError:
            tried, (_, settled) = settled, topic.settled(settled.topic_id)
            if settled == tried:
                raise

"""Settling: move committed frames from chunks and entries to segments. Redo-only.

One settler per topic holds an OS lock, only ever tried, from rereading the newest entries to its settle entry (R3). The
next one cuts off what an interrupted one left beyond published lengths.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from pyspark_commitlog import metrics
from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CommitLogError, CorruptionError, combine_errors
from pyspark_commitlog.failures import ErrorBoundary, Failures, call_on_error
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Holder
from pyspark_commitlog.storage.process import share_out
from pyspark_commitlog.topic.budget import Budget, SettleThrottle
from pyspark_commitlog.topic.damage.void import void_unsynced
from pyspark_commitlog.topic.maintain.last_maintained import start_note, warn_unless_maintained
from pyspark_commitlog.topic.read.unsettled import Hole, Source, unsettled_frames
from pyspark_commitlog.topic.segments.writer import SegmentWriter
from pyspark_commitlog.topic.settle.frame_joiner import FrameJoiner, append_unsettled
from pyspark_commitlog.topic.settle.merge import merge
from pyspark_commitlog.topic.settle.object_settler import settle_to_object
from pyspark_commitlog.topic.settle.settle_load import MOST_REST_SECONDS, SettleLoad, Waiting, waiting_of, weight
from pyspark_commitlog.topic.settle.settle_run import Settled, SettleRun
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")

#: Usually the first settle entry that settles something; the topic's creation puts the one before.
FIRST_SETTLED = 2
# Threads that move partitions, at most, and bytes per thread: copying, CRCs and fsync release the GIL.
_THREADS = 4
_THREAD_BYTES = 8 * 2**20
_WARN_SECONDS = 60.0
# Most multiples of `settle.bytes` that a commit merges, see `merge`.
_MERGED_AT_ONCE = 4


def settle(topic: TopicLog, topic_id: str, *, budget_seconds: float | None = None) -> Settled:
    """Settle committed records within the budget.

    The result is empty if another settler works (`TopicLog.busy`) or was first.

    Raises:
        CorruptionError: sources or active segments are damaged. Those partitions are published as damaged and refuse
            commits; all others were settled. Any other error of a partition stops only that one, unmarked.
        StorageError: no space or permission, or a failed fsync; nothing was published.
        ExceptionGroup: several partitions failed, not all by a `CommitLogError`.
    """
    done = settle_on(topic, topic_id, budget_seconds=budget_seconds)
    if done.failures:
        raise combine_errors(
            done.failures, f"topic {topic.name!r}: {len(done.failures)} partitions could not be settled"
        )
    return done


def settle_on(topic: TopicLog, topic_id: str, *, budget_seconds: float | None = None) -> Settled:
    """Like `settle`, but return per-partition errors instead of raising."""
    topic.forget_defaults()
    return _settle(topic, topic_id, budget_seconds, retry=True)


def _settle(
    topic: TopicLog, topic_id: str, budget_seconds: float | None, *, retry: bool, throttle: SettleThrottle | None = None
) -> Settled:
    if not topic.storage.can_append:
        with metrics.timed("settle", topic.storage.clock):
            done = settle_to_object(topic, topic_id, budget_seconds, retry=retry)
        if done.sequence == FIRST_SETTLED:
            start_note(topic, topic_id)
        return done
    with metrics.timed("settle", topic.storage.clock), topic.settling(topic_id) as held:
        if not held:
            return Settled(None)
        start_note(topic, topic_id)
        done, unsynced = _settle_locked(topic, topic_id, budget_seconds, retry=retry, last=False, throttle=throttle)
        if unsynced and any(isinstance(failure, CorruptionError) for failure in done.failures):
            void_unsynced(topic, topic_id)
            done, _ = _settle_locked(topic, topic_id, budget_seconds, retry=retry, last=True, throttle=throttle)
    return done


def settle_after_commit(topic: TopicLog, topic_id: str, hurries: Callable[[], bool] | None = None) -> Settled:
    """Settle and collect after a commit if due; log failures (rule R5).

    Checking the load costs requests without append: ask `is_look_due` first. `hurries`: whether a caller waits, else it
    yields to other commits; None: always.
    """
    with ErrorBoundary(partial(_warn_of, topic)):
        done = _settle_what_waits(topic, topic_id, hurries)
        for failure in done.failures:
            _warn_of(topic, failure, damage=isinstance(failure, CorruptionError))
        return done
    return Settled(None)


def _settle_what_waits(topic: TopicLog, topic_id: str, hurries: Callable[[], bool] | None) -> Settled:
    from pyspark_commitlog.topic.collect.collect import collect

    stored, state = topic.newest(topic_id)
    config = topic.config(state)
    warn_unless_maintained(topic, topic_id)
    if not topic.storage.can_append:
        return _settle_objects(topic, stored, state, config)
    waits, seconds = settle_load(topic, stored, state), config.number("settle.budget.ms") / 1000
    if not waits.reached(config):
        return Settled(None)
    topic.busy = None
    throttle = None if hurries is None else SettleThrottle(waits.rest(), MOST_REST_SECONDS, hurries)
    done = _settle(topic, topic_id, seconds, retry=False, throttle=throttle)
    if done.sequence is not None:
        collect(topic, topic_id)
    elif topic.busy is not None and waits.overdue(config):
        _warn_busy(topic, topic.busy, waits)
    return done


def _settle_objects(topic: TopicLog, stored: Stored, state: TopicState, config: TopicConfig) -> Settled:
    """Settle, merge and collect without append (rule O13).

    The process that settled last begins.
    """
    clock, seconds = topic.storage.clock, config.number("settle.budget.ms") / 1000
    topic_id, waiting = state.topic_id, waiting_of(topic.storage, state.topic_id)
    if waiting.goes_on_collecting(clock.monotonic()) and not waiting.may_be_due(clock.monotonic()):
        _collect_some(topic, topic_id, waiting, seconds, least=1)
        return Settled(None)
    newest, settled = topic.settled(topic_id)
    waits = waits_in(topic, stored, state, settled)
    times = waiting.times(newest.entry.write_id, first=not newest.entry.prev)
    waiting.looked(waits, config, clock.monotonic(), times)
    if not waits.reached(config, times):
        return Settled(None)
    least = waiting.min_entries_to_collect(waits, config)
    waiting.forget()
    done = _settle(topic, topic_id, seconds, retry=False)
    if done.sequence is None:
        return done
    most = _MERGED_AT_ONCE * config.number("settle.bytes")
    failures = Failures()
    with failures.collected():
        merge(topic, topic_id, most_bytes=most, enough=Budget(clock, seconds).spent)
    _collect_some(topic, topic_id, waiting, seconds, least)
    waiting.published = topic.published
    if done.complete:
        waiting.looked(SettleLoad(0, 0, 0), config, clock.monotonic(), 1.0)
    if failures:
        raise failures[0]
    return done


def _collect_some(topic: TopicLog, topic_id: str, waiting: Waiting, budget_seconds: float, least: int) -> None:
    """Collect within the budget, every ten minutes; at least `least` entries."""
    from pyspark_commitlog.topic.collect.collect import collect

    clock = topic.storage.clock
    began = clock.monotonic()
    if not waiting.collects(began):
        return
    if waiting.left is not None:
        topic.go_on_collecting(waiting.left)
    with call_on_error(lambda: waiting.failed(clock.monotonic())):
        done = collect(topic, topic_id, budget_seconds=waiting.budgets * budget_seconds, least=least)
    waiting.collected(began, clock.monotonic(), None if done.whole else topic.collecting(topic_id))


def _warn_of(topic: TopicLog, failure: Exception, *, damage: bool = False) -> None:
    if damage:
        logger.warning(
            "topic %r: committed, but a part of it can't be settled, and commits to it are refused from now on: %s",
            topic.name, failure,
        )  # fmt: skip
    elif isinstance(failure, CommitLogError | OSError):
        logger.warning("topic %r: committed, but settling failed and will be tried again: %s", topic.name, failure)
    else:
        logger.error("topic %r: committed, but settling failed; please report this", topic.name, exc_info=failure)


def _warn_busy(topic: TopicLog, holder: Holder, waiting: SettleLoad) -> None:
    now = topic.storage.clock.monotonic()
    if topic.warned is None or now - topic.warned >= _WARN_SECONDS:
        topic.warned = now
        logger.warning(
            "topic %r: %d entries wait to be settled, the oldest for %d s, and %s holds the lock of the settlers: look "
            "whether it is stopped or hangs; when it ends, the next commit settles",
            topic.name, waiting.entries, waiting.age_ms // 1000, holder,
        )  # fmt: skip


def settle_load(topic: TopicLog, newest: Stored, state: TopicState) -> SettleLoad:
    """Unsettled load, by one read of the oldest unsettled entry.

    Excludes entries that wait for a damaged partition, which settling can't move.
    """
    return waits_in(topic, newest, state, topic.settled(state.topic_id)[1])


def waits_in(topic: TopicLog, newest: Stored, state: TopicState, settled: SettleState) -> SettleLoad:
    """Like `settle_load`, by a settle state read after the topic's."""
    oldest = max(settled.others_from, state.created + 1)
    entries = newest.sequence - oldest + 1
    if entries <= 0:
        return SettleLoad(0, 0, 0)
    try:
        age = max(0, topic.journal.dated(newest)[1] - topic.journal.read(oldest).info.modified_ms)
    except (FileNotFoundError, CorruptionError):
        age = 0
    return SettleLoad(_unsettled_bytes(topic, newest, entries), entries, age)


def _unsettled_bytes(topic: TopicLog, newest: Stored, entries: int) -> int:
    return entries * weight(length for _, _, _, length, *_ in topic.extent_rows(newest.entry))


def _settle_locked(
    topic: TopicLog,
    topic_id: str,
    budget_seconds: float | None,
    *,
    retry: bool,
    last: bool,
    throttle: SettleThrottle | None = None,
) -> tuple[Settled, bool]:
    """Settle under the lock; return also whether acks=0 chunks may be lost.

    `retry`: also partitions published as damaged. `last`: publish damage although chunks are unsynced; losses are
    voided by now.
    """
    stored, state = topic.newest_durable(topic_id, fresh=True)
    base, before = topic.settled(topic_id)
    run = _LocalRun(topic, stored, state, base, before, Budget(topic.storage.clock, budget_seconds, throttle))
    all_pending, others = run.pending(retry=retry)
    unsynced = state.unsynced_from is not None
    after = run.after(before, run.partitions, all_pending, others, publish_damage=last or not unsynced)
    published = topic.publish(base, after) if after != before else None
    complete = after.others_from > stored.sequence
    failures = tuple(error for _, error in run.failures)
    return Settled(published.sequence if published else None, run.moved, complete, len(run.rebuilt), failures), unsynced


class _LocalRun(SettleRun):
    def _move_all(self, sources: Mapping[int, Sequence[Source | Hole]]) -> None:
        waiting = sorted(sources, key=lambda p: (_waits_since(sources[p]), p))  # the longest waiting first
        threads = _threads(chain.from_iterable(sources.values()))
        share_out(lambda p: self._move(p, sources[p]), waiting, threads)

    def _settle(self, partition: int, sources: Sequence[Source | Hole]) -> bool:
        self.partitions[partition], mended = _settle_partition(
            self._topic, self._state, self._config, partition, self.partitions[partition], sources, self._base,
            self._before, self._budget,
        )  # fmt: skip
        return mended


def _threads(sources: Iterable[Source | Hole]) -> int:
    moving = sum(source.extent.length for source in sources if isinstance(source, Source))
    return min(_THREADS, 1 + moving // _THREAD_BYTES)


def _waits_since(sources: Sequence[Source | Hole]) -> int:
    return min((source.entry.sequence for source in sources if isinstance(source, Source)), default=0)


# --- one partition ----------------------------------------------------------------------------------------


def _settle_partition(
    topic: TopicLog,
    state: TopicState,
    config: TopicConfig,
    partition: int,
    row: SettledPartition,
    sources: Sequence[Source | Hole],
    base: Stored,
    before: SettleState,
    budget: Budget,
) -> tuple[SettledPartition, bool]:
    paths = topic.paths(state.topic_id)

    def sealed() -> Sequence[Sealed]:
        return topic.sealed(before.with_row(partition, row), partition)

    leaves = partial(topic.leaves, state.topic_id, row.manifest)
    writer = SegmentWriter(topic.storage, paths, partition, row, sealed, config, leaves)
    merger = FrameJoiner(config.number("batch.size"), config.codec(), state.topic_id, partition)
    frames = unsettled_frames(topic, state.topic_id, sources, row.end_offset, state.voids_of(partition))
    try:
        now_ms = topic.storage.clock.now_ms()
        append_unsettled(writer, merger, frames, now_ms=now_ms, enough=budget.spent)
        return writer.finish(base.sequence + 1, published_ms=base.info.modified_ms), writer.rebuilt
    finally:
        writer.close()

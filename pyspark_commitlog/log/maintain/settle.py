"""Settle: move committed frames from chunks and entries into the segmented log. Redo-only: sees committed data alone.

One settler per topic, under an OS lock that it only tries (rule R3), held from re-reading the newest entries until its
settle entry is put. Interrupted anywhere, it leaves bytes beyond published lengths, which the next settler cuts off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    StorageFullError,
    StorageReadOnlyError,
    SyncFailedError,
    as_reported,
    together,
)
from pyspark_commitlog.format import columns
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.frame import DENSE, MAX_ROWS, Frame, Payload
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.encoding import empty_frame, encode_frame
from pyspark_commitlog.log.frames import earliest_ms
from pyspark_commitlog.log.last_maintained import start_note, warn_unless_maintained
from pyspark_commitlog.log.read.unsettled import (
    Hole,
    Pending,
    Source,
    Unsettled,
    read_pending,
    sources_of,
    unsettled_frames,
)
from pyspark_commitlog.log.repair.void import void_unsynced
from pyspark_commitlog.log.segments.writer import SegmentWriter, Stamped
from pyspark_commitlog.log.settle_state import Damage, Sealed, SettledPartition, SettleState, earliest
from pyspark_commitlog.log.state import TopicState, Void
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage import Clock, Holder
from pyspark_commitlog.storage.process import share_out

logger = logging.getLogger("pyspark_commitlog.log")

# Frames below this share of batch.size merge with their neighbours; merged ones reach at most half of it (both
# compared after compression, which the header knows), and decode to no more than ``most_decoded``.
_SMALL = 8
_MERGED = 2
# Partitions are moved by several threads, one for each so many bytes: copying, CRCs and fsync need no Python lock.
_THREADS = 4
_THREAD_BYTES = 8 * 2**20
# How many times what is due may wait before a commit warns of the lock's holder; small limits count as these.
_OVERDUE = 4
_OVERDUE_ENTRIES = 16
_OVERDUE_MS = 15_000
_WARN_SECONDS = 60.0
# Of what is damaged, characters that are published.
_WHY = 400


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a commit should settle: unsettled bytes, entries and age (ms) against the topic's config."""

    bytes: int
    entries: int
    age_ms: int

    def reached(self, config: TopicConfig) -> bool:
        """Return whether any limit is reached (pure)."""
        return self.entries > 0 and (
            self.bytes >= config.number("settle.bytes")
            or self.entries >= config.number("settle.entries")
            or self.age_ms >= config.number("settle.ms")
        )

    def overdue(self, config: TopicConfig) -> bool:
        """Return whether it has waited so long that the lock's holder is worth a warning (pure)."""
        return self.entries >= _OVERDUE * max(
            config.number("settle.entries"), _OVERDUE_ENTRIES
        ) or self.age_ms >= _OVERDUE * max(config.number("settle.ms"), _OVERDUE_MS)


@dataclass(frozen=True, slots=True)
class Settled:
    """What one run did: the settle entry (None: nothing was due, or another settler has the lock) and records moved.

    ``complete``: of all partitions that are not damaged everything is settled. ``rebuilt`` counts segments whose
    indexes had to be rebuilt; ``failures`` says why partitions stayed as they are: damage, most times.
    """

    sequence: int | None
    records: int = 0
    complete: bool = True
    rebuilt: int = 0
    failures: tuple[Exception, ...] = ()


class Budget:
    """Time that a run may take; None for as long as it needs."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._until = None if seconds is None else clock.monotonic() + seconds

    def spent(self) -> bool:
        """Return whether the time is over."""
        return self._until is not None and self._clock.monotonic() >= self._until


def settle(topic: TopicLog, topic_id: str, *, budget_seconds: float | None = None) -> Settled:
    """Settle what is committed, as far as the budget goes.

    Returns:
        What was moved; nothing when another settler is at work (``TopicLog.busy``) or the mount can't be appended to.

    Raises:
        CorruptionError: sources or active segments are damaged. The other partitions were settled, and those are
            published as damaged: commits to them are refused until they can be settled. Any other error that is a
            partition's own ends only that one, too, and does not mark it.
        StorageError: no space or permission, or an fsync failed; nothing was published.
        ExceptionGroup: several partitions failed, not all by a ``CommitLogError``.
    """
    done = settle_on(topic, topic_id, budget_seconds=budget_seconds)
    if done.failures:
        raise together(done.failures, f"topic {topic.name!r}: {len(done.failures)} partitions could not be settled")
    return done


def settle_on(topic: TopicLog, topic_id: str, *, budget_seconds: float | None = None) -> Settled:
    """Do as ``settle``, but hand out what ended partitions instead of raising it."""
    topic.forget_defaults()
    return _settle(topic, topic_id, budget_seconds, retry=True)


def _settle(topic: TopicLog, topic_id: str, budget_seconds: float | None, *, retry: bool) -> Settled:
    if not topic.storage.can_append:
        return Settled(None)
    with topic.settling(topic_id) as held:
        if not held:
            return Settled(None)
        start_note(topic, topic_id)
        done, unsynced = _settle_locked(topic, topic_id, budget_seconds, retry=retry, last=False)
        if unsynced and any(isinstance(failure, CorruptionError) for failure in done.failures):
            void_unsynced(topic, topic_id)
            done, _ = _settle_locked(topic, topic_id, budget_seconds, retry=retry, last=True)
    return done


def settle_after_commit(topic: TopicLog, topic_id: str) -> Settled:
    """Settle and collect inside a commit when enough is due; a failure is a warning, never the commit's (rule R5).

    With the root's defaults that the commit found.
    """
    from pyspark_commitlog.log.maintain.collect import collect

    try:
        stored, state = topic.newest(topic_id)
        config = topic.config(state)
        warn_unless_maintained(topic, topic_id)
        waiting = due(topic, stored, state)
        if not waiting.reached(config):
            return Settled(None)
        topic.busy = None
        done = _settle(topic, topic_id, config.number("settle.budget.ms") / 1000, retry=False)
        if done.sequence is not None:
            collect(topic, topic_id)
        elif topic.busy is not None and waiting.overdue(config):
            _warn_busy(topic, topic.busy, waiting)
        for failure in done.failures:
            _warn_of(topic, failure, damage=isinstance(failure, CorruptionError))
        return done
    except Exception as error:  # noqa: BLE001 logged
        _warn_of(topic, error)
    return Settled(None)


def _warn_of(topic: TopicLog, failure: Exception, *, damage: bool = False) -> None:
    """Say why a commit's settler did not get through; ``damage`` is published."""
    if damage:
        logger.warning(
            "topic %r: committed, but a part of it can't be settled, and commits to it are refused from now on: %s",
            topic.name, failure,
        )  # fmt: skip
    elif isinstance(failure, CommitLogError | OSError):
        logger.warning("topic %r: committed, but settling failed and will be tried again: %s", topic.name, failure)
    else:
        logger.error("topic %r: committed, but settling failed; please report this", topic.name, exc_info=failure)


def _warn_busy(topic: TopicLog, holder: Holder, waiting: Due) -> None:
    """Warn of the process that keeps all others from settling; once a minute for each handle."""
    now = topic.storage.clock.monotonic()
    if topic.warned is None or now - topic.warned >= _WARN_SECONDS:
        topic.warned = now
        logger.warning(
            "topic %r: %d entries wait to be settled, the oldest for %d s, and %s holds the lock of the settlers: look "
            "whether it is stopped or hangs; when it ends, the next commit settles",
            topic.name, waiting.entries, waiting.age_ms // 1000, holder,
        )  # fmt: skip


def due(topic: TopicLog, newest: Stored, state: TopicState) -> Due:
    """Return how much is unsettled: one read of the oldest unsettled entry, whatever the number.

    What waits for a damaged partition does not count: a commit's settler can't move it.
    """
    _, settled = topic.settled(state.topic_id)
    oldest = max(settled.others_from, state.created + 1)
    entries = newest.sequence - oldest + 1
    if entries <= 0:
        return Due(0, 0, 0)
    try:
        age = newest.info.modified_ms - topic.journal.read(oldest).info.modified_ms
    except (FileNotFoundError, CorruptionError):
        age = 0
    return Due(_unsettled_bytes(topic, newest, entries), entries, age)


def _unsettled_bytes(topic: TopicLog, newest: Stored, entries: int) -> int:
    """Return an estimate: the newest entry's bytes times the entries (streams write batches of like size)."""
    return entries * sum(extent.length for extent in topic.extents(newest.entry))


def _settle_locked(
    topic: TopicLog, topic_id: str, budget_seconds: float | None, *, retry: bool, last: bool
) -> tuple[Settled, bool]:
    """Settle under the lock; return what was done, and whether power loss may have taken some (acks=0).

    Args:
        topic, topic_id: whose.
        budget_seconds: see ``settle``.
        retry: whether partitions that are published as damaged are tried again.
        last: damage is published even where chunks may be unsynced: what power loss took of them is voided by now.
    """
    stored, state = topic.newest_durable(topic_id, fresh=True)
    base, before = topic.settled(topic_id)
    run = _Run(topic, state, stored, topic.config(state), base, before, Budget(topic.storage.clock, budget_seconds))
    marked = frozenset(damage.partition for damage in before.damaged)
    others = run.move(before.others_from, [p for p in range(state.partitions) if p not in marked])
    all_pending = [] if marked else others
    if marked and retry:
        all_pending = run.move(before.oldest_unsettled, sorted(marked))
    unsynced = state.unsynced_from is not None
    after = run.after(all_pending, others, publish_damage=last or not unsynced)
    ends_before = (before.partition(p).end_offset for p in range(state.partitions))
    moved = sum(partition.end_offset for partition in run.partitions) - sum(ends_before)
    published = topic.publish(base, after) if after != before else None
    complete = after.others_from > stored.sequence
    failures = tuple(error for _, error in run.failures)
    return Settled(published.sequence if published else None, moved, complete, len(run.rebuilt), failures), unsynced


class _Run:
    """One run of the settler: ``partitions`` are as they are to be published, ``failures`` why some stay."""

    def __init__(
        self,
        topic: TopicLog,
        state: TopicState,
        stored: Stored,
        config: TopicConfig,
        base: Stored,
        before: SettleState,
        budget: Budget,
    ) -> None:
        self._topic, self._state, self._stored, self._config = topic, state, stored, config
        self._base, self._before, self._budget = base, before, budget
        self._start = [before.partition(p) for p in range(state.partitions)]
        self._tried: set[int] = set()
        self.partitions = list(self._start)
        self.failures: list[tuple[int, Exception]] = []
        self.rebuilt: list[int] = []

    def move(self, first: int, partitions: Collection[int]) -> list[Pending]:
        """Settle some partitions, which need entries from ``first`` on only; return the entries that were read."""
        pending = read_pending(self._topic, self._before, self._state, self._stored, self._budget.spent, first=first)
        unsettled = sources_of(pending, self._before, self._state.partitions)
        sources = {partition: unsettled[partition] for partition in partitions if partition in unsettled}
        self._tried.update(p for p in partitions if self.partitions[p].end_offset >= self._state.log_end[p])
        waiting = sorted(sources, key=lambda p: (_waits_since(sources[p]), p))  # the longest wait first
        threads = _threads(chain.from_iterable(sources.values()))
        share_out(lambda p: self._move(p, sources[p]), waiting, threads)
        return pending

    def _move(self, partition: int, sources: Sequence[Source | Hole]) -> None:
        if self._budget.spent() and self.partitions != self._start:
            return
        try:
            self.partitions[partition], mended = _settle_partition(
                self._topic, self._state, self._config, partition, self.partitions[partition], sources, self._base,
                self._before, self._budget,
            )  # fmt: skip
        except (StorageFullError, StorageReadOnlyError, SyncFailedError):  # no partition's own
            raise
        except Exception as error:  # noqa: BLE001 handed out: no partition stops the others
            self.failures.append((partition, as_reported(error)))
        else:
            self._tried.add(partition)
            self.rebuilt.extend([partition] * mended)

    def after(self, all_pending: Sequence[Pending], others: Sequence[Pending], *, publish_damage: bool) -> SettleState:
        """Return the state to publish.

        Args:
            all_pending: entries from the oldest that is not settled on; none where those were not read.
            others: entries from the first that partitions without damage need.
            publish_damage: whether new damage is published; what was and is not mended stays.
        """
        before = self._before
        kept = {known.partition: known for known in before.damaged if known.partition not in self._tried}
        if publish_damage:
            damage = [(partition, error) for partition, error in self.failures if isinstance(error, CorruptionError)]
            for partition, error in damage:
                kept[partition] = Damage(partition, self.partitions[partition].end_offset, str(error)[:_WHY])
        oldest, through = _reached(all_pending, self.partitions, frozenset(), (before.oldest_unsettled, before.through))
        ahead = None
        if kept:
            ahead, _ = _reached(all_pending, self.partitions, kept.keys(), (before.oldest_unsettled, before.through))
            if not all_pending or ahead >= before.others_from:
                ahead, _ = _reached(others, self.partitions, kept.keys(), (before.others_from, before.through))
        damaged = tuple(kept[partition] for partition in sorted(kept))
        return SettleState(before.topic_id, through, oldest, tuple(self.partitions), damaged, ahead)


def _threads(sources: Iterable[Source | Hole]) -> int:
    """Return how many threads move so much: a thread has a cost, and small runs are over before it starts (pure)."""
    moving = sum(source.extent.length for source in sources if isinstance(source, Source))
    return min(_THREADS, 1 + moving // _THREAD_BYTES)


def _waits_since(sources: Sequence[Source | Hole]) -> int:
    return min((source.entry.sequence for source in sources if isinstance(source, Source)), default=0)


def _reached(
    pending: Sequence[Pending],
    partitions: Sequence[SettledPartition],
    damaged: Collection[int],
    start: tuple[int, tuple[int, str]],
) -> tuple[int, tuple[int, str]]:
    """Return how far all but the ``damaged`` partitions are settled, by the entries' own log ends (pure).

    Returns:
        The first entry that is needed, and the last below it with its write id; ``start`` where there is none.
    """
    oldest, through = start
    for entry in pending:
        if any(end > partitions[p].end_offset for p, end in enumerate(entry.log_end) if p not in damaged):
            break
        oldest, through = entry.sequence + 1, (entry.sequence, entry.write_id)
    return oldest, through


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
    """Return the partition's row to publish, and whether its indexes were rebuilt."""
    paths = topic.paths(state.topic_id)

    def sealed() -> Sequence[Sealed]:
        return topic.sealed(before.with_row(partition, row), partition)

    writer = SegmentWriter(topic.storage, paths, partition, row, sealed, config)
    merger = Merger(config.number("batch.size"), config.codec(), state.topic_id, partition)
    voids, epoch = state.voids_of(partition), state.leader_epoch
    lost: list[Void] = []
    try:
        for unsettled in unsettled_frames(topic, state.topic_id, sources, row.end_offset, voids):
            if isinstance(unsettled, Void):
                _append(writer, merger.drain(epoch))
                lost.append(unsettled)
            else:
                _fill(writer, merger, lost, unsettled.frame.max_timestamp, epoch)
                _append(writer, merger.offer(unsettled, epoch))
            if budget.spent():
                break
        _append(writer, merger.drain(epoch))
        _fill(writer, merger, lost, topic.storage.clock.now_ms(), epoch)
        return writer.finish(base.sequence + 1, published_ms=base.info.modified_ms), writer.rebuilt
    finally:
        writer.close()


def _append(writer: SegmentWriter, ready: Iterable[Stamped]) -> None:
    for stamped in ready:
        writer.append(stamped)


def _fill(writer: SegmentWriter, merger: Merger, lost: list[Void], otherwise_ms: int, leader_epoch: int) -> None:
    """Append frames without rows in the place of what was voided, so that offsets go on for every reader.

    Their timestamp is the partition's largest so far: the time index and retention stay as they are. Where there is
    none it is ``otherwise_ms``.
    """
    for void in lost:
        latest = writer.latest_timestamp()
        at_ms = latest if latest >= 0 else otherwise_ms
        for start in range(void.start, void.end, MAX_ROWS):
            rows = min(MAX_ROWS, void.end - start)
            data = empty_frame(merger.topic_id, void.partition, merger.codec, start, rows, at_ms)
            writer.append(_stamped(_parsed(data), start, leader_epoch, at_ms))
    lost.clear()


@dataclass
class Merger:
    """Joins small neighbouring frames of one partition into one, so that many tiny commits read as fast as one.

    Only dense frames of one codec and one timestamp type join; anything else passes as it is, stamped.
    """

    frame_bytes: int
    codec: str
    topic_id: str
    partition: int
    _held: list[Unsettled] = field(default_factory=list)
    _held_bytes: int = 0
    _held_rows: int = 0
    _held_decoded: int = 0

    def offer(self, unsettled: Unsettled, leader_epoch: int) -> Iterator[Stamped]:
        """Take the next frame; yield what is ready to be appended, in order."""
        small = self._small(unsettled.frame, unsettled.payload)
        if self._held and not (small and self._joins(unsettled)):
            yield from self.drain(leader_epoch)
        if small:
            self._held.append(unsettled)
            self._held_bytes += unsettled.frame.length
            self._held_rows += unsettled.frame.last_offset_delta + 1
            self._held_decoded += unsettled.decoded
        else:
            yield _stamped(
                unsettled.frame, unsettled.base_offset, leader_epoch, earliest_ms(unsettled.frame, unsettled.payload)
            )

    def _small(self, frame: Frame, payload: Payload) -> bool:
        return payload.identity.kind == DENSE and frame.length * _SMALL < self.frame_bytes

    def _joins(self, unsettled: Unsettled) -> bool:
        """Return whether a small frame can be one with those held."""
        frame, payload, first = unsettled.frame, unsettled.payload, self._held[0]
        return (
            payload.identity.codec == first.payload.identity.codec
            and frame.log_append_time == first.frame.log_append_time
            and self._held_decoded + unsettled.decoded <= columns.most_decoded(self.frame_bytes)
            and self._held_bytes + frame.length <= self.frame_bytes // _MERGED
            and self._held_rows + frame.last_offset_delta + 1 <= MAX_ROWS
        )

    def drain(self, leader_epoch: int) -> Iterator[Stamped]:
        """Yield what is held: joined when there are several."""
        held, self._held = self._held, []
        self._held_bytes = self._held_rows = self._held_decoded = 0
        if held:
            frame = held[0].frame if len(held) == 1 else self._join(held)
            least = earliest(earliest_ms(unsettled.frame, unsettled.payload) for unsettled in held)
            yield _stamped(frame, held[0].base_offset, leader_epoch, least)

    def _join(self, held: Sequence[Unsettled]) -> Frame:
        batches = [columns.decode(unsettled.payload.message, sparse=False) for unsettled in held]
        for unsettled, batch in zip(held, batches, strict=True):
            if batch.num_rows != unsettled.frame.last_offset_delta + 1:
                raise CorruptionError(
                    f"frame at offset {unsettled.base_offset} holds {batch.num_rows} rows, header says otherwise"
                )
        data = encode_frame(
            pa.concat_batches(batches),
            codec=held[0].payload.identity.codec,
            topic_id=self.topic_id,
            partition=self.partition,
            log_append_time=held[0].frame.log_append_time,
            base_offset=held[0].base_offset,
        )
        return _parsed(data)


def _parsed(data: bytes) -> Frame:
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    return frame


def _stamped(frame: Frame, base_offset: int, leader_epoch: int, min_timestamp: int | None) -> Stamped:
    last = base_offset + frame.last_offset_delta
    pieces = codec.stamp(frame, base_offset, leader_epoch)
    return Stamped(pieces, frame.length, base_offset, last, frame.max_timestamp, min_timestamp)

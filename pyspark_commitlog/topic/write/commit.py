"""Commit: one entry makes staged records visible in all partitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_commitlog.errors import (
    CorruptionError,
    InvalidRecordError,
    KafkaStorageError,
    StagedExpiredError,
    UsageError,
)
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.entry import MAX_INLINE_BYTES, Json
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.format.paths import chunk_name, parse_chunk
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic.read.unsettled import is_whole, needed_chunks, read_pending
from pyspark_commitlog.topic.segments.encoding import restaged
from pyspark_commitlog.topic.state.settle_state import Damage
from pyspark_commitlog.topic.state.side_files import place_tables
from pyspark_commitlog.topic.state.topic_state import (
    INLINE,
    ChunkRef,
    Extent,
    TopicState,
    WriterRow,
    chunks_to_json,
    with_mark,
)
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.checksum import added
from pyspark_commitlog.topic.write.staging import Staged, StagedExtent
from pyspark_commitlog.topic.write.writers import (
    Decision,
    ProducerBatch,
    Transaction,
    check_incarnation,
    check_remembered,
    check_writer,
    judge,
    remember,
    row_of,
)

logger = logging.getLogger("pyspark_commitlog.topic")

_MARKS_PER_RETENTION = 24
#: Warned incarnations, and their maximum.
_warned_of_old: dict[str, None] = {}
_MOST_WARNED = 1000


@dataclass(frozen=True, slots=True)
class Committed:
    """Result of a commit.

    `sequence` is None if it had landed before, or was empty. `ranges` maps partitions to (first offset, end).
    """

    sequence: int | None
    rows: int
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def skipped(self) -> bool:
        """Whether no entry was put."""
        return self.sequence is None


def place_extents(staged: Sequence[Staged], log_end: Sequence[int]) -> tuple[list[ChunkRef], list[Extent], list[int]]:
    """Return chunks, extents with real offsets, and log ends, by task (invariant I7; pure)."""
    numbers: dict[ChunkRef, int] = {}
    extents: list[Extent] = []
    ends = list(log_end)
    inline_position = 0
    for task in staged:
        number = INLINE if task.chunk is None else numbers.setdefault(task.chunk, len(numbers))
        shift = inline_position if task.chunk is None else 0
        for extent in task.extents:
            base = ends[extent.partition]
            extents.append(Extent(number, extent.partition, extent.position + shift, extent.length, extent.rows, base))
            ends[extent.partition] = base + extent.rows
        inline_position += len(task.inline)
    return list(numbers), extents, ends


def check_floor(chunks: Sequence[ChunkRef], state: TopicState, topic: str) -> None:
    """Refuse chunks that the sweep may have deleted (rule R1; pure)."""
    for chunk in chunks:
        opened_at = parse_chunk(chunk.name)
        if opened_at is None or opened_at < state.staged_floor:
            raise StagedExpiredError(
                f"topic {topic!r}: chunk {chunk.name} was staged before entry {state.staged_floor}, longer than "
                "staged.retention.ms ago; nothing was committed: run the write again"
            )


def check_columns_known(staged: Sequence[Staged], state: TopicState, topic: str) -> None:
    """Refuse records whose column ids are of another history: their values would have no column (pure)."""
    for at in {task.schema_at for task in staged if task.schema_at is not None}:
        seen = Lineage.of_position(at)
        if seen is not None and compare(seen, state.lineage) is Verdict.PARTED:
            raise StagedExpiredError(
                f"topic {topic!r}: its records were staged with the columns of journal entry {seen.sequence}, and the "
                "topic was restored from an older copy since; nothing was committed: run the write again"
            )


def check_damaged(damaged: Iterable[Damage], partitions: Collection[int], topic: str) -> None:
    """Refuse records for damaged partitions (pure)."""
    reasons = {damage.partition: f"from offset {damage.offset} on: {damage.why}" for damage in damaged}
    refused = {partition: why for partition, why in sorted(reasons.items()) if partition in partitions}
    if refused:
        raise storage_error(topic, refused, "nothing was committed, to the others neither")


def storage_error(topic: str, refused: Mapping[int, str], what: str) -> KafkaStorageError:
    """Error for damaged partitions; `what` is the records' fate."""
    reasons = "; ".join(f"partition {partition} {why}" for partition, why in refused.items())
    return KafkaStorageError(
        f"topic {topic!r}: KAFKA_STORAGE_ERROR: the storage of {len(refused)} partitions is damaged; {what}. "
        f"{reasons}. When it is restored, `commitlog maintain` takes the topic further; if there is no copy, "
        "`commitlog void` gives up what is lost",
        refused,
    )


def _damaged(topic: TopicLog, topic_id: str, state: TopicState) -> Iterable[Damage]:
    try:
        return topic.damaged(topic_id)
    except CorruptionError as error:
        return [Damage(partition, state.log_start[partition], str(error)) for partition in range(state.partitions)]


@dataclass(frozen=True, slots=True)
class Batch:
    """Commit's input, the same on every attempt: staged records and writer.

    Only a `Transaction` has a `checksum`. Not `durable`: chunks staged without fsync (acks=0).
    """

    topic: str
    staged: Sequence[Staged]
    writer: Transaction | ProducerBatch | None
    durable: bool
    checksum: int | None

    @classmethod
    def of(
        cls, topic: str, staged: Sequence[Staged], writer: Transaction | ProducerBatch | None, *, durable: bool
    ) -> Batch:
        """Build a batch of staged records."""
        return cls(topic, staged, writer, durable, _checksum(staged) if isinstance(writer, Transaction) else None)

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(task.rows for task in self.staged)


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """State after a commit, and the tables of its entry."""

    state: TopicState
    chunks: tuple[ChunkRef, ...]
    extents: tuple[Extent, ...]
    committed: Committed

    @property
    def partitions(self) -> set[int]:
        """Partitions with new records."""
        return set(self.committed.ranges)


def plan_commit(state: TopicState, batch: Batch, row: WriterRow | None, slot: Slot) -> PlannedCommit | None:
    """Return the commit of a batch; None for a repetition (pure but for `judge`'s warning).

    Raises as `check_incarnation`, `check_remembered`, `judge`, `check_floor` and `check_columns_known`.
    """
    writer = batch.writer
    if writer is not None:
        check_incarnation(writer, state, batch.topic)
        if isinstance(writer, ProducerBatch):
            check_remembered(row, writer, state.writers.forgotten, batch.topic)
        if judge(row, writer, batch.rows, batch.checksum, batch.topic) is Decision.SKIP:
            return None
    chunks, extents, ends = place_extents(batch.staged, state.log_end)
    check_floor(chunks, state, batch.topic)
    check_columns_known(batch.staged, state, batch.topic)
    unsynced = state.unsynced_from
    if not batch.durable and chunks and unsynced is None:
        unsynced = slot.sequence
    after = replace(state, log_end=tuple(ends), unsynced_from=unsynced)
    committed = Committed(slot.sequence, batch.rows, _ranges(state.log_end, ends))
    return PlannedCommit(after, tuple(chunks), tuple(extents), committed)


def commit(
    topic: TopicLog,
    topic_id: str,
    staged: Sequence[Staged],
    writer: Transaction | ProducerBatch | None = None,
    *,
    durable: bool = True,
    acks_all: bool = True,
    hw_later: bool = False,
) -> Committed:
    """Commit staged records, in task order, as one entry.

    Args:
        writer: makes a repetition a no-op (I5); None for at least once.
        durable: False for acks=0. Ignored without append: unlocked settlers could void readable records.
        acks_all: wait for all in-sync replicas; False: for the leader (acks=1).
        hw_later: the caller states the high watermark (`DecidedLog.state_hw`), until which readers see nothing.

    Raises:
        StagedExpiredError, StaleBatchError, WriterFencedError, UsageError: see `check_floor`, `judge`, `check_writer`.
        InvalidRecordError: keyless records in a topic compacted by now.
        KafkaStorageError, NotEnoughReplicasError, NotLeaderError: nothing was committed.
        CorruptionError: a chunk is missing or has another length.
        OutcomeUnknownError, NotEnoughReplicasAfterAppendError: retry with the same writer.
    """
    staged = [task for task in staged if task.extents]
    if not staged:
        return Committed(None, 0)
    if writer is not None:
        check_writer(writer, topic.name)
    topic.forget_defaults(kept=True)
    durable = durable or not topic.storage.can_append
    every = Batch.of(topic.name, _bounded_inline(topic, topic_id, staged, acks_all=acks_all), writer, durable=durable)

    def plan(base: Stored | None, slot: Slot) -> Draft[Committed] | Unchanged[Committed]:
        stored, state = topic.newest_at(base, topic_id)
        # with replicas each chunk is synced at the leader before its entry is decided, whatever acks says
        batch = replace(every, durable=durable or state.is_replicated)
        row = topic.writer(state, writer.writer_id) if writer else None
        planned = plan_commit(state, batch, row, slot)
        if planned is None:
            return Unchanged(Committed(None, batch.rows), acks_all)
        check_damaged(_damaged(topic, topic_id, state), planned.partitions, topic.name)
        if not state.is_replicated:  # else each root settles by its own
            _check_journal_is_whole(topic, topic_id, stored)
        _check_keys(topic, state, batch)
        if not state.is_replicated:  # else each replica checks them
            _find_chunks(topic, topic_id, planned.chunks)
        if batch.durable:
            planned = replace(planned, state=replace(planned.state, unsynced_from=_synced_up(topic, stored, state)))
        draft = _draft(topic, stored, planned, batch, row, slot)
        return replace(draft, acks_all=acks_all and durable, hw_later=hw_later)

    stored, committed = topic.journal.append(plan)
    if stored is not None:
        _warn_of_old(topic, topic_id, sum(task.old for task in staged), every.rows)
    return committed


def _check_journal_is_whole(topic: TopicLog, topic_id: str, newest: Stored) -> None:
    """Refuse to commit at or below settled entry numbers.

    The newest entry was deleted, or the root is an inconsistent copy: readers would take settled records for the new
    ones.
    """
    state = topic.settle_journal(topic_id).reader_state()  # `damaged` has just looked
    if state is None:
        return
    through: int = state.anchor.entry.body["through"][0]
    if through <= newest.sequence:
        return
    there = topic.journal.newest()  # it may have been put, and settled, since `newest` was
    if there is not None and there.sequence <= newest.sequence:
        raise CorruptionError(
            f"topic {topic.name!r}: entries up to {through} are in its segments, and its newest entry is "
            f"{newest.sequence}: newer ones were deleted, or the root is a copy whose journal is older than its "
            "segments. Nothing was committed, as readers would not see it: restore the journal, or take what is there "
            "to another root with `commitlog copy`"
        )


def _draft(
    topic: TopicLog, stored: Stored, planned: PlannedCommit, batch: Batch, row: WriterRow | None, slot: Slot
) -> Draft[Committed]:
    after, sides = planned.state, dict[str, bytes]()
    if batch.writer:
        at_ms = max(stored.info.modified_ms, topic.storage.clock.now_ms())
        newer = row_of(batch.writer, row, batch.rows, batch.checksum, slot, at_ms)
        after, sides = remember(topic, stored, after, slot, batch.writer.writer_id, newer)
    retention = topic.config(after).number("staged.retention.ms")
    after = with_mark(after, *topic.journal.dated(stored), retention // _MARKS_PER_RETENTION)
    large = {"extents": [e.to_json() for e in planned.extents], "chunks": chunks_to_json(planned.chunks)}
    tables = place_tables(large, slot.sequence, slot.write_id)
    body: Json = {"state": after.to_json(), **tables.body}
    if planned.chunks and not batch.durable:
        body["unsynced"] = True
    inline = b"".join(task.inline for task in batch.staged)
    return Draft("append", after.topic_id, body, inline, {**sides, **tables.sides}, result=planned.committed)


def _check_keys(topic: TopicLog, state: TopicState, batch: Batch) -> None:
    if topic.config(state).has_policy("compact") and any(task.keyless for task in batch.staged):
        raise InvalidRecordError(
            f"topic {topic.name!r} has cleanup.policy=compact since these records were staged, and some have no "
            "key; nothing was committed: give every record a key"
        )


def _warn_of_old(topic: TopicLog, topic_id: str, old: int, rows: int) -> None:
    if 2 * old <= rows or topic_id in _warned_of_old:
        return
    _warned_of_old[topic_id] = None
    while len(_warned_of_old) > _MOST_WARNED:
        del _warned_of_old[next(iter(_warned_of_old))]
    logger.warning(
        "topic %r: of %s just written %s older than the topic's retention.ms: maintain will delete what is. To keep "
        "records whatever their age, set retention.ms=-1 for the topic",
        topic.name, counted(rows, "record"), "1 is" if old == 1 else f"{old:,} are",
    )  # fmt: skip


def _checksum(staged: Sequence[Staged]) -> int:
    checksums = [task.checksum for task in staged if task.checksum is not None]
    if len(checksums) < len(staged):
        raise UsageError("records that a writer id commits have to be staged with their checksum (Stager: summed)")
    return added(*checksums)


def _synced_up(topic: TopicLog, newest: Stored, state: TopicState) -> int | None:
    """Sync chunks of earlier unsynced commits, which later ones must not outlive (R5).

    Return the first entry whose chunks may be torn, if any.
    """
    if state.unsynced_from is None:
        return None
    _, settled = topic.settled(state.topic_id)
    paths = topic.paths(state.topic_id)
    first = state.unsynced_from
    while first <= newest.sequence:
        pending = read_pending(topic, settled, state, newest, lambda: False, first=first)
        for entry, chunk in ((unsettled, chunk) for unsettled in pending for chunk in unsettled.chunks):
            try:
                topic.storage.sync_file(paths.chunk(chunk.name))
                whole = is_whole(topic.storage, paths.chunk(chunk.name), chunk)
            except FileNotFoundError:  # settled and collected meanwhile
                _, now = topic.settled(state.topic_id)
                whole = not needed_chunks(entry.extents, now) & {entry.chunks.index(chunk)}
            if not whole:  # power was lost already
                return entry.sequence
        if not pending:
            break
        first = pending[-1].sequence + 1
    topic.storage.sync_directory(paths.staged, fresh=True)
    return None


def _ranges(before: Sequence[int], after: Sequence[int]) -> dict[int, tuple[int, int]]:
    pairs = enumerate(zip(before, after, strict=True))
    return {partition: (start, end) for partition, (start, end) in pairs if end > start}


def _find_chunks(topic: TopicLog, topic_id: str, chunks: Sequence[ChunkRef]) -> None:
    """Check that the driver sees the workers' new chunks.

    If a look is a request, a writer's first chunks stand for all.
    """
    if topic.storage.bills_requests and topic.chunks_found:
        return
    check_chunks(topic, topic_id, chunks)
    topic.chunks_found = bool(chunks)


def check_chunks(topic: TopicLog, topic_id: str, chunks: Sequence[ChunkRef]) -> None:
    """Refuse chunks that are missing or of another length."""
    paths = topic.paths(topic_id)
    for chunk in chunks:
        path = paths.chunk(chunk.name)
        try:
            size = topic.storage.info(path).size
        except FileNotFoundError:
            size = -1
        if size != chunk.length:
            actual = "is missing" if size < 0 else f"has {size} bytes"
            raise CorruptionError(
                f"topic {topic.name!r}: staged chunk {path} {actual}, expected {chunk.length} bytes; nothing was "
                "committed: run the write again. Do driver and workers see the same directory?"
            )


def _bounded_inline(topic: TopicLog, topic_id: str, staged: Sequence[Staged], *, acks_all: bool) -> list[Staged]:
    if sum(len(task.inline) for task in staged) <= MAX_INLINE_BYTES:
        return list(staged)
    stored, state = topic.newest(topic_id)
    unique = topic.storage.new_id()
    name = chunk_name(stored.sequence, unique)
    create, position = topic.creates_chunks(state, acks_all=acks_all), 0
    output = create(topic.paths(topic_id).chunk(name))
    moved: list[Staged] = []
    with call_on_error(output.discard):
        for task in staged:
            extents: list[StagedExtent] = []
            for extent in task.extents if task.chunk is None else ():
                data = restaged(task.inline[extent.position : extent.position + extent.length], unique)
                output.write(data)
                extents.append(StagedExtent(extent.partition, position, len(data), extent.rows))
                position += len(data)
            moved.append(replace(task, extents=tuple(extents), inline=b"") if task.chunk is None else task)
        chunk = ChunkRef(name, *output.close())
    return [replace(task, chunk=task.chunk or chunk) for task in moved]

"""Commit: one journal entry makes what the tasks staged visible, in all partitions of a topic at once.

``place_extents`` and ``judge`` decide and touch nothing; ``commit`` acts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import (
    CorruptionError,
    InvalidRecordError,
    KafkaStorageError,
    OutcomeUnknownError,
    StagedExpiredError,
    StaleBatchError,
    TopicChangedError,
    UsageError,
    WriterFencedError,
)
from pyspark_commitlog.format.entry import MAX_INLINE_BYTES, Json
from pyspark_commitlog.format.paths import chunk_name, is_text, parse_chunk
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.log.encoding import restaged
from pyspark_commitlog.log.read.unsettled import is_whole, needed_chunks, read_pending
from pyspark_commitlog.log.state import (
    INLINE,
    ChunkRef,
    Damage,
    Extent,
    TopicState,
    WriterRow,
    chunks_to_json,
    place_tables,
    with_mark,
)
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.log.write.checksum import added
from pyspark_commitlog.log.write.staging import Group, Staged
from pyspark_commitlog.log.write.writers import PRODUCER, remember
from pyspark_commitlog.text import counted

log = logging.getLogger("pyspark_commitlog.log")

_REMEMBERED_RANGES = 5
#: Characters of a writer id at most: what entries may hold (``shape.Text``).
MAX_WRITER_ID = 4096
_MARKS_PER_RETENTION = 24
#: Lives of topics that were warned of already, and how many are remembered.
_told_old: dict[str, None] = {}
_MOST_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Transaction:
    """A writer that numbers its commits upwards: a Spark query (its batch ids) or ``txnAppId``/``txnVersion``.

    ``skip_older`` turns the error about an id below the last into a skip.
    """

    writer_id: str
    version: int
    skip_older: bool = False


#: What the writer ids of streaming queries start with.
QUERY = "spark:"
#: Queries of earlier lives that are remembered: bounds an entry's size.
FORMER_QUERIES = 200


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """An idempotent producer's batch: sequence numbers ``first`` to ``last`` under ``epoch`` (KIP-98).

    ``since`` is for producers without an id of their own (``writers.TRANSIENT``), whose rows are soon forgotten: the
    newest entry before the batch was tried first. None for durable ids.
    """

    writer_id: str
    epoch: int
    first: int
    last: int
    since: int | None = None


class Verdict(Enum):
    """What rule R6 says of a commit."""

    COMMIT = "commit"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit.

    ``sequence`` is None when it was skipped (it had landed before, or there was nothing to write). ``ranges`` maps a
    partition to (first offset, offset behind the last).
    """

    sequence: int | None
    rows: int
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def skipped(self) -> bool:
        """Return whether no entry was put."""
        return self.sequence is None


def judge(
    row: WriterRow | None, writer: Transaction | ProducerBatch, rows: int, checksum: int | None, topic: str
) -> Verdict:
    """Return whether a commit is new or a repetition (rule R6; pure but for a warning).

    Args:
        row: what is remembered of the writer.
        writer: whose commit it is.
        rows: its number of records.
        checksum: of its records, see ``log.write.checksum``; None for producers, whose numbers decide alone: a retry
            brings the very same records, and others come under other numbers.
        topic: its name.

    Raises:
        StaleBatchError: an id below the last one, or a gap in a producer's sequence.
        WriterFencedError: a newer epoch of the producer has committed.
    """
    if isinstance(writer, ProducerBatch):
        return _judge_producer(row, writer, topic)
    if row is None or writer.version > row.last:
        return Verdict.COMMIT
    if writer.version == row.last:
        if (rows, checksum) != (row.rows, row.checksum):
            log.warning(
                "topic %r: %s %d was committed before with %d records (checksum %s) and now has %d (checksum %s); it "
                "is not written again. Either the query is not deterministic, or two writes share one txnVersion",
                topic, writer.writer_id, writer.version, row.rows, _hex(row.checksum), rows, _hex(checksum),
            )  # fmt: skip
        return Verdict.SKIP
    if writer.skip_older:
        log.warning("topic %r: %s %d is below %d: skipped", topic, writer.writer_id, writer.version, row.last)
        return Verdict.SKIP
    raise StaleBatchError(
        f"topic {topic!r}: {writer.writer_id} commits {writer.version}, but {row.last} is committed already. Spark "
        "replays only its last batch, so the checkpoint was restored or made anew: start with a new checkpoint (a new "
        "query id) or a new txnAppId; or set the option skipOlderBatches=true if these records are in the topic already"
    )


def _hex(checksum: int | None) -> str:
    return "none" if checksum is None else f"{checksum:016x}"


def _judge_producer(row: WriterRow | None, batch: ProducerBatch, topic: str) -> Verdict:
    if row is None and batch.since is not None:  # its earlier batches are certain, so their row may be forgotten
        return Verdict.COMMIT
    if row is None and batch.writer_id.startswith(PRODUCER):  # its row is made when it is opened
        raise StaleBatchError(
            f"topic {topic!r}: producer {batch.writer_id} is forgotten: nobody can tell "
            f"whether the records {batch.first} to {batch.last} landed. Look for them in the topic, then make a new one"
        )
    if row is None or batch.epoch > row.epoch:
        if batch.first != 0:
            raise StaleBatchError(
                f"topic {topic!r}: producer {batch.writer_id} starts epoch {batch.epoch} at sequence {batch.first}, "
                "expected 0"
            )
        return Verdict.COMMIT
    if batch.epoch < row.epoch:
        raise WriterFencedError(
            f"topic {topic!r}: producer {batch.writer_id} has epoch {batch.epoch}, epoch {row.epoch} has taken over"
        )
    if any(first <= batch.first and batch.last <= last for first, last in row.ranges):
        return Verdict.SKIP
    if batch.first != row.last + 1:
        raise StaleBatchError(
            f"topic {topic!r}: producer {batch.writer_id} sends sequence {batch.first}, expected {row.last + 1}"
        )
    return Verdict.COMMIT


def check_remembered(row: WriterRow | None, batch: ProducerBatch, forgotten: int, topic: str) -> None:
    """Refuse a batch of a producer without an id whose row may be forgotten already (R6; pure).

    If it landed, then in an entry above ``batch.since``; and no row of an entry above ``forgotten`` is gone.

    Raises:
        OutcomeUnknownError: it may have landed before.
    """
    if row is None and batch.since is not None and forgotten > batch.since:
        raise OutcomeUnknownError(
            f"topic {topic!r}: cannot tell whether the records {batch.first} to {batch.last} of {batch.writer_id} "
            f"landed: they were tried first behind entry {batch.since}, and producers without producer_id are "
            f"forgotten up to entry {forgotten} (producer.id.expiration.ms). Look for them in the topic before they "
            "are sent again"
        )


def former_queries(topic: TopicLog, state: TopicState) -> tuple[str, ...]:
    """Return the streaming queries that a topic's next life refuses: those that wrote to this one or an earlier one."""
    rows = {**topic.snapshot(state), **state.writers.rows}
    queries = sorted((name for name in rows if name.startswith(QUERY)), key=lambda name: rows[name].sequence)
    return (*state.former_queries, *queries)[-FORMER_QUERIES:]


def check_writer(writer: Transaction | ProducerBatch, topic: str) -> None:
    """Refuse a writer that the table of writers can't hold: nobody could read the topic behind its commit (pure).

    Raises:
        UsageError: its id is too long, or no text; or its number is negative, or needs more than 64 bits.
    """
    name = writer.writer_id
    if not 0 < len(name) <= MAX_WRITER_ID or not is_text(name):
        raise UsageError(
            f"topic {topic!r}: writer id {name[:80]!r} has {len(name)} characters: it takes 1 to {MAX_WRITER_ID} of "
            "Unicode; nothing was committed"
        )
    last = writer.version if isinstance(writer, Transaction) else writer.last
    if not 0 <= last <= LONG_MAX:
        raise UsageError(
            f"topic {topic!r}: {name} commits under number {last}, allowed are 0 to {LONG_MAX}; nothing was committed"
        )


def check_life(writer: Transaction | ProducerBatch, state: TopicState, topic: str) -> None:
    """Refuse a query that wrote to an earlier life of the topic: its batches would go on (R14; pure).

    Raises:
        TopicChangedError: start with a new checkpoint.
    """
    if writer.writer_id in state.former_queries:
        raise TopicChangedError(
            f"topic {topic!r} was deleted and made again since {writer.writer_id} wrote to it; nothing was committed: "
            "start the query with a new checkpoint if it shall write to the new topic"
        )


def _row(
    writer: Transaction | ProducerBatch,
    before: WriterRow | None,
    rows: int,
    checksum: int | None,
    slot: Slot,
    at_ms: int,
) -> WriterRow:
    if isinstance(writer, Transaction):
        return WriterRow(writer.version, rows, slot.sequence, at_ms, checksum=checksum)
    kept = before.ranges if before is not None and before.epoch == writer.epoch else ()
    ranges = (*kept, (writer.first, writer.last))[-_REMEMBERED_RANGES:]
    return WriterRow(writer.last, rows, slot.sequence, at_ms, writer.epoch, ranges)


def place_extents(staged: Sequence[Staged], log_end: Sequence[int]) -> tuple[list[ChunkRef], list[Extent], list[int]]:
    """Return (chunks, extents with real offsets, new log ends), tasks in the order given (invariant I7; pure)."""
    numbers: dict[ChunkRef, int] = {}
    extents: list[Extent] = []
    ends = list(log_end)
    inline_position = 0
    for task in staged:
        number = INLINE if task.chunk is None else numbers.setdefault(task.chunk, len(numbers))
        shift = inline_position if task.chunk is None else 0
        for group in task.groups:
            base = ends[group.partition]
            extents.append(Extent(number, group.partition, group.position + shift, group.length, group.rows, base))
            ends[group.partition] = base + group.rows
        inline_position += len(task.inline)
    return list(numbers), extents, ends


def check_floor(chunks: Sequence[ChunkRef], state: TopicState, topic: str) -> None:
    """Refuse chunks that the sweep may have removed (rule R1; pure).

    Raises:
        StagedExpiredError: names the chunk.
    """
    for chunk in chunks:
        opened_at = parse_chunk(chunk.name)
        if opened_at is None or opened_at < state.staged_floor:
            raise StagedExpiredError(
                f"topic {topic!r}: chunk {chunk.name} was staged before entry {state.staged_floor}, longer than "
                "staged.retention.ms ago; nothing was committed: run the write again"
            )


def check_damaged(damaged: Iterable[Damage], partitions: Collection[int], topic: str) -> None:
    """Refuse records for partitions that can't be settled: they would pile up behind the damage (pure).

    Raises:
        KafkaStorageError: an error per partition.
    """
    found = {each.partition: f"from offset {each.offset} on: {each.why}" for each in damaged}
    refused = {partition: why for partition, why in sorted(found.items()) if partition in partitions}
    if refused:
        raise storage_error(topic, refused, "nothing was committed, to the others neither")


def storage_error(topic: str, refused: Mapping[int, str], what: str) -> KafkaStorageError:
    """Return the error that names partitions with what is damaged of each, and says what became of the records."""
    told = "; ".join(f"partition {partition} {why}" for partition, why in refused.items())
    return KafkaStorageError(
        f"topic {topic!r}: KAFKA_STORAGE_ERROR: the storage of {len(refused)} partitions is damaged; {what}. {told}. "
        "When it is restored, `commitlog maintain` takes the topic further; if there is no copy, `commitlog void` "
        "gives up what is lost",
        refused,
    )


def _damaged(topic: TopicLog, topic_id: str, state: TopicState) -> Iterable[Damage]:
    """Return what settlers found damaged; without their newest entry nothing can be settled, nor read."""
    try:
        return topic.damaged(topic_id)
    except CorruptionError as error:
        return [Damage(partition, state.log_start[partition], str(error)) for partition in range(state.partitions)]


def commit(
    topic: TopicLog,
    topic_id: str,
    staged: Sequence[Staged],
    writer: Transaction | ProducerBatch | None = None,
    *,
    durable: bool = True,
) -> Committed:
    """Commit what the tasks staged, in their order, as one entry.

    Args:
        topic: the topic.
        topic_id: the life of the topic that was staged for.
        staged: one per task, in task order; tasks without records may be left out.
        writer: makes a repetition change nothing (invariant I5); None for at least once.
        durable: whether the records must survive power loss. False: the chunks were staged without fsync (acks=0); the
            entry itself is durable always.

    Raises:
        TopicChangedError: the topic was deleted or made again meanwhile.
        StagedExpiredError, StaleBatchError, WriterFencedError: see ``judge`` and ``check_floor``.
        UsageError: see ``check_writer``.
        InvalidRecordError: records without a key, in a topic that is compacted by now.
        KafkaStorageError: a partition's storage is damaged; nothing was committed.
        CorruptionError: a chunk is missing or has another length.
        OutcomeUnknownError: retry with the same writer.
    """
    staged = [task for task in staged if task.groups]
    if not staged:
        return Committed(None, 0)
    if writer is not None:
        check_writer(writer, topic.name)
    topic.forget_defaults()
    staged = _bounded_inline(topic, topic_id, staged)
    rows, checksum = sum(task.rows for task in staged), _checksum(staged) if isinstance(writer, Transaction) else None
    ranges: dict[int, tuple[int, int]] = {}

    def plan(base: Stored | None, slot: Slot) -> Draft | None:
        stored, state = topic.newest_at(base, topic_id)
        before = topic.writer(state, writer.writer_id) if writer else None
        if writer:
            check_life(writer, state, topic.name)
        if isinstance(writer, ProducerBatch):
            check_remembered(before, writer, state.writers.forgotten, topic.name)
        if writer and judge(before, writer, rows, checksum, topic.name) is Verdict.SKIP:
            return None
        chunks, extents, ends = place_extents(staged, state.log_end)
        check_floor(chunks, state, topic.name)
        check_damaged(_damaged(topic, topic_id, state), {extent.partition for extent in extents}, topic.name)
        if topic.config(state).has_policy("compact") and any(task.keyless for task in staged):
            raise InvalidRecordError(
                f"topic {topic.name!r} has cleanup.policy=compact since these records were staged, and some have no "
                "key; nothing was committed: give every record a key"
            )
        _check_chunks(topic, topic_id, chunks)
        ranges.clear()
        ranges.update(_ranges(state.log_end, ends))
        unsynced = _synced_up(topic, stored, state) if durable else state.unsynced_from
        if not durable and chunks and unsynced is None:
            unsynced = slot.sequence
        after = replace(state, log_end=tuple(ends), unsynced_from=unsynced)
        sides: dict[str, bytes] = {}
        if writer:
            row = _row(writer, before, rows, checksum, slot, max(stored.info.modified_ms, topic.storage.clock.now_ms()))
            after, sides = remember(topic, stored, after, slot, writer.writer_id, row)
        retention = topic.config(state).number("staged.retention.ms")
        after = with_mark(after, stored.sequence, stored.info.modified_ms, retention // _MARKS_PER_RETENTION)
        large = {"extents": [e.to_json() for e in extents], "chunks": chunks_to_json(chunks)}
        tables = place_tables(large, slot.sequence, slot.write_id)
        body: Json = {"state": after.to_json(), **tables.body}
        if chunks and not durable:
            body["unsynced"] = True
        inline = b"".join(task.inline for task in staged)
        return Draft("append", topic_id, body, inline, {**sides, **tables.sides})

    entry = topic.journal.append(plan)
    if entry is None:
        return Committed(None, rows)
    _tell_old(topic, topic_id, sum(task.old for task in staged), rows)
    return Committed(entry.sequence, rows, ranges)


def _tell_old(topic: TopicLog, topic_id: str, old: int, rows: int) -> None:
    """Warn, once per topic and process, where most of what was committed is older than is kept."""
    if 2 * old <= rows or topic_id in _told_old:
        return
    _told_old[topic_id] = None
    while len(_told_old) > _MOST_TOLD:
        del _told_old[next(iter(_told_old))]
    log.warning(
        "topic %r: of %s just written %s older than the topic's retention.ms: maintain will delete what is. To keep "
        "records whatever their age, set retention.ms=-1 for the topic",
        topic.name, counted(rows, "record"), "1 is" if old == 1 else f"{old:,} are",
    )  # fmt: skip


def _checksum(staged: Sequence[Staged]) -> int:
    """Return the checksum of all tasks' records."""
    found = [task.checksum for task in staged if task.checksum is not None]
    if len(found) < len(staged):
        raise UsageError("records that a writer id commits have to be staged with their checksum (Stager: summed)")
    return added(*found)


def _synced_up(topic: TopicLog, newest: Stored, state: TopicState) -> int | None:
    """Make chunks durable that earlier commits left unsynced: what comes behind them must not outlive them (rule R5).

    Returns:
        The first entry whose chunks can't be told to be what was written; None when all are durable now.
    """
    if state.unsynced_from is None:
        return None
    _, settled = topic.settled(state.topic_id)
    paths = topic.paths(state.topic_id)
    first = state.unsynced_from
    while first <= newest.sequence:
        found = read_pending(topic, settled, state, newest, lambda: False, first=first)
        for entry, chunk in ((each, chunk) for each in found for chunk in each.chunks):
            try:
                topic.storage.sync_file(paths.chunk(chunk.name))
                whole = is_whole(topic.storage, paths.chunk(chunk.name), chunk)
            except FileNotFoundError:  # settled and collected meanwhile
                _, now = topic.settled(state.topic_id)
                whole = not needed_chunks(entry.extents, now) & {entry.chunks.index(chunk)}
            if not whole:  # power was lost already: not ours to bless
                return entry.sequence
        if not found:
            break
        first = found[-1].sequence + 1
    topic.storage.sync_directory(paths.staged, fresh=True)
    return None


def _ranges(before: Sequence[int], after: Sequence[int]) -> dict[int, tuple[int, int]]:
    pairs = enumerate(zip(before, after, strict=True))
    return {partition: (start, end) for partition, (start, end) in pairs if end > start}


def _check_chunks(topic: TopicLog, topic_id: str, chunks: Sequence[ChunkRef]) -> None:
    paths = topic.paths(topic_id)
    for chunk in chunks:
        path = paths.chunk(chunk.name)
        try:
            size = topic.storage.info(path).size
        except FileNotFoundError:
            size = -1
        if size != chunk.length:
            found = "is missing" if size < 0 else f"has {size} bytes"
            raise CorruptionError(
                f"topic {topic.name!r}: staged chunk {path} {found}, expected {chunk.length} bytes; nothing was "
                "committed: run the write again. Do driver and workers see the same directory?"
            )


def _bounded_inline(topic: TopicLog, topic_id: str, staged: Sequence[Staged]) -> list[Staged]:
    """Keep inline frames within an entry's bound: beyond it the committer writes them to one chunk itself."""
    if sum(len(task.inline) for task in staged) <= MAX_INLINE_BYTES:
        return list(staged)
    stored, _ = topic.newest(topic_id)
    unique = topic.storage.new_id()
    name = chunk_name(stored.sequence, unique)
    output, position = topic.storage.create(topic.paths(topic_id).chunk(name)), 0
    moved: list[Staged] = []
    try:
        for task in staged:
            groups: list[Group] = []
            for group in task.groups if task.chunk is None else ():
                data = restaged(task.inline[group.position : group.position + group.length], unique)
                output.write(data)
                groups.append(Group(group.partition, position, len(data), group.rows))
                position += len(data)
            moved.append(replace(task, groups=tuple(groups), inline=b"") if task.chunk is None else task)
        chunk = ChunkRef(name, *output.close())
    except BaseException:
        output.discard()
        raise
    return [replace(task, chunk=task.chunk or chunk) for task in moved]

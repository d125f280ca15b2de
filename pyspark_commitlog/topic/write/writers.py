"""Writers: detection of repeated commits, and the writers' table (R6).

Durable ids never expire by a clock: one that ran ahead would turn a repetition into a new commit. Producers without an
id expire; `Writers.forgotten` is the entry up to which rows may be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import (
    OutcomeUnknownError,
    StaleBatchError,
    TopicChangedError,
    UsageError,
    WriterFencedError,
)
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.format.paths import is_text
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.topic.state.side_files import TABLE_BYTES, named_side
from pyspark_commitlog.topic.state.topic_state import TopicState, WriterRow, Writers
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")

#: Changed rows in an entry before a new snapshot.
WRITER_ROWS = 64
#: Maximum of durable ids, and of producers without an id, in a snapshot.
DURABLE_IDS = 10_000
TRANSIENT_IDS = 1_000
#: Prefix of the writer ids of producers with an id.
PRODUCER = "producer:"
#: Prefix for producers without an id, which need a row only until they know whether their last batch landed.
TRANSIENT = "transient:"
#: Prefix of streaming queries' writer ids.
QUERY = "spark:"
#: Maximum of remembered former queries; bounds an entry's size.
FORMER_QUERIES = 200
#: Maximum of characters of a writer id (`shape.Text`).
MAX_WRITER_ID = 4096
_REMEMBERED_RANGES = 5
#: Explanation for lost acknowledged records.
_LOST = (
    "are not in the log any more: an election lost what was written with acks=1, or the root was restored from a copy. "
    "Send them again"
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Writer with ascending versions: a Spark query, or `txnAppId`/`txnVersion`.

    `skip_older` skips a version below the last instead of raising.
    """

    writer_id: str
    version: int
    skip_older: bool = False


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """Idempotent producer's batch: sequences `first` to `last` under `epoch` (KIP-98).

    `since`, if transient: the newest entry before the first try.
    """

    writer_id: str
    epoch: int
    first: int
    last: int
    since: int | None = None


class Decision(Enum):
    """Outcome of rule R6 for a commit."""

    COMMIT = "commit"
    SKIP = "skip"


def check_writer(writer: Transaction | ProducerBatch, topic: str) -> None:
    """Refuse a writer that the table can't hold (pure)."""
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


def check_incarnation(writer: Transaction | ProducerBatch, state: TopicState, topic: str) -> None:
    """Refuse a query that wrote to an earlier incarnation (R14; pure)."""
    if writer.writer_id in state.former_queries:
        raise TopicChangedError(
            f"topic {topic!r} was deleted and made again since {writer.writer_id} wrote to it; nothing was committed: "
            "start the query with a new checkpoint if it shall write to the new topic"
        )


def check_remembered(row: WriterRow | None, batch: ProducerBatch, forgotten: int, topic: str) -> None:
    """Refuse a transient producer's batch if its row may be forgotten (R6; pure).

    A landed try has an entry above `since`. Rows up to `forgotten` may be gone.
    """
    if row is None and batch.since is not None and forgotten > batch.since:
        raise OutcomeUnknownError(
            f"topic {topic!r}: cannot tell whether the records {batch.first} to {batch.last} of {batch.writer_id} "
            f"landed: they were tried first after entry {batch.since}, and producers without producer_id are "
            f"forgotten up to entry {forgotten} (producer.id.expiration.ms). Look for them in the topic before they "
            "are sent again"
        )


def judge(
    row: WriterRow | None, writer: Transaction | ProducerBatch, rows: int, checksum: int | None, topic: str
) -> Decision:
    """Whether a commit is new or repeated (rule R6; pure but for a warning).

    Producers have no `checksum`: their sequence numbers decide.

    Raises:
        StaleBatchError: a version below the last, or a gap in a producer's sequence.
        WriterFencedError: a newer epoch of the producer has committed.
    """
    if isinstance(writer, ProducerBatch):
        return _judge_producer(row, writer, topic)
    if row is None or writer.version > row.last:
        return Decision.COMMIT
    if writer.version == row.last:
        if (rows, checksum) != (row.rows, row.checksum):
            logger.warning(
                "topic %r: %s %d was committed before with %d records (checksum %s) and now has %d (checksum %s); it "
                "is not written again. Either the query is not deterministic, or two writes share one txnVersion, or "
                "the checkpoint was set back to before that batch, by a restore or a power loss: then the topic lacks "
                "what the batch has now and had not before. Stop the query, look which of its records are there, and "
                "write the others under another txnAppId, or have the query go on at them (commitlog checkpoint set)",
                topic, writer.writer_id, writer.version, row.rows, _hex(row.checksum), rows, _hex(checksum),
            )  # fmt: skip
        return Decision.SKIP
    if writer.skip_older:
        logger.warning("topic %r: %s %d is below %d: skipped", topic, writer.writer_id, writer.version, row.last)
        return Decision.SKIP
    raise StaleBatchError(
        f"topic {topic!r}: {writer.writer_id} commits {writer.version}, but {row.last} is committed already. Spark "
        "replays only its last batch, so the checkpoint was restored or replaced: start with a new checkpoint (a new "
        "query id) or a new txnAppId; or set the option skipOlderBatches=true if these records are in the topic already"
    )


def _judge_producer(row: WriterRow | None, batch: ProducerBatch, topic: str) -> Decision:
    if row is None and batch.since is not None:  # its earlier batches' outcomes are known: no row is needed
        return Decision.COMMIT
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
        return Decision.COMMIT
    if batch.epoch < row.epoch:
        raise WriterFencedError(
            f"topic {topic!r}: producer {batch.writer_id} has epoch {batch.epoch}, epoch {row.epoch} has taken over"
        )
    return _judge_sequence(row, batch, topic)


def _judge_sequence(row: WriterRow, batch: ProducerBatch, topic: str) -> Decision:
    if any(first <= batch.first and batch.last <= last for first, last in row.ranges):
        return Decision.SKIP
    if batch.first != row.last + 1:
        lost = f"; {row.last + 1} to {batch.first - 1} {_LOST}" if batch.first > row.last + 1 else ""
        raise StaleBatchError(
            f"topic {topic!r}: producer {batch.writer_id} sends sequence {batch.first}, expected {row.last + 1}{lost}"
        )
    return Decision.COMMIT


def _hex(checksum: int | None) -> str:
    return "none" if checksum is None else f"{checksum:016x}"


def former_queries(topic: TopicLog, state: TopicState) -> tuple[str, ...]:
    """Return the queries that the next incarnation refuses."""
    rows = {**topic.snapshot(state), **state.writers.rows}
    queries = sorted((name for name in rows if name.startswith(QUERY)), key=lambda name: rows[name].sequence)
    return (*state.former_queries, *queries)[-FORMER_QUERIES:]


# --- the table ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of a new snapshot; `dropped` are durable ids, oldest first."""

    rows: Mapping[str, WriterRow]
    forgotten: int
    dropped: tuple[str, ...]


def plan_kept(rows: Mapping[str, WriterRow], forgotten: int, newest_ms: int, transient_ms: int) -> SnapshotRows:
    """Return the rows to keep (pure).

    Transient rows expire `transient_ms` before `newest_ms`, the newest entry's storage time. A wrong clock is harmless,
    as `forgotten` covers the rows that go.
    """
    passing = {name: row for name, row in rows.items() if _is_transient(name, row)}
    lasting = {name: row for name, row in rows.items() if name not in passing}
    late = _expired(passing, newest_ms - transient_ms)
    dropped = _longest_silent(lasting)[: max(0, len(lasting) - DURABLE_IDS)]
    gone = {*late, *dropped}
    forgotten = max([forgotten, *(passing[name].sequence for name in late)])
    return SnapshotRows({name: row for name, row in rows.items() if name not in gone}, forgotten, tuple(dropped))


def _expired(passing: Mapping[str, WriterRow], before_ms: int) -> list[str]:
    """Transient ids to forget: those of before a time, and the longest silent above the bound."""
    late = [name for name in _longest_silent(passing) if passing[name].at_ms < before_ms]
    fresh = {name: row for name, row in passing.items() if name not in set(late)}
    return late + _longest_silent(fresh)[: max(0, len(fresh) - TRANSIENT_IDS)]


def _is_transient(name: str, row: WriterRow) -> bool:
    return name.startswith(TRANSIENT) and row.epoch >= 0  # a txnAppId may begin with anything


def _longest_silent(rows: Mapping[str, WriterRow]) -> list[str]:
    return sorted(rows, key=lambda name: rows[name].sequence)


def row_of(
    writer: Transaction | ProducerBatch,
    before: WriterRow | None,
    rows: int,
    checksum: int | None,
    slot: Slot,
    at_ms: int,
) -> WriterRow:
    """Return a writer's row after a commit at `slot` (pure)."""
    if isinstance(writer, Transaction):
        return WriterRow(writer.version, rows, slot.sequence, at_ms, checksum=checksum)
    kept = before.ranges if before is not None and before.epoch == writer.epoch else ()
    ranges = (*kept, (writer.first, writer.last))[-_REMEMBERED_RANGES:]
    return WriterRow(writer.last, rows, slot.sequence, at_ms, writer.epoch, ranges)


def remember(
    topic: TopicLog, stored: Stored, state: TopicState, slot: Slot, writer_id: str, row: WriterRow
) -> tuple[TopicState, dict[str, bytes]]:
    """Return the state with a writer's row, sometimes in a new snapshot."""
    rows = {**state.writers.rows, writer_id: row}
    table = replace(state.writers, rows=rows)
    if len(rows) <= WRITER_ROWS and len(to_json_bytes(table.to_json())) <= TABLE_BYTES:
        return replace(state, writers=table), {}
    transient_ms = topic.config(state).number("producer.id.expiration.ms")
    every = {**topic.snapshot(state), **rows}
    kept = plan_kept(every, state.writers.forgotten, topic.journal.dated(stored)[1], transient_ms)
    if kept.dropped:
        logger.warning("%s", _forgotten_message(topic.name, kept.dropped, every))
    data = to_json_bytes({name: row.to_json() for name, row in kept.rows.items()})
    snapshot = named_side("writers", data, slot.sequence, slot.write_id)
    return replace(state, writers=Writers(snapshot, {}, kept.forgotten)), {"writers": data}


def _forgotten_message(topic: str, dropped: Iterable[str], rows: Mapping[str, WriterRow]) -> str:
    ids = ", ".join(f"{name} (last {rows[name].last}, entry {rows[name].sequence})" for name in dropped)
    return (
        f"topic {topic!r}: more than {DURABLE_IDS} writer ids have committed, and those that are silent the longest "
        f"are forgotten: {ids}. A commit that one of them repeats would be written twice; give writers ids that last"
    )

"""The writers' table: what is kept of whom, and what goes (rule R6).

An id that lasts (a query's, a ``txnAppId``, a ``producer_id``) is kept whatever the clock says: a clock that was ahead
once must not make a repeated commit a new one. Producers without an id go after a while, and the table says up to which
entry some are gone (``Writers.forgotten``), so that their retries need no clock either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.log.state import TABLE_BYTES, TopicState, WriterRow, Writers, named_side
from pyspark_commitlog.log.topic import TopicLog

log = logging.getLogger("pyspark_commitlog.log")

#: Changed writer rows in an entry before a new snapshot is taken.
WRITER_ROWS = 64
#: Ids that last which a topic remembers, and producers without an id: bound the snapshot's size.
DURABLE_IDS = 10_000
TRANSIENT_IDS = 1_000
#: What the writer ids of producers start with that have an id of their own.
PRODUCER = "producer:"
#: What the writer ids of producers start with that have no id of their own: such a producer needs its row only while it
#: can't tell whether its last batch landed.
TRANSIENT = "transient:"


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows that a new snapshot takes; ``dropped`` are ids that last, the longest silent first."""

    rows: Mapping[str, WriterRow]
    forgotten: int
    dropped: tuple[str, ...]


def plan_kept(rows: Mapping[str, WriterRow], forgotten: int, newest_ms: int, transient_ms: int) -> Kept:
    """Return what is kept of a table (pure).

    Args:
        rows: of all writers.
        forgotten: up to which entry rows of producers without an id may be gone already.
        newest_ms: the storage's time of the newest entry.
        transient_ms: how long a silent producer without an id is kept: here a clock that is wrong does no harm, as
            ``forgotten`` tells of every row that goes.
    """
    passing = {name: row for name, row in rows.items() if _is_transient(name, row)}
    lasting = {name: row for name, row in rows.items() if name not in passing}
    late = [name for name in _longest_silent(passing) if passing[name].at_ms < newest_ms - transient_ms]
    fresh = {name: row for name, row in passing.items() if name not in set(late)}
    late += _longest_silent(fresh)[: max(0, len(fresh) - TRANSIENT_IDS)]
    dropped = _longest_silent(lasting)[: max(0, len(lasting) - DURABLE_IDS)]
    gone = {*late, *dropped}
    forgotten = max([forgotten, *(passing[name].sequence for name in late)])
    return Kept({name: row for name, row in rows.items() if name not in gone}, forgotten, tuple(dropped))


def _is_transient(name: str, row: WriterRow) -> bool:
    return name.startswith(TRANSIENT) and row.epoch >= 0  # a txnAppId may begin with anything


def _longest_silent(rows: Mapping[str, WriterRow]) -> list[str]:
    """Return ids by the entry of their last commit: an order that no clock can change."""
    return sorted(rows, key=lambda name: rows[name].sequence)


def remember(
    topic: TopicLog, stored: Stored, state: TopicState, slot: Slot, writer_id: str, row: WriterRow
) -> tuple[TopicState, dict[str, bytes]]:
    """Return the state with a writer's new row; now and then all rows go to a fresh snapshot, but for those that go."""
    rows = {**state.writers.rows, writer_id: row}
    table = replace(state.writers, rows=rows)
    if len(rows) <= WRITER_ROWS and len(to_json_bytes(table.to_json())) <= TABLE_BYTES:
        return replace(state, writers=table), {}
    transient_ms = topic.config(state).number("producer.id.expiration.ms")
    every = {**topic.snapshot(state), **rows}
    kept = plan_kept(every, state.writers.forgotten, stored.info.modified_ms, transient_ms)
    if kept.dropped:
        log.warning("%s", _told(topic.name, kept.dropped, every))
    data = to_json_bytes({name: row.to_json() for name, row in kept.rows.items()})
    snapshot = named_side("writers", data, slot.sequence, slot.write_id)
    return replace(state, writers=Writers(snapshot, {}, kept.forgotten)), {"writers": data}


def _told(topic: str, dropped: Iterable[str], rows: Mapping[str, WriterRow]) -> str:
    each = ", ".join(f"{name} (last {rows[name].last}, entry {rows[name].sequence})" for name in dropped)
    return (
        f"topic {topic!r}: more than {DURABLE_IDS} writer ids have committed, and those that are silent the longest "
        f"are forgotten: {each}. A commit that one of them repeats would be written twice; give writers ids that last"
    )

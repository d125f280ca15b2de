"""Rows that a consumer has read and not returned (Kafka: `FetchBuffer`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.model import Record, TopicPartition
from pyspark_commitlog.topic.lookup.fetch import RecordColumns
from pyspark_commitlog.topic.read.filter.row_filter import BoundFilter, filter_of
from pyspark_commitlog.topic.read.filter.selected_rows import decoded_mask
from pyspark_commitlog.topic.read.named_columns import NamedColumns, Schemas, offsets_of
from pyspark_commitlog.topic.read.reader import Rows

Select = Callable[[Schemas], NamedColumns]


@dataclass(frozen=True, slots=True)
class FrameRest:
    """Rest of a frame, from `position` on; `next_offset` follows it."""

    place: TopicPartition
    topic_id: str
    history: int
    names: tuple[str, ...]
    position: int
    rows: Rows
    next_offset: int


class FetchBuffer:
    """Rest of a frame, and records for iteration."""

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self.records: deque[Record] = deque()
        self.rest: FrameRest | None = None

    def hold(self, records: Sequence[Record]) -> None:
        """Hold polled records; positions move at their hand-over."""
        self.records.extend(records)
        for record in reversed(records):
            self._subscriptions.move(TopicPartition(record.topic, record.partition), record.offset)

    def hand_over(self) -> Record:
        """Return the next record and move its position, atomically."""
        record = self.records[0]
        key = TopicPartition(record.topic, record.partition)
        try:
            self._subscriptions.move(key, record.offset + 1)
            self.records.popleft()
            return record
        except BaseException:  # Ctrl-C: the record was not handed over
            if not self.records or self.records[0] is not record:
                self.records.appendleft(record)
            self._subscriptions.move(key, record.offset)
            raise

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of some partitions.

        Call it before a position moves: handing over a record would move it back.
        """
        self.records = deque(r for r in self.records if TopicPartition(r.topic, r.partition) not in partitions)

    def drop_rest(self) -> None:
        """Drop the rest of a frame if its partition is unassigned."""
        if self.rest is not None and self.rest.place not in self._subscriptions.assigned:
            self.rest = None


def cut(rows: Rows, most: int) -> tuple[Rows, Rows | None]:
    """Split rows after the first `most`."""
    if rows.count <= most:
        return rows, None
    return _slice(rows, 0, most), _slice(rows, most, rows.count)


def _slice(rows: Rows, start: int, end: int) -> Rows:
    offsets = None if rows.offsets is None else rows.offsets[start:end]
    first = rows.first_offset + start if offsets is None else int(offsets[0])
    batch = None if rows.batch is None else rows.batch.slice(start, end - start)
    return Rows(end - start, first, offsets, batch, rows.log_append_time)


@dataclass(frozen=True, slots=True)
class PolledRows:
    """Rows to return, and the position after them."""

    place: TopicPartition
    rows: Rows
    next_offset: int


def to_records(pieces: Sequence[PolledRows], columns: RecordColumns) -> list[Record]:
    """Rows as records."""
    records: list[Record] = []
    for piece in pieces:
        records += columns.records(piece.place.topic, piece.place.partition, piece.rows, piece.rows.count)
    return records


def to_table(pieces: Sequence[PolledRows], columns: NamedColumns) -> pa.Table:
    """Rows as a table, a chunk per frame, without copies."""
    batches = [columns.batch(piece.place.topic, piece.place.partition, piece.rows) for piece in pieces]
    return pa.Table.from_batches(batches, columns.schema)


class FilteredColumns(NamedColumns):
    """Columns of a reader's rows, without the rows that do not pass.

    Frames are decoded as for other consumers of the process, which share them.
    """

    def __init__(self, columns: NamedColumns, row_filter: BoundFilter, schemas: Schemas) -> None:
        self.schema, self._columns, self._filter = columns.schema, columns, row_filter
        self._ids_by_topic = {topic: None if schema is None else schema.ids for topic, schema in schemas.items()}

    def stored(self, topic: str) -> tuple[str, ...]:
        fields = self._filter.of(topic, 0, self._ids_by_topic.get(topic)).fields
        return tuple(sorted({*self._columns.stored(topic), *fields}))

    def batch(self, topic: str, partition: int, rows: Rows) -> pa.RecordBatch:
        tests = self._filter.of(topic, partition, self._ids_by_topic.get(topic))
        mask = decoded_mask(tests, rows.batch, offsets_of(rows))
        batch = self._columns.batch(topic, partition, rows)
        return batch if mask.all() else batch.filter(pa.array(mask))


def filtered(select: Select, condition: str | None) -> Select:
    """Return a selection of columns whose rows meet a condition, if one is given."""
    return select if condition is None else partial(_filtered, select, condition)


def _filtered(select: Select, condition: str, schemas: Schemas) -> NamedColumns:
    row_filter = filter_of(condition, schemas)
    assert row_filter is not None
    return FilteredColumns(select(schemas), row_filter, schemas)

"""A range of a topic: planned, then read batch by batch or as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.format.frame import MAX_ROWS
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.lookup.latest import latest
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.read.filter.row_filter import BoundFilter, FieldTests, filter_of
from pyspark_commitlog.topic.read.named_columns import NamedColumns, check_untyped, name_columns
from pyspark_commitlog.topic.read.reader import Rows, read_range
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

Bound = Mapping[int, int] | datetime | None
_VIEW = "latest"
#: Bytes of a group of batches, beyond which it gets no other one.
_GROUP_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class TopicScan:
    """Columns and offsets of a read, fixed by the entry that it was planned at; repeatable.

    `ranges` has one range per partition. `view`: as of `Topic.to_arrow`. `passing`: the rows to read, if not all, by
    the declared columns' `ids`.
    """

    topic: TopicLog
    columns: NamedColumns
    ranges: tuple[OffsetRange, ...]
    view: str | None = None
    passing: BoundFilter | None = None
    ids: Mapping[str, int] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""
        return self.columns.schema

    def select(self, names: Sequence[str]) -> TopicScan:
        """Return the scan of some of the columns; without any, its batches only count."""
        return replace(self, columns=self.columns.select(names))

    def table(self) -> pa.Table:
        """Return the records as one table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records by partition, a batch per frame."""
        name = self.topic.name
        for wanted in self.ranges:
            tests = None if self.passing is None else self.passing.of(name, wanted.partition, self.ids)
            for rows in _rows(self.topic, wanted, self.columns.stored(name), self.view, tests):
                yield self.columns.batch(name, wanted.partition, rows)


def plan_scan(
    topic: TopicLog,
    columns: Sequence[str] | None,
    start: Bound,
    end: Bound,
    view: str | None = None,
    condition: str | None = None,
) -> TopicScan:
    """Plan the read of the records between bounds; see `Topic.to_arrow`."""
    if view not in (None, _VIEW):
        raise UsageError(f"view={view!r} is not allowed: use 'latest', the newest record of each key")
    if view and start is not None:
        raise UsageError("view='latest' takes no start: the newest record of each key is of all records before the end")
    if view and condition is not None:
        raise UsageError("view='latest' takes no filter: it would hide the newest record of a key, filter the table")
    _, state = topic.newest_durable()
    passing = filter_of(condition, {topic.name: state.schema})
    named = name_columns(columns, {topic.name: state.schema})
    if view:
        check_untyped({topic.name: state.schema}, "view='latest'", "leave it out, and take the newest row of each key")
    starts = _offsets(topic, state, start, state.log_start, "start")
    ends = _offsets(topic, state, end, state.log_end, "end")
    planned = state.lineage.position
    ranges = [
        OffsetRange(topic.name, state.topic_id, partition, starts[partition], ends[partition], planned)
        for partition in range(state.partitions)
    ]
    ids = None if state.schema is None else state.schema.ids
    return TopicScan(topic, named, tuple(ranges), view, passing, ids)


def group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield consecutive batches in groups, for work that has a price per call."""
    group, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= MAX_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _rows(
    topic: TopicLog, wanted: OffsetRange, names: tuple[str, ...], view: str | None, tests: FieldTests | None
) -> Iterator[Rows]:
    if wanted.start >= wanted.end:
        return iter(())
    return latest(topic, wanted, names) if view else read_range(topic, wanted, names, tests)


def _offsets(topic: TopicLog, state: TopicState, bound: Bound, default: Sequence[int], which: str) -> tuple[int, ...]:
    if bound is None:
        return tuple(default)
    if isinstance(bound, datetime):
        at = _milliseconds(bound, which)
        records = [find_time(topic, state.topic_id, partition, at) for partition in range(state.partitions)]
        return tuple(high if f is None else min(f.offset, high) for f, high in zip(records, state.log_end, strict=True))
    offsets = list(default)
    for partition, offset in bound.items():
        check_partition(topic.name, state, partition)
        low, high = state.log_start[partition], state.log_end[partition]
        if not low <= offset <= high:
            raise OffsetOutOfRangeError(
                f"topic {topic.name!r} partition {partition}: {which}={offset} is out of range: log start offset is "
                f"{low}, high watermark is {high}"
            )
        offsets[partition] = offset
    return tuple(offsets)


def _milliseconds(at: datetime, which: str) -> int:
    if at.tzinfo is None:
        raise UsageError(f"{which}={at!r} has no time zone: use datetime(…, tzinfo=UTC)")
    since = at - datetime.fromtimestamp(0, at.tzinfo)
    return -(-since // timedelta(milliseconds=1))

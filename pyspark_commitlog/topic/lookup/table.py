"""A range of a topic as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import pyarrow as pa

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.lookup.latest import latest
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.read.filter.row_filter import FieldTests, filter_of
from pyspark_commitlog.topic.read.named_columns import check_untyped, name_columns
from pyspark_commitlog.topic.read.reader import Rows, read_range
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

Bound = Mapping[int, int] | datetime | None
_VIEW = "latest"


def read_table(
    topic: TopicLog,
    columns: Sequence[str] | None,
    start: Bound,
    end: Bound,
    view: str | None,
    condition: str | None = None,
) -> pa.Table:
    """Return the records between bounds; see `Topic.to_arrow`."""
    if view not in (None, _VIEW):
        raise UsageError(f"view={view!r} is not allowed: use 'latest', the newest record of each key")
    if view and start is not None:
        raise UsageError("view='latest' takes no start: the newest record of each key is of all records before the end")
    if view and condition is not None:
        raise UsageError("view='latest' takes no filter: it would hide the newest record of a key, filter the table")
    _, state = topic.newest_durable()
    tests = filter_of(condition, {topic.name: state.schema})
    ids = None if state.schema is None else state.schema.ids
    named = name_columns(columns, {topic.name: state.schema})
    if view:
        check_untyped({topic.name: state.schema}, "view='latest'", "leave it out, and take the newest row of each key")
    starts = _offsets(topic, state, start, state.log_start, "start")
    ends = _offsets(topic, state, end, state.log_end, "end")
    batches = [
        named.batch(topic.name, partition, rows)
        for partition in range(state.partitions)
        for rows in _rows(
            topic,
            OffsetRange(topic.name, state.topic_id, partition, starts[partition], ends[partition]),
            named.stored(topic.name),
            view,
            None if tests is None else tests.of(topic.name, partition, ids),
        )
    ]
    return pa.Table.from_batches(batches, named.schema)


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

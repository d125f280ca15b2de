"""Single records as Python values, for tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.untyped import instants
from pyspark_commitlog.model import Record
from pyspark_commitlog.topic.read.named_columns import check_untyped
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows, read_view
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

_US_PER_MS = 1000


def fetch(topic: TopicLog, partition: int, offset: int, max_records: int) -> tuple[Record, ...]:
    """Return up to `max_records` records from `offset`; see `Topic.read`."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
        raise UsageError(f"max_records={max_records!r} is not allowed: it takes 1 or more")
    _, state = topic.newest()
    check_untyped({topic.name: state.schema}, "read", "use to_arrow, or Consumer.poll_arrow")
    records: list[Record] = []
    for rows in _rows_from(topic, state, partition, offset):
        records += records_of(topic.name, partition, rows, max_records - len(records))
        if len(records) == max_records:
            break
    return tuple(records)


def timestamp_at(topic: TopicLog, partition: int, offset: int) -> int | None:
    """Return the timestamp (ms) of the first record from `offset`, typed or not; None at the high watermark."""
    _, state = topic.newest()
    for rows in _rows_from(topic, state, partition, offset, ("timestamp",)):
        assert rows.batch is not None
        return int(instants(frame_rows.timestamps(rows.batch))[0]) // _US_PER_MS
    return None


def _rows_from(
    topic: TopicLog, state: TopicState, partition: int, offset: int, names: Sequence[str] | None = None
) -> Iterator[Rows]:
    check_partition(topic.name, state, partition)
    view = read_view(topic, state.topic_id, durable=True)
    reader = PartitionReader(topic, state.topic_id, partition, names, view)
    low, high = view.topic.log_start[partition], view.topic.log_end[partition]
    if not low <= offset <= high:
        raise OffsetOutOfRangeError(
            f"topic {topic.name!r} partition {partition}: offset {offset} is out of range: log start offset is "
            f"{low} and high watermark {high}; start from an offset between them"
        )
    yield from reader.read(offset, high, careful=True)


def records_of(topic: str, partition: int, rows: Rows, most: int) -> list[Record]:
    """First `most` rows as records."""
    assert rows.batch is not None
    batch = rows.batch.slice(0, most)
    count = batch.num_rows
    offsets = range(rows.first_offset, rows.first_offset + count) if rows.offsets is None else rows.offsets[:count]
    instants = batch.column("timestamp").view(pa.int64())
    columns = (batch.column("key"), batch.column("value"), instants, batch.column("headers"))
    return [
        Record(
            topic=topic,
            partition=partition,
            offset=int(offset),
            timestamp_us=instant,
            timestamp_type=int(rows.log_append_time),
            key=key,
            value=value,
            headers=tuple((header["key"], header["value"]) for header in headers or ()),
        )
        for offset, key, value, instant, headers in zip(offsets, *(c.to_pylist() for c in columns), strict=True)
    ]

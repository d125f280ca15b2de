"""Single records as Python values, for tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.untyped import instants
from pyspark_commitlog.model import Record
from pyspark_commitlog.topic.read.named_columns import STAR, Schemas, name_columns, offsets_of
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition
from pyspark_commitlog.topic.view import read_view

_US_PER_MS = 1000
#: Columns of every record, after its value.
_COMMON = ("_key", "_timestamp", "_headers")
_UNTYPED = name_columns(("value", *_COMMON), {})


def fetch(topic: TopicLog, partition: int, offset: int, max_records: int) -> tuple[Record, ...]:
    """Return up to `max_records` records from `offset`; see `Topic.read`."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
        raise UsageError(f"max_records={max_records!r} is not allowed: it takes 1 or more")
    _, state = topic.newest()
    columns = RecordColumns({topic.name: state.schema})
    records: list[Record] = []
    for rows in _rows_from(topic, state, partition, offset, columns.stored(topic.name)):
        records += columns.records(topic.name, partition, rows, max_records - len(records))
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


def _rows_from(topic: TopicLog, state: TopicState, partition: int, offset: int, names: Sequence[str]) -> Iterator[Rows]:
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


class RecordColumns:
    """Columns of records as Python values: all that a typed topic declares, or key and value."""

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self._typed = {
            topic: name_columns((STAR, *_COMMON), {topic: schema})
            for topic, schema in schemas.items()
            if schema is not None
        }

    def stored(self, topic: str) -> tuple[str, ...]:
        """Columns to decode of a topic's frames."""
        return self._typed.get(topic, _UNTYPED).stored(topic)

    def records(self, topic: str, partition: int, rows: Rows, most: int) -> list[Record]:
        """First `most` rows as records."""
        batch = self._typed.get(topic, _UNTYPED).batch(topic, partition, rows).slice(0, most)
        offsets = offsets_of(rows)[: batch.num_rows].tolist()
        keys, times, headers = batch.columns[-len(_COMMON) :]
        values = batch.select(batch.schema.names[: -len(_COMMON)]) if topic in self._typed else batch.column(0)
        columns = (keys, values, times.view(pa.int64()), headers)
        return [
            Record(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_us=instant,
                timestamp_type=int(rows.log_append_time),
                key=key,
                value=value,
                headers=tuple((header["key"], header["value"]) for header in found or ()),
            )
            for offset, key, value, instant, found in zip(offsets, *(each.to_pylist() for each in columns), strict=True)
        ]

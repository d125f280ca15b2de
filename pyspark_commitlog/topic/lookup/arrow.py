"""Rows of a partition as Arrow, in Spark's Kafka source's columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, TIMESTAMP
from pyspark_commitlog.format.frame import MAX_ROWS
from pyspark_commitlog.topic.read.reader import Rows

ARROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS),
    ]
)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some columns, in their order; None: all."""
    if columns is None:
        return ARROW_SCHEMA
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in ARROW_SCHEMA.names]
    if unknown or not names or len(set(names)) < len(names):
        raise UsageError(f"columns={names} is not allowed: it takes any of {', '.join(ARROW_SCHEMA.names)}, each once")
    return pa.schema([ARROW_SCHEMA.field(name) for name in names])


def stored_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Columns that are stored in frames, in their order there."""
    return tuple(name for name in SCHEMA.names if name in schema.names)


def offsets_of(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Offset of every row."""
    if rows.offsets is not None:
        return rows.offsets
    return np.arange(rows.first_offset, rows.first_offset + rows.count)


def to_batch(topic: str, partition: int, rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with columns of `ARROW_SCHEMA`; stored columns are not copied."""
    arrays = [_column(topic, partition, rows, name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(topic: str, partition: int, rows: Rows, name: str) -> pa.Array:
    count = rows.count
    if name == "topic":
        return _repeated(topic, max(count, MAX_ROWS)).slice(0, count)
    if name == "partition":
        return pa.array(np.full(count, partition, np.int32))
    if name == "timestampType":
        return pa.array(np.full(count, rows.log_append_time, np.int32))
    if name == "offset":
        return pa.array(offsets_of(rows), pa.int64())
    assert rows.batch is not None
    return rows.batch.column(name)


@lru_cache(maxsize=16)
def _repeated(topic: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), count)

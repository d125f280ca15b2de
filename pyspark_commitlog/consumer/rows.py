"""Rows of a partition as a consumer hands them out: cut to size, as Arrow with the columns asked for, or as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns import HEADERS, SCHEMA, TIMESTAMP
from pyspark_commitlog.format.frame import MAX_ROWS
from pyspark_commitlog.log.fetch import records_of
from pyspark_commitlog.log.reader import Rows
from pyspark_commitlog.model import Record, TopicPartition

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
#: What a record is made of.
RECORD_COLUMNS = tuple(SCHEMA.names)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some columns, in their order; None: of all.

    Raises:
        UsageError: a name that is none, or twice the same.
    """
    if columns is None:
        return ARROW_SCHEMA
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in ARROW_SCHEMA.names]
    if unknown or not names or len(set(names)) < len(names):
        raise UsageError(f"columns={names} is not allowed: it takes any of {', '.join(ARROW_SCHEMA.names)}, each once")
    return pa.schema([ARROW_SCHEMA.field(name) for name in names])


def stored_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return those of the columns that must be decoded, in the order of the frame."""
    return tuple(name for name in SCHEMA.names if name in schema.names)


def cut(rows: Rows, most: int) -> tuple[Rows, Rows | None]:
    """Return the first ``most`` rows, and the rest."""
    if rows.count <= most:
        return rows, None
    return _slice(rows, 0, most), _slice(rows, most, rows.count)


def _slice(rows: Rows, start: int, end: int) -> Rows:
    offsets = None if rows.offsets is None else rows.offsets[start:end]
    first = rows.first_offset + start if offsets is None else int(offsets[0])
    batch = None if rows.batch is None else rows.batch.slice(start, end - start)
    return Rows(end - start, first, offsets, batch, rows.log_append_time)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are handed out, and the position behind them."""

    place: TopicPartition
    rows: Rows
    next_offset: int


def to_records(pieces: Sequence[Piece]) -> list[Record]:
    """Return the rows as records."""
    found: list[Record] = []
    for piece in pieces:
        found += records_of(piece.place.topic, piece.place.partition, piece.rows, piece.rows.count)
    return found


def to_table(pieces: Sequence[Piece], schema: pa.Schema) -> pa.Table:
    """Return the rows as a table, a chunk for every frame: nothing is copied."""
    return pa.Table.from_batches([_batch(piece, schema) for piece in pieces], schema)


def _batch(piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column(piece, name) for name in schema.names], schema=schema)


def _column(piece: Piece, name: str) -> pa.Array:
    rows, count = piece.rows, piece.rows.count
    if name == "topic":
        return _repeated(piece.place.topic, max(count, MAX_ROWS)).slice(0, count)
    if name == "partition":
        return pa.array(np.full(count, piece.place.partition, np.int32))
    if name == "timestampType":
        return pa.array(np.full(count, rows.log_append_time, np.int32))
    if name == "offset":
        first = rows.first_offset
        return pa.array(np.arange(first, first + count) if rows.offsets is None else rows.offsets, pa.int64())
    assert rows.batch is not None
    return rows.batch.column(name)


@lru_cache(maxsize=16)
def _repeated(topic: str, count: int) -> pa.Array:
    """Return a name as often as a frame may need it: all batches take slices of one array."""
    return pa.repeat(pa.scalar(topic, pa.string()), count)

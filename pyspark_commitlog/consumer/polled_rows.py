"""Conversion of rows to a consumer's records or tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_commitlog.format.columns import SCHEMA
from pyspark_commitlog.log.read.arrow import to_batch
from pyspark_commitlog.log.read.fetch import records_of
from pyspark_commitlog.log.read.reader import Rows
from pyspark_commitlog.model import Record, TopicPartition

#: Columns of a record.
RECORD_COLUMNS = tuple(SCHEMA.names)


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


def to_records(pieces: Sequence[PolledRows]) -> list[Record]:
    """Return the rows as records."""
    records: list[Record] = []
    for piece in pieces:
        records += records_of(piece.place.topic, piece.place.partition, piece.rows, piece.rows.count)
    return records


def to_table(pieces: Sequence[PolledRows], schema: pa.Schema) -> pa.Table:
    """Return the rows as a table, a chunk per frame, without copies."""
    batches = [to_batch(piece.place.topic, piece.place.partition, piece.rows, schema) for piece in pieces]
    return pa.Table.from_batches(batches, schema)

"""Arrow batches for Spark from the log's rows, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_commitlog.format.columns import SCHEMA, bounded
from pyspark_commitlog.topic.read.reader import Rows

#: Smaller batches are joined before they go to Spark, as every batch has its price,
MIN_ROWS = 4096
#: up to this many bytes; larger batches are cut.
MAX_BYTES = 16 * 2**20


def wanted_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Frame columns in `schema`; others come from the header."""
    return tuple(name for name in SCHEMA.names if name in schema.names)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class SparkRows:
    """Converter of one topic-partition's rows to exactly the schema of Spark."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._constants = {"topic": pa.scalar(topic, pa.string()), "partition": pa.scalar(partition, pa.int32())}
        self._repeated: dict[tuple[str, int], pa.Array] = {}

    def convert(self, rows: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        """Yield Spark's batches; small ones are joined, large ones cut."""
        held: list[pa.RecordBatch] = []
        count = size = 0
        for piece in rows:
            for batch in bounded(self._batch(piece), MAX_BYTES):
                taken = batch.nbytes
                if held and size + taken > MAX_BYTES:
                    yield _joined(held)
                    held, count, size = [], 0, 0
                held.append(batch)
                count, size = count + batch.num_rows, size + taken
                if count >= MIN_ROWS:
                    yield _joined(held)
                    held, count, size = [], 0, 0
        if held:
            yield _joined(held)

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        arrays = [self._column(field, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, rows: Rows) -> pa.Array:
        if field.name == "offset":
            if rows.offsets is not None:
                return pa.array(rows.offsets)
            return pa.array(np.arange(rows.first_offset, rows.first_offset + rows.count))
        if field.name == "timestampType":
            return self._repeat(field.name, pa.scalar(int(rows.log_append_time), pa.int32()), rows.count)
        if field.name in self._constants:
            return self._repeat(field.name, self._constants[field.name], rows.count)
        assert rows.batch is not None
        column = rows.batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)

    def _repeat(self, name: str, value: pa.Scalar, count: int) -> pa.Array:
        key = (name, value.as_py() if name == "timestampType" else 0)
        cached = self._repeated.get(key)
        if cached is None or len(cached) < count:
            cached = self._repeated[key] = pa.repeat(value, count)
        return cached.slice(0, count)

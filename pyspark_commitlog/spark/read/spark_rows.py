"""Arrow batches for Spark from the log's rows, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.untyped import SCHEMA, bounded
from pyspark_commitlog.topic.read.reader import Rows

#: Smaller batches are joined before they go to Spark, as every batch has its price,
MIN_ROWS = 4096
#: up to this many bytes; larger batches are cut.
MAX_BYTES = 16 * 2**20


def wanted_columns(schema: pa.Schema, ids: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Frame columns that `schema` needs; others come from the header.

    `ids` are those of declared columns by name.
    """
    stored = [_stored_name(name, ids or {}) for name in schema.names]
    return tuple(dict.fromkeys(name for name in stored if name is not None))


def _stored_name(name: str, ids: Mapping[str, int]) -> str | None:
    if name in ids:
        return str(ids[name])
    plain = name.removeprefix("_")
    return plain if plain in SCHEMA.names else None


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class SparkRows:
    """Converter of one topic-partition's rows to exactly the schema of Spark."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int, ids: Mapping[str, int] | None = None) -> None:
        self._schema, self._ids = schema, ids or {}
        name, number = pa.scalar(topic, pa.string()), pa.scalar(partition, pa.int32())
        self._constants = {"topic": name, "_topic": name, "partition": number, "_partition_id": number}
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
        name = field.name
        if name in self._ids:
            return self._cast(self._declared(name, field, rows), field)
        if name in ("offset", "_offset"):
            if rows.offsets is not None:
                return pa.array(rows.offsets)
            return pa.array(np.arange(rows.first_offset, rows.first_offset + rows.count))
        if name in ("timestampType", "_timestampType"):
            return self._repeat("timestampType", pa.scalar(int(rows.log_append_time), pa.int32()), rows.count)
        if name in self._constants:
            return self._repeat(name, self._constants[name], rows.count)
        assert rows.batch is not None
        return self._cast(frame_rows.common_column(rows.batch, name.removeprefix("_")), field)

    def _declared(self, name: str, field: pa.Field, rows: Rows) -> pa.Array:
        stored = str(self._ids[name])
        if rows.batch is None or stored not in rows.batch.schema.names:  # declared later than the frame was written
            return pa.nulls(rows.count, field.type)
        return rows.batch.column(stored)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        return column if column.type == field.type else column.cast(field.type)

    def _repeat(self, name: str, value: pa.Scalar, count: int) -> pa.Array:
        key = (name, value.as_py() if name == "timestampType" else 0)
        cached = self._repeated.get(key)
        if cached is None or len(cached) < count:
            cached = self._repeated[key] = pa.repeat(value, count)
        return cached.slice(0, count)

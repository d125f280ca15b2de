"""Batches for Spark: small ones are joined, large ones cut, by rows and by bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.format.columns.untyped import TIMESTAMP
from pyspark_commitlog.spark.read.spark_rows import MAX_BYTES, MIN_ROWS, SparkRows
from pyspark_commitlog.topic.read.named_columns import NamedColumns
from pyspark_commitlog.topic.read.reader import Rows

SCHEMA = pa.schema([pa.field("value", pa.binary()), pa.field("offset", pa.int64()), pa.field("timestamp", TIMESTAMP)])
KIB = 1024


def frames(*told: tuple[int, int]) -> Iterator[Rows]:
    """Yield rows of frames, each (rows, bytes of a value); every second one has gaps in its offsets."""
    first = 0
    for number, (count, size) in enumerate(told):
        batch = pa.RecordBatch.from_pydict(
            {"value": pa.array([bytes(size)] * count, pa.binary()), "timestamp": pa.array([number] * count, TIMESTAMP)}
        )
        offsets = first + 2 * np.arange(count) if number % 2 else None
        yield Rows(count, first, offsets, batch, log_append_time=False)
        first += 2 * count


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(1000, 10)] * 9, [5000, 4000]),
        ([(MIN_ROWS, 10)] * 3, [MIN_ROWS] * 3),
        ([(1, 1024 * KIB)] * 40, [15, 15, 10]),
        ([(100, 64 * KIB)] * 4, [200, 200]),
        ([(1000, 10), (100, 1000 * KIB)], [1012, *[13, 12] * 3, 13]),
        ([(2, MAX_BYTES)], [1, 1]),
    ],
)
def test_a_batch_has_enough_rows_or_many_bytes(told: list[tuple[int, int]], expected: list[int]) -> None:
    """Joined by rows alone, 4,096 records of 1 MiB were a batch of 4 GiB."""
    found = list(SparkRows(NamedColumns(SCHEMA, {}), "t", 0).convert(frames(*told)))
    assert [batch.num_rows for batch in found] == expected
    assert all(batch.num_rows == 1 or batch.nbytes <= MAX_BYTES for batch in found)
    offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
    wanted = [rows.offset_of(row) for rows in frames(*told) for row in range(rows.count)]
    assert offsets == wanted

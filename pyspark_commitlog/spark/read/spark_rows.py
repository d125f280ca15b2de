"""Arrow batches for Spark from the log's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_commitlog.format.columns.untyped import bounded
from pyspark_commitlog.topic.read.named_columns import NamedColumns
from pyspark_commitlog.topic.read.reader import Rows

#: Smaller batches are joined before they go to Spark, as every batch has its price,
MIN_ROWS = 4096
#: up to this many bytes; larger batches are cut.
MAX_BYTES = 16 * 2**20


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class SparkRows:
    """Converter of one topic-partition's rows to columns of exactly Spark's types."""

    def __init__(self, columns: NamedColumns, topic: str, partition: int) -> None:
        self._columns, self._topic, self._partition = columns, topic, partition

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
        return self._columns.batch(self._topic, self._partition, rows)

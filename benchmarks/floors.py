"""The floors: what a Python data source costs in Spark when it does nothing at all.

`floor_source` yields one ready batch again and again; `floor_sink` takes batches and drops them. No Python source
or sink can be faster, so ours are measured against them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

ROWS = 4_700  # what a frame of 1 MiB holds of the benchmark's records
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


class FloorSource(DataSource):
    """Option `records`: how many rows each partition has, as in `70,30`."""

    @classmethod
    def name(cls) -> str:
        return "floor_source"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> FloorReader:
        return FloorReader([int(rows) for rows in self.options["records"].split(",")], self.options["sample"], schema)

    def streamReader(self, schema: StructType) -> FloorStreamReader:
        return FloorStreamReader(self.reader(schema), int(self.options["triggers"]))


class FloorReader(DataSourceReader):
    """Yields the first rows of the Parquet file `sample`, made once per task, until all are sent."""

    def __init__(self, records: list[int], sample: str, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.records, self.sample = records, sample
        self.schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(rows) for rows in self.records]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        rows = next(pq.ParquetFile(self.sample).iter_batches(ROWS, columns=["key", "value", "timestamp"]))
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        constants = {"topic": "t", "partition": 0, "offset": 0, "timestampType": 0}
        columns = [
            given[f.name].cast(f.type) if f.name in given else pa.repeat(pa.scalar(constants[f.name], f.type), ROWS)
            for f in self.schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        left = partition.value
        while left > 0:
            yield batch if left >= ROWS else batch.slice(0, left)
            left -= ROWS


class FloorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields the same in so many triggers."""

    def __init__(self, reader: FloorReader, triggers: int) -> None:
        self.reader, self.triggers = reader, triggers

    def initialOffset(self) -> dict[str, int]:
        return {"trigger": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"trigger": min(start["trigger"] + 1, self.triggers)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(rows // self.triggers) for rows in self.reader.records]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        pass


class FloorSink(DataSource):
    """Drops what it is given."""

    @classmethod
    def name(cls) -> str:
        return "floor_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return FloorWriter()


class FloorWriter(DataSourceArrowWriter):
    """Counts nothing, keeps nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

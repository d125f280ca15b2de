"""Where the time of a micro-batch goes: Spark's `durationMs`, ours next to a source and sink that do nothing.

    python benchmarks/microbatch.py [--batches 30] [--rows 1000] [--value-bytes 0] [--local-checkpoints]

Prints, per phase, the least and the median of all micro-batches but the first five, in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from floors import SCHEMA, FloorReader, FloorStreamReader
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamReader, WriterCommitMessage

from pyspark_commitlog import CommitLog

PARTITIONS = 4
ROWS = 1_000
WARM_UP = 5
PHASES = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitBatch", "commitOffsets", "triggerExecution")
MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class NothingSource(DataSource):
    """Options `batches`, `rows`: so many micro-batches of so many records; the sink drops them."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        batches, rows = int(self.options["batches"]), int(self.options["rows"])
        reader = FloorReader([batches * rows // PARTITIONS] * PARTITIONS, self.options["sample"], schema)  # type: ignore[arg-type]
        return FloorStreamReader(reader, batches)

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:
        return NothingWriter()


class NothingWriter(DataSourceStreamArrowWriter):
    """Drops what it is given."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


def ours(spark: SparkSession, work: Path, batches: int, rows: int = ROWS, value_bytes: int = 0) -> DataFrame:
    """Return a stream of a topic with `rows` records per trigger, values padded; the sink's topic is made."""
    log = CommitLog(str(work / "log"))
    for topic in ("from", "to"):
        log.create_topic(topic, partitions=PARTITIONS)
    value = (
        f"rpad(CAST(id AS STRING), {value_bytes}, sha2(CAST(id AS STRING), 512))"
        if value_bytes
        else "CAST(id AS STRING)"
    )
    numbers = spark.range(batches * rows).selectExpr(
        f"CAST(id % {PARTITIONS} AS INT) AS partition", f"{value} AS value"
    )
    numbers.write.format("commitlog").mode("append").option("topic", "from").save(str(work / "log"))
    log.topic("from").maintain()
    source = spark.readStream.format("commitlog").option("subscribe", "from").option("startingOffsets", "earliest")
    return source.option("maxOffsetsPerTrigger", rows).load(str(work / "log"))


def nothing(spark: SparkSession, work: Path, batches: int, rows: int = ROWS, value_bytes: int = 0) -> DataFrame:
    """Return a stream of as many ready records, whose values are of 4 bytes."""
    sample = work / "sample"
    spark.range(5000).selectExpr("CAST('k' AS BINARY) key", "CAST(CAST(id AS STRING) AS BINARY) value",
                                 "current_timestamp() timestamp").coalesce(1).write.parquet(str(sample))  # fmt: skip
    (path,) = sample.glob("*.parquet")
    return (
        spark.readStream.format("nothing")
        .option("sample", str(path))
        .option("batches", batches)
        .option("rows", rows)
        .load()
    )


def run(df: DataFrame, format_: str, work: Path) -> list[dict[str, int]]:
    """Run it; return the durations of its micro-batches."""
    writer = (
        df.select("key", "value").writeStream.format(format_).option("checkpointLocation", str(work / "checkpoint"))
    )
    if format_ == "commitlog":
        writer = writer.option("topic", "to")
    query = writer.trigger(availableNow=True).start(str(work / "log"))
    query.awaitTermination()
    return [dict(progress["durationMs"]) for progress in query.recentProgress if progress["numInputRows"]][WARM_UP:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rows", type=int, default=ROWS, help="records of a micro-batch")
    parser.add_argument("--value-bytes", type=int, default=0, help="bytes of a value; 0: of its number")
    parser.add_argument("--local-checkpoints", action="store_true", help="with the two commented lines of spark-conf")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if args.local_checkpoints:
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
        builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", MANAGER)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(NothingSource)
    print(f"{'':24}" + "".join(f"{phase:>18}" for phase in PHASES))
    for rows in (args.rows, 0):
        for name, stream, format_ in (("commitlog", ours, "commitlog"), ("nothing", nothing, "nothing")):
            with tempfile.TemporaryDirectory() as made:
                df = stream(spark, Path(made), args.batches, args.rows, args.value_bytes)
                found = run(df if rows else df.where("length(value) > 1000"), format_, Path(made))
            cells = [[duration.get(phase, 0) for duration in found] for phase in PHASES]
            columns = "".join(f"{f'{min(cell)} / {statistics.median(cell):.0f}':>18}" for cell in cells)
            print(f"{name:12}{rows:6} records{columns}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

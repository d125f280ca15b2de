"""What the tests in this directory do with Spark, in a few words each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_commitlog import CommitLog
from tests.spark.model import Sent, Stored

#: Longer than any query here takes; a test of a query that never ends shall fail, not hang.
PATIENCE_SECONDS = 60
#: Columns, in the order in which the source gives them.
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
WITH_HEADERS = f"{COLUMNS}, headers array<struct<key: string, value: binary>>"
#: Columns of a DataFrame that is to be written.
SENT = "key binary, value binary, timestamp timestamp, partition int, headers array<struct<key: string, value: binary>>"


def frame(spark: SparkSession, tasks: Sequence[Sequence[Sent]]) -> DataFrame:
    """Return a DataFrame with one Spark partition per task."""
    rows = [[(s.key, s.value, s.timestamp, s.partition, s.headers) for s in task] for task in tasks]
    flat = spark.sparkContext.parallelize(rows, len(rows)).flatMap(lambda task: task)
    return spark.createDataFrame(flat, SENT)


def stored_frame(spark: SparkSession, stored: Sequence[Stored], topic: str) -> DataFrame:
    """Return what a read with headers must give of a model's records."""
    rows = [
        (s.sent.key, s.sent.value, topic, s.partition, s.offset, s.sent.timestamp, 0, s.sent.headers) for s in stored
    ]
    return spark.createDataFrame(rows, WITH_HEADERS).coalesce(1)


def write(df: DataFrame, root: str, topic: str | None = None, **options: Any) -> None:
    """Append a DataFrame to a topic, or to those that its topic column names."""
    named = {"topic": topic, **options} if topic else options
    df.write.format("commitlog").mode("append").options(**named).save(root)


def read(spark: SparkSession, root: str, topic: str, schema: str | None = None, **options: Any) -> DataFrame:
    """Return a batch read of a topic."""
    reader = spark.read.format("commitlog").option("subscribe", topic).options(**options)
    return (reader.schema(schema) if schema else reader).load(root)


def stream(spark: SparkSession, root: str, topic: str, **options: Any) -> DataFrame:
    """Return a streaming read of a topic, by default from the earliest offset."""
    reader = spark.readStream.format("commitlog").option("subscribe", topic)
    return reader.options(**{"startingOffsets": "earliest", **options}).load(root)


def start(
    df: DataFrame, root: str, topic: str | None, checkpoint: Path, *, now: bool = True, **options: Any
) -> StreamingQuery:
    """Start a streaming write; `now`: of what is available now, else until it is stopped."""
    named = {"topic": topic, **options} if topic else options
    writer = df.writeStream.format("commitlog").options(checkpointLocation=str(checkpoint), **named)
    return (writer.trigger(availableNow=True) if now else writer).start(root)


def run(df: DataFrame, root: str, topic: str | None, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Write what is available now to a topic; return the query, ended."""
    return ended(start(df, root, topic, checkpoint, **options))


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait for a query that ends by itself; one that does not is stopped, and told."""
    try:
        assert query.awaitTermination(PATIENCE_SECONDS), f"still running: {query.lastProgress}"
    finally:
        query.stop()
    return query


def lines(spark: SparkSession, directory: Path, **options: Any) -> DataFrame:
    """Return a stream of the text files in a directory, one record a line."""
    return spark.readStream.options(**options).text(str(directory))


def put_lines(directory: Path, name: str, values: list[str]) -> None:
    """Add a file to that directory, at once."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_text("".join(f"{value}\n" for value in values))
    hidden.rename(directory / name)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Make Spark believe that it died before a batch was over: it plays the batch again."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def last_offsets(checkpoint: Path) -> dict[str, Any]:
    """Return the source's offset in the newest batch of a checkpoint."""
    newest = max(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    return dict(json.loads((checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1]))


def ends(log: CommitLog, topic: str) -> list[int]:
    """Return the high watermark of every partition."""
    return [partition.high_watermark for partition in log.topic(topic).describe().partitions]


def values(df: DataFrame) -> list[str]:
    """Return all values as text, sorted."""
    return sorted(row.value for row in df.selectExpr("CAST(value AS STRING) AS value").collect())


def per_batch(query: StreamingQuery) -> list[int]:
    """Return the records of every micro-batch that had some."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def told_offsets(offset: Mapping[str, Any], topic: str) -> list[int]:
    """Return the offsets of a topic in a source's offset, by partition."""
    return [offset[topic][str(partition)] for partition in range(len(offset[topic]))]


def put(spark: SparkSession, root: str, topic: str, values_: list[str], partition: int | None = None) -> None:
    """Append values, to one partition if it is named."""
    rows = [(value, partition) for value in values_]
    write(spark.createDataFrame(rows, "value string, partition int").coalesce(1), root, topic)


class Seen:
    """The micro-batches of one query, kept over restarts: a foreachBatch sink with a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[str]] = []

    def start(self, df: DataFrame, *, now: bool = True) -> StreamingQuery:
        """Start the query; `now`: over what is available."""
        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(self._take)
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, df: DataFrame) -> list[list[str]]:
        """Run it over what is available; return the values of this run's micro-batches."""
        before = len(self.batches)
        ended(self.start(df))
        return self.batches[before:]

    def _take(self, df: DataFrame, batch: int) -> None:
        self.batches.append(values(df))

    def all(self) -> list[str]:
        """Return all values seen, sorted."""
        return sorted(value for batch in self.batches for value in batch)

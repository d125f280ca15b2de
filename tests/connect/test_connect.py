"""Spark Connect: a client without a JVM of its own asks for the format by its name; the server has the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Yield a session on a server that the session starts, and stops."""
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a root with topics `a` and `b`."""
    root = str(tmp_path / "log")
    for topic in "ab":
        CommitLog(root).create_topic(topic, partitions=2)
    return root


def values(root: str, topic: str) -> list[bytes | None]:
    """Return all values of a topic, without Spark."""
    log = CommitLog(root)
    partitions = log.topic(topic).describe().partitions
    return sorted(r.value for p in partitions for r in log.topic(topic).read(p.partition, 0, max_records=1000))  # type: ignore[type-var]


def test_batch_writes_and_reads(spark: SparkSession, root: str) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    df.write.format("commitlog").mode("append").option("topic", "a").save(root)
    found = spark.read.format("commitlog").option("subscribe", "a").load(root).selectExpr("CAST(value AS STRING) v")
    assert sorted(row.v for row in found.collect()) == sorted(f"{i}" for i in range(100))


def test_wall_time_is_that_of_the_session_s_zone(spark: SparkSession, root: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = spark.sql("SELECT 'a' AS value, timestamp_ntz'2024-07-01 12:00:00' AS timestamp, 0 AS partition")
        df.write.format("commitlog").mode("append").option("topic", "a").save(root)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert [record.timestamp for record in CommitLog(root).topic("a").read(0, 0, max_records=9)] == [1719849600000]


def test_a_streaming_copy_and_its_restart_write_every_record_once(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    wanted = []
    for number in range(2):
        more = spark.range(50 * number, 50 * number + 50).selectExpr("CAST(id AS STRING) AS value")
        more.write.format("commitlog").mode("append").option("topic", "a").save(root)
        wanted += [f"{i}".encode() for i in range(50 * number, 50 * number + 50)]
        df = spark.readStream.format("commitlog").option("subscribe", "a").option("startingOffsets", "earliest")
        df = df.option("maxOffsetsPerTrigger", 20).load(root).select("key", "value")
        writer = df.writeStream.format("commitlog").option("topic", "b")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start(root).awaitTermination(PATIENCE_SECONDS)
        assert values(root, "b") == sorted(wanted)


def test_errors_reach_the_client(spark: SparkSession, root: str) -> None:
    df = spark.sql("SELECT 'v' AS value")
    with pytest.raises(Exception, match="unknown topic 'c'"):
        df.write.format("commitlog").mode("append").option("topic", "c").save(root)

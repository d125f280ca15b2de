"""The test kit with Spark: a job is run to its end, restarted, and its topics are compared."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as F  # noqa: N812 as Spark's documentation has it

from pyspark_commitlog import CommitLog, Topic
from pyspark_commitlog.testing.jobs import assert_topic, fill_topic, run_stream
from tests.spark.conftest import REPOSITORY

CreateTopic = Callable[..., Topic]


def read(spark: SparkSession, log: CommitLog, topic: str) -> DataFrame:
    """Return a topic as a stream from its beginning."""
    stream = spark.readStream.format("commitlog").option("subscribe", topic).option("startingOffsets", "earliest")
    return stream.load(log.url)


def test_a_stream_is_run_to_its_end(spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic) -> None:
    commitlog_topic("clicks", ["a", "b", "c"])
    rows = run_stream(read(spark, commitlog, "clicks").select(F.col("value").cast("string"), "offset"))
    assert [tuple(row) for row in rows] == [("a", 0), ("b", 1), ("c", 2)]


def test_a_stream_goes_on_with_its_checkpoint(
    spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic, tmp_path: Path
) -> None:
    commitlog_topic("clicks", ["a"])
    values = read(spark, commitlog, "clicks").select(F.col("value").cast("string"))
    checkpoint = str(tmp_path / "checkpoint")
    assert [row.value for row in run_stream(values, checkpoint)] == ["a"]
    fill_topic(commitlog, "clicks", ["b"])
    assert [row.value for row in run_stream(values, checkpoint)] == ["b"]
    assert [row.value for row in run_stream(values)] == ["a", "b"]


def test_an_aggregate_is_run_in_its_output_mode(
    spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic
) -> None:
    commitlog_topic("clicks", ["a", "b", "a"])
    counts = read(spark, commitlog, "clicks").groupBy(F.col("value").cast("string").alias("page")).count()
    assert sorted(map(tuple, run_stream(counts, output_mode="complete"))) == [("a", 2), ("b", 1)]


def test_a_writer_writes_where_it_says(
    spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic, tmp_path: Path
) -> None:
    commitlog_topic("clicks", ["a", "b"])
    upper = read(spark, commitlog, "clicks").select(F.upper(F.col("value").cast("string")).alias("value"))
    writer = upper.writeStream.format("commitlog").option("path", commitlog.url).option("topic", "upper")
    commitlog.create_topic("upper")
    assert run_stream(writer, str(tmp_path / "checkpoint")) == []
    assert_topic(commitlog.topic("upper"), ["A", "B"])
    assert run_stream(writer, str(tmp_path / "checkpoint")) == []
    assert_topic(commitlog.topic("upper"), ["A", "B"])


def test_a_query_that_fails_fails_the_test(
    spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic
) -> None:
    commitlog_topic("clicks", ["a"])
    broken = read(spark, commitlog, "clicks").select(F.raise_error(F.lit("no such page")))
    with pytest.raises(StreamingQueryException, match="no such page"):
        run_stream(broken)


def test_a_stream_that_takes_too_long_is_stopped(
    spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic
) -> None:
    commitlog_topic("clicks", ["a"])
    slow = read(spark, commitlog, "clicks").select(F.expr("java_method('java.lang.Thread', 'sleep', 60000L)"))
    with pytest.raises(TimeoutError, match="has not ended after 3 s"):
        run_stream(slow, timeout_seconds=3)
    assert spark.streams.active == []


def test_the_session_is_the_one_that_is_active(spark: SparkSession, commitlog_spark: SparkSession) -> None:
    assert commitlog_spark is spark


@pytest.mark.nightly
def test_the_tests_of_the_manual_pass(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/how-to/test-your-job.md").read_text()
    for name, program in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_clicks.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout

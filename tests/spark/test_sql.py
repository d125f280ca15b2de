"""SQL tables: Spark keeps their OPTIONS to itself, so options come with each query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from tests.spark.jobs import COLUMNS, PATIENCE_SECONDS, read, values, write

TOPIC = "orders"


@pytest.fixture
def row(spark: SparkSession, root: str, log: CommitLog) -> Iterator[DataFrame]:
    """Yield a record to write to a topic that has one; tables are dropped behind the test."""
    log.create_topic(TOPIC)
    write(spark.sql("SELECT 'first' AS value"), root, TOPIC)
    yield spark.sql("SELECT CAST('second' AS BINARY) AS value")
    for table in spark.catalog.listTables():
        if not table.isTemporary:
            spark.sql(f"DROP TABLE {table.name}")


def given(root: str, *, topic: str = "subscribe") -> str:
    """Return the options of a query."""
    return f"WITH (path = '{root}', {topic} = '{TOPIC}')"


def test_a_table_without_columns_has_those_of_the_source(spark: SparkSession, root: str, row: DataFrame) -> None:
    """Spark asks for them with the table's own properties among the options: location, owner, provider, comment."""
    spark.sql(f"CREATE TABLE t USING commitlog OPTIONS (subscribe '{TOPIC}') COMMENT 'all' LOCATION '{root}'")
    assert spark.table("t").schema == spark.createDataFrame([], COLUMNS).schema
    assert values(spark.sql(f"SELECT * FROM t {given(root)} WHERE offset >= 0")) == ["first"]


def test_a_query_on_a_table_without_options_is_told_where_they_go(
    spark: SparkSession, root: str, row: DataFrame
) -> None:
    spark.sql(
        f"CREATE TABLE t (value BINARY) USING commitlog OPTIONS (path '{root}', subscribe '{TOPIC}', topic '{TOPIC}')"
    )
    for statement, what in (("SELECT * FROM t", "subscribe"), ("INSERT INTO t VALUES (X'41')", "path")):
        with pytest.raises(
            PySparkException, match=rf"'{what}' is missing: .*in SQL: FROM t WITH \(path = '…', subscri"
        ):
            spark.sql(statement).collect()
    assert values(read(spark, root, TOPIC)) == ["first"]


def test_inserts_append_and_never_overwrite(spark: SparkSession, root: str, row: DataFrame) -> None:
    spark.sql("CREATE TABLE t (value BINARY) USING commitlog")
    spark.sql("CREATE TABLE text (key STRING, value STRING) USING commitlog")
    spark.sql(f"INSERT INTO text {given(root, topic='topic')} VALUES ('k', 'a'), (null, 'b')")
    row.writeTo("t").options(path=root, topic=TOPIC).append()
    with pytest.raises(PySparkException, match="a log cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE t {given(root, topic='topic')} VALUES (X'63')")
    with pytest.raises(PySparkException, match="does not support dynamic overwrite"):
        row.writeTo("t").options(path=root, topic=TOPIC).overwritePartitions()
    assert values(spark.sql(f"SELECT value FROM t {given(root)}")) == ["a", "b", "first", "second"]


def test_wall_time_that_is_inserted_is_that_of_the_session_s_zone(
    spark: SparkSession, root: str, log: CommitLog, row: DataFrame
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.sql("CREATE TABLE timed (value STRING, timestamp TIMESTAMP_NTZ) USING commitlog")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        spark.sql(f"INSERT INTO timed {given(root, topic='topic')} VALUES ('a', timestamp_ntz'2024-07-01 12:00:00')")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [record.timestamp for record in log.topic(TOPIC).read(0, 0, max_records=9)][-1] == 1719849600000


def test_tables_made_by_a_write_have_its_records(spark: SparkSession, root: str, row: DataFrame) -> None:
    row.writeTo("made").using("commitlog").options(path=root, topic=TOPIC).create()
    row.write.format("commitlog").mode("append").options(path=root, topic=TOPIC).saveAsTable("saved")
    found = spark.read.options(path=root, subscribe=TOPIC).table("saved")
    assert values(found) == ["first", "second", "second"]


def test_streams_go_from_table_to_table(
    spark: SparkSession, root: str, row: DataFrame, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic("copy")
    spark.sql("CREATE TABLE t (value BINARY) USING commitlog")
    df = spark.readStream.options(path=root, subscribe=TOPIC, startingOffsets="earliest").table("t")
    writer = df.writeStream.options(path=root, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).toTable("t").awaitTermination(PATIENCE_SECONDS)
    assert values(read(spark, root, "copy")) == ["first"]

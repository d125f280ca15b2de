"""Typed topics by real Spark: columns in, columns out, equal to what Spark's own Parquet gives back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from pyspark_commitlog import CommitLog, DefaultSource, suggest

TOPIC = "events"
#: Every type that is stored, nested ones in each other.
DDL = """
    n INT, flag BOOLEAN, tiny BYTE, small SHORT, whole INT, big BIGINT, real FLOAT, wide DOUBLE, price DECIMAL(38,10),
    tag STRING, raw BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, many ARRAY<INT>, pairs MAP<STRING, DOUBLE>,
    place STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING, t: TIMESTAMP>>>
"""
_UTC = dt.UTC
FULL: tuple[Any, ...] = (
    True, 127, -32768, 2**31 - 1, -(2**63), 1.5, float("-inf"), Decimal("12345678901234567890.0123456789"), "ünïcode",
    bytearray(b"\x00\xff"), dt.date(1, 1, 1), dt.datetime(1970, 1, 1, 12, 30, 0, 1, tzinfo=_UTC),
    dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"), [1, None, 3], {"a": 1.0, "b": None},
    Row(x=1, y=[Row(z="z", t=dt.datetime(2024, 7, 1, tzinfo=_UTC)), None]),
)  # fmt: skip
LOW: tuple[Any, ...] = (
    False, -128, 32767, -(2**31), 2**63 - 1, float("nan"), -0.0, Decimal("-0.0000000001"), "", bytearray(),
    dt.date(9999, 12, 31), dt.datetime(2024, 2, 29, tzinfo=_UTC), dt.datetime.fromisoformat("0001-01-01T00:00:00"), [], {}, Row(x=None, y=[]),
)  # fmt: skip
NULLS = (None,) * len(FULL)
ROWS = [(n, *row) for n, row in enumerate((FULL, LOW, NULLS, FULL))]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Return rows of all types, with extreme values and nulls."""
    return spark.createDataFrame(ROWS, DDL)


def write(df: DataFrame, root: str, topic: str = TOPIC, **options: str) -> None:
    df.write.format("commitlog").options(topic=topic, **options).mode("append").save(root)


def read(spark: SparkSession, root: str, subscribe: str = TOPIC, **options: str) -> DataFrame:
    return spark.read.format("commitlog").options(subscribe=subscribe, **options).load(root)


def through_parquet(df: DataFrame, path: Path) -> DataFrame:
    df.write.mode("overwrite").parquet(str(path))
    return df.sparkSession.read.parquet(str(path))


def test_rows_of_all_types_equal_what_parquet_gives_back(
    spark: SparkSession, root: str, log: CommitLog, rows: DataFrame, tmp_path: Path
) -> None:
    log.create_topic(TOPIC, partitions=3, schema=DDL)
    write(rows, root)
    expected = through_parquet(rows, tmp_path / "parquet").orderBy("n")
    assert_df_equality(read(spark, root).orderBy("n"), expected, allow_nan_equality=True)
    log.maintain()
    assert_df_equality(read(spark, root).orderBy("n"), expected, allow_nan_equality=True)


def test_a_stream_writes_and_reads_columns_exactly_once(
    spark: SparkSession, root: str, log: CommitLog, rows: DataFrame, tmp_path: Path
) -> None:
    log.create_topic(TOPIC, schema=DDL)
    write(rows, root)
    stream = spark.readStream.format("commitlog").option("subscribe", TOPIC).option("startingOffsets", "earliest")

    def copied() -> None:
        query = stream.load(root).writeStream.format("commitlog").option("topic", "copy").option("createTopic", "typed")
        started = (
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(root)
        )
        assert started.awaitTermination(120)

    copied()
    write(rows, root)
    copied()
    expected = rows.union(rows).orderBy("n")
    assert_df_equality(read(spark, root, "copy").orderBy("n"), expected, allow_nan_equality=True)


def test_the_sink_creates_a_typed_topic_with_key_and_timestamp(spark: SparkSession, root: str, log: CommitLog) -> None:
    df = spark.sql(
        "SELECT id, CAST(id % 3 AS STRING) user, timestamp'2024-01-01' + make_dt_interval(id) at FROM range(9)"
    )
    new = {"createTopic": "typed", "numPartitions": "3", "keyColumn": "user", "timestampColumn": "at"}
    write(df, root, **new, **{"topic.retention.ms": "-1"})
    found = read(spark, root, columns="_key, user, at, _timestamp, _partition_id, id").collect()
    assert sorted(row.id for row in found) == list(range(9))
    assert all(bytes(row._key).decode() == row.user and row.at == row._timestamp for row in found)
    assert len({(row.user, row._partition_id) for row in found}) == 3


def test_columns_are_chosen_with_a_star_and_common_names(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING, n INT")
    write(spark.createDataFrame([("a", 1), ("b", 2)], "user STRING, n INT").coalesce(1), root)
    found = read(spark, root, columns="*, _offset, _topic, _timestampType, _headers")
    assert found.columns == ["user", "n", "_offset", "_topic", "_timestampType", "_headers"]
    assert [tuple(row) for row in found.orderBy("_offset").collect()] == [
        ("a", 1, 0, TOPIC, 0, None),
        ("b", 2, 1, TOPIC, 0, None),
    ]
    assert read(spark, root, columns="n").agg({"n": "sum"}).first()[0] == 3
    by_schema = spark.read.format("commitlog").schema("n INT").option("subscribe", TOPIC).load(root)
    assert sorted(row.n for row in by_schema.collect()) == [1, 2]


def test_common_names_are_taken_for_untyped_topics_too(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic("plain")
    write(spark.sql("SELECT 'k' AS key, 'v' AS value"), root, "plain")
    found = read(spark, root, "plain", columns="_key, value, _offset, _partition_id, _topic").collect()
    assert [tuple(row) for row in found] == [(bytearray(b"k"), bytearray(b"v"), 0, 0, "plain")]


def test_several_typed_topics_are_read_by_name(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic("a", schema="user STRING, n INT")
    log.create_topic("b", schema="user STRING, price DOUBLE")
    write(spark.createDataFrame([("x", 1)], "user STRING, n INT"), root, "a")
    write(spark.createDataFrame([("y", 2.5)], "user STRING, price DOUBLE"), root, "b")
    found = read(spark, root, "a,b").orderBy("user")
    assert found.columns == ["user", "n", "price"]
    assert [tuple(row) for row in found.collect()] == [("x", 1, None), ("y", None, 2.5)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"schema": "user INT"}, "column 'user' is string in topic 'events' and integer in topic 'other'"),
        ({}, "topic 'events' is typed and topic 'other' is not"),
    ],
)
def test_topics_that_can_t_be_one_table_are_refused(
    spark: SparkSession, root: str, log: CommitLog, other: dict[str, str], message: str
) -> None:
    log.create_topic(TOPIC, schema="user STRING")
    log.create_topic("other", **other)
    with pytest.raises(PySparkException, match=message):
        read(spark, root, f"{TOPIC},other")


def refused(df: DataFrame, root: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        write(df, root)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("'k' AS key, 'v' AS value", "is typed: it takes the columns user, n, not key and value.*from_json"),
        ("'a' AS user, 1 AS n, 2 AS extra", "there is no column 'extra'; it has user, n: drop or rename it"),
        ("'a' AS user, 1L AS n", "column 'n' is int64, declared is int32: cast it"),
        ("1 AS n", "column 'user' is missing, and is declared NOT NULL"),
    ],
)
def test_other_columns_are_refused_before_the_job_starts(
    spark: SparkSession, root: str, log: CommitLog, select: str, message: str
) -> None:
    log.create_topic(TOPIC, schema="user STRING NOT NULL, n INT")
    refused(spark.sql(f"SELECT {select}"), root, message)


def test_a_null_where_none_may_be_is_refused_by_its_place(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING NOT NULL, n INT")
    df = spark.createDataFrame([("a", 1), (None, 2)], "user STRING, n INT").coalesce(1)
    refused(df, root, "column 'user' is null in record 1 of its batch")
    assert read(spark, root).count() == 0
    write(spark.sql("SELECT 'a' AS user"), root)  # a column that may be null may be missing
    assert [tuple(row) for row in read(spark, root).collect()] == [("a", None)]


def test_kafka_s_columns_of_a_typed_topic_are_refused(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING")
    with pytest.raises(PySparkException, match="topic 'events' is typed: it has the columns user, not value"):
        read(spark, root, columns="value").collect()


def test_readers_see_nullable_columns(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING NOT NULL, s STRUCT<a: INT NOT NULL> NOT NULL")
    schema: StructType = read(spark, root).schema
    assert all(field.nullable for field in schema)
    assert schema["s"].dataType["a"].nullable


def test_the_columns_that_a_query_uses_are_suggested(
    spark: SparkSession, root: str, log: CommitLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log.create_topic(TOPIC, schema="user STRING, n INT, page STRING, price DOUBLE")
    log.create_topic("names", schema="user STRING, name STRING, city STRING")
    joined = read(spark, root).where("n > 1").join(read(spark, root, "names"), "user").groupBy("city").count()
    assert suggest(joined) == ["user, n", "user, city"]
    assert 'subscribe events: .option("columns", "user, n")  # 2 of 4 columns' in capsys.readouterr().out
    stream = spark.readStream.format("commitlog").option("subscribe", TOPIC).load(root)
    assert suggest(stream.groupBy("page").sum("price")) == ["page, price"]


def test_an_engine_that_prunes_gets_its_columns(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING, n INT, page STRING")
    source = DefaultSource({"path": root, "subscribe": TOPIC})
    reader = source.reader(source.schema())
    kept = reader.pruneColumns(StructType.fromDDL("page STRING, user STRING"))
    assert kept.fieldNames() == ["user", "page"]
    assert reader.pruneColumns(StructType()).fieldNames() == ["user"]


def test_pushed_filters_know_a_column_from_the_log_s(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="offset BIGINT, partition INT")
    for first in (0, 5000):
        write(spark.range(first, first + 5000).selectExpr("10000 - id AS offset", "7 AS partition").coalesce(1), root)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        both = read(spark, root, columns="*, _offset", pushDownPredicate="true")
        assert both.where("offset = 9999 AND partition = 7").select("_offset").first()[0] == 1
        chosen = both.where("_offset >= 9000")
        assert chosen.count() == 1000
        assert chosen.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_from_topic_to_topic_goes_on_while_both_change(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic("from", schema="user STRING, n INT")
    log.create_topic("to", schema="user STRING, n INT")
    write(spark.sql("SELECT 'a' user, 1 n"), root, "from")
    df = spark.readStream.format("commitlog").options(subscribe="from", startingOffsets="earliest").load(root)
    sink = df.writeStream.format("commitlog").options(topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
    query = sink.start(root)
    try:
        query.processAllAvailable()
        log.topic("from").alter(rename={"n": "m"}, add="x STRING")
        write(spark.sql("SELECT 'b' user, 2 m, 'y' x"), root, "from")
        query.processAllAvailable()
        log.topic("to").alter(rename={"user": "who"}, widen={"n": "BIGINT"})
        write(spark.sql("SELECT 'c' user, 3 m, 'z' x"), root, "from")
        query.processAllAvailable()
        log.topic("to").alter(drop="n")
        write(spark.sql("SELECT 'd' user, 4 m, 'z' x"), root, "from")
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row.who for row in read(spark, root, "to").orderBy("who").collect()] == ["a", "b", "c", "d"]
    assert read(spark, root, "from").columns == ["user", "m", "x"]


def test_a_write_merges_its_columns(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="user STRING, n INT")
    write(spark.sql("SELECT 'a' user, 1 n"), root)
    write(spark.sql("SELECT 'b' user, 2L n, array(struct(1.5D y)) x"), root, mergeSchema="true")
    found = read(spark, root).orderBy("user")
    assert found.schema.simpleString() == "struct<user:string,n:bigint,x:array<struct<y:double>>>"
    assert found.collect() == [Row(user="a", n=1, x=None), Row(user="b", n=2, x=[Row(y=1.5)])]

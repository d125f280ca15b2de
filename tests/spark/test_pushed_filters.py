"""Filters that prune, in Spark: the same answers with and without, and little that is read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import OptionError
from tests.spark import driven
from tests.spark.jobs import COLUMNS, read, write

CONF = "spark.sql.python.filterPushdown.enabled"
START = datetime(2013, 11, 2, tzinfo=UTC)
ROWS = 2000
PARTITIONS = 3


@pytest.fixture(params=["on", "off"])
def conf(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Spark with and without the push-down of filters."""
    spark.conf.set(CONF, request.param == "on")
    yield request.param == "on"
    spark.conf.unset(CONF)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Spark with the push-down of filters."""
    spark.conf.set(CONF, "true")
    yield
    spark.conf.unset(CONF)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a root of its own for this module: its topics are only read."""
    return str(tmp_path_factory.mktemp("filters") / "log")


@pytest.fixture(scope="module")
def records(spark: SparkSession, root: str) -> list[tuple[object, ...]]:
    """Two topics over 33 hours, some minutes out of order; half of one is not settled. Return the records."""
    made: list[tuple[object, ...]] = []
    config = {"segment.bytes": 4096, "batch.size": 1024, "index.interval.bytes": 100, "compression.type": "none",
              "retention.ms": -1}  # fmt: skip
    for name in ("orders", "returns"):
        log = CommitLog(root)
        log.create_topic(name, PARTITIONS, config)
        for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
            at = {n: START + timedelta(minutes=n + n * 7 % 10, microseconds=n) for n in half}
            rows = [(f"{name} {n}".encode(), at[n], n % PARTITIONS) for n in half]
            write(
                spark.createDataFrame(rows, "value binary, timestamp timestamp, partition int").coalesce(1), root, name
            )
            if not half.start or name == "orders":
                log.topic(name).maintain()
            made += [
                (None, value, name, p, n // PARTITIONS, ts, 0) for n, (value, ts, p) in zip(half, rows, strict=True)
            ]
    return made


def pruned(spark: SparkSession, root: str, topics: str = "orders,returns") -> DataFrame:
    """Return a read that lets filters prune."""
    return read(spark, root, topics, pushDownPredicate="true")


def rows_read(df: DataFrame) -> int:
    """Run a query without a shuffle; return how many records came out of the source."""
    df.collect()
    scan = df._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())


PREDICATES = [
    "offset = 17",
    "offset IN (3, 400, 5000, NULL)",
    "offset NOT IN (1, 2, 3)",
    "offset NOT IN (1, NULL)",
    "offset <=> NULL OR offset IS NULL",
    "offset > 650.5 AND offset < 655",
    "offset > 10 AND offset < 5",
    "partition = 1 AND offset >= 600",
    "partition IN (0, 2) AND NOT (offset > 20)",
    "partition != 1 AND topic = 'returns' AND offset < 9",
    "topic LIKE 'ret%' AND offset BETWEEN 20 AND 30",
    "topic >= 'p' AND topic IN ('returns', 'others') AND partition = 0 AND offset < 7",
    "TIMESTAMP >= '2013-11-03 01:10:00' AND timestamp < '2013-11-03 01:30:00.001'",
    "timestamp = timestamp'2013-11-02 00:08:00.000001Z'",
    "timestamp > '2013-11-02 20:00:00' AND timestamp <= timestamp'2013-11-03 02:00:00Z' AND value IS NOT NULL",
    "(offset = 1 OR offset = 640) AND timestamp > '2013-11-03 00:00:00'",
    "offset = 1 OR partition = 2 AND timestamp < '2013-11-01 21:00:00'",
    "CAST(timestamp AS DATE) = '2013-11-01' AND partition = 0",
    "timestamp > '2030-01-01' OR key IS NOT NULL",
    "timestamp > '2030-01-01'",
    "NOT (timestamp < '2013-11-03 02:00:00' OR partition = 0)",
]


#: Without the push-down Spark filters by itself: a few show that, and all of them by night.
CASES = [
    pytest.param(
        conf, predicate, id=f"{conf}-{predicate}", marks=[pytest.mark.nightly] if conf == "off" and n % 7 else []
    )
    for conf in ("on", "off")
    for n, predicate in enumerate(PREDICATES)
]


@pytest.mark.parametrize(("conf", "predicate"), CASES, indirect=["conf"])
def test_the_answer_is_that_of_a_list_of_records(
    spark: SparkSession, root: str, records: list[tuple[object, ...]], conf: bool, predicate: str
) -> None:
    expected = spark.createDataFrame(records, COLUMNS).where(predicate)
    found = pruned(spark, root).where(predicate)
    order = ["topic", "partition", "offset"]
    assert_df_equality(found.orderBy(*order), expected.orderBy(*order), ignore_nullable=True)


def test_little_is_read_for_an_hour(spark: SparkSession, root: str, records: object, pushing: None) -> None:
    hour = "timestamp >= '2013-11-02 00:00:00' AND timestamp < '2013-11-02 01:00:00'"
    found = pruned(spark, root, "orders").where(hour)
    assert found.count() == 60
    assert rows_read(found) < ROWS / 8
    assert rows_read(read(spark, root, "orders").where(hour)) == ROWS


def test_offsets_partitions_and_topics_are_read_exactly(
    spark: SparkSession, root: str, records: object, pushing: None
) -> None:
    df = pruned(spark, root).where("topic = 'returns' AND partition IN (0, 2) AND offset >= 30 AND offset < 35")
    assert rows_read(df) == 10
    assert df.rdd.getNumPartitions() == 2


def test_a_read_that_nothing_can_pass_plans_nothing(
    spark: SparkSession, root: str, records: object, pushing: None
) -> None:
    df = pruned(spark, root).where("offset > 10 AND offset < 5")
    assert df.collect() == []
    assert rows_read(df) == 0


def test_a_dataframe_is_right_in_several_queries(spark: SparkSession, root: str, records: object, conf: bool) -> None:
    """Without the option, also where Spark pushes filters."""
    df = read(spark, root, "orders")
    assert df.where("partition = 1 AND offset < 5").count() == 5
    assert df.count() == ROWS
    assert df.where("offset = 3").union(df.where("offset = 4 AND partition = 0")).count() == PARTITIONS + 1


def test_spark_still_hands_the_filters_of_one_query_to_the_next(
    spark: SparkSession, root: str, records: object, pushing: None
) -> None:
    """Why `pushDownPredicate` is off by default (docs/explanation/design/pushed-filters.md). When this fails, it can be on."""
    df = pruned(spark, root, "orders")
    assert df.where("partition = 1 AND offset < 5").count() == 5
    assert df.count() == 5
    assert df.where("offset = 3 OR offset = 9").count() == 1


def test_a_stream_refuses_the_option(tmp_path: Path) -> None:
    CommitLog(str(tmp_path / "log")).create_topic("orders")
    with pytest.raises(OptionError, match="'pushDownPredicate' is for batch reads"):
        driven.Seen().run(driven.stream(str(tmp_path / "log"), "orders", pushDownPredicate="true"))

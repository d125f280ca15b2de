"""Which topics and partitions a query reads: subscribePattern and assign, in batch and while a query runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import OffsetOutOfRangeError, OptionError, TopicChangedError, UnknownTopicError
from tests.spark import driven
from tests.spark.jobs import Seen, ended, last_offsets, put
from tests.support.records import append, batch_of


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    """Return a query's record, with a checkpoint of its own."""
    return Seen(tmp_path / "checkpoint")


def batch(spark: SparkSession, root: str, **options: str) -> DataFrame:
    """Return a batch read: topic, partition, offset."""
    found = spark.read.format("commitlog").options(**options).load(root)
    return found.select("topic", "partition", "offset").orderBy("topic", "partition", "offset")


def batched(root: str, **options: str) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of a batch read in the driver without Spark."""
    return driven.rows(driven.read(root, None, **options), "topic", "partition", "offset")


def streamed(spark: SparkSession, root: str, **options: str) -> DataFrame:
    """Return a streaming read."""
    return spark.readStream.format("commitlog").options(**{"startingOffsets": "earliest", **options}).load(root)


def expected(spark: SparkSession, *rows: tuple[str, int, int]) -> DataFrame:
    """Return topic, partition and offset as a read gives them."""
    return spark.createDataFrame(rows, "topic string, partition int, offset long").coalesce(1)


@pytest.fixture
def topics(log: CommitLog) -> CommitLog:
    """Make three topics with two partitions; each has a record in partition 0, and two in partition 1."""
    for name in ("eu-orders", "eu-returns", "us-orders"):
        log.create_topic(name, partitions=2)
        driven.put(log, name, [f"{name}.0"], 0)
        driven.put(log, name, [f"{name}.1", f"{name}.2"], 1)
    return log


def test_a_batch_reads_the_topics_whose_whole_name_matches(spark: SparkSession, root: str, topics: CommitLog) -> None:
    topics.topic("eu-returns").delete()
    wanted = expected(
        spark, *((f"{where}-orders", p, o) for where in ("eu", "us") for p, o in ((0, 0), (1, 0), (1, 1)))
    )
    assert_df_equality(batch(spark, root, subscribePattern="..-(orders|returns)"), wanted, ignore_nullable=True)
    assert batch(spark, root, subscribePattern="orders").count() == 0


def test_a_batch_reads_the_assigned_partitions_only(root: str, topics: CommitLog) -> None:
    assign = json.dumps({"us-orders": [1], "eu-orders": [0]})
    wanted = [("eu-orders", 0, 0), ("us-orders", 1, 0), ("us-orders", 1, 1)]
    assert batched(root, assign=assign) == wanted
    later = json.dumps({"us-orders": {"1": 1}})
    wanted = [("eu-orders", 0, 0), ("us-orders", 1, 1)]
    assert batched(root, assign=assign, startingOffsets=later) == wanted


def test_a_timestamp_is_looked_up_in_assigned_partitions_only(root: str, log: CommitLog) -> None:
    """The other partition has no record that late, which would be an error."""
    log.create_topic("orders", partitions=2, config={"retention.ms": -1})
    append(log.root.topic("orders"), batch_of([b"0", b"1"], partition=[0, 1], timestamp=[0, 1_000_000_000]))
    found = batched(root, assign='{"orders": [1]}', startingTimestamp="500000")
    assert found == [("orders", 1, 0)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"assign": '{"eu-orders": [2]}'}, "option 'assign': topic 'eu-orders' has partitions 0 to 1, not 2"),
        ({"assign": '{"orders": [0]}'}, "unknown topic 'orders'"),
        (
            {"subscribePattern": ".*", "startingOffsets": '{"orders": {"0": 1}}'},
            "option 'startingOffsets' names topic 'orders', which does not exist",
        ),
        (
            {"subscribePattern": ".*", "startingOffsetsByTimestamp": '{"orders": {"0": 1}}'},
            "names topic 'orders', which does not exist",
        ),
        ({"subscribe": "eu-orders", "assign": '{"eu-orders": [0]}'}, "exclude each other"),
    ],
)
def test_what_is_not_there_is_told(root: str, topics: CommitLog, options: dict[str, str], told: str) -> None:
    with pytest.raises((OptionError, UnknownTopicError), match=told):
        batched(root, **options)


def test_a_running_query_reads_topics_that_come_to_match_from_their_start(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic("orders-1")
    query = seen.start(driven.stream(root, None, subscribePattern="orders-.*", startingOffsets="latest"))
    query.process_all_available()
    for name in ("orders-2", "others"):
        log.create_topic(name)
        driven.put(log, name, [name])
    query.process_all_available()
    assert seen.all() == ["orders-2"]
    log.create_topic("orders-3")
    driven.put(log, "orders-3", ["while it was away"])
    assert seen.run(driven.stream(root, None, subscribePattern="orders-.*")) == [["while it was away"]]
    assert set(seen.offsets()["__topic_ids"]) == {"orders-1", "orders-2", "orders-3"}


def test_topics_that_come_during_available_now_wait_for_the_next_run(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic("orders-1")
    driven.put(log, "orders-1", ["a", "b"])

    def late(batch: int) -> None:
        if batch == 0:
            log.create_topic("orders-2")
            driven.put(log, "orders-2", ["c"])

    for wanted in ([["a"], ["b"]], [["c"]]):
        options = {"subscribePattern": "orders-.*", "maxOffsetsPerTrigger": "1"}
        assert seen.run(driven.stream(root, None, **options), late) == wanted


def test_a_query_keeps_to_its_assigned_partitions(root: str, topics: CommitLog) -> None:
    seen = driven.Seen()
    assign = json.dumps({"eu-orders": [1]})
    assert seen.run(driven.stream(root, None, assign=assign)) == [["eu-orders.1", "eu-orders.2"]]
    driven.put(topics, "eu-orders", ["not mine"], 0)
    driven.put(topics, "eu-orders", ["mine"], 1)
    assert seen.run(driven.stream(root, None, assign=assign)) == [["mine"]]
    assert seen.offsets()["eu-orders"] == {"1": 3}


def test_a_query_that_matched_a_deleted_topic_says_so(root: str, topics: CommitLog) -> None:
    seen = driven.Seen()
    seen.run(driven.stream(root, None, subscribePattern=".*-orders"))
    topics.topic("us-orders").delete()
    with pytest.raises(TopicChangedError, match="us-orders partition 0: the topic was deleted: all that"):
        seen.run(driven.stream(root, None, subscribePattern=".*-orders"))


def test_a_query_that_is_to_read_fewer_topics_is_told(root: str, topics: CommitLog) -> None:
    seen = driven.Seen()
    seen.run(driven.stream(root, None, subscribe="eu-orders,us-orders"))
    with pytest.raises(OffsetOutOfRangeError, match="us-orders partition 0: the checkpoint is at offset 1, and the qu"):
        seen.run(driven.stream(root, None, subscribe="eu-orders"))


# --- offsets of a query as options ------------------------------------------------------------------------


@pytest.fixture
def offsets(spark: SparkSession, root: str, topics: CommitLog, seen: Seen) -> list[str]:
    """Return where a query came to after each of two batches: of its progress, and as its checkpoint says."""
    seen.run(streamed(spark, root, subscribe="eu-orders,us-orders"))
    first = last_offsets(seen.checkpoint)
    put(spark, root, "eu-orders", ["late"], 0)
    query = seen.start(streamed(spark, root, subscribe="eu-orders,us-orders"))
    ended(query)
    (second,) = [told["sources"][0]["endOffset"] for told in query.recentProgress if told["numInputRows"]]
    put(spark, root, "eu-orders", ["later"], 0)
    return [json.dumps(first), second if isinstance(second, str) else json.dumps(second)]


@pytest.fixture
def driven_offsets(root: str, topics: CommitLog) -> list[str]:
    """Return what the checkpoint of a query in the driver without Spark has after each of two batches."""
    seen = driven.Seen()
    seen.run(driven.stream(root, "eu-orders,us-orders"))
    driven.put(topics, "eu-orders", ["late"], 0)
    seen.run(driven.stream(root, "eu-orders,us-orders"))
    driven.put(topics, "eu-orders", ["later"], 0)
    return seen.checkpoint.planned


def test_a_batch_reads_between_offsets_of_a_query(spark: SparkSession, root: str, offsets: list[str]) -> None:
    first, second = offsets
    found = batch(spark, root, subscribe="eu-orders,us-orders", startingOffsets=first, endingOffsets=second)
    assert_df_equality(found, expected(spark, ("eu-orders", 0, 1)), ignore_nullable=True)
    found = batch(spark, root, subscribe="eu-orders,us-orders", startingOffsets=second)
    assert_df_equality(found, expected(spark, ("eu-orders", 0, 2)), ignore_nullable=True)


def test_a_stream_runs_between_offsets_of_a_query(root: str, driven_offsets: list[str]) -> None:
    first, second = driven_offsets
    other = driven.Seen()
    other.run(driven.stream(root, None, subscribe="eu-orders,us-orders", startingOffsets=first, endingOffsets=second))
    assert other.all() == ["late"]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_former_incarnation_are_refused(
    root: str, topics: CommitLog, driven_offsets: list[str], option: str
) -> None:
    topics.topic("us-orders").delete()
    topics.create_topic("us-orders", partitions=2)
    driven.put(topics, "us-orders", ["new", "new", "new"], 1)
    told = f"'{option}': its offsets are of topic 'us-orders' with id .* deleted and made again"
    options = {"subscribe": "eu-orders,us-orders", option: driven_offsets[0]}
    with pytest.raises(OptionError, match=told):
        batched(root, **options)
    with pytest.raises(OptionError, match=told):
        driven.Seen().run(driven.stream(root, None, **options))

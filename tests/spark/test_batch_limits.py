"""Limits of a micro-batch, and how a read is cut into Spark partitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession, functions as sf
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.spark import driven
from tests.spark.driver import Checkpoint, Driver, SinkDriver, read_batch, source
from tests.spark.jobs import Seen, ended, frame, put, read, stored_frame, stream, values, write
from tests.spark.model import AUTUMN, Sent, Topic
from tests.support.records import append, batch_of
from tests.support.world import World

TOPIC = "orders"


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    """Return a query's record, with a checkpoint of its own."""
    return Seen(tmp_path / "checkpoint")


def fill(log: CommitLog, count: int, size: int = 10, partition: int = 0) -> None:
    """Append values, which are not compressed."""
    append(
        log.root.topic(TOPIC),
        batch_of([b"%06d" % n + b"x" * size for n in range(count)], partition=[partition] * count),
    )


# --- limits -----------------------------------------------------------------------------------------------


def test_a_query_waits_for_enough_records_and_takes_all_with_available_now(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["first"], 0)
    options = {"minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 4}
    query = seen.start(driven.stream(root, TOPIC, **options))
    query.process_all_available()
    assert seen.batches == [["first"]]  # the first one of a run does not wait
    driven.put(log, TOPIC, ["a", "b"], 0)
    query.process_all_available()
    assert len(seen.batches) == 1
    driven.put(log, TOPIC, ["c", "d", "e"], 1)
    query.process_all_available()
    assert [len(batch) for batch in seen.batches] == [1, 4]  # the one left waits again
    driven.put(log, TOPIC, ["f"], 1)
    seen.run(driven.stream(root, TOPIC, **options))
    assert seen.all() == ["a", "b", "c", "d", "e", "f", "first"]


def test_stored_bytes_limit_a_batch_and_starve_no_partition(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=2, config={"compression.type": "none", "batch.size": 50_000})
    for _ in range(2):
        fill(log, 100, 10_000, partition=0)
        fill(log, 10, 10, partition=1)
        log.topic(TOPIC).maintain()
    fill(log, 100, 10_000, partition=0)  # and some that are not settled
    sizes: list[list[int]] = []

    def take(batch: int, rows: list[pa.RecordBatch]) -> None:
        found = Counter(partition for (partition,) in driven.rows([rows], "partition"))
        sizes.append([found[partition] for partition in (0, 1)])

    Driver(driven.stream(root, TOPIC, maxBytesPerTrigger=500_000), Checkpoint(), take).run()
    assert [sum(batch[p] for batch in sizes) for p in (0, 1)] == [300, 20]
    assert 6 <= len(sizes) <= 8
    assert all(40 <= batch[0] <= 53 for batch in sizes[:-1])  # 48, and a frame of 4 more or less
    assert all(batch[1] >= 1 for batch in sizes)


class Manual(DefaultSource):
    """The data source with a clock that a test moves."""

    clock: ManualClock

    def open_log(self, path: str, storage: Any) -> Root:
        """Return the log with that clock."""
        return World(Path(path), self.clock).log().root


def test_a_batch_waits_no_longer_than_the_delay_since_the_one_before(root: str, log: CommitLog) -> None:
    of = Manual({"path": root, "subscribe": TOPIC, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5",
                     "maxTriggerDelay": "10s"})  # fmt: skip
    of.clock = ManualClock(4_000_000_000_000)
    log.create_topic(TOPIC)
    reader = of.streamReader(of.schema())
    limit = reader.getDefaultReadLimit()
    at = reader.initialOffset()

    def trigger(wait_ms: int, records: int, how: Any = limit) -> int:
        """Let time pass, then records come; return how many a trigger takes."""
        nonlocal at
        of.clock.advance(wait_ms)
        if records:
            fill(log, records)
        found = reader.latestOffset(at, how)
        taken: int = found[TOPIC]["0"] - at[TOPIC]["0"]
        at = found
        return taken

    assert trigger(0, 1) == 1  # the first
    assert trigger(9_999, 1) == 0
    assert trigger(0, 4) == 5  # enough
    assert trigger(9_000, 2) == 0
    assert trigger(1_000, 0) == 2  # waited long enough since the batch before
    assert trigger(60_000, 0) == 0
    assert trigger(0, 1) == 1  # the delay counts between two batches, with or without records
    assert trigger(0, 1, ReadAllAvailable()) == 1  # a trigger that runs once takes all


@pytest.mark.parametrize("limits", [
    {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "2000"},
    {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "8", "maxBytesPerTrigger": "20000"},
])  # fmt: skip
def test_every_record_is_read_once_under_any_limits(root: str, log: CommitLog, limits: dict[str, str]) -> None:
    log.create_topic(TOPIC, partitions=3, config={"batch.size": 1024, "compression.type": "none"})
    for partition, count in enumerate((60, 1, 0)):
        fill(log, count, 50, partition) if count else None
    log.topic(TOPIC).maintain()
    fill(log, 20, 50, 2)
    batches: list[list[int]] = []

    def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
        batches.append([sum(found.column("partition").to_pylist().count(p) for found in rows) for p in range(3)])

    of = DefaultSource(
        {"path": root, "subscribe": TOPIC, "startingOffsets": "earliest", "maxRecordsPerPartition": "4", **limits}
    )
    Driver(of, Checkpoint(), sink).run()
    assert [sum(column) for column in zip(*batches, strict=True)] == [60, 1, 20]
    assert len(batches) > 4
    assert all(batches[0])  # nobody starves


def test_a_batch_read_takes_all_and_says_so(root: str, log: CommitLog, caplog: pytest.LogCaptureFixture) -> None:
    log.create_topic(TOPIC)
    fill(log, 5)
    of = DefaultSource({"path": root, "subscribe": TOPIC, "maxOffsetsPerTrigger": "2"})
    (part,) = of.reader(of.schema()).partitions()
    assert (part.value.start, part.value.end) == (0, 5)
    assert caplog.messages == ["limits of a trigger do nothing in a batch read: it takes all from start to end"]


# --- Spark partitions -------------------------------------------------------------------------------------


def spans(df: DataFrame) -> list[tuple[int, int, int]]:
    """Return what each Spark partition holds, in order: the partition, its first and its last offset."""
    per = df.withColumn("task", sf.spark_partition_id()).groupBy("task")
    found = per.agg(
        sf.min("partition").alias("p"),
        sf.max("partition").alias("q"),
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
    )
    rows = sorted(found.collect(), key=lambda row: (row.p, row.first))
    assert all(row.p == row.q for row in rows)
    return [(row.p, row.first, row.last) for row in rows]


def test_large_ranges_are_cut_at_frames(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=2, config={"batch.size": 1024, "compression.type": "none", "retention.ms": -1})
    at = [AUTUMN + timedelta(seconds=n) for n in range(101)]
    tasks = [[Sent(b"%06d" % n + b"x" * 100, timestamp=at[n], partition=int(n == 100)) for n in range(101)]]
    write(frame(spark, tasks), root, TOPIC)
    log.topic(TOPIC).maintain()
    assert spans(read(spark, root, TOPIC)) == [(0, 0, 99), (1, 0, 0)]
    df = read(spark, root, TOPIC, minPartitions=5, includeHeaders="true")
    parts = spans(df)
    assert len(parts) == 5
    assert parts[-1] == (1, 0, 0)
    held = [rows.frame.last_offset_delta + 1 for rows in located(log)]
    borders = {sum(held[:n]) for n in range(len(held))}
    assert len(borders) > 8
    assert {first for p, first, _ in parts if p == 0} <= borders
    model = Topic(2)
    model.write(tasks)
    wanted = stored_frame(spark, model.in_order(), TOPIC)
    assert_df_equality(df.orderBy("partition", "offset"), wanted, ignore_nullable=True)


def located(log: CommitLog) -> list[Any]:
    """Return the frames of partition 0's active segment."""
    from pyspark_commitlog.topic.segments.frames import segment_span, walk

    topic = log.root.topic(TOPIC)
    topic_id = topic.newest()[1].topic_id
    active = topic.settled(topic_id)[1].partition(0).active
    return list(walk(topic.storage, segment_span(topic.paths(topic_id), 0, active)))


def counts_of(tasks: list[list[pa.RecordBatch]]) -> list[int]:
    """Return how many records each task reads."""
    return [sum(rows.num_rows for rows in task) for task in tasks]


def test_a_single_frame_is_cut_inside(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    fill(log, 100)
    assert counts_of(driven.read(root, TOPIC, minPartitions=4)) == [25] * 4
    parts = driven.read(root, TOPIC, maxRecordsPerPartition=30, startingOffsets='{"orders": {"0": 9}}')
    assert sorted(counts_of(parts)) == [22, 23, 23, 23]
    assert driven.rows(parts, "offset") == [(offset,) for offset in range(9, 100)]


def test_a_stream_is_cut_too(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=2)
    fill(log, 50)
    fill(log, 10, partition=1)
    options = {"maxRecordsPerPartition": 20, "minPartitions": 5}
    of = driven.stream(root, TOPIC, **options)
    reader = of.streamReader(of.schema())
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert sorted(part.value.end - part.value.start for part in parts) == [10, 12, 12, 13, 13]
    seen = driven.Seen()
    seen.run(of)
    assert len(seen.all()) == 60


def filled_unevenly(log: CommitLog) -> dict[int, int]:
    """Have later frames of each partition larger; return partition -> number of records."""
    log.create_topic(TOPIC, partitions=2)
    for partition in (0, 1):
        fill(log, 1000, partition=partition)
        fill(log, 1500 + partition, partition=partition)
    return {0: 2500, 1: 2501}


def by_partition(rows: Iterable[Row]) -> dict[int, list[int]]:
    """Return the offsets of each partition as they come, for which all of a partition come together."""
    rows = list(rows)
    runs = [partition for partition, _ in groupby(rows, key=lambda row: row.partition)]
    assert len(runs) == len(set(runs))
    return {partition: [row.offset for row in rows if row.partition == partition] for partition in runs}


def in_task_order(tasks: Iterable[Iterable[pa.RecordBatch]]) -> dict[int, list[int]]:
    """Return the offsets of each partition as tasks give them, without Spark."""
    rows = [row for task in tasks for found in task for row in found.select(["partition", "offset"]).to_pylist()]
    return by_partition([Row(**row) for row in rows])


CUTS = [{"minPartitions": "4"}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "1500"},
        {"maxRecordsPerPartition": "700", "minPartitions": "8"}]  # fmt: skip


def test_offsets_of_a_partition_ascend_in_every_batch_result(spark: SparkSession, root: str, log: CommitLog) -> None:
    counts = filled_unevenly(log)
    df = read(spark, root, TOPIC, "partition int, offset long", **CUTS[-1])
    assert df.rdd.getNumPartitions() >= 4
    wanted = {partition: list(range(count)) for partition, count in counts.items()}
    assert by_partition(df.collect()) == wanted
    assert by_partition(df.toLocalIterator()) == wanted
    assert by_partition(df.coalesce(1).collect()) == wanted


@pytest.mark.parametrize("cut", CUTS)
def test_tasks_of_a_batch_have_the_offsets_of_a_partition_in_order(
    root: str, log: CommitLog, cut: dict[str, str]
) -> None:
    counts = filled_unevenly(log)
    tasks = driven.read(root, TOPIC, **cut)
    assert len(tasks) >= 4
    assert in_task_order(tasks) == {partition: list(range(count)) for partition, count in counts.items()}


def test_offsets_of_a_partition_ascend_if_filters_leave_ranges_of_it(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    filled_unevenly(log)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = read(spark, root, TOPIC, pushDownPredicate="true", maxRecordsPerPartition="300")
        kept = df.where("offset IN (3, 4, 5) OR offset BETWEEN 900 AND 2400").select("partition", "offset")
        assert by_partition(kept.collect()) == {p: [3, 4, 5, *range(900, 2401)] for p in (0, 1)}
        kept = df.where("offset IN (3, 2000, 2001, 2002)").select("partition", "offset")
        assert by_partition(kept.collect()) == {p: [3, 2000, 2001, 2002] for p in (0, 1)}
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


LIMITED = {"minPartitions": "4", "maxOffsetsPerTrigger": "4000"}


def test_the_last_record_of_a_micro_batch_is_the_newest(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen
) -> None:
    counts = filled_unevenly(log)
    newest: dict[int, int] = {}
    found: dict[int, list[int]] = {0: [], 1: []}

    def take(df: DataFrame, batch: int) -> None:
        assert df.rdd.getNumPartitions() >= 4 or batch
        for partition, offsets in by_partition(df.select("partition", "offset").collect()).items():
            for offset in offsets:  # the last write wins
                newest[partition] = offset
            found[partition] += offsets

    df = stream(spark, root, TOPIC, **LIMITED)
    writer = df.writeStream.foreachBatch(take).option("checkpointLocation", str(seen.checkpoint))
    ended(writer.trigger(availableNow=True).start())
    assert newest == {0: 2499, 1: 2500}
    assert found == {partition: list(range(count)) for partition, count in counts.items()}


@pytest.mark.parametrize("options", [*CUTS, LIMITED])
def test_tasks_of_a_micro_batch_have_the_offsets_of_a_partition_in_order(
    root: str, log: CommitLog, options: dict[str, str]
) -> None:
    counts = filled_unevenly(log)
    found: dict[int, list[int]] = {0: [], 1: []}

    def take(batch: int, rows: list[pa.RecordBatch]) -> None:
        for partition, offsets in in_task_order([rows]).items():
            found[partition] += offsets

    Driver(driven.stream(root, TOPIC, **options), Checkpoint(), take).run()
    assert found == {partition: list(range(count)) for partition, count in counts.items()}


@pytest.mark.parametrize("cut", [{"minPartitions": "2"}, {"maxRecordsPerPartition": "1500"}])
def test_a_streamed_copy_keeps_the_order_and_its_view_the_newest_value(
    root: str, log: CommitLog, cut: dict[str, str]
) -> None:
    log.create_topic(TOPIC)
    log.create_topic("copy")
    for first, last in ((0, 1000), (1000, 2500)):
        sent = [b"%d" % n for n in range(first, last)]
        append(log.root.topic(TOPIC), batch_of(sent, key=[b"k"] * len(sent)))
    of = driven.stream(root, TOPIC, columns="key,value", **cut)
    sink = SinkDriver(source(root, topic="copy"), of.schema(), "query")
    Driver(of, Checkpoint(), lambda batch, rows: sink.write(batch, [[each] for each in rows])).run()
    copied = driven.rows(driven.read(root, "copy"), "offset", "value")
    assert copied == [(n, b"%d" % n) for n in range(2500)]
    assert driven.values(driven.read(root, "copy", view="latest")) == ["2499"]


# --- columns ----------------------------------------------------------------------------------------------


def test_columns_are_chosen_by_an_option_in_its_order(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    put(spark, root, TOPIC, ["a"])
    found = read(spark, root, TOPIC, columns="offset, VALUE,headers,timestampType")
    wanted = spark.createDataFrame(
        [(0, bytearray(b"a"), None, 0)],
        "offset long, value binary, headers array<struct<key: string, value: binary>>, timestampType int",
    )
    assert_df_equality(found, wanted, ignore_nullable=True)
    assert values(read(spark, root, TOPIC, "value binary", columns="value")) == ["a"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"columns": "value,size"},
            "option 'columns'='value, size': name some of key, value, topic, partition, offset",
        ),
        ({"columns": "value,Value"}, "option 'columns'='value, Value': name some of .*, each once"),
        ({"columns": ",", "includeHeaders": "true"}, "each once"),
        ({"columns": "value", "includeHeaders": "true"}, "'columns' and 'includeHeaders'='true' exclude each other"),
    ],
)
def test_other_columns_are_refused(root: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        DefaultSource({"path": root, "subscribe": TOPIC, **options}).schema()


def test_columns_and_another_schema_exclude_each_other(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    with pytest.raises(OptionError, match="option 'columns'='value' and the schema 'offset' exclude each other"):
        read_batch(source(root, subscribe=TOPIC, columns="value"), StructType([StructField("offset", LongType())]))


# --- a job that was written for Kafka -----------------------------------------------------------------------


def test_a_job_for_kafka_runs_after_two_changed_lines(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen
) -> None:
    log.create_topic(TOPIC, partitions=2)
    put(spark, root, TOPIC, ["a", "b", "c"], 0)
    df = (
        spark.readStream.format("commitlog")  # was: "kafka"
        .option("path", root)  # was: "kafka.bootstrap.servers", "broker-1:9092,broker-2:9092"
        .option("subscribe", TOPIC)
        .option("startingOffsets", json.dumps({TOPIC: {"0": 1, "1": -2}}))
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", 1000)
        .option("minOffsetsPerTrigger", 2)
        .option("maxTriggerDelay", "5m")
        .option("minPartitions", 4)
        .option("includeHeaders", "true")
        .option("groupIdPrefix", "reporting")
        .option("kafka.max.poll.records", 5000)
        .option("kafka.max.partition.fetch.bytes", 10485760)
        .option("kafka.fetch.max.wait.ms", 100)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.security.protocol", "SASL_SSL")
        .option("kafka.sasl.mechanism", "PLAIN")
        .option("kafkaConsumer.pollTimeoutMs", 120000)
        .option("fetchOffset.numRetries", 3)
        .option("fetchOffset.retryIntervalMs", 10)
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset", "timestamp", "headers")
    )
    assert seen.run(df) == [["b", "c"]]

"""Batch writes and reads through Spark, compared with a model of the topic."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession, functions as sf

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.format.frame import Frame, open_payload, parse
from pyspark_commitlog.log.state import WriterRow
from pyspark_commitlog.model import OffsetRange
from tests.spark.conftest import TIME_ZONE
from tests.spark.jobs import COLUMNS, WITH_HEADERS, ends, frame, read, stored_frame, values, write
from tests.spark.model import AUTUMN, Sent, Topic, mixed

TOPIC = "orders"


def test_a_read_gives_what_was_written_at_the_offsets_of_the_model(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic(TOPIC, partitions=3)
    model = Topic(3)
    for tasks in ([mixed(40, 0), mixed(25, 1), []], [mixed(30, 2)]):
        write(frame(spark, tasks), root, TOPIC)
        model.write(tasks)

    found = read(spark, root, TOPIC, includeHeaders="true").orderBy("partition", "offset")

    assert_df_equality(found, stored_frame(spark, model.in_order(), TOPIC), ignore_nullable=True)


def test_the_longest_range_is_read_first(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3)
    write(frame(spark, [[Sent(value=b"v", partition=p) for p in (0, 1, 1, 1, 2, 2)]]), root, TOPIC)
    found = read(spark, root, TOPIC).select(sf.spark_partition_id(), "partition").distinct()
    assert sorted(map(tuple, found.collect())) == [(0, 1), (1, 2), (2, 0)]


def test_acks_0_is_passed_to_the_tasks_and_the_commit(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, config={"inline.max.bytes": 0, "retention.ms": -1})
    tasks = [[Sent(value=b"a"), Sent(value=b"b")]]
    write(frame(spark, tasks), root, TOPIC, acks="0")
    assert log.root.topic(TOPIC).newest()[1].unsynced_from == 2
    write(frame(spark, tasks), root, TOPIC, acks="1")
    assert log.root.topic(TOPIC).newest()[1].unsynced_from is None
    assert read(spark, root, TOPIC).count() == 4


@pytest.mark.parametrize(("own", "found"), [("producer", ["none", "lz4", "lz4"]), ("zstd", ["zstd"] * 3)])
def test_compression_is_this_writer_s_where_the_topic_leaves_it_to_that(
    spark: SparkSession, root: str, log: CommitLog, own: str, found: list[str]
) -> None:
    """Kafka: `compression.type`."""
    log.create_topic(TOPIC, config={"retention.ms": -1, "compression.type": own})
    for codec in ("none", "LZ4", None):
        write(frame(spark, [[Sent(value=b"a")]]), root, TOPIC, **({} if codec is None else {"compression": codec}))
    topic = log.root.topic(TOPIC)
    inline = [pa.py_buffer(topic.journal.inline(topic.journal.read(n).entry)) for n in (2, 3, 4)]
    assert [codec_of(parsed) for each in inline if (parsed := parse(each, 0))] == found


def codec_of(stored: Frame) -> str:
    """Return how a frame's message is compressed."""
    return open_payload(stored).identity.codec


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, [8, 4, 0, 0]),
        ({"partitioner": "sticky"}, [8, 4, 0, 0]),  # below batch.size: one partition per task
        ({"partitioner": "RoundRobin"}, [3, 3, 3, 3]),
    ],
)
def test_the_partitioner_spreads_the_records_without_a_key(
    spark: SparkSession, root: str, log: CommitLog, options: dict[str, str], counts: list[int]
) -> None:
    log.create_topic(TOPIC, partitions=4)
    write(frame(spark, [[Sent(value=b"v")] * 8, [Sent(value=b"v")] * 4]), root, TOPIC, **options)
    assert ends(log, TOPIC) == counts
    found = read(spark, root, TOPIC).groupBy("partition").count().collect()
    assert {row.partition: row["count"] for row in found} == {p: n for p, n in enumerate(counts) if n}


def test_a_read_of_settled_records_gives_the_same(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3, config={"segment.bytes": 4096, "retention.ms": -1})
    model = Topic(3)
    tasks = [mixed(120, 0), mixed(90, 1)]
    for _ in range(2):
        write(frame(spark, tasks), root, TOPIC)
        model.write(tasks)
        log.topic(TOPIC).maintain()
    write(frame(spark, tasks), root, TOPIC)
    model.write(tasks)
    assert sum(p.unsettled for p in log.topic(TOPIC).describe().partitions) == 210

    found = read(spark, root, TOPIC, includeHeaders="true").orderBy("partition", "offset")

    assert_df_equality(found, stored_frame(spark, model.in_order(), TOPIC), ignore_nullable=True)


def test_a_timestamp_is_the_same_instant_in_every_session_time_zone(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic(TOPIC)
    # 01:30 comes twice that night in New York
    write(frame(spark, [[Sent(b"first", timestamp=AUTUMN), Sent(b"second", timestamp=AUTUMN + timedelta(hours=1))]]),
          root, TOPIC)  # fmt: skip
    instants = ("unix_micros(timestamp) AS micros", "date_format(timestamp, 'yyyy-MM-dd HH:mm') AS told")
    first = round(AUTUMN.timestamp() * 1_000_000)
    found = read(spark, root, TOPIC).orderBy("offset").selectExpr(*instants).collect()
    assert [row.micros for row in found] == [first, first + 3_600_000_000]
    assert [row.told for row in found] == ["2013-11-03 01:30", "2013-11-03 01:30"]

    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        found = read(spark, root, TOPIC).orderBy("offset").selectExpr(*instants).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    assert [row.micros for row in found] == [first, first + 3_600_000_000]
    assert [row.told for row in found] == ["2013-11-03 11:00", "2013-11-03 12:00"]


def test_wall_time_is_that_of_the_session_s_zone(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    write(spark.sql("SELECT 'a' AS value, timestamp_ntz'2024-07-01 12:00:00' AS timestamp"), root, TOPIC)
    assert [record.timestamp for record in log.topic(TOPIC).read(0, 0, max_records=9)] == [1719849600000]


def test_wall_time_is_refused_if_tasks_do_not_know_the_zone(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    spark.conf.unset("spark.sql.session.timeZone")
    try:
        with pytest.raises(PySparkException, match=r"CAST\(timestamp AS TIMESTAMP\) AS timestamp"):
            write(spark.sql("SELECT 'a' AS value, timestamp_ntz'2024-07-01 12:00:00' AS timestamp"), root, TOPIC)
    finally:
        spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    assert ends(log, TOPIC) == [0]


def test_wall_time_that_is_not_kept_needs_no_zone(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    spark.conf.unset("spark.sql.session.timeZone")
    try:
        write(spark.sql("SELECT 'a' AS value, timestamp_ntz'2024-07-01 12:00:00' AS timestamp"), root, TOPIC)
    finally:
        spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    (record,) = log.topic(TOPIC).read(0, 0, max_records=9)
    assert record.timestamp >= before


@pytest.mark.parametrize("path", ["s3:/b", "~/log", "/x,~/log"])
def test_a_path_that_would_name_another_directory_is_refused(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PySparkException, match=r"UsageError: .* write "):
        write(spark.sql("SELECT 'a' AS value"), path, TOPIC)
    with pytest.raises(PySparkException, match=r"UsageError: .* write "):
        read(spark, path, TOPIC).collect()
    assert list(tmp_path.iterdir()) == []


def test_without_a_timestamp_a_record_has_the_time_of_its_write(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    before = datetime.now(UTC)
    write(spark.sql("SELECT 'a' AS value"), root, TOPIC)
    write(spark.sql("SELECT 'b' AS value, CAST(null AS TIMESTAMP) AS timestamp"), root, TOPIC)
    seconds = [row.s for row in read(spark, root, TOPIC).selectExpr("unix_micros(timestamp) / 1e6 AS s").collect()]
    # the log's clock counts whole milliseconds
    assert all(before.timestamp() - 0.001 <= found <= datetime.now(UTC).timestamp() for found in seconds)


def test_text_is_accepted_as_key_and_value_and_murmur2_chooses_the_partition(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic(TOPIC, partitions=7)
    df = spark.range(0, 50, 1, 2).selectExpr("concat('kö-', id) AS key", "CAST(id AS STRING) AS value")
    write(df, root, TOPIC)
    model = Topic(7)
    model.write([[Sent(f"{i}".encode(), f"kö-{i}".encode()) for i in part] for part in (range(25), range(25, 50))])

    found = read(spark, root, TOPIC, "partition int, offset long, key binary, value binary")

    told = sorted((row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in found.collect())
    assert told == [(s.partition, s.offset, s.sent.key, s.sent.value) for s in model.in_order()]


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    assert read(spark, root, TOPIC).schema == spark.createDataFrame([], COLUMNS).schema
    assert read(spark, root, TOPIC, includeHeaders="TRUE").schema == spark.createDataFrame([], WITH_HEADERS).schema


@pytest.mark.parametrize(
    "schema",
    [
        "offset long, value binary",
        "timestampType int, topic string, partition int",
        "headers array<struct<key: string, value: binary>>, key binary",
        "timestamp timestamp",
    ],
)
def test_a_users_schema_chooses_columns_and_their_order(
    spark: SparkSession, root: str, log: CommitLog, schema: str
) -> None:
    log.create_topic(TOPIC, partitions=3)
    tasks = [mixed(30, 0)]
    write(frame(spark, tasks), root, TOPIC)
    model = Topic(3)
    model.write(tasks)

    found = read(spark, root, TOPIC, schema)

    assert found.schema == spark.createDataFrame([], schema).schema
    wanted = stored_frame(spark, model.in_order(), TOPIC).select(*found.columns)
    order = [sf.col(name).cast("string") for name in found.columns]
    assert_df_equality(found.orderBy(*order), wanted.orderBy(*order), ignore_nullable=True)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("value string", "column 'value' is binary, not string"),
        ("value binary, colour string", "there is no column 'colour'; choose from key, value, topic"),
        ("offset int", "column 'offset' is bigint, not int"),
    ],
)
def test_a_users_schema_that_does_not_fit_is_refused(
    spark: SparkSession, root: str, log: CommitLog, schema: str, told: str
) -> None:
    log.create_topic(TOPIC)
    with pytest.raises(AnalysisException, match=told):
        read(spark, root, TOPIC, schema).collect()


# --- offsets ----------------------------------------------------------------------------------------------


@pytest.fixture
def ten_each(spark: SparkSession, root: str, log: CommitLog) -> CommitLog:
    """Return a log whose topic has 2 partitions of 10 records: values 0.0 to 1.9."""
    log.create_topic(TOPIC, partitions=2)
    df = spark.range(0, 20, 1, 1).selectExpr(
        "CAST(id % 2 AS INT) AS partition", "concat(id % 2, '.', id DIV 2) AS value"
    )
    write(df, root, TOPIC)
    return log


def numbered(partition: int, start: int, end: int) -> list[str]:
    """Return the values of `ten_each` in an offset range."""
    return [f"{partition}.{i}" for i in range(start, end)]


@pytest.mark.parametrize(
    ("starting", "ending", "wanted"),
    [
        (None, None, [(0, 0, 10), (1, 0, 10)]),
        ("earliest", "latest", [(0, 0, 10), (1, 0, 10)]),
        ({"0": 3, "1": 10}, None, [(0, 3, 10)]),
        ({"1": 4}, {"0": 2}, [(0, 0, 2), (1, 4, 10)]),  # left-out partitions: earliest, latest
        ({"0": -2, "1": -1}, {"0": -1}, [(0, 0, 10)]),
        ({"0": 5, "1": 5}, {"0": 5, "1": 6}, [(1, 5, 6)]),
    ],
)
def test_starting_and_ending_offsets_choose_the_range(
    spark: SparkSession,
    root: str,
    ten_each: CommitLog,
    starting: str | dict[str, int] | None,
    ending: str | dict[str, int] | None,
    wanted: list[tuple[int, int, int]],
) -> None:
    told = {"startingOffsets": starting, "endingOffsets": ending}
    options = {
        name: json.dumps({TOPIC: value}) if isinstance(value, dict) else value for name, value in told.items() if value
    }
    assert values(read(spark, root, TOPIC, **options)) == [
        value for partition, start, end in wanted for value in numbered(partition, start, end)
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets'='latest' makes no sense for a batch read"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'='earliest' makes no sense"),
        ({"endingOffsets": '{"orders": {"1": -2}}'}, "'endingOffsets'='earliest' makes no sense .*nor -2 in JSON"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "use earliest, latest, or JSON like"),
        ({"endingOffsets": '{"orders": {"0": true}}'}, "use earliest, latest, or JSON like"),
        ({"startingOffsets": '{"orders": {"0": 11}}'}, "orders partition 0 has offsets 0 to 10, not 11"),
        ({"startingOffsets": '{"orders": {"2": 0}}'}, "topic 'orders' has partitions 0 to 1, not 2"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders partition 0 offset -3 is not possible"),
        ({"startingOffsets": '{"others": {"0": 1}}'}, "names topic 'others', subscribed are orders"),
        ({"startingOffsets": "soon"}, "option 'startingOffsets'='soon': use earliest, latest, or JSON like"),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "orders partition 0: startingOffsets 5 lies above the end 4",
        ),
    ],
)
def test_impossible_offsets_are_refused(
    spark: SparkSession, root: str, ten_each: CommitLog, options: dict[str, str], told: str
) -> None:
    with pytest.raises(AnalysisException, match=told):
        read(spark, root, TOPIC, **options).collect()


def test_several_topics_are_read_together(spark: SparkSession, root: str, ten_each: CommitLog) -> None:
    ten_each.create_topic("returns", partitions=3)
    write(spark.sql("SELECT 'back' AS value"), root, "returns")
    found = read(spark, root, f"{TOPIC}, returns").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in found} == {TOPIC: 20, "returns": 1}


def test_an_empty_topic_reads_as_no_rows(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=4)
    found = read(spark, root, TOPIC)
    assert found.collect() == []
    assert found.count() == 0


def test_records_are_counted_without_reading_a_column(spark: SparkSession, root: str, ten_each: CommitLog) -> None:
    assert read(spark, root, TOPIC).count() == 20


def test_there_is_one_spark_partition_per_topic_partition_with_records(
    spark: SparkSession, root: str, ten_each: CommitLog
) -> None:
    ten_each.topic(TOPIC).add_partitions(5)  # three more, empty
    found = read(spark, root, TOPIC).selectExpr("spark_partition_id() AS task", "partition")
    assert found.rdd.getNumPartitions() == 2
    assert len({(row.task, row.partition) for row in found.collect()}) == 2


def test_a_plan_carries_ranges_only(root: str, ten_each: CommitLog) -> None:
    """Rule R8: what goes to the tasks names offsets, no files, and is small."""
    source = DefaultSource({"path": root, "subscribe": TOPIC})
    planned = source.reader(source.schema()).partitions()
    topic_id = ten_each.topic(TOPIC).describe().topic_id
    assert [partition.value for partition in planned] == [OffsetRange(TOPIC, topic_id, p, 0, 10) for p in (0, 1)]
    for partition in planned:
        sent = pickle.dumps(partition)
        assert pickle.loads(sent) == partition
        assert len(sent) < 500
        assert not any(word in sent for word in (root.encode(), b".log", b".chunk", b".json"))


# --- other ways to the source and the sink ----------------------------------------------------------------


def test_the_format_is_found_without_being_registered(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    fresh = spark.newSession()
    write(fresh.sql("SELECT 'found' AS value"), root, TOPIC)
    assert values(read(fresh, root, TOPIC)) == ["found"]


def test_a_view_has_the_newest_record_of_each_key(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3)
    write(
        spark.sql("SELECT CAST(id % 100 AS STRING) AS key, CAST(id AS STRING) AS value FROM range(1000)").coalesce(1),
        root,
        TOPIC,
    )
    write(spark.sql("SELECT CAST(id AS STRING) AS key, CAST(NULL AS STRING) AS value FROM range(90)"), root, TOPIC)
    table = read(spark, root, TOPIC, view="latest")
    assert values(table) == [str(number) for number in range(990, 1000)]
    assert table.selectExpr("min(offset)").first()[0] > 0
    for excluded in ("startingOffsets", "minPartitions", "pushDownPredicate"):
        with pytest.raises(PySparkException, match=f"'view' and '{excluded}' exclude each other"):
            read(
                spark,
                root,
                TOPIC,
                view="latest",
                **{excluded: {"minPartitions": "2", "pushDownPredicate": "true"}.get(excluded, "earliest")},
            ).collect()


def test_sql_reads_and_writes_a_topic(spark: SparkSession, root: str, log: CommitLog) -> None:
    """A temporary view keeps its options. Spark hands a table's options to no Python source: they go into WITH."""
    log.create_topic(TOPIC)
    write(spark.sql("SELECT 'by a job' AS value"), root, TOPIC)
    spark.sql(f"CREATE TEMPORARY VIEW orders_view USING commitlog OPTIONS (path '{root}', subscribe '{TOPIC}')")
    spark.sql("CREATE TABLE orders_table (value BINARY) USING commitlog")
    try:
        assert values(spark.table("orders_view")) == ["by a job"]
        spark.sql(f"INSERT INTO orders_table WITH (path = '{root}', topic = '{TOPIC}') VALUES (X'53514C')")
        row = spark.sql("SELECT CAST('by writeTo' AS BINARY) AS value")
        row.writeTo("orders_table").options(path=root, topic=TOPIC).append()
        table = spark.sql(f"SELECT value FROM orders_table WITH (path = '{root}', subscribe = '{TOPIC}')")
        assert values(table) == ["SQL", "by a job", "by writeTo"]
    finally:
        spark.sql("DROP TABLE orders_table")
        spark.sql("DROP VIEW orders_view")


def test_a_dataframe_reads_the_same_range_each_time(spark: SparkSession, root: str, log: CommitLog) -> None:
    """Spark plans the read of a DataFrame once: what is written meanwhile needs a new one."""
    log.create_topic(TOPIC)
    write(spark.sql("SELECT 'first' AS value"), root, TOPIC)
    df = read(spark, root, TOPIC)
    assert values(df) == ["first"]
    write(spark.sql("SELECT 'second' AS value"), root, TOPIC)
    assert values(df) == ["first"]
    assert values(read(spark, root, TOPIC)) == ["first", "second"]


def test_the_topic_column_distributes_a_write_over_topics(spark: SparkSession, root: str, log: CommitLog) -> None:
    for name in ("a", "b", "c"):
        log.create_topic(name, partitions=2)
    df = spark.range(0, 30, 1, 2).selectExpr("substr('abc', id % 3 + 1, 1) AS topic", "CAST(id AS STRING) AS value")
    write(df, root)
    for number, name in enumerate("abc"):
        assert values(read(spark, root, name)) == sorted(str(i) for i in range(number, 30, 3))


def test_the_topic_option_overrides_the_topic_column(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    write(spark.sql("SELECT 'elsewhere' AS topic, 'v' AS value"), root, TOPIC)
    assert ends(log, TOPIC) == [1]


# --- a batch write that is done once ----------------------------------------------------------------------


def test_a_batch_write_named_by_txn_options_is_done_once(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    df = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    for version in (0, 0, 1, 1):
        write(df, root, TOPIC, txnAppId="nightly", txnVersion=version)
    assert ends(log, TOPIC) == [10]
    write(df, root, TOPIC, txnAppId="hourly", txnVersion=0)
    assert ends(log, TOPIC) == [15]
    write(df, root, TOPIC)
    write(df, root, TOPIC)
    assert ends(log, TOPIC) == [25]


def test_a_txns_checksum_is_that_of_its_records_however_many_tasks_write_them(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    """R6: with Spark's own batches, time zone and empty tasks; one other byte among them changes it."""
    df = spark.sql(
        "SELECT string(id % 7) AS key, repeat(string(id), int(id % 40)) AS value, timestamp_seconds(id) AS timestamp, "
        "IF(id % 3 = 0, array(struct('h' AS key, binary(string(id)) AS value)), NULL) AS headers FROM range(3000)"
    )
    found = []
    for number, tasks in enumerate((1, 2, 7)):
        log.create_topic(f"t{number}", partitions=3)
        write(df.repartition(tasks), root, f"t{number}", txnAppId="nightly", txnVersion=0)
        found.append(writer_row(log, f"t{number}", "txn:nightly"))
    assert {row.rows for row in found} == {3000}
    assert len({row.checksum for row in found}) == 1
    log.create_topic("other")
    changed = df.selectExpr("key", "IF(value LIKE '2999%', replace(value, '9929', '9829'), value) AS value",
                            "timestamp", "headers")  # fmt: skip
    write(changed, root, "other", txnAppId="nightly", txnVersion=0)
    assert writer_row(log, "other", "txn:nightly").checksum not in {None, found[0].checksum}


def writer_row(log: CommitLog, name: str, writer_id: str) -> WriterRow:
    """Return what a topic remembers of a writer."""
    topic = log.root.topic(name)
    row = topic.writer(topic.newest()[1], writer_id)
    assert row is not None
    return row


def test_a_txn_version_below_the_last_is_refused_unless_told_to_skip(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic(TOPIC)
    df = spark.sql("SELECT 'v' AS value")
    write(df, root, TOPIC, txnAppId="nightly", txnVersion=7)
    with pytest.raises(PySparkException, match="txn:nightly commits 6, but 7 is committed already"):
        write(df, root, TOPIC, txnAppId="nightly", txnVersion=6)
    write(df, root, TOPIC, txnAppId="nightly", txnVersion=6, skipOlderBatches="true")
    assert ends(log, TOPIC) == [1]


# --- by timestamp -----------------------------------------------------------------------------------------


@pytest.fixture
def timed(spark: SparkSession, root: str, log: CommitLog) -> None:
    """Two partitions with a record per second: partition 0 from second 100, partition 1 from second 200."""
    log.create_topic(TOPIC, partitions=2, config={"retention.ms": -1})
    sql = "SELECT string(id) AS value, int(id DIV 100 - 1) AS partition, timestamp_seconds(id) AS timestamp FROM range(100, 300)"
    write(spark.sql(sql), root, TOPIC)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": 197_001, "startingOffsetsByTimestampStrategy": "latest"}, [198, 199, *range(200, 300)]),
        ({"startingTimestamp": 250_000, "startingOffsetsByTimestampStrategy": "latest"}, list(range(250, 300))),
        ({"startingTimestamp": 0, "endingTimestamp": 102_000}, [100, 101]),
        ({"endingTimestamp": 201_000}, [*range(100, 200), 200]),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 199000}}', "endingOffsets": '{"orders": {"1": 1}}'},
            [199, 200],
        ),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 101000, "1": 200000}}'}, [100]),
        ({"startingTimestamp": 199_000, "startingOffsets": "earliest", "endingOffsets": '{"orders": {"1": 0}}'}, [199]),
        ({"startingTimestamp": "1970-01-01T00:01:38", "endingTimestamp": "1970-01-01T01:01:41+01:00"}, [100]),
        ({"endingTimestamp": "yesterday"}, list(range(100, 300))),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": "1970-01-01T00:01:41", "1": 200000}}'}, [100]),
    ],
)
def test_a_read_from_and_to_a_timestamp(
    spark: SparkSession, root: str, timed: None, options: dict[str, object], expected: list[int]
) -> None:
    assert sorted(map(int, values(read(spark, root, TOPIC, **options)))) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingTimestamp": 250_000}, "orders partition 0 has no record at or after timestamp 250000"),
        ({"startingOffsetsByTimestamp": '{"orders": {"7": 1}}'}, "has partitions 0 to 1, not 7"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "orders partition 0 timestamp -1 is not possible"),
        ({"startingOffsetsByTimestamp": "earliest"}, "use JSON like"),
        (
            {"startingTimestamp": "soon"},
            "'startingTimestamp'='soon': use milliseconds since 1970, a time as 2026-01-31",
        ),
        ({"endingTimestamp": "1700000000"}, "for seconds give 1700000000000, which is 2023-11-14T22:13:20"),
        ({"startingTimestamp": "20261128"}, "for that day give 2026-11-28"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1700000000}}'}, "for seconds give 1700000000000"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "use error or latest"),
    ],
)
def test_timestamps_that_cannot_be_are_refused(
    spark: SparkSession, root: str, timed: None, options: dict[str, object], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        read(spark, root, TOPIC, **options).collect()


def test_tasks_write_by_the_roots_defaults(spark: SparkSession, root: str, log: CommitLog) -> None:
    """Whose clock stamps the records, and how large one may be."""
    log.create_topic(TOPIC)
    log.config.alter({"log.message.timestamp.type": "LogAppendTime", "message.max.bytes": 100})
    write(frame(spark, [[Sent(value=b"v", timestamp=AUTUMN)]]), root, TOPIC)
    (row,) = read(spark, root, TOPIC).collect()
    assert row.timestampType == 1
    assert row.timestamp.year > AUTUMN.year
    with pytest.raises(PySparkException, match=r"max\.message\.bytes"):
        write(frame(spark, [[Sent(value=b"v" * 200)]]), root, TOPIC)


def test_headers_are_written_from_large_arrow_types(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    sent = [Sent(b"v", key=b"k", partition=0, timestamp=AUTUMN, headers=[("h", b"1"), ("h", None)])]
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(frame(spark, [sent]), root, TOPIC)
        (row,) = read(spark, root, TOPIC, includeHeaders="true").collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert (row.key, row.value) == (b"k", b"v")
    assert [tuple(header) for header in row.headers] == [("h", b"1"), ("h", None)]


@pytest.mark.parametrize("large", ["false", "true"])
def test_literal_nulls_and_an_empty_array_are_columns_without_values(
    spark: SparkSession, root: str, log: CommitLog, large: str
) -> None:
    log.create_topic(TOPIC)
    nulls = "NULL AS key, NULL AS partition, CAST(NULL AS timestamp) AS timestamp"
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        write(spark.sql(f"SELECT 'v' AS value, array() AS headers, {nulls}"), root, TOPIC)
        write(spark.sql("SELECT NULL AS value, 'k' AS key, NULL AS headers, NULL AS timestamp"), root, TOPIC)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    found = read(spark, root, TOPIC, includeHeaders="true").orderBy("offset").collect()
    assert [(row.key, row.value) for row in found] == [(None, b"v"), (b"k", None)]
    assert not any(row.headers for row in found)
    assert all(row.timestamp is not None for row in found)

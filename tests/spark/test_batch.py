"""Batch writes and reads, in Spark and on the driver without it, compared with a model of the topic."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession, functions as sf
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import CommitLogError, InvalidRecordError, OffsetOutOfRangeError, OptionError, UsageError
from pyspark_commitlog.format.frame import Frame, open_payload, parse
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.state.topic_state import WriterRow
from tests.spark import driven
from tests.spark.conftest import TIME_ZONE
from tests.spark.driver import read_batch, source
from tests.spark.jobs import COLUMNS, WITH_HEADERS, ends, frame, read, stored_frame, values, write
from tests.spark.model import AUTUMN, Sent, Stored, Topic, mixed
from tests.support.records import append, batch_of

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


def test_the_longest_range_is_read_first(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3)
    driven.write(root, TOPIC, sent([Sent(value=b"v", partition=p) for p in (0, 1, 1, 1, 2, 2)]))
    tasks = driven.read(root, TOPIC)
    assert [{partition for (partition,) in driven.rows([task], "partition")} for task in tasks] == [{1}, {2}, {0}]


def test_acks_0_is_passed_to_the_tasks_and_the_commit(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, config={"inline.max.bytes": 0, "retention.ms": -1})
    task = sent([Sent(value=b"a"), Sent(value=b"b")])
    driven.write(root, TOPIC, task, acks="0")
    assert log.root.topic(TOPIC).newest()[1].unsynced_from == 2
    driven.write(root, TOPIC, task, acks="1")
    assert log.root.topic(TOPIC).newest()[1].unsynced_from is None
    assert driven.values(driven.read(root, TOPIC)) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(("own", "found"), [("producer", ["none", "lz4", "lz4"]), ("zstd", ["zstd"] * 3)])
def test_compression_is_this_writer_s_where_the_topic_leaves_it_to_that(
    root: str, log: CommitLog, own: str, found: list[str]
) -> None:
    """Kafka: `compression.type`."""
    log.create_topic(TOPIC, config={"retention.ms": -1, "compression.type": own})
    for codec in ("none", "LZ4", None):
        driven.write(root, TOPIC, [{"value": "a"}], **({} if codec is None else {"compression": codec}))
    topic = log.root.topic(TOPIC)
    inline = [pa.py_buffer(topic.journal.inline(topic.journal.read(n).entry)) for n in (2, 3, 4)]
    assert [codec_of(parsed) for each in inline if (parsed := parse(each, 0))] == found


#: Columns in an order in which rows sort by their places.
ALL = ("partition", "offset", "key", "value", "timestamp", "headers", "topic", "timestampType")


def sent(task: Sequence[Sent]) -> pa.RecordBatch:
    """Return what Spark hands to a task, of a model's records."""
    return batch_of(
        [s.value for s in task],
        key=[s.key for s in task],
        timestamp=[None if s.timestamp is None else round(s.timestamp.timestamp() * 1_000_000) for s in task],
        partition=[s.partition for s in task],
        headers=[headers_of(s) for s in task],
    )


def as_read(stored: Sequence[Stored]) -> list[tuple[object, ...]]:
    """Return a model's records as a read with headers gives them: all columns of ALL."""
    return [
        (s.partition, s.offset, s.sent.key, s.sent.value, s.sent.timestamp, headers_of(s.sent), TOPIC, 0)
        for s in stored
    ]


def headers_of(record: Sent) -> list[dict[str, object]] | None:
    """Return a record's headers as Arrow has them."""
    return None if record.headers is None else [{"key": key, "value": value} for key, value in record.headers]


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
    root: str, log: CommitLog, options: dict[str, str], counts: list[int]
) -> None:
    log.create_topic(TOPIC, partitions=4)
    driven.write(root, TOPIC, [{"value": "v"}] * 8, [{"value": "v"}] * 4, **options)
    assert ends(log, TOPIC) == counts
    found = driven.rows(driven.read(root, TOPIC), "partition")
    assert found == [(partition,) for partition, count in enumerate(counts) for _ in range(count)]


def test_a_read_of_settled_records_gives_the_same(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3, config={"segment.bytes": 4096, "retention.ms": -1})
    model = Topic(3)
    tasks = [mixed(120, 0), mixed(90, 1)]
    for number in range(3):
        driven.write(root, TOPIC, *map(sent, tasks))
        model.write(tasks)
        if number < 2:
            log.topic(TOPIC).maintain()
    assert sum(p.unsettled for p in log.topic(TOPIC).describe().partitions) == 210
    assert driven.rows(driven.read(root, TOPIC, includeHeaders="true"), *ALL) == as_read(model.in_order())


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


#: As Spark hands over `timestamp_ntz`.
WALL_TIME = pa.record_batch({"value": ["a"], "timestamp": pa.array([1_719_835_200_000_000], pa.timestamp("us"))})


def test_wall_time_is_refused_if_tasks_do_not_know_the_zone(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    with pytest.raises(InvalidRecordError, match=r"CAST\(timestamp AS TIMESTAMP\) AS timestamp"):
        driven.write(root, TOPIC, WALL_TIME)
    assert ends(log, TOPIC) == [0]


def test_wall_time_that_is_not_kept_needs_no_zone(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    driven.write(root, TOPIC, WALL_TIME)
    (record,) = log.topic(TOPIC).read(0, 0, max_records=9)
    assert record.timestamp >= before


@pytest.mark.parametrize("path", ["s3:/b", "~/log", "/x,~/log"])
def test_a_path_that_would_name_another_directory_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=" write "):
        driven.write(path, TOPIC, [{"value": "a"}])
    with pytest.raises(UsageError, match=" write "):
        driven.read(path, TOPIC)
    assert list(tmp_path.iterdir()) == []


def test_without_a_timestamp_a_record_has_the_time_of_its_write(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    before = datetime.now(UTC)
    driven.write(root, TOPIC, [{"value": "a"}])
    driven.write(root, TOPIC, batch_of([b"b"], timestamp=[None]))
    found = driven.rows(driven.read(root, TOPIC), "timestamp")
    # the log's clock counts whole milliseconds
    assert all(before - timedelta(milliseconds=1) <= at <= datetime.now(UTC) for (at,) in found)
    assert len(found) == 2


def test_text_is_accepted_as_key_and_value_and_murmur2_chooses_the_partition(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=7)
    parts = (range(25), range(25, 50))
    driven.write(root, TOPIC, *([{"key": f"kö-{i}", "value": f"{i}"} for i in part] for part in parts))
    model = Topic(7)
    model.write([[Sent(f"{i}".encode(), f"kö-{i}".encode()) for i in part] for part in parts])
    found = driven.rows(driven.read(root, TOPIC), "partition", "offset", "key", "value")
    assert found == [(s.partition, s.offset, s.sent.key, s.sent.value) for s in model.in_order()]


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    assert read(spark, root, TOPIC).schema == spark.createDataFrame([], COLUMNS).schema
    assert read(spark, root, TOPIC, includeHeaders="TRUE").schema == spark.createDataFrame([], WITH_HEADERS).schema


def test_a_users_schema_chooses_columns_and_their_order(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3)
    tasks = [mixed(30, 0)]
    driven.write(root, TOPIC, *map(sent, tasks))
    model = Topic(3)
    model.write(tasks)
    schema = "headers array<struct<key: string, value: binary>>, key binary"

    found = read(spark, root, TOPIC, schema)

    assert found.schema == spark.createDataFrame([], schema).schema
    wanted = stored_frame(spark, model.in_order(), TOPIC).select(*found.columns)
    order = [sf.col(name).cast("string") for name in found.columns]
    assert_df_equality(found.orderBy(*order), wanted.orderBy(*order), ignore_nullable=True)


@pytest.mark.parametrize(
    "names",
    [("offset", "value"), ("timestampType", "topic", "partition"), ("headers", "key"), ("timestamp",)],
    ids=str,
)
def test_a_users_columns_have_their_order_and_the_values_of_all(
    root: str, log: CommitLog, names: tuple[str, ...]
) -> None:
    log.create_topic(TOPIC, partitions=3)
    driven.write(root, TOPIC, sent(mixed(30, 0)))
    whole = source(root, subscribe=TOPIC, includeHeaders="true")
    fields = {field.name: field for field in whole.schema()}
    found = read_batch(source(root, subscribe=TOPIC), StructType([fields[name] for name in names]))
    assert {tuple(rows.schema.names) for task in found for rows in task} == {names}
    tables = [pa.Table.from_batches(rows for task in tasks for rows in task) for tasks in (found, read_batch(whole))]
    assert tables[0] == tables[1].select(names)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"value": StringType()}, "column 'value' is binary, not string"),
        ({"value": BinaryType(), "colour": StringType()}, "there is no column 'colour'; choose from key, value, topic"),
        ({"offset": IntegerType()}, "column 'offset' is bigint, not int"),
    ],
)
def test_a_users_schema_that_does_not_fit_is_refused(
    root: str, log: CommitLog, schema: dict[str, DataType], told: str
) -> None:
    log.create_topic(TOPIC)
    with pytest.raises(OptionError, match=told):
        read_batch(source(root, subscribe=TOPIC), StructType([StructField(*field) for field in schema.items()]))


# --- offsets ----------------------------------------------------------------------------------------------


@pytest.fixture
def ten_each(log: CommitLog) -> CommitLog:
    """Return a log whose topic has 2 partitions of 10 records: values 0.0 to 1.9."""
    log.create_topic(TOPIC, partitions=2)
    for partition in (0, 1):
        driven.put(log, TOPIC, numbered(partition, 0, 10), partition)
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
    assert driven.values(driven.read(root, TOPIC, **options)) == [
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
def test_impossible_offsets_are_refused(root: str, ten_each: CommitLog, options: dict[str, str], told: str) -> None:
    with pytest.raises((OptionError, OffsetOutOfRangeError), match=told):
        driven.read(root, TOPIC, **options)


def test_several_topics_are_read_together(root: str, ten_each: CommitLog) -> None:
    ten_each.create_topic("returns", partitions=3)
    driven.put(ten_each, "returns", ["back"])
    found = driven.rows(driven.read(root, f"{TOPIC}, returns"), "topic")
    assert Counter(topic for (topic,) in found) == {TOPIC: 20, "returns": 1}


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


@pytest.mark.parametrize(
    ("excluded", "value"), [("startingOffsets", "earliest"), ("minPartitions", "2"), ("pushDownPredicate", "true")]
)
def test_a_view_excludes_what_would_leave_records_out(root: str, log: CommitLog, excluded: str, value: str) -> None:
    log.create_topic(TOPIC)
    with pytest.raises(OptionError, match=f"'view' and '{excluded}' exclude each other"):
        driven.read(root, TOPIC, view="latest", **{excluded: value})


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


def test_the_topic_option_overrides_the_topic_column(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    driven.write(root, TOPIC, [{"topic": "elsewhere", "value": "v"}])
    assert ends(log, TOPIC) == [1]


# --- a batch write that is done once ----------------------------------------------------------------------


def test_a_batch_write_named_by_txn_options_is_done_once(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    tasks = [[{"value": f"{n}"} for n in part] for part in (range(2), range(2, 5))]
    for version in (0, 0, 1, 1):
        driven.write(root, TOPIC, *tasks, txnAppId="nightly", txnVersion=version)
    assert ends(log, TOPIC) == [10]
    driven.write(root, TOPIC, *tasks, txnAppId="hourly", txnVersion=0)
    assert ends(log, TOPIC) == [15]
    driven.write(root, TOPIC, *tasks)
    driven.write(root, TOPIC, *tasks)
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


def test_a_txn_version_below_the_last_is_refused_unless_told_to_skip(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    driven.write(root, TOPIC, [{"value": "v"}], txnAppId="nightly", txnVersion=7)
    with pytest.raises(CommitLogError, match="txn:nightly commits 6, but 7 is committed already"):
        driven.write(root, TOPIC, [{"value": "v"}], txnAppId="nightly", txnVersion=6)
    driven.write(root, TOPIC, [{"value": "v"}], txnAppId="nightly", txnVersion=6, skipOlderBatches="true")
    assert ends(log, TOPIC) == [1]


# --- by timestamp -----------------------------------------------------------------------------------------


@pytest.fixture
def timed(log: CommitLog) -> None:
    """Two partitions with a record per second: partition 0 from second 100, partition 1 from second 200."""
    log.create_topic(TOPIC, partitions=2, config={"retention.ms": -1})
    seconds = range(100, 300)
    append(log.root.topic(TOPIC), batch_of(
        [b"%d" % n for n in seconds], partition=[n // 100 - 1 for n in seconds],
        timestamp=[n * 1_000_000 for n in seconds],
    ))  # fmt: skip


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
    root: str, timed: None, options: dict[str, object], expected: list[int]
) -> None:
    assert sorted(map(int, driven.values(driven.read(root, TOPIC, **options)))) == expected


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
def test_timestamps_that_cannot_be_are_refused(root: str, timed: None, options: dict[str, object], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        driven.read(root, TOPIC, **options)


def test_tasks_write_by_the_roots_defaults(root: str, log: CommitLog) -> None:
    """Whose clock stamps the records, and how large one may be."""
    log.create_topic(TOPIC)
    log.config.alter({"log.message.timestamp.type": "LogAppendTime", "message.max.bytes": 100})
    driven.write(root, TOPIC, sent([Sent(value=b"v", timestamp=AUTUMN)]))
    ((kind, at),) = driven.rows(driven.read(root, TOPIC), "timestampType", "timestamp")
    assert kind == 1
    assert at.year > AUTUMN.year
    with pytest.raises(InvalidRecordError, match=r"max\.message\.bytes"):
        driven.write(root, TOPIC, [{"value": "v" * 200}])


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

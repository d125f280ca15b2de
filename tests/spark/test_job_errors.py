"""What a wrong job gets: an error that names the option or column, the value and what is allowed; nothing half done."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import CommitLogError, OptionError
from pyspark_commitlog.topic_description import TopicDescription
from tests.spark import driven
from tests.spark.driver import SinkDriver, read_batch, source, write_batch
from tests.spark.jobs import ends, read, run, stream, values, write
from tests.support.records import batch_of

TOPIC = "orders"
ONE = {"value": "v"}


def described(log: CommitLog) -> TopicDescription:
    """Return the topic as it is; how long its entries have waited to be settled is left out, which grows by itself."""
    found = log.topic(TOPIC).describe()
    return replace(found, unsettled=replace(found.unsettled, age_ms=0))


@pytest.fixture
def topic(log: CommitLog) -> TopicDescription:
    """Return a topic with a record in it, as it was before the test."""
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["first"], 1)
    return described(log)


def refused(told: str) -> pytest.RaisesExc[PySparkException]:
    """Expect Spark's error with `told` in it (a regular expression)."""
    return pytest.raises(PySparkException, match=told)


def refuses(told: str) -> pytest.RaisesExc[CommitLogError]:
    """Expect our error with `told` in it (a regular expression); `refused` is how Spark hands it on."""
    return pytest.raises(CommitLogError, match=told)


def named_chunks(root: str, topic: TopicDescription) -> set[str]:
    """Return the chunks that the topic's journal names, read without the package."""
    named: set[str] = set()
    for path in Path(root, "topics", topic.name, "journal").glob("*.json"):
        entry = path.read_bytes().split(b"\n", 1)[0]
        named |= {name for name in staged_chunks(root, topic) if name.encode() in entry}
    return named


def staged_chunks(root: str, topic: TopicDescription) -> set[str]:
    """Return the chunks that lie in the topic's directory."""
    return {path.name for path in Path(root, "topics", topic.name, topic.topic_id, "staged").iterdir()}


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscrib": TOPIC}, r"unknown option 'subscrib' \(did you mean 'subscribe'\?\)"),
        ({}, r"option 'subscribe' is missing: name the topics to read, for example .option\('subscribe'"),
        ({"subscribe": ", "}, "option 'subscribe'=', ': name at least one topic"),
        ({"subscribe": "no/topic"}, "topic name 'no/topic' is not allowed: 1 to 249 of"),
        ({"subscribe": "other"}, r"unknown topic 'other' in .*: create it with CommitLog\(.*\).create_topic\('other'"),
        ({"subscribe": TOPIC, "includeHeaders": "yes"}, "option 'includeHeaders'='yes': use true or false"),
        ({"subscribe": TOPIC, "maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger'='0': use a whole number, at leas"),
        ({"subscribe": TOPIC, "maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger'='many': use a whole number"),
        ({"subscribe": TOPIC, "failOnDataLoss": "no"}, "'failOnDataLoss'='no': use true or false"),
    ],
)
def test_a_reader_refuses_wrong_options(root: str, topic: TopicDescription, options: dict[str, str], told: str) -> None:
    with refuses(told):
        driven.read(root, None, **options)


def test_spark_hands_on_what_a_reader_and_a_writer_refuse(
    spark: SparkSession, root: str, log: CommitLog, topic: TopicDescription
) -> None:
    with refused(r"unknown option 'subscrib' \(did you mean 'subscribe'\?\)"):
        spark.read.format("commitlog").option("subscrib", TOPIC).load(root).collect()
    with refused("unknown column 'colour'; a record has key, value"):
        write(spark.sql("SELECT 'v' AS value, 1 AS colour"), root, TOPIC)
    assert described(log) == topic


@pytest.mark.parametrize(
    ("row", "options", "told"),
    [
        (ONE, {"topc": TOPIC}, r"unknown option 'topc' \(did you mean 'topic'\?\)"),
        (ONE, {}, "option 'topic' is missing, and there is no 'topic' column"),
        (ONE, {"topic": "other"}, "unknown topic 'other'"),
        (ONE, {"topic": "__groups"}, "names that start with '__' are reserved"),
        (ONE, {"topic": TOPIC, "acks": "2"}, "option 'acks'='2': use all"),
        (ONE, {"topic": TOPIC, "compression": "gzip"}, "option 'compression'='gzip': .*none, lz4, zstd"),
        (ONE, {"topic": TOPIC, "compression": "producer"}, "option 'compression'='producer': .*none, lz4, zstd"),
        (ONE, {"topic": TOPIC, "partitioner": "random"}, "option 'partitioner'='random': use one of sticky, round"),
        (ONE, {"topic": TOPIC, "txnAppId": "a"}, "'txnAppId' and 'txnVersion' go together: give both or none"),
        (ONE, {"topic": TOPIC, "txnVersion": "1"}, "'txnAppId' and 'txnVersion' go together: give both or none"),
        (ONE, {"topic": TOPIC, "txnAppId": "a", "txnVersion": "-1"}, "'txnVersion'='-1': use a whole number, at least"),
        (
            {"value": pa.scalar(1, "int32")},
            {"topic": TOPIC},
            "column 'value' is int32; it takes a string or binary column",
        ),
        ({"key": "k"}, {"topic": TOPIC}, "there is no 'value' column among"),
        ({"value": "v", "colour": 1}, {"topic": TOPIC}, "unknown column 'colour'; a record has key, value"),
        ({"value": "v", "timestamp": "x"}, {"topic": TOPIC}, "column 'timestamp' is string; it takes a timest"),
        (
            {"value": "v", "headers": pa.scalar({"a": "b"}, pa.map_(pa.string(), pa.string()))},
            {"topic": TOPIC},
            "column 'headers' is map<.*>; it takes array<struct",
        ),
    ],
)
def test_a_writer_refuses_wrong_options_and_columns(
    root: str, log: CommitLog, topic: TopicDescription, row: dict[str, Any], options: dict[str, str], told: str
) -> None:
    with refuses(told):
        driven.write(
            root, None, pa.RecordBatch.from_pydict({name: pa.array([value]) for name, value in row.items()}), **options
        )
    assert described(log) == topic


@pytest.mark.parametrize("where", ["read", "write"])
def test_a_missing_path_is_told(where: str) -> None:
    with refuses("option 'path' is missing: give the root of the commit log, for example .option"):
        if where == "read":
            read_batch(DefaultSource({"subscribe": TOPIC}))
        else:
            write_batch(DefaultSource({"topic": TOPIC}), [[batch_of([b"v"])]])


@pytest.mark.parametrize("where", ["read", "write"])
def test_a_missing_root_is_told_and_not_made(root: str, where: str) -> None:
    with refuses(f"there is no commit log at {root}: check the path, and that its disk is mounted, or make it with"):
        driven.read(root, TOPIC) if where == "read" else driven.write(root, TOPIC, [ONE])
    assert not Path(root).exists()


@pytest.mark.parametrize("where", ["read", "write", "stream read", "stream write"])
def test_a_relative_path_after_a_change_of_directory_is_told_as_the_one_that_spark_looked_at(
    spark: SparkSession, log: CommitLog, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Spark's processes stay in the directory in which the session began: this one's root is another."""
    began, name = spark._jvm.System.getProperty("user.dir"), "in-the-new-directory"  # type: ignore[union-attr]
    log.create_topic(TOPIC)
    monkeypatch.chdir(tmp_path)
    CommitLog(name).create_topic(TOPIC)
    place, sink = (name, root) if "read" in where else (root, name)
    with refused(f"there is no commit log at {began}/{name}: "):
        if "stream" in where:
            run(stream(spark, place, TOPIC), sink, TOPIC, tmp_path / "checkpoint")
        else:
            write(read(spark, place, TOPIC), sink, TOPIC)
    assert not Path(began, name).exists()


def test_a_schema_without_columns_is_refused(spark: SparkSession, root: str, topic: TopicDescription) -> None:
    """Spark would count no rows."""
    with refused("schema: it has no column; name at least one of key, value, topic"):
        spark.read.format("commitlog").option("subscribe", TOPIC).schema(StructType([])).load(root).count()


def test_overwrite_is_refused_with_what_to_do(
    spark: SparkSession, root: str, log: CommitLog, topic: TopicDescription
) -> None:
    with refused(r"a log cannot be overwritten: use .mode\('append'\)"):
        spark.sql("SELECT 'v' AS value").write.format("commitlog").mode("overwrite").option("topic", TOPIC).save(root)
    assert described(log) == topic


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'='earliest' makes no sense"),
        ({"startingOffsets": "sooner"}, "option 'startingOffsets'='sooner'"),
        ({"maxOffsetPerTrigger": "5"}, r"unknown option 'maxoffsetpertrigger' \(did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_a_streaming_reader_refuses_wrong_options(
    root: str, topic: TopicDescription, options: dict[str, str], told: str
) -> None:
    with refuses(told):
        driven.Seen().run(driven.stream(root, TOPIC, **options))


def test_a_streaming_writer_refuses_txn_options(root: str, topic: TopicDescription) -> None:
    of = source(root, topic=TOPIC, txnAppId="a", txnVersion="1")
    with refuses("'txnAppId' and 'txnVersion' are for batch writes; a stream has its query id"):
        SinkDriver(of, StructType().add("value", BinaryType()), "query").write(0, [[batch_of([b"v"])]])


def test_options_for_kafka_clients_do_nothing_but_warn(
    root: str, topic: TopicDescription, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = {"kafka.bootstrap.servers": "localhost:9092", "kafka.max.poll.records": "5", "groupIdPrefix": "jobs"}
    driven.write(root, TOPIC, [{"value": "second"}], **kafka)
    assert driven.values(driven.read(root, TOPIC, **kafka)) == ["first", "second"]

    caplog.clear()
    with caplog.at_level(logging.WARNING, "pyspark_commitlog"):
        DefaultSource({"path": root, "subscribe": TOPIC, **kafka}).schema()
    (warning,) = caplog.messages
    assert warning.endswith("do nothing here: groupIdPrefix, kafka.bootstrap.servers, kafka.max.poll.records")


def test_option_names_ignore_case(root: str, topic: TopicDescription) -> None:
    for form in (source, lambda path, **options: DefaultSource({"path": path, **options})):
        found = read_batch(form(root, SUBSCRIBE=TOPIC, STARTINGoffsets="Earliest"))
        assert driven.values(found) == ["first"]
    with pytest.raises(OptionError, match="did you mean 'startingOffsets'"):
        DefaultSource({"path": root, "subscribe": TOPIC, "startingOfset": "earliest"}).schema()


# --- nothing half done ------------------------------------------------------------------------------------


def test_a_job_that_breaks_leaves_the_topic_as_it_was(
    spark: SparkSession, root: str, log: CommitLog, topic: TopicDescription
) -> None:
    """The other task has staged its records by then: orphans that no entry names (invariant I1)."""
    log.topic(TOPIC).alter({"inline.max.bytes": 0})
    before = described(log)
    broken = "IF(id = 999, raise_error('the job broke'), 'k') AS key"
    with refused("the job broke"):
        write(spark.range(0, 1000, 1, 2).selectExpr("concat('value ', id) AS value", broken), root, TOPIC)
    assert described(log) == before
    assert values(read(spark, root, TOPIC)) == ["first"]
    assert named_chunks(root, before) == set()


@pytest.mark.parametrize(
    ("column", "usual", "wrong", "told"),
    [
        ("partition", 0, 2, "partition 2 does not exist; it has 0 to 1"),
        ("timestamp", datetime(2013, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), "no timestamp before 1970"),
        ("timestamp", datetime(2013, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC), "ahead of the clock"),
        ("key", "x", "x" * 1_100_000, "max.message.bytes is 1048588"),
    ],
)
def test_one_bad_record_leaves_the_topic_as_it_was(
    root: str, log: CommitLog, topic: TopicDescription, column: str, usual: object, wrong: object, told: str
) -> None:
    """The other task has staged its records by then: orphans that no entry names (invariant I1)."""
    log.topic(TOPIC).alter({"inline.max.bytes": 0})
    before = described(log)
    rows = [{"value": f"value {n}", column: wrong if n == 999 else usual} for n in range(1000)]
    schema = pa.RecordBatch.from_pylist(rows[:1]).schema
    schema = schema.set(1, pa.field("partition", pa.int32())) if column == "partition" else schema
    with refuses(told):
        driven.write(root, TOPIC, *(pa.RecordBatch.from_pylist(half, schema) for half in (rows[:500], rows[500:])))
    assert staged_chunks(root, before) != set()
    assert described(log) == before
    assert driven.values(driven.read(root, TOPIC)) == ["first"]
    assert named_chunks(root, before) == set()


def test_a_null_topic_is_refused_and_the_other_topics_stay_as_they_were(
    root: str, log: CommitLog, topic: TopicDescription
) -> None:
    rows = [{"topic": None if number == 99 else TOPIC, "value": f"{number}"} for number in range(100)]
    with refuses("a record's topic is null: set the topic column or the option 'topic'"):
        driven.write(root, None, rows[:50], rows[50:])
    assert described(log) == topic


def test_a_failed_streaming_batch_leaves_the_topic_as_it_was_and_is_done_once_when_repaired(
    spark: SparkSession, root: str, log: CommitLog, topic: TopicDescription, tmp_path: Path
) -> None:
    log.create_topic("copy", partitions=1)
    driven.put(log, TOPIC, ["second"], 1)
    copied = stream(spark, root, TOPIC).select("value", "partition")
    checkpoint = tmp_path / "checkpoint"
    with refused("partition 1 does not exist; it has 0 to 0"):
        run(copied, root, "copy", checkpoint)
    assert ends(log, "copy") == [0]
    log.topic("copy").add_partitions(2)
    run(copied, root, "copy", checkpoint)
    assert ends(log, "copy") == [0, 2]
    assert values(read(spark, root, "copy")) == ["first", "second"]


def test_a_chunk_that_vanished_before_the_commit_stops_it(root: str, log: CommitLog, topic: TopicDescription) -> None:
    """A worker that sees another disk than the driver: the commit finds no chunk and puts nothing."""
    log.topic(TOPIC).alter({"inline.max.bytes": 0})
    before = described(log)
    writer = source(root, topic=TOPIC).writer(StructType().add("value", BinaryType()), overwrite=False)
    message = writer.write(iter([batch_of([b"v"])]))
    (chunk,) = staged_chunks(root, before)
    os.remove(Path(root, "topics", TOPIC, before.topic_id, "staged", chunk))
    with pytest.raises(Exception, match=r"staged chunk .* is missing, expected .* nothing was committed"):
        writer.commit([message])
    writer.abort([message])
    assert described(log) == before


def test_offsets_of_another_topic_in_the_json_are_refused(root: str) -> None:
    options = {"path": root, "subscribe": TOPIC, "startingOffsets": json.dumps({"elsewhere": {"0": 0}})}
    with pytest.raises(OptionError, match="names topic 'elsewhere', subscribed are orders"):
        DefaultSource(options).schema()

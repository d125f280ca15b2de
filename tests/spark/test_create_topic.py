"""`createTopic`: a writer that makes the topics that are missing, and only those, and only if it is told to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_commitlog import CommitLog, CommitLogListener, DefaultSource
from pyspark_commitlog.errors import CommitLogError, RootNotAvailableError, TopicExistsError, UnknownTopicError
from pyspark_commitlog.format.schema.topic_schema import Declaration
from pyspark_commitlog.root import create_topic as creation
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.write.sink import StagedMessage
from tests.spark import driven
from tests.spark.driver import SinkDriver, source
from tests.spark.jobs import ended, ends, forget_commit, lines, put_lines, read, run, values, write

TOPIC = "orders"
CREATE = {"createTopic": "true"}


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    """Return the directory that a file stream watches."""
    return tmp_path / "incoming"


def stage(root: str, topic: str | None, *rows: dict[str, str], stream: bool = False, **options: str) -> StagedMessage:
    """Make a writer, as Spark's driver does, and stage rows with it, as its tasks do."""
    batch = pa.RecordBatch.from_pylist(list(rows))
    schema = StructType()
    for name in batch.schema.names:
        schema.add(name, StringType())
    source = DefaultSource({"path": root, **({"topic": topic} if topic else {}), **options})
    writer = source.streamWriter(schema, False) if stream else source.writer(schema, False)
    return writer.write(iter([batch]))  # type: ignore[no-any-return]


def test_a_batch_write_makes_the_topic_and_the_root(spark: SparkSession, root: str, log: CommitLog) -> None:
    df = spark.sql("SELECT 'v' AS value")
    options = {"numPartitions": "3", "topic.retention.ms": "-1", "topic.cleanup.policy": "delete"}
    write(df, root, TOPIC, **CREATE, **options)
    assert values(read(spark, root, TOPIC)) == ["v"]
    described = log.topic(TOPIC).describe()
    assert len(described.partitions) == 3
    assert described.config["retention.ms"] == "-1"
    # what is there stays as it is
    write(df, root, TOPIC, **CREATE, **{"numPartitions": "5", "topic.retention.ms": "1000"})
    assert log.topic(TOPIC).describe().config == described.config
    assert sum(ends(log, TOPIC)) == 2
    assert len(ends(log, TOPIC)) == 3


def test_a_stream_makes_its_topic_before_there_is_a_record(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, tmp_path: Path
) -> None:
    put_lines(incoming, "0", ["a", "b"])
    run(lines(spark, incoming), root, TOPIC, tmp_path / "checkpoint", numPartitions="2", **CREATE)
    assert values(read(spark, root, TOPIC)) == ["a", "b"]
    assert len(ends(log, TOPIC)) == 2
    with pytest.raises(TopicExistsError):
        log.create_topic(TOPIC)
    stage(root, "early", {"value": "v"}, stream=True, **CREATE)
    assert ends(log, "early") == [0]


def test_tasks_make_the_topics_that_their_topic_column_names(root: str) -> None:
    """The later tasks find the topics that the first one made."""
    numbers = [{"topic": f"t{n % 4}", "value": f"{n}"} for n in range(300)]
    driven.write(root, None, numbers[:100], numbers[100:200], numbers[200:], **CREATE)
    for topic in range(4):
        assert driven.values(driven.read(root, f"t{topic}")) == sorted(f"{i}" for i in range(topic, 300, 4))


def test_of_two_writers_that_make_a_topic_at_once_both_write_to_the_one_that_was_made_first(
    root: str, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)
    create = creation.create_topic

    def at_once(
        root: Root, name: str, partitions: int, config: Mapping[str, object], declared: Declaration | None
    ) -> None:
        together.wait(timeout=30)
        create(root, name, partitions, config, declared)

    monkeypatch.setattr(creation, "create_topic", at_once)
    staged: list[StagedMessage] = []
    writers = [
        threading.Thread(target=lambda: staged.append(stage(root, TOPIC, {"value": "v"}, **CREATE))) for _ in "ab"
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    topic_id = log.topic(TOPIC).describe().topic_id
    assert [part.topic_id for message in staged for part in message.staged] == [topic_id, topic_id]


@pytest.mark.parametrize("first", [["a"], []], ids=["with records", "without"])
@pytest.mark.parametrize("topic", [TOPIC, None], ids=["option", "column"])
def test_a_stream_makes_the_root_in_its_first_batch_alone(
    root: str, tmp_path: Path, topic: str | None, first: list[str]
) -> None:
    """A later batch that finds none has to do with a disk that is not mounted: an empty directory is left there."""
    named = {"topic": topic} if topic else {}
    schema = StructType([StructField(name, StringType()) for name in (["value"] if topic else ["value", "topic"])])
    sink = SinkDriver(source(root, **CREATE, **named), schema, "query")

    def batch(number: int, values: list[str]) -> None:
        rows = [{"value": value} | ({} if topic else {"topic": TOPIC}) for value in values]
        sink.write(number, [[pa.RecordBatch.from_pylist(rows)] if rows else []])

    batch(0, first)
    disk, aside = Path(root), tmp_path / "aside"
    disk.rename(aside)
    disk.mkdir()
    with pytest.raises(
        RootNotAvailableError, match=r"there is no commit log at .*heckpoints and .* are fine: mount it"
    ):
        batch(1, ["b"])
    assert list(disk.iterdir()) == []
    disk.rmdir()
    aside.rename(disk)
    batch(1, ["b"])
    assert driven.values(driven.read(root, TOPIC)) == [*first, "b"]


def test_a_batch_write_makes_a_deleted_topic_again_and_a_stream_does_not(root: str, log: CommitLog) -> None:
    """A stream may run while its topic is deleted: its next micro-batch must not bring an empty one back."""
    log.create_topic(TOPIC)
    log.topic(TOPIC).delete()
    with pytest.raises(UnknownTopicError, match=f"unknown topic '{TOPIC}'"):
        stage(root, TOPIC, {"value": "v"}, stream=True, **CREATE)
    with pytest.raises(UnknownTopicError, match=f"unknown topic '{TOPIC}'"):
        stage(root, None, {"value": "v", "topic": TOPIC}, stream=True, **CREATE)
    assert log.topics() == []
    stage(root, TOPIC, {"value": "v"}, **CREATE)
    assert log.topics() == [TOPIC]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "unknown topic 'orders'"),
        ({"createTopic": "false"}, "unknown topic 'orders'"),
        ({"createTopic": "yes"}, "option 'createTopic'='yes': use true or false"),
        ({"numPartitions": "2"}, "option 'numPartitions' goes with createTopic=true"),
        ({"topic.retention.ms": "5"}, "option 'topic.retention.ms' goes with createTopic=true"),
        ({**CREATE, "numPartitions": "0"}, "option 'numPartitions'='0': use a whole number, at least 1"),
        ({**CREATE, "numPartitions": "10001"}, "option 'numPartitions'='10001': use a whole number, at most 10000"),
        ({**CREATE, "topic.retention.m": "5"}, "'topic.<config>': unknown .*'retention.m'.* 'retention.ms'"),
        ({**CREATE, "topic.retention.ms": "soon"}, "'topic.<config>': retention.ms='soon' is not allowed"),
        ({**CREATE, "topic.min.compaction.lag.ms": "2", "topic.max.compaction.lag.ms": "1"}, "is above max.compaction"),
    ],
)
def test_what_is_refused_makes_nothing(root: str, log: CommitLog, options: dict[str, str], told: str) -> None:
    log.create_topic("other")
    with pytest.raises(CommitLogError, match=told):
        driven.write(root, TOPIC, [{"value": "v"}], **options)
    assert log.topics() == ["other"]


def test_wrong_columns_make_no_topic(root: str) -> None:
    with pytest.raises(CommitLogError, match="there is no 'value' column"):
        driven.write(root, TOPIC, [{"key": "k"}], **CREATE)
    assert not Path(root).exists()


# --- output modes -----------------------------------------------------------------------------------------


@pytest.fixture
def counts(spark: SparkSession, incoming: Path) -> DataFrame:
    """Return a streaming aggregation."""
    put_lines(incoming, "0", ["a", "a", "b"])
    return lines(spark, incoming).groupBy("value").count().selectExpr("value", "CAST(count AS STRING) AS key")


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("complete", r"a log cannot be overwritten.*outputMode\('append'\).*outputMode\('update'\) with foreachBatch"),
        ("update", "commitlog does not support Update mode"),  # Spark's own words: it asks no Python sink
    ],
)
def test_output_modes_but_append_are_refused(
    root: str, log: CommitLog, counts: DataFrame, tmp_path: Path, mode: str, told: str
) -> None:
    log.create_topic(TOPIC)
    writer = counts.writeStream.format("commitlog").outputMode(mode)
    writer = writer.option("topic", TOPIC).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=told):
        writer.trigger(availableNow=True).start(root).awaitTermination(60)
    assert ends(log, TOPIC) == [0]


def test_a_listener_logs_what_to_use_for_the_update_mode(
    spark: SparkSession, root: str, log: CommitLog, counts: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic(TOPIC)
    over = threading.Event()

    class Listener(CommitLogListener):
        def onQueryTerminated(self, event: Any) -> None:
            super().onQueryTerminated(event)
            over.set()

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        writer = counts.writeStream.format("commitlog").outputMode("update").option("topic", TOPIC)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(root)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(60)
        assert over.wait(60)
    finally:
        spark.streams.removeListener(listener)
    (line,) = [line for line in caplog.messages if "'update'" in line]
    assert str(query.id) in line
    assert "foreachBatch" in line
    assert "txnVersion" in line


def test_an_aggregation_in_update_mode_is_written_once_by_foreach_batch(
    spark: SparkSession, root: str, incoming: Path, counts: DataFrame, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def write_rows(rows: DataFrame, batch: int) -> None:
        named = {"createTopic": "true", "txnAppId": "counts", "txnVersion": batch}
        write(rows.selectExpr("value AS key", "key AS value"), root, TOPIC, **named)

    def run_once() -> None:
        writer = counts.writeStream.outputMode("update").foreachBatch(write_rows)
        ended(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())

    run_once()
    put_lines(incoming, "1", ["b"])
    run_once()
    forget_commit(checkpoint, 1)
    run_once()
    found = read(spark, root, TOPIC).selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    rows = [(row.key, row.value) for row in found.collect()]
    assert sorted(rows[:2]) == [("a", "2"), ("b", "1")]
    assert rows[2:] == [("b", "2")]

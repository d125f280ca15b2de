"""The streaming sink: exactly once per topic, whatever is played again; several topics, several queries, readers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import StaleBatchError, TopicChangedError, UnknownTopicError
from pyspark_commitlog.topic.write.writers import Transaction
from tests.spark import driven
from tests.spark.driver import Checkpoint, Driver, SinkDriver, source, write_batch
from tests.spark.jobs import (
    PATIENCE_SECONDS,
    ended,
    ends,
    forget_commit,
    lines,
    put_lines,
    read,
    run,
    start,
    stream,
    values,
    write,
)
from tests.support.records import Record, append, batch_of, read_partition, read_topic

TOPIC = "orders"


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    """Return the directory that a file stream watches."""
    directory = tmp_path / "incoming"
    directory.mkdir()
    return directory


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a checkpoint directory, not made yet."""
    return tmp_path / "checkpoint"


class Query:
    """The writes of a streaming query in the driver without Spark.

    Args:
        topic: to write to; None if the topic column names them.
        name: the query's id; queries from copies of one checkpoint share it.
    """

    def __init__(self, root: str, topic: str | None, name: str = "query", **options: str) -> None:
        self.schema = StructType([StructField(column, StringType()) for column in ("key", "value", "topic")])
        named = {"topic": topic, **options} if topic else options
        self._sink = SinkDriver(source(root, **named), self.schema, name)

    def write(self, batch: int, *tasks: list[str]) -> None:
        """Write a micro-batch: what each task has of it. A value's first letter is its topic."""
        self._sink.write(batch, [[_rows(values_)] if values_ else [] for values_ in tasks])


def _rows(values_: list[str]) -> pa.RecordBatch:
    columns = {"key": [None] * len(values_), "value": values_, "topic": [value[0] for value in values_]}
    return pa.record_batch({name: pa.array(column, pa.string()) for name, column in columns.items()})


def values_of(root: str, topic: str) -> list[str]:
    """Return the values of a topic, sorted, read without Spark."""
    return driven.values(driven.read(root, topic))


def entries(root: str, topic: str) -> int:
    """Return how many entries a topic's journal has."""
    return len(list(Path(root, "topics", topic, "journal").glob("*.json")))


def test_each_micro_batch_is_one_entry_and_an_empty_one_is_none(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=3)
    query = Query(root, TOPIC)
    for number in range(3):
        query.write(number, [f"{number}.{i}" for i in range(4)] if number != 1 else [])
    assert values_of(root, TOPIC) == [f"{number}.{i}" for number in (0, 2) for i in range(4)]
    assert entries(root, TOPIC) == 3  # create and two appends


def test_a_replay_with_another_number_of_tasks_has_the_same_checksum(root: str, log: CommitLog) -> None:
    """R6: one query's batch, by two tasks and by five; played again by five, nothing changes."""
    lines_ = [f"line {number}" for number in range(200)]
    found = set()
    for topic, tasks in (("two", 2), ("five", 5)):
        log.create_topic(topic, partitions=3)
        Query(root, topic).write(0, *(lines_[task::tasks] for task in range(tasks)))
        handle = log.root.topic(topic)
        row = handle.writer(handle.newest()[1], "spark:query")
        assert row is not None
        assert row.checksum is not None
        found.add((row.rows, row.checksum))
    assert len(found) == 1
    before = entries(root, "two")
    Query(root, "two").write(0, *(lines_[task::5] for task in range(5)))
    assert entries(root, "two") == before


def test_a_mirror_job_copies_a_topic_as_it_is(spark: SparkSession, root: str, log: CommitLog, checkpoint: Path) -> None:
    """Kafka's sink ignores what its source adds to a record, so a job from topic to topic drops no columns."""
    for topic in (TOPIC, "mirror"):
        log.create_topic(topic, partitions=2)
    append(log.root.topic(TOPIC), batch_of(
        [b"v", b"w", None], key=[b"k", None, b"k"], partition=[1, 0, 1], timestamp=[1_000, 2_000, 3_000],
        headers=[[{"key": "h", "value": b"1"}], None, []],
    ))  # fmt: skip
    run(stream(spark, root, TOPIC, includeHeaders="true"), root, "mirror", checkpoint)
    assert ends(log, "mirror") == [1, 2]
    for partition in (0, 1):
        assert read_partition(log.root.topic("mirror"), partition) == read_partition(log.root.topic(TOPIC), partition)


def test_wall_time_of_a_stream_is_that_of_the_session_s_zone(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    log.create_topic(TOPIC)
    put_lines(incoming, "0", ["a"])
    noon = lines(spark, incoming).selectExpr("value", "timestamp_ntz'2024-07-01 12:00:00' AS timestamp")
    run(noon, root, TOPIC, checkpoint)
    assert [record.timestamp for record in log.topic(TOPIC).read(0, 0, max_records=9)] == [1719849600000]


def test_a_batch_that_spark_plays_again_adds_nothing(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """Invariant I5: Spark died between our commit and its own commit file."""
    log.create_topic(TOPIC, partitions=2)
    df = lines(spark, incoming, maxFilesPerTrigger=1)
    for number in range(2):
        put_lines(incoming, f"{number}", [f"{number}.{i}" for i in range(5)])
    run(df, root, TOPIC, checkpoint)
    forget_commit(checkpoint, 1)
    put_lines(incoming, "2", ["later"])
    run(df, root, TOPIC, checkpoint)
    assert values_of(root, TOPIC) == [*(f"{number}.{i}" for number in range(2) for i in range(5)), "later"]


@pytest.mark.parametrize("settled", [False, True])
def test_a_batch_that_is_played_again_adds_nothing(root: str, log: CommitLog, settled: bool) -> None:
    """Invariant I5."""
    log.create_topic(TOPIC, partitions=2)
    query = Query(root, TOPIC)
    for number in range(3):
        query.write(number, [f"{number}.{i}" for i in range(5)])
    if settled:
        log.topic(TOPIC).maintain()
    before = values_of(root, TOPIC)
    for _ in range(2):
        Query(root, TOPIC).write(2, [f"2.{i}" for i in range(5)])
        assert values_of(root, TOPIC) == before
    Query(root, TOPIC).write(3, ["later"])
    assert values_of(root, TOPIC) == sorted([*before, "later"])


def test_batch_ids_below_the_last_are_refused_unless_told_to_skip(root: str, log: CommitLog) -> None:
    """Rule R6: an older copy of the checkpoint would lose records in silence."""
    log.create_topic(TOPIC)
    query = Query(root, TOPIC)
    for number in range(3):
        query.write(number, [f"{number}"])
    with pytest.raises(StaleBatchError, match=r"commits 1, but 2 is committed already\. Spark replays only"):
        query.write(1, ["1"])
    Query(root, TOPIC, skipOlderBatches="true").write(1, ["1"])
    assert values_of(root, TOPIC) == ["0", "1", "2"]


def test_two_queries_from_one_copied_checkpoint_write_each_record_once(root: str, log: CommitLog) -> None:
    """They have one query id: whoever comes second with a batch finds it committed (rule R6)."""
    log.create_topic(TOPIC, partitions=2)
    first, twin = Query(root, TOPIC), Query(root, TOPIC)
    first.write(0, ["0"])
    for number, order in enumerate([(first, twin), (twin, first), (first, twin)], start=1):
        for each in order:
            each.write(number, [f"{number}"])
            assert values_of(root, TOPIC) == [f"{n}" for n in range(number + 1)]


def test_two_queries_from_one_copied_checkpoint_lose_what_they_cut_differently(root: str, log: CommitLog) -> None:
    """Why README says not to let both run: batch 2 of one is what the other had not come to."""
    log.create_topic(TOPIC)
    one_each, all_at_once = Query(root, TOPIC), Query(root, TOPIC)
    one_each.write(0, ["0"])
    one_each.write(1, ["1"])
    all_at_once.write(1, ["1", "2"])  # skipped: 1 is committed
    all_at_once.write(2, ["3"])
    one_each.write(2, ["2"])  # skipped
    one_each.write(3, ["3"])
    assert values_of(root, TOPIC) == ["0", "1", "3", "3"]


def test_asynchronous_progress_tracking_is_refused(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """With it a batch id may get other records after a restart, which would be skipped as a repetition.

    Spark refuses it for sinks that it does not know by name, unless it is asked not to; then we do.
    """
    log.create_topic(TOPIC)
    put_lines(incoming, "0", ["a"])
    asked, unchecked = {"asyncProgressTrackingEnabled": "true"}, "_asyncProgressTrackingOverrideSinkSupportCheck"
    with pytest.raises(PySparkException, match="Sink commitlog does not support async progress tracking"):
        start(lines(spark, incoming), root, TOPIC, checkpoint, now=False, **asked)
    query = start(lines(spark, incoming), root, TOPIC, checkpoint, now=False, **asked, **{unchecked: "true"})
    try:
        with pytest.raises(StreamingQueryException, match=r"'asyncProgressTrackingEnabled'='true': .* leave the opt"):
            query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()
    assert ends(log, TOPIC) == [0]
    run(lines(spark, incoming), root, TOPIC, checkpoint, asyncProgressTrackingEnabled="false")
    assert values(read(spark, root, TOPIC)) == ["a"]


def test_a_query_without_its_checkpoint_writes_all_again(root: str, log: CommitLog) -> None:
    """It is another query, and nobody can know that it writes what is there already."""
    log.create_topic(TOPIC)
    for name in ("before", "after"):
        Query(root, TOPIC, name).write(0, ["0", "1"])
    assert values_of(root, TOPIC) == ["0", "0", "1", "1"]


def test_a_copy_from_topic_to_topic_is_exact(root: str, log: CommitLog) -> None:
    """Key, value, headers and timestamp arrive as they were; keys choose the same partitions."""
    log.create_topic(TOPIC, partitions=3)
    log.create_topic("copy", partitions=3)
    numbers = range(200)
    append(log.root.topic(TOPIC), batch_of(
        [b"%d" % n for n in numbers], key=[b"%d" % (n % 13) for n in numbers],
        timestamp=[1_700_000_000_000_000 + n * 1001 for n in numbers],
        headers=[[{"key": "trace", "value": b"%d" % n}] for n in numbers],
    ))  # fmt: skip
    copied = driven.stream(root, TOPIC, columns="key,value,timestamp,headers", maxOffsetsPerTrigger=60)
    sink = SinkDriver(source(root, topic="copy"), copied.schema(), "query")
    Driver(copied, Checkpoint(), lambda batch, rows: sink.write(batch, [[each] for each in rows])).run()
    assert read_topic(log.root.topic("copy")) == read_topic(log.root.topic(TOPIC))


@pytest.mark.parametrize(("partitioner", "counts"), [("sticky", [8, 0, 0, 0]), ("roundrobin", [2, 2, 2, 2])])
def test_the_partitioner_spreads_a_micro_batch_without_keys(
    root: str, log: CommitLog, partitioner: str, counts: list[int]
) -> None:
    log.create_topic(TOPIC, partitions=4)
    Query(root, TOPIC, partitioner=partitioner).write(0, [f"{i}" for i in range(8)])
    assert ends(log, TOPIC) == counts


# --- several topics ---------------------------------------------------------------------------------------


def test_the_topic_column_distributes_a_micro_batch_over_topics_once(root: str, log: CommitLog) -> None:
    """Rule R7: a commit per topic, each of them skipped when the batch is played again."""
    for name in ("a", "b", "c"):
        log.create_topic(name, partitions=2)
    for number in (0, 1, 1):
        Query(root, None).write(number, [f"{name}{number}{i}" for i in range(3) for name in "abc"])
    for name in "abc":
        assert values_of(root, name) == [f"{name}{number}{i}" for number in range(2) for i in range(3)]


def test_a_replay_commits_only_the_topics_that_had_not_landed(root: str, log: CommitLog) -> None:
    log.create_topic("a")
    log.create_topic("c")
    query = Query(root, None)
    with pytest.raises(UnknownTopicError, match="unknown topic 'b'"):
        query.write(0, ["a0", "b0", "c0"])
    log.create_topic("b")
    # as if the driver had died after the commit to topic a
    assert not append(log.root.topic("a"), batch_of([b"a0"]), writer=Transaction("spark:query", 0)).skipped
    query.write(0, ["a0", "b0", "c0"])
    assert {name: values_of(root, name) for name in "abc"} == {"a": ["a0"], "b": ["b0"], "c": ["c0"]}


def at_one_entry(log: CommitLog, name: str) -> list[Record]:
    """Return the records that the newest entry makes visible, of all partitions."""
    topic = log.root.topic(name)
    _, state = topic.newest()
    return [r for p, end in enumerate(state.log_end) for r in read_partition(topic, p, 0, end)]


# --- foreachBatch -----------------------------------------------------------------------------------------


def test_two_writes_in_one_foreachbatch_are_two_writes(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """They see the query's local properties, and must not take them for exactly once."""
    log.create_topic(TOPIC)

    def twice(df: DataFrame, batch: int) -> None:
        write(df.selectExpr("concat(value, ' first') AS value"), root, TOPIC)
        write(df.selectExpr("concat(value, ' second') AS value"), root, TOPIC)

    put_lines(incoming, "0", ["0"])
    foreach_batch(lines(spark, incoming), twice, checkpoint)
    assert values(read(spark, root, TOPIC)) == ["0 first", "0 second"]


def test_txn_options_make_foreachbatch_exactly_once(root: str, log: CommitLog) -> None:
    """What its function does in batches 0 and 1, the second of them played again."""
    log.create_topic(TOPIC)
    log.create_topic("audit")
    for batch in (0, 1, 1):
        for topic, app, value in ((TOPIC, "job", "v"), (TOPIC, "job-upper", "V"), ("audit", "job", "v")):
            driven.write(root, topic, [{"value": f"{value}{batch}"}], txnAppId=app, txnVersion=batch)
    assert values_of(root, TOPIC) == ["V0", "V1", "v0", "v1"]
    assert values_of(root, "audit") == ["v0", "v1"]


def foreach_batch(df: DataFrame, act: object, checkpoint: Path) -> None:
    """Run a foreachBatch over what is available."""
    writer = df.writeStream.foreachBatch(act).option("checkpointLocation", str(checkpoint))  # type: ignore[arg-type]
    ended(writer.trigger(availableNow=True).start())


# --- a topic that goes away -------------------------------------------------------------------------------


def test_a_write_during_which_its_topic_was_made_again_is_refused(root: str, log: CommitLog) -> None:
    """Task 0 has staged for the old topic; task 1 makes the topic anew, and stages for the new one."""
    log.create_topic(TOPIC, config={"inline.max.bytes": 0})
    rows = batch_of([b"v"])

    def make_again() -> Iterator[pa.RecordBatch]:
        log.topic(TOPIC).delete()
        log.create_topic(TOPIC)
        yield rows

    with pytest.raises(TopicChangedError, match="was deleted and made again while this write was running; nothing was"):
        write_batch(source(root, topic=TOPIC), [[rows], make_again()])
    assert ends(log, TOPIC) == [0]


@pytest.mark.parametrize("again", [False, True])
def test_a_commit_for_a_topic_that_went_away_meanwhile_is_refused(root: str, log: CommitLog, again: bool) -> None:
    log.create_topic(TOPIC)
    batch = pa.RecordBatch.from_pydict({"value": ["a"]})
    writer = DefaultSource({"path": root, "topic": TOPIC}).writer(
        StructType().add("value", StringType()), overwrite=False
    )
    message = writer.write(iter([batch]))
    log.topic(TOPIC).delete()
    if again:
        log.create_topic(TOPIC)
    with pytest.raises(TopicChangedError, match="it was made again with id" if again else "it is deleted"):
        writer.commit([message])
    if again:
        assert ends(log, TOPIC) == [0]


def test_a_query_whose_topic_is_deleted_stops_with_that_error(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    query = Query(root, TOPIC)
    query.write(0, ["0"])
    log.topic(TOPIC).delete()
    with pytest.raises(UnknownTopicError, match=f"unknown topic '{TOPIC}'"):
        query.write(1, ["1"])


def test_a_query_whose_topic_was_made_again_is_refused(root: str, log: CommitLog) -> None:
    """The rest of a stream alone, at offset 0 of a new topic, would look like all of it."""
    log.create_topic(TOPIC)
    query = Query(root, TOPIC)
    query.write(0, ["0"])
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC)
    for each in (query, Query(root, TOPIC)):
        with pytest.raises(TopicChangedError, match=f"topic '{TOPIC}' was deleted and made again since spark:"):
            each.write(1, ["1"])
    assert ends(log, TOPIC) == [0]


# --- at the same time -------------------------------------------------------------------------------------


def test_two_queries_writing_one_topic_lose_and_double_nothing(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic(TOPIC, partitions=3)
    queries = []
    for name in ("left", "right"):
        for number in range(6):
            put_lines(tmp_path / name, f"{number}", [f"{name} {number}.{i}" for i in range(20)])
        df = lines(spark, tmp_path / name, maxFilesPerTrigger=1).selectExpr("value AS key", "value")
        queries.append(start(df, root, TOPIC, tmp_path / f"{name}-checkpoint"))
    for query in queries:
        ended(query)
    wanted = [f"{name} {number}.{i}" for name in ("left", "right") for number in range(6) for i in range(20)]
    assert values(read(spark, root, TOPIC)) == sorted(wanted)
    for partition, end in enumerate(ends(log, TOPIC)):
        offsets = [r.offset for r in read_topic(log.root.topic(TOPIC)) if r.partition == partition]
        assert offsets == list(range(end))  # dense: invariant I3


def test_a_reader_never_sees_a_part_of_a_micro_batch(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """Invariant I1: every micro-batch has 12 records over 3 partitions; readers find all of a batch, or none."""
    log.create_topic(TOPIC, partitions=3, config={"settle.entries": 2})
    for number in range(8):
        put_lines(incoming, f"{number}", [f"{number}.{i}" for i in range(12)])
    df = lines(spark, incoming, maxFilesPerTrigger=1).selectExpr("value AS key", "value").repartition(3)
    torn: list[tuple[str, Counter[str]]] = []
    reads = Counter[str]()
    over = threading.Event()

    def watch(who: str, look: object) -> None:
        while not over.is_set():
            counts = Counter(value.split(".")[0] for value in look())  # type: ignore[operator]
            reads[who] += 1
            if any(count != 12 for count in counts.values()):
                torn.append((who, counts))

    watchers = [
        threading.Thread(target=watch, args=("spark", lambda: values(read(spark, root, TOPIC)))),
        threading.Thread(
            target=watch,
            args=("python", lambda: [r.value.decode() for r in at_one_entry(CommitLog(root), TOPIC) if r.value]),
        ),
    ]
    for watcher in watchers:
        watcher.start()
    try:
        run(df, root, TOPIC, checkpoint)
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()
    assert torn == []
    assert min(reads["spark"], reads["python"]) > 3
    assert sum(ends(log, TOPIC)) == 96

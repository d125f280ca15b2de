"""The streaming sink: exactly once per topic, whatever is played again; several topics, several queries, readers."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import TopicChangedError
from pyspark_commitlog.log.write.writers import Transaction
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


def entries(root: str, topic: str) -> int:
    """Return how many entries a topic's journal has."""
    return len(list(Path(root, "topics", topic, "journal").glob("*.json")))


def test_each_micro_batch_is_one_entry_and_an_empty_one_is_none(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    log.create_topic(TOPIC, partitions=3)
    for number in range(3):
        put_lines(incoming, f"{number}", [f"{number}.{i}" for i in range(4)] if number != 1 else [])
    run(lines(spark, incoming, maxFilesPerTrigger=1), root, TOPIC, checkpoint)
    assert values(read(spark, root, TOPIC)) == [f"{number}.{i}" for number in (0, 2) for i in range(4)]
    assert entries(root, TOPIC) == 3  # create and two appends


def test_a_replay_with_another_number_of_tasks_has_the_same_checksum(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, tmp_path: Path
) -> None:
    """R6: one query's batch, by two tasks and by five; played again by five, nothing changes."""
    put_lines(incoming, "0", [f"line {number}" for number in range(200)])
    found = set()
    for topic, tasks in (("two", 2), ("five", 5)):
        log.create_topic(topic, partitions=3)
        query = run(lines(spark, incoming).repartition(tasks), root, topic, tmp_path / topic)
        handle = log.root.topic(topic)
        row = handle.writer(handle.newest()[1], f"spark:{query.id}")
        assert row is not None
        assert row.checksum is not None
        found.add((row.rows, row.checksum))
    assert len(found) == 1
    forget_commit(tmp_path / "two", 0)
    before = entries(root, "two")
    run(lines(spark, incoming).repartition(5), root, "two", tmp_path / "two")
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


@pytest.mark.parametrize("settled", [False, True])
def test_a_batch_that_is_played_again_adds_nothing(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path, settled: bool
) -> None:
    """Invariant I5: Spark died between our commit and its own commit file."""
    log.create_topic(TOPIC, partitions=2)
    df = lines(spark, incoming, maxFilesPerTrigger=1)
    for number in range(3):
        put_lines(incoming, f"{number}", [f"{number}.{i}" for i in range(5)])
    run(df, root, TOPIC, checkpoint)
    if settled:
        log.topic(TOPIC).maintain()
    before = values(read(spark, root, TOPIC))
    for _ in range(2):
        forget_commit(checkpoint, 2)
        run(df, root, TOPIC, checkpoint)
        assert values(read(spark, root, TOPIC)) == before
    put_lines(incoming, "3", ["later"])
    run(df, root, TOPIC, checkpoint)
    assert values(read(spark, root, TOPIC)) == sorted([*before, "later"])


def test_batch_ids_below_the_last_are_refused_unless_told_to_skip(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Rule R6: an older copy of the checkpoint would lose records in silence."""
    log.create_topic(TOPIC)
    df = lines(spark, incoming, maxFilesPerTrigger=1)
    put_lines(incoming, "0", ["0"])
    run(df, root, TOPIC, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "older")
    for number in (1, 2):
        put_lines(incoming, f"{number}", [f"{number}"])
        run(df, root, TOPIC, checkpoint)
    with pytest.raises(StreamingQueryException, match=r"commits 1, but 2 is committed already\. Spark replays only"):
        run(df, root, TOPIC, tmp_path / "older")
    run(df, root, TOPIC, tmp_path / "older", skipOlderBatches="true")
    assert values(read(spark, root, TOPIC)) == ["0", "1", "2"]


def test_two_queries_from_one_copied_checkpoint_write_each_record_once(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """They have one query id: whoever comes second with a batch finds it committed (rule R6)."""
    log.create_topic(TOPIC, partitions=2)
    df = lines(spark, incoming, maxFilesPerTrigger=1)
    put_lines(incoming, "0", ["0"])
    run(df, root, TOPIC, checkpoint)
    twin = tmp_path / "twin"
    shutil.copytree(checkpoint, twin)
    for number, order in enumerate([(checkpoint, twin), (twin, checkpoint), (checkpoint, twin)], start=1):
        put_lines(incoming, f"{number}", [f"{number}"])
        for each in order:
            run(df, root, TOPIC, each)
            assert values(read(spark, root, TOPIC)) == [f"{n}" for n in range(number + 1)]


def test_two_queries_from_one_copied_checkpoint_lose_what_they_cut_differently(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Why README says not to let both run: batch 2 of one is what the other had not come to."""
    log.create_topic(TOPIC)
    one_each, all_at_once = lines(spark, incoming, maxFilesPerTrigger=1), lines(spark, incoming)
    put_lines(incoming, "0", ["0"])
    run(one_each, root, TOPIC, checkpoint)
    twin = tmp_path / "twin"
    shutil.copytree(checkpoint, twin)
    put_lines(incoming, "1", ["1"])
    run(one_each, root, TOPIC, checkpoint)
    put_lines(incoming, "2", ["2"])
    run(all_at_once, root, TOPIC, twin)  # its batch 1 is both files, and skipped: 1 is committed
    put_lines(incoming, "3", ["3"])
    run(all_at_once, root, TOPIC, twin)  # its batch 2
    run(one_each, root, TOPIC, checkpoint)  # its batch 2 is skipped, its batch 3 is not
    assert values(read(spark, root, TOPIC)) == ["0", "1", "3", "3"]


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


def test_a_query_without_its_checkpoint_writes_all_again(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """It is another query, and nobody can know that it writes what is there already."""
    log.create_topic(TOPIC)
    df = lines(spark, incoming)
    put_lines(incoming, "0", ["0", "1"])
    run(df, root, TOPIC, checkpoint)
    shutil.rmtree(checkpoint)
    run(df, root, TOPIC, checkpoint)
    assert values(read(spark, root, TOPIC)) == ["0", "0", "1", "1"]


def test_a_copy_from_topic_to_topic_is_exact(spark: SparkSession, root: str, log: CommitLog, checkpoint: Path) -> None:
    """Key, value, headers and timestamp arrive as they were; keys choose the same partitions."""
    log.create_topic(TOPIC, partitions=3)
    log.create_topic("copy", partitions=3)
    df = spark.range(0, 200, 1, 2).selectExpr(
        "CAST(id % 13 AS STRING) AS key",
        "CAST(id AS STRING) AS value",
        "timestamp_micros(1700000000000000 + id * 1001) AS timestamp",
        "array(named_struct('key', 'trace', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    write(df, root, TOPIC)
    copied = stream(spark, root, TOPIC, includeHeaders="true", maxOffsetsPerTrigger=60)
    run(copied.select("key", "value", "timestamp", "headers"), root, "copy", checkpoint)
    assert read_topic(log.root.topic("copy")) == read_topic(log.root.topic(TOPIC))


@pytest.mark.parametrize(("partitioner", "counts"), [("sticky", [8, 0, 0, 0]), ("roundrobin", [2, 2, 2, 2])])
def test_the_partitioner_spreads_a_micro_batch_without_keys(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path, partitioner: str,
    counts: list[int],
) -> None:  # fmt: skip
    log.create_topic(TOPIC, partitions=4)
    put_lines(incoming, "0", [f"{i}" for i in range(8)])
    run(lines(spark, incoming), root, TOPIC, checkpoint, partitioner=partitioner)
    assert ends(log, TOPIC) == counts


# --- several topics ---------------------------------------------------------------------------------------


def test_the_topic_column_distributes_a_micro_batch_over_topics_once(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """Rule R7: a commit per topic, each of them skipped when the batch is played again."""
    for name in ("a", "b", "c"):
        log.create_topic(name, partitions=2)
    df = lines(spark, incoming, maxFilesPerTrigger=1).selectExpr("substr(value, 1, 1) AS topic", "value")
    for number in range(2):
        put_lines(incoming, f"{number}", [f"{name}{number}{i}" for i in range(3) for name in "abc"])
    run(df, root, None, checkpoint)
    forget_commit(checkpoint, 1)
    run(df, root, None, checkpoint)
    for name in "abc":
        assert values(read(spark, root, name)) == [f"{name}{number}{i}" for number in range(2) for i in range(3)]


def test_a_replay_commits_only_the_topics_that_had_not_landed(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    log.create_topic("a")
    log.create_topic("c")
    df = lines(spark, incoming).selectExpr("substr(value, 1, 1) AS topic", "value")
    put_lines(incoming, "0", ["a0", "b0", "c0"])
    with pytest.raises(StreamingQueryException, match="unknown topic 'b'"):
        run(df, root, None, checkpoint)
    log.create_topic("b")
    # as if the driver had died after the commit to topic a
    staged_then_committed(root, log, query_id(checkpoint), ["a0"])
    run(df, root, None, checkpoint)
    assert {name: values(read(spark, root, name)) for name in "abc"} == {"a": ["a0"], "b": ["b0"], "c": ["c0"]}


def at_one_entry(log: CommitLog, name: str) -> list[Record]:
    """Return the records that the newest entry makes visible, of all partitions."""
    topic = log.root.topic(name)
    _, state = topic.newest()
    return [r for p, end in enumerate(state.log_end) for r in read_partition(topic, p, 0, end)]


def query_id(checkpoint: Path) -> str:
    """Return the query id in a checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def staged_then_committed(root: str, log: CommitLog, query: str, found: list[str]) -> None:
    """Commit batch 0 of a query to topic `a`, as its sink does."""
    assert not append(
        log.root.topic("a"), batch_of([value.encode() for value in found]), writer=Transaction(f"spark:{query}", 0)
    ).skipped


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


def test_txn_options_make_foreachbatch_exactly_once(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    log.create_topic(TOPIC)
    log.create_topic("audit")

    def twice(df: DataFrame, batch: int) -> None:
        write(df, root, TOPIC, txnAppId="job", txnVersion=batch)
        write(df.selectExpr("upper(value) AS value"), root, TOPIC, txnAppId="job-upper", txnVersion=batch)
        write(df, root, "audit", txnAppId="job", txnVersion=batch)

    for number in range(2):
        put_lines(incoming, f"{number}", [f"v{number}"])
    df = lines(spark, incoming, maxFilesPerTrigger=1)
    foreach_batch(df, twice, checkpoint)
    forget_commit(checkpoint, 1)
    foreach_batch(df, twice, checkpoint)
    assert values(read(spark, root, TOPIC)) == ["V0", "V1", "v0", "v1"]
    assert values(read(spark, root, "audit")) == ["v0", "v1"]


def foreach_batch(df: DataFrame, act: object, checkpoint: Path) -> None:
    """Run a foreachBatch over what is available."""
    writer = df.writeStream.foreachBatch(act).option("checkpointLocation", str(checkpoint))  # type: ignore[arg-type]
    ended(writer.trigger(availableNow=True).start())


# --- a topic that goes away -------------------------------------------------------------------------------


def test_a_write_during_which_its_topic_was_made_again_is_refused(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    """Task 0 has staged for the old topic; task 1 waits for that, makes the topic anew, and stages for the new one."""
    log.create_topic(TOPIC, config={"inline.max.bytes": 0})
    staged = Path(root, "topics", TOPIC, log.topic(TOPIC).describe().topic_id, "staged")

    def make_again(task: int, rows: Iterator[int]) -> Iterator[tuple[str]]:
        import time

        from pyspark_commitlog import CommitLog

        if task == 1:
            while not any(staged.glob("*.chunk")):
                time.sleep(0.01)
            CommitLog(root).topic(TOPIC).delete()
            CommitLog(root).create_topic(TOPIC)
        for row in rows:
            yield (f"{row}",)

    rows = spark.sparkContext.parallelize(range(10), 2).mapPartitionsWithIndex(make_again)
    df = spark.createDataFrame(rows, "value string")
    with pytest.raises(PySparkException, match="was deleted and made again while this write was running; nothing was"):
        write(df, root, TOPIC)
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


def test_a_query_whose_topic_is_deleted_stops_with_that_error(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    log.create_topic(TOPIC)
    put_lines(incoming, "0", ["0"])
    query = start(lines(spark, incoming), root, TOPIC, checkpoint, now=False)
    try:
        query.processAllAvailable()
        log.topic(TOPIC).delete()
        put_lines(incoming, "1", ["1"])
        with pytest.raises(StreamingQueryException, match=f"unknown topic '{TOPIC}'"):
            query.processAllAvailable()
    finally:
        query.stop()


def test_a_query_whose_topic_was_made_again_is_refused(
    spark: SparkSession, root: str, log: CommitLog, incoming: Path, checkpoint: Path
) -> None:
    """The rest of a stream alone, at offset 0 of a new topic, would look like all of it."""
    log.create_topic(TOPIC)
    put_lines(incoming, "0", ["0"])
    query = start(lines(spark, incoming), root, TOPIC, checkpoint, now=False)
    try:
        query.processAllAvailable()
        log.topic(TOPIC).delete()
        log.create_topic(TOPIC)
        put_lines(incoming, "1", ["1"])
        with pytest.raises(StreamingQueryException, match=f"topic '{TOPIC}' was deleted and made again since spark:"):
            query.processAllAvailable()
    finally:
        query.stop()
    with pytest.raises(StreamingQueryException, match=f"topic '{TOPIC}' was deleted and made again since spark:"):
        run(lines(spark, incoming), root, TOPIC, checkpoint)
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

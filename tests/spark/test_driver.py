"""The driver without Spark makes the calls that Spark makes; then come stories that would be slow with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import InvalidRecordError, TopicChangedError, UsageError
from tests.spark.driver import Checkpoint, Driver, SinkDriver, read_batch, source, write_batch
from tests.spark.jobs import ended, ends, stream
from tests.spark.recorded import FORMAT, CrashError, RecordedSource, calls, fails_next, notes, without_idle_looks
from tests.support.records import append, batch_of, read_topic

TOPIC = "orders"
LIMIT = 6


def put(log: CommitLog, values: list[str], partition: int) -> None:
    """Append values to a partition."""
    append(log.root.topic(TOPIC), batch_of([value.encode() for value in values], partition=[partition] * len(values)))


def options() -> dict[str, str]:
    """Return the options of the query."""
    return {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": f"{LIMIT}"}


class InDriver:
    """The query in the driver without Spark."""

    def __init__(self, root: str) -> None:
        self._root, self._checkpoint = root, Checkpoint()
        self.batches: list[tuple[int, list[bytes]]] = []

    def run(self, crash_in: int | None = None) -> None:
        """Run what is available; the sink gives up in a batch."""

        def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
            if batch == crash_in:
                raise CrashError
            self.batches.append((batch, sorted(value for b in rows for value in b.column("value").to_pylist())))

        driver = Driver(source(self._root, RecordedSource, **options()), self._checkpoint, sink)
        try:
            driver.run()
        except CrashError:
            assert crash_in is not None

    def run_through(self, *between: Callable[[], object]) -> None:
        """Run without an end, and do something each time that all is read."""

        def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
            self.batches.append((batch, sorted(value for b in rows for value in b.column("value").to_pylist())))

        driver = Driver(source(self._root, RecordedSource, **options()), self._checkpoint, sink)
        driver.process_all_available()
        for act in between:
            act()
            driver.process_all_available()


class InSpark:
    """The query in Spark."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self._root, self._spark = root, spark
        self.batches: list[tuple[int, list[bytes]]] = []

    def run(self, crash_in: int | None = None) -> None:
        """Run what is available; the sink gives up in a batch."""

        def sink(df: DataFrame, batch: int) -> None:
            found = sorted(bytes(row.value) for row in df.collect())
            if batch == crash_in:
                raise CrashError
            self.batches.append((batch, found))

        self._spark.dataSource.register(RecordedSource)
        df = self._spark.readStream.format(FORMAT).options(**options()).load(self._root)
        writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", f"{self._root}-checkpoint")
        try:
            ended(writer.trigger(availableNow=True).start())
        except StreamingQueryException as error:
            if "CrashError" not in str(error):
                raise

    def run_through(self, *between: Callable[[], object]) -> None:
        """Run without an end, and do something each time that all is read."""

        def sink(df: DataFrame, batch: int) -> None:
            self.batches.append((batch, sorted(bytes(row.value) for row in df.collect())))

        self._spark.dataSource.register(RecordedSource)
        df = self._spark.readStream.format(FORMAT).options(**options()).load(self._root)
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", f"{self._root}-checkpoint").start()
        try:
            query.processAllAvailable()
            for act in between:
                act()
                query.processAllAvailable()
        finally:
            query.stop()


STARTED = ["streamReader", "maxoffsetspertrigger", "path", "startingoffsets", "subscribe"]
EXPECTED: list[list[Any]] = [
    # a new query, whose sink gives up in its second batch
    STARTED,
    ["prepareForTriggerAvailableNow"],
    ["getDefaultReadLimit", LIMIT],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["latestOffset", {TOPIC: [0, 0]}, LIMIT, {TOPIC: [3, 3]}],
    ["reportLatestOffset", {TOPIC: [5, 5]}],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["partitions", {TOPIC: [0, 0]}, {TOPIC: [3, 3]}],
    STARTED,
    ["read", TOPIC, 0, 0, 3],
    ["read", TOPIC, 1, 0, 3],
    ["latestOffset", {TOPIC: [3, 3]}, LIMIT, {TOPIC: [5, 5]}],
    ["reportLatestOffset", {TOPIC: [5, 5]}],
    ["commit", {TOPIC: [3, 3]}],
    ["partitions", {TOPIC: [3, 3]}, {TOPIC: [5, 5]}],
    ["read", TOPIC, 0, 3, 5],
    ["read", TOPIC, 1, 3, 5],
    # started again: that batch is played again; then nothing is new
    STARTED,
    ["prepareForTriggerAvailableNow"],
    ["getDefaultReadLimit", LIMIT],
    ["partitions", {TOPIC: [3, 3]}, {TOPIC: [5, 5]}],
    STARTED,
    ["read", TOPIC, 0, 3, 5],
    ["read", TOPIC, 1, 3, 5],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [5, 5]}],
    ["reportLatestOffset", {TOPIC: [5, 5]}],
    # nothing new
    STARTED,
    ["prepareForTriggerAvailableNow"],
    ["getDefaultReadLimit", LIMIT],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [5, 5]}],
    ["reportLatestOffset", {TOPIC: [5, 5]}],
    # a record more, in one partition
    STARTED,
    ["prepareForTriggerAvailableNow"],
    ["getDefaultReadLimit", LIMIT],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [6, 5]}],
    ["reportLatestOffset", {TOPIC: [6, 5]}],
    ["commit", {TOPIC: [5, 5]}],
    ["partitions", {TOPIC: [5, 5]}, {TOPIC: [6, 5]}],
    STARTED,
    ["read", TOPIC, 0, 5, 6],
    ["latestOffset", {TOPIC: [6, 5]}, LIMIT, {TOPIC: [6, 5]}],
    ["reportLatestOffset", {TOPIC: [6, 5]}],
]


@pytest.fixture(params=["driver", "spark"])
def query(request: pytest.FixtureRequest, root: str) -> InDriver | InSpark:
    """Return the query, in both worlds."""
    return InDriver(root) if request.param == "driver" else InSpark(root, request.getfixturevalue("spark"))


def test_the_same_calls_are_made_in_the_driver_and_in_spark(
    root: str, log: CommitLog, query: InDriver | InSpark
) -> None:
    log.create_topic(TOPIC, partitions=2)
    for partition in (0, 1):
        put(log, [f"{partition}.{i}" for i in range(5)], partition)
    query.run(crash_in=1)
    query.run()
    query.run()
    put(log, ["0.5"], 0)
    query.run()
    assert calls(root) == EXPECTED
    assert query.batches == [
        (0, [b"0.0", b"0.1", b"0.2", b"1.0", b"1.1", b"1.2"]),
        (1, [b"0.3", b"0.4", b"1.3", b"1.4"]),
        (2, [b"0.5"]),
    ]
    notes(root).unlink()


RUNNING: list[list[Any]] = [
    STARTED,
    ["getDefaultReadLimit", LIMIT],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["latestOffset", {TOPIC: [0, 0]}, LIMIT, {TOPIC: [2, 0]}],
    ["reportLatestOffset", {TOPIC: [2, 0]}],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["partitions", {TOPIC: [0, 0]}, {TOPIC: [2, 0]}],
    STARTED,
    ["read", TOPIC, 0, 0, 2],
    # more than a batch takes
    ["latestOffset", {TOPIC: [2, 0]}, LIMIT, {TOPIC: [2, 6]}],
    ["reportLatestOffset", {TOPIC: [2, 8]}],
    ["commit", {TOPIC: [2, 0]}],
    ["partitions", {TOPIC: [2, 0]}, {TOPIC: [2, 6]}],
    ["read", TOPIC, 1, 0, 6],
    ["latestOffset", {TOPIC: [2, 6]}, LIMIT, {TOPIC: [2, 8]}],
    ["reportLatestOffset", {TOPIC: [2, 8]}],
    ["commit", {TOPIC: [2, 6]}],
    ["partitions", {TOPIC: [2, 6]}, {TOPIC: [2, 8]}],
    ["read", TOPIC, 1, 6, 8],
    # a partition more, and its first record
    ["latestOffset", {TOPIC: [2, 8]}, LIMIT, {TOPIC: [2, 8, 0]}],
    ["reportLatestOffset", {TOPIC: [2, 8, 0]}],
    ["commit", {TOPIC: [2, 8]}],
    ["partitions", {TOPIC: [2, 8]}, {TOPIC: [2, 8, 0]}],
    ["latestOffset", {TOPIC: [2, 8, 0]}, LIMIT, {TOPIC: [2, 8, 1]}],
    ["reportLatestOffset", {TOPIC: [2, 8, 1]}],
    ["commit", {TOPIC: [2, 8, 0]}],
    ["partitions", {TOPIC: [2, 8, 0]}, {TOPIC: [2, 8, 1]}],
    ["read", TOPIC, 2, 0, 1],
]


def test_a_query_without_an_end_makes_the_same_calls_in_the_driver_and_in_spark(
    root: str, log: CommitLog, query: InDriver | InSpark
) -> None:
    """But for how often it looks while there is nothing new."""
    log.create_topic(TOPIC, partitions=2)
    put(log, ["a", "b"], 0)

    query.run_through(
        lambda: put(log, [f"{n}" for n in range(8)], 1),
        lambda: log.topic(TOPIC).add_partitions(3),
        lambda: put(log, ["first"], 2),
    )
    assert without_idle_looks(calls(root)) == RUNNING
    assert [values for _, values in query.batches] == [
        [b"a", b"b"], [b"0", b"1", b"2", b"3", b"4", b"5"], [b"6", b"7"], [], [b"first"],
    ]  # fmt: skip


# --- batch reads and writes -------------------------------------------------------------------------------


class BatchInDriver:
    """Batch reads and writes in the driver without Spark."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, columns: list[str] | None = None, **options: str) -> list[tuple[Any, ...]]:
        """Return the rows of a read, in the order of its tasks."""
        schema = None if columns is None else StructType([FIELDS[name] for name in columns])
        tasks = read_batch(source(self._root, RecordedSource, subscribe=TOPIC, **options), schema)
        return [tuple(row.values()) for task in tasks for rows in task for row in rows.to_pylist()]

    def write(self, tasks: list[list[tuple[str, int]]], *, overwrite: bool = False, **options: str) -> str | None:
        """Write values to partitions; tell the error."""
        rows = [
            [
                pa.record_batch(
                    {"value": pa.array([v for v, _ in task]), "partition": pa.array([p for _, p in task], "int32")}
                )
            ]
            for task in tasks
        ]
        try:
            write_batch(source(self._root, RecordedSource, topic=TOPIC, **options), rows, overwrite=overwrite)
        except UsageError as error:
            return type(error).__name__
        return None


class BatchInSpark:
    """Batch reads and writes in Spark."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self._root, self._spark = root, spark
        spark.dataSource.register(RecordedSource)

    def read(self, columns: list[str] | None = None, **options: str) -> list[tuple[Any, ...]]:
        """Return the rows of a read, in the order of its tasks."""
        reader = self._spark.read.format(FORMAT).options(subscribe=TOPIC, **options)
        if columns is not None:
            reader = reader.schema(StructType([FIELDS[name] for name in columns]))
        return [tuple(row) for row in reader.load(self._root).collect()]

    def write(self, tasks: list[list[tuple[str, int]]], *, overwrite: bool = False, **options: str) -> str | None:
        """Write values to partitions; tell the error."""
        rows = self._spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(lambda task: task)
        writer = self._spark.createDataFrame(rows, "value string, partition int").write.format(FORMAT)
        try:
            writer.mode("overwrite" if overwrite else "append").options(topic=TOPIC, **options).save(self._root)
        except PySparkException as error:
            return next(name for name in ("InvalidRecordError", "UsageError") if name in str(error))
        return None


FIELDS = {"value": StructField("value", BinaryType()), "offset": StructField("offset", LongType())}
BATCH: list[list[Any]] = [
    # two tasks
    ["writer", "path", "topic", "value", "partition", False],
    ["write", 0, None],
    ["write", 1, None],
    ["commit", 2],
    # one of two tasks fails
    ["writer", "path", "topic", "value", "partition", False],
    ["write", 0, None],
    ["write", 1, None],
    ["abort", 2],
    # what is refused before there is a task
    ["writer", "path", "topic", "value", "partition", True],
    # columns by an option in other letters; columns of a user; nothing to read
    ["reader", "columns", "path", "startingoffsets", "subscribe", "offset", "value"],
    ["partitions"],
    ["read", TOPIC, 0, 1, 2],
    ["read", TOPIC, 1, 0, 3],
    ["reader", "path", "subscribe", "value"],
    ["partitions"],
    ["read", TOPIC, 0, 0, 2],
    ["read", TOPIC, 1, 0, 3],
    ["reader", "endingoffsets", "path", "subscribe", "value"],
    ["partitions"],
    ["read"],
]


@pytest.fixture(params=["driver", "spark"])
def batch(request: pytest.FixtureRequest, root: str) -> BatchInDriver | BatchInSpark:
    """Return batch reads and writes, in both worlds."""
    return BatchInDriver(root) if request.param == "driver" else BatchInSpark(root, request.getfixturevalue("spark"))


def test_batches_make_the_same_calls_in_the_driver_and_in_spark(
    root: str, log: CommitLog, batch: BatchInDriver | BatchInSpark
) -> None:
    log.create_topic(TOPIC, partitions=2)
    assert batch.write([[("a", 0), ("b", 0), ("c", 1)], [("d", 1), ("e", 1)]]) is None
    assert batch.write([[("f", 0)], [("g", 2)]]) == "InvalidRecordError"  # there is no partition 2
    assert batch.write([[("h", 0)]], overwrite=True) == "UsageError"
    some = batch.read(startingOffsets=f'{{"{TOPIC}": {{"0": 1}}}}', COLUMNS="offset,value")
    assert some == [(0, b"c"), (1, b"d"), (2, b"e"), (1, b"b")]
    assert batch.read(["value"]) == [(b"c",), (b"d",), (b"e",), (b"a",), (b"b",)]
    assert batch.read(["value"], endingOffsets=f'{{"{TOPIC}": {{"0": 0, "1": 0}}}}') == []
    assert calls(root) == BATCH


# --- the sink ---------------------------------------------------------------------------------------------

INCOMING = "incoming"
#: A record is copied with its partition's number.
COPIED = {"subscribe": INCOMING, "startingOffsets": "earliest", "columns": "value,partition"}
SINK_ERRORS = ("CrashError", "InvalidRecordError")


class CopyInDriver:
    """A query that copies a topic, in the driver without Spark; `run` tells which error stopped it."""

    def __init__(self, root: str) -> None:
        self._source = source(root, **COPIED)
        sink = source(root, RecordedSource, topic=TOPIC)
        self._sink, self._checkpoint = SinkDriver(sink, self._source.schema(), "query"), Checkpoint()

    def run(self) -> str | None:
        """Run what is available."""
        try:
            Driver(self._source, self._checkpoint, self._write).run()
        except (CrashError, InvalidRecordError) as error:
            return type(error).__name__
        return None

    def _write(self, batch: int, rows: list[pa.RecordBatch]) -> None:
        self._sink.write(batch, [[each] for each in rows])  # the few rows of a partition are one batch


class CopyInSpark:
    """The query in Spark."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self._root, self._spark = root, spark

    def run(self) -> str | None:
        """Run what is available."""
        self._spark.dataSource.register(RecordedSource)
        df = stream(self._spark, self._root, INCOMING, **COPIED)
        writer = df.writeStream.format(FORMAT).option("topic", TOPIC)
        writer = writer.option("checkpointLocation", f"{self._root}-copy").trigger(availableNow=True)
        try:
            ended(writer.start(self._root))
        except StreamingQueryException as error:
            return next(name for name in SINK_ERRORS if name in str(error))
        return None


SINK_EXPECTED: list[list[Any]] = [
    # two tasks
    ["streamWriter", False],
    ["write", 0],
    ["write", 1],
    ["streamWriter", False],
    ["commit", 0, 2],
    # a commit that landed but failed, and its batch again
    ["streamWriter", False],
    ["write", 0],
    ["streamWriter", False],
    ["commit", 1, 1],
    ["streamWriter", False],
    ["abort", 1, 1],
    ["streamWriter", False],
    ["write", 0],
    ["streamWriter", False],
    ["commit", 1, 1],
    # a task that fails, and its batch again
    ["streamWriter", False],
    ["write", 0],
    ["streamWriter", False],
    ["abort", 2, 1],
    ["streamWriter", False],
    ["write", 0],
    ["streamWriter", False],
    ["commit", 2, 1],
]


@pytest.fixture(params=["driver", "spark"])
def copy(request: pytest.FixtureRequest, root: str) -> CopyInDriver | CopyInSpark:
    """Return the query that copies, in both worlds."""
    return CopyInDriver(root) if request.param == "driver" else CopyInSpark(root, request.getfixturevalue("spark"))


def test_the_same_calls_reach_the_sink_in_the_driver_and_in_spark(
    root: str, log: CommitLog, copy: CopyInDriver | CopyInSpark
) -> None:
    log.create_topic(INCOMING, partitions=4)
    log.create_topic(TOPIC, partitions=2)
    incoming = log.root.topic(INCOMING)
    append(incoming, batch_of([b"a", b"b", b"c", b"d"], partition=[0, 0, 1, 1]))
    assert copy.run() is None
    append(incoming, batch_of([b"e"], partition=[0]))
    fails_next(root).touch()
    assert copy.run() == "CrashError"
    assert ends(log, TOPIC) == [3, 2]
    assert copy.run() is None
    append(incoming, batch_of([b"f"], partition=[3]))
    assert copy.run() == "InvalidRecordError"  # there is no partition 3
    log.topic(TOPIC).add_partitions(4)
    assert copy.run() is None
    assert calls(root) == SINK_EXPECTED
    assert [(r.partition, r.value) for r in read_topic(log.root.topic(TOPIC))] == [
        (0, b"a"), (0, b"b"), (0, b"e"), (1, b"c"), (1, b"d"), (3, b"f"),
    ]  # fmt: skip


# --- in the driver only -----------------------------------------------------------------------------------


def everything(query: InDriver) -> list[bytes]:
    """Return all values that the sink was given, in order of batch."""
    return [value for _, values in query.batches for value in values]


@pytest.mark.parametrize(
    "between", [lambda log: None, lambda log: log.topic(TOPIC).maintain()], ids=["unsettled", "settled"]
)
def test_every_record_is_read_once_over_many_crashes(
    root: str, log: CommitLog, between: Callable[[CommitLog], object]
) -> None:
    log.create_topic(TOPIC, partitions=3, config={"segment.bytes": 1024})
    query, wanted = InDriver(root), []
    for number in range(20):
        values = [f"{number:02}.{i}" for i in range(number % 4 + 1)]
        put(log, values, number % 3)
        wanted += [value.encode() for value in values]
        between(log)
        query.run(crash_in=number // 2 if number % 3 else None)
    query.run()
    assert sorted(everything(query)) == wanted
    assert [batch for batch, _ in query.batches] == list(range(len(query.batches)))


def test_partitions_that_are_added_between_runs_start_at_their_first_record(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=1)
    put(log, ["a"], 0)
    query = InDriver(root)
    query.run()
    for partitions in (2, 5):
        log.topic(TOPIC).add_partitions(partitions)
        put(log, [f"first of {partitions - 1}"], partitions - 1)
        query.run()
    assert everything(query) == [b"a", b"first of 1", b"first of 4"]


def test_a_planned_batch_of_a_topic_that_was_made_again_is_refused(root: str, log: CommitLog, tmp_path: Path) -> None:
    log.create_topic(TOPIC)
    put(log, ["a", "b"], 0)
    query = InDriver(root)
    query.run(crash_in=0)
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC)
    put(log, ["c", "d"], 0)
    with pytest.raises(TopicChangedError):
        query.run()
    assert query.batches == []


def test_a_report_while_a_topic_is_made_again_is_no_error(root: str, log: CommitLog) -> None:
    """Between deletion and creation there is none: what the query reads next tells it, not what it reports."""
    log.create_topic(TOPIC)
    found = source(root, **options())
    reader = found.streamReader(found.schema())
    log.topic(TOPIC).delete()
    assert reader.reportLatestOffset() == {"__topic_ids": {}}


def test_small_micro_batches_without_keys_go_round_the_partitions(root: str, log: CommitLog) -> None:
    """Each is one task of a few rows: they all went to partition 0 (Kafka's producer goes on from batch to batch)."""
    log.create_topic(TOPIC, partitions=4)
    schema = StructType([StructField("value", BinaryType())])
    sink = SinkDriver(source(root, topic=TOPIC), schema, "query")
    for batch in range(8):
        sink.write(batch, [[pa.record_batch({"value": pa.array([b"a", b"b"])})]])
    assert ends(log, TOPIC) == [4, 4, 4, 4]

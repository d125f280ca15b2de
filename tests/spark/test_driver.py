"""The driver without Spark makes the calls that Spark makes; then it tells stories that would be slow with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import TopicChangedError
from tests.spark.driver import Checkpoint, Driver
from tests.spark.jobs import ended
from tests.spark.recorded import FORMAT, RecordedSource, calls, notes
from tests.support.records import append, batch_of

TOPIC = "orders"
LIMIT = 6


class CrashError(Exception):
    """The sink of a test gives up."""


def put(log: CommitLog, values: list[str], partition: int) -> None:
    """Append values to a partition."""
    append(log.topic(TOPIC), batch_of([value.encode() for value in values], partition=[partition] * len(values)))


def options(root: str) -> dict[str, str]:
    """Return the options of the query."""
    return {"path": root, "subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": f"{LIMIT}"}


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

        driver = Driver(RecordedSource(options(self._root)), self._checkpoint, sink)
        try:
            driver.run()
        except CrashError:
            assert crash_in is not None


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
        df = self._spark.readStream.format(FORMAT).options(**options(self._root)).load()
        writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", f"{self._root}-checkpoint")
        try:
            ended(writer.trigger(availableNow=True).start())
        except StreamingQueryException as error:
            if "CrashError" not in str(error):
                raise


EXPECTED: list[list[Any]] = [
    # a new query, whose sink gives up in its second batch
    ["prepareForTriggerAvailableNow"],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["latestOffset", {TOPIC: [0, 0]}, LIMIT, {TOPIC: [3, 3]}],
    ["initialOffset", {TOPIC: [0, 0]}],
    ["partitions", {TOPIC: [0, 0]}, {TOPIC: [3, 3]}],
    ["read", TOPIC, 0, 0, 3],
    ["read", TOPIC, 1, 0, 3],
    ["latestOffset", {TOPIC: [3, 3]}, LIMIT, {TOPIC: [5, 5]}],
    ["commit", {TOPIC: [3, 3]}],
    ["partitions", {TOPIC: [3, 3]}, {TOPIC: [5, 5]}],
    ["read", TOPIC, 0, 3, 5],
    ["read", TOPIC, 1, 3, 5],
    # started again: that batch is played again; then nothing is new
    ["prepareForTriggerAvailableNow"],
    ["partitions", {TOPIC: [3, 3]}, {TOPIC: [5, 5]}],
    ["read", TOPIC, 0, 3, 5],
    ["read", TOPIC, 1, 3, 5],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [5, 5]}],
    # nothing new
    ["prepareForTriggerAvailableNow"],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [5, 5]}],
    # a record more, in one partition
    ["prepareForTriggerAvailableNow"],
    ["latestOffset", {TOPIC: [5, 5]}, LIMIT, {TOPIC: [6, 5]}],
    ["commit", {TOPIC: [5, 5]}],
    ["partitions", {TOPIC: [5, 5]}, {TOPIC: [6, 5]}],
    ["read", TOPIC, 0, 5, 6],
    ["latestOffset", {TOPIC: [6, 5]}, LIMIT, {TOPIC: [6, 5]}],
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


# --- in the driver only -----------------------------------------------------------------------------------


def everything(query: InDriver) -> list[bytes]:
    """Return all values that the sink was given, in order of batch."""
    return [value for _, values in query.batches for value in values]


@pytest.mark.parametrize("between", [lambda log: None, lambda log: log.maintain(TOPIC)], ids=["unsettled", "settled"])
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
        log.add_partitions(TOPIC, partitions)
        put(log, [f"first of {partitions - 1}"], partitions - 1)
        query.run()
    assert everything(query) == [b"a", b"first of 1", b"first of 4"]


def test_a_planned_batch_of_a_topic_that_was_made_again_is_refused(root: str, log: CommitLog, tmp_path: Path) -> None:
    log.create_topic(TOPIC)
    put(log, ["a", "b"], 0)
    query = InDriver(root)
    query.run(crash_in=0)
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    put(log, ["c", "d"], 0)
    with pytest.raises(TopicChangedError):
        query.run()
    assert query.batches == []


def test_a_report_while_a_topic_is_made_again_is_no_error(root: str, log: CommitLog) -> None:
    """Between deletion and creation there is none: what the query reads next tells it, not what it reports."""
    log.create_topic(TOPIC)
    reader = RecordedSource(options(root)).streamReader(RecordedSource(options(root)).schema())
    log.delete_topic(TOPIC)
    assert reader.reportLatestOffset() == {"__topic_ids": {}}

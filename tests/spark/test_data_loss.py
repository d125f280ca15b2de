"""failOnDataLoss=false: a query goes on where records are gone, gives all that are there, and names those that are not.

That `true` refuses to is in test_stream_read.py; the reader of a task is in tests/rules/test_kept.py.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, DefaultSource
from tests.spark import driven
from tests.spark.driver import Checkpoint, Driver
from tests.spark.jobs import Seen, put, read, stream, values
from tests.support.records import append, batch_of

TOPIC = "orders"


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    """Return a query's record, with a checkpoint of its own."""
    return Seen(tmp_path / "checkpoint")


def lossy(root: str, **options: str) -> DefaultSource:
    """Return the source of a stream that may lose records."""
    return driven.stream(root, TOPIC, failOnDataLoss="false", **options)


def test_a_restarted_query_passes_over_what_retention_took(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["a", "b"], 0)
    assert seen.run(lossy(root)) == [["a", "b"]]
    driven.put(log, TOPIC, ["c", "d", "e", "f"], 0)
    log.topic(TOPIC).delete_records({0: 5})
    assert seen.run(lossy(root)) == [["f"]]
    assert seen.run(lossy(root)) == []


def test_a_running_query_goes_over_to_a_topic_that_was_made_again(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen
) -> None:
    log.create_topic(TOPIC, partitions=2)
    put(spark, root, TOPIC, ["a"], 1)
    query = seen.start(stream(spark, root, TOPIC, failOnDataLoss="false"), now=False)
    try:
        query.processAllAvailable()
        log.topic(TOPIC).delete()
        query.processAllAvailable()  # it goes on without a topic, too
        log.create_topic(TOPIC)
        put(spark, root, TOPIC, ["b", "c"])
        query.processAllAvailable()
        put(spark, root, TOPIC, ["d"])
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen.all() == ["a", "b", "c", "d"]


def test_a_restarted_query_waits_for_a_deleted_topic_and_reads_the_one_made_again(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["a", "b"])
    assert seen.run(lossy(root)) == [["a", "b"]]
    log.topic(TOPIC).delete()
    assert seen.run(lossy(root)) == []
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["c"])
    assert seen.run(lossy(root)) == [["c"]]
    assert seen.run(lossy(root)) == []


def test_a_checkpoint_ahead_of_the_log_goes_on_at_the_high_watermark(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["a"])
    shutil.copytree(root, f"{root}-copy")
    driven.put(log, TOPIC, ["b", "c"])
    assert seen.run(lossy(root)) == [["a", "b", "c"]]
    shutil.rmtree(root)
    shutil.move(f"{root}-copy", root)
    assert [batch for batch in seen.run(lossy(root)) if batch] == []
    driven.put(log, TOPIC, ["new b"])
    assert seen.run(lossy(root)) == [["new b"]]


def test_a_new_query_and_a_batch_start_at_the_nearest_offset_that_is_there(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    for partition in (0, 1):
        driven.put(log, TOPIC, [f"{partition}.{i}" for i in range(4)], partition)
    log.topic(TOPIC).delete_records({0: 2})
    starting = '{"orders": {"0": 0, "1": 9}}'
    assert seen.run(lossy(root, startingOffsets=starting)) == [["0.2", "0.3"]]
    ending = '{"orders": {"0": 3, "1": 9}}'
    options = {"startingOffsets": '{"orders": {"0": 0, "1": 2}}', "endingOffsets": ending, "failOnDataLoss": "false"}
    assert driven.values(driven.read(root, TOPIC, **options)) == ["0.2", "1.2", "1.3"]


def test_a_batch_whose_plan_retention_overtook_gives_what_is_left(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic(TOPIC)
    put(spark, root, TOPIC, ["a", "b", "c"])
    planned = {name: read(spark, root, TOPIC, failOnDataLoss=name) for name in ("true", "false")}
    assert [values(df) for df in planned.values()] == [["a", "b", "c"]] * 2  # planned once per DataFrame
    log.topic(TOPIC).delete_records({0: 2})
    assert values(planned["false"]) == ["c"]
    with pytest.raises(Exception, match="offsets 0 to 3 are out of range: log start offset is 2"):
        values(planned["true"])


# --- what is told, in the driver without Spark --------------------------------------------------------------


class Query:
    """A query that may lose records, in the driver without Spark."""

    def __init__(self, root: str) -> None:
        self._options = {
            "path": root, "subscribe": TOPIC, "startingOffsets": "earliest", "failOnDataLoss": "false",
        }  # fmt: skip
        self._checkpoint = Checkpoint()
        self.values: list[bytes] = []

    def run(self, before_sink: Callable[[], None] | None = None) -> None:
        """Run what is available; the sink may do something first, and raise."""

        def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
            if before_sink is not None:
                before_sink()
            self.values += [value for found in rows for value in found.column("value").to_pylist()]

        Driver(DefaultSource(self._options), self._checkpoint, sink).run()


def fill(log: CommitLog, *found: bytes) -> None:
    """Append values to the topic."""
    append(log.root.topic(TOPIC), batch_of(list(found)))


def crash() -> None:
    """Raise in the sink, as a crash would."""
    raise InterruptedError


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings, cut to what was lost, and forget them."""
    messages = [
        record.getMessage().split(";")[0].split(" (ret")[0]
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]
    caplog.clear()
    return messages


def test_each_loss_is_told_with_its_offsets(root: str, log: CommitLog, caplog: pytest.LogCaptureFixture) -> None:
    log.create_topic(TOPIC)
    fill(log, b"a", b"b")
    query = Query(root)
    query.run()
    assert told(caplog) == []

    fill(log, b"c", b"d", b"e")
    log.topic(TOPIC).delete_records({0: 4})
    query.run()
    assert told(caplog) == ["orders partition 0: offsets 2 to 3, 2 of them, were deleted"]

    former = log.topic(TOPIC).describe().topic_id
    fill(log, b"f")
    log.topic(TOPIC).delete()
    query.run()
    assert told(caplog) == [
        f"orders partition 0: the topic was deleted: offsets 5 to 5 of the topic with id {former} were not read"
    ]
    log.create_topic(TOPIC)
    fill(log, b"g")
    query.run()
    assert told(caplog) == [
        f"orders partition 0: the topic was deleted and made again: offsets 5 to 5 of the topic with id {former} were not read"
    ]
    assert query.values == [b"a", b"b", b"e", b"g"]


def test_a_planned_batch_of_a_former_topic_is_over_without_its_records(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic(TOPIC)
    fill(log, b"a", b"b")
    query = Query(root)
    with pytest.raises(InterruptedError):
        query.run(crash)
    former = log.topic(TOPIC).describe().topic_id
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC)
    fill(log, b"c")
    query.run()
    assert query.values == [b"c"]
    assert told(caplog)[0].startswith(f"orders partition 0: offsets 0 to 1 of the topic with id {former} were planned")

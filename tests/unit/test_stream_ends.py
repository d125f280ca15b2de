"""A stream that was told where to end reads up to there and no further, over restarts too; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.read.schema import chosen
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from tests.spark.driver import Checkpoint, Driver
from tests.support.records import append, batch_of

TOPIC = "orders"


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """Ten records in each of two partitions, one a second from 100 s on; the second one starts 5 s later."""
    log = CommitLog(str(tmp_path / "log"))
    log.create_topic(TOPIC, 2, {"retention.ms": -1})
    more(log, range(10))
    return log


def more(log: CommitLog, seconds: range) -> None:
    """Append a record per second to each partition."""
    for partition in (0, 1):
        append(
            log.root.topic(TOPIC),
            batch_of(
                [b"%d.%d" % (partition, second) for second in seconds],
                partition=[partition] * len(seconds),
                timestamp=[(100 + second + 5 * partition) * 1_000_000 for second in seconds],
            ),
        )


class Query:
    """A query with a checkpoint: what each run of it has read."""

    def __init__(self, log: CommitLog, **options: object) -> None:
        given = {"path": log.root.storage.url, "subscribe": TOPIC, "startingOffsets": "earliest", **options}
        self._options = {name: str(value) for name, value in given.items()}
        self._checkpoint = Checkpoint()

    def run(self) -> list[str]:
        """Run what is available now; return the values, by partition and offset."""
        found: list[tuple[int, int, str]] = []

        def sink(_: int, batches: list[object]) -> None:
            rows = [row for batch in batches for row in batch.to_pylist()]  # type: ignore[attr-defined]
            found.extend((row["partition"], row["offset"], row["value"].decode()) for row in rows)

        Driver(DefaultSource(self._options), self._checkpoint, sink).run()
        return [value for _, _, value in sorted(found)]


class Polled:
    """A reader that is asked again and again, as Spark does in one run, and where each answer ends."""

    def __init__(self, log: CommitLog, **options: object) -> None:
        asked = {"path": log.root.storage.url, "subscribe": TOPIC, "startingOffsets": "earliest", **options}
        given = source_options({name: str(value) for name, value in asked.items()})
        self._reader = CommitLogStreamReader(lambda path, storage: log.root, given, chosen(given))
        self._offset: dict[str, Any] = self._reader.initialOffset()

    def poll(self) -> list[int]:
        """Return where the next micro-batch ends, by partition."""
        self._offset = self._reader.latestOffset(self._offset, ReadAllAvailable())
        return [offset for _, offset in sorted(SourceOffset.from_json(self._offset).offsets.items())]

    def after_a_look(self, happens: Callable[[], None]) -> None:
        """Have something happen once, when the reader has read how far its topics are."""
        look = self._reader._awaited

        def awaited(known: Any) -> Any:
            states = look(known)
            self._reader._awaited = look  # type: ignore[method-assign]
            happens()
            return states

        self._reader._awaited = awaited  # type: ignore[method-assign]


def test_it_ends_at_offsets_over_restarts(log: CommitLog) -> None:
    query = Query(log, endingOffsets=json.dumps({TOPIC: {"0": 12, "1": 3}}), maxOffsetsPerTrigger=4)
    assert query.run() == [f"0.{n}" for n in range(10)] + [f"1.{n}" for n in range(3)]
    more(log, range(10, 20))
    assert query.run() == ["0.10", "0.11"]
    assert query.run() == []


def test_a_partition_that_is_left_out_has_no_end(log: CommitLog) -> None:
    query = Query(log, endingOffsets=json.dumps({TOPIC: {"0": 0, "1": -1}}))
    assert query.run() == [f"1.{n}" for n in range(10)]
    more(log, range(10, 12))
    assert query.run() == ["1.10", "1.11"]


@pytest.mark.parametrize(
    "times",
    [{"endingTimestamp": 112_000}, {"endingOffsetsByTimestamp": json.dumps({TOPIC: {"0": 112_000, "1": 112_000}})}],
)
def test_it_ends_before_a_time_that_is_reached_later(log: CommitLog, times: dict[str, object]) -> None:
    query = Query(log, **times)
    assert query.run() == [f"0.{n}" for n in range(10)] + [f"1.{n}" for n in range(7)]
    more(log, range(10, 20))
    assert query.run() == ["0.10", "0.11"]
    assert query.run() == []


def test_a_record_that_comes_while_its_end_is_looked_up_ends_it_where_that_record_is(log: CommitLog) -> None:
    query = Polled(log, endingTimestamp=112_000)
    query.after_a_look(lambda: more(log, range(10, 14)))
    assert query.poll() == [10, 7]
    assert query.poll() == [12, 7], "offsets 10 and 11 are earlier than the end"
    assert query.poll() == [12, 7]


def test_a_topic_that_is_made_again_has_an_end_of_its_own(log: CommitLog) -> None:
    query = Polled(log, endingTimestamp=107_000, failOnDataLoss=False)
    assert query.poll() == [7, 2]
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC, 2, {"retention.ms": -1})
    more(log, range(-5, 10))
    assert query.poll() == [12, 7]


def test_a_query_that_is_beyond_its_end_stays_where_it_is(log: CommitLog) -> None:
    query = Query(log)
    assert len(query.run()) == 20
    query._options["endingOffsets"] = json.dumps({TOPIC: {"0": 3, "1": 3}})
    more(log, range(10, 12))
    assert query.run() == []
    del query._options["endingOffsets"]
    assert query.run() == ["0.10", "0.11", "1.10", "1.11"], "nothing twice"


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ({"endingOffsets": "earliest"}, "'endingOffsets'='earliest' makes no sense"),
        ({"endingOffsets": json.dumps({TOPIC: {"0": -2}})}, "nor -2 in JSON"),
        (
            {"endingOffsets": json.dumps({TOPIC: {"2": 5}})},
            "option 'endingOffsets': topic 'orders' has partitions 0 to 1, not 2",
        ),
        (
            {"endingOffsetsByTimestamp": json.dumps({TOPIC: {"2": 5}})},
            "option 'endingOffsetsByTimestamp': topic 'orders' has partitions 0 to 1, not 2",
        ),
    ],
    ids=["earliest", "earliest in JSON", "no partition", "no partition by time"],
)
def test_ends_that_can_t_be_are_refused(log: CommitLog, ending: dict[str, object], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Query(log, **ending).run()


@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_a_batch_names_the_option_that_was_given(log: CommitLog, option: str) -> None:
    source = DefaultSource({"path": log.root.storage.url, "subscribe": TOPIC, option: json.dumps({TOPIC: {"2": 5}})})
    with pytest.raises(OptionError, match=f"option '{option}': topic 'orders' has partitions 0 to 1, not 2"):
        source.reader(source.schema()).partitions()

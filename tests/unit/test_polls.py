"""What a streaming query asks for at every trigger: right for every start, and cheap for a thousand partitions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from tests.support.collection import no_collection
from tests.support.records import append, batch_of

TOPIC, PARTITIONS, ALL = "orders", 200, ReadAllAvailable()
FIXED = 300  # a poll's own calls (some 200), with room for less than one more call for each partition


@pytest.fixture
def reader(tmp_path: Path) -> CommitLogStreamReader:
    """A query of a topic with a record in each of many partitions."""
    log = CommitLog(str(tmp_path))
    log.create_topic(TOPIC, PARTITIONS)
    append(log.root.topic(TOPIC), batch_of([b"v"] * PARTITIONS, partition=list(range(PARTITIONS))))
    source = DefaultSource({"path": str(tmp_path), "subscribe": TOPIC, "startingOffsets": "earliest"})
    return source.streamReader(source.schema())


def calls(act: Callable[[], object]) -> int:
    """Return how many Python functions a call makes."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    with no_collection():
        sys.setprofile(seen)
        try:
            act()
        finally:
            sys.setprofile(None)
    return count


def planned(reader: CommitLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    """Return how many records a micro-batch has."""
    return sum(part.value.end - part.value.start for part in reader.partitions(start, end))


def test_each_start_gets_its_own_answer(reader: CommitLogStreamReader) -> None:
    first = reader.initialOffset()
    last = reader.latestOffset(first, ALL)
    middle = {**last, TOPIC: {**last[TOPIC], "7": 0}}
    assert reader.latestOffset(middle, ALL) == {name: last[name] for name in last if name != "__start"}
    assert planned(reader, middle, last) == 1
    assert planned(reader, first, last) == PARTITIONS
    assert planned(reader, last, reader.latestOffset(last, ALL)) == 0
    assert planned(reader, first, middle) == PARTITIONS - 1


def test_where_nothing_is_new_spark_gets_the_very_text_it_gave(reader: CommitLogStreamReader) -> None:
    last = reader.latestOffset(reader.initialOffset(), ALL)
    turned = dict(reversed({**last, TOPIC: dict(reversed(last[TOPIC].items()))}.items()))
    assert str(reader.latestOffset(turned, ALL)) == str(turned)
    assert SourceOffset.from_json(turned) == SourceOffset.from_json(last)


def test_a_poll_and_a_plan_make_a_few_calls_for_each_partition(reader: CommitLogStreamReader) -> None:
    first = reader.initialOffset()
    last = reader.latestOffset(first, ALL)
    assert calls(lambda: reader.latestOffset(last, ALL)) < 2 * PARTITIONS + FIXED
    assert calls(lambda: reader.latestOffset(first, ALL)) < 3 * PARTITIONS + FIXED
    assert calls(lambda: reader.partitions(first, last)) < 5 * PARTITIONS + FIXED

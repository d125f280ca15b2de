"""The matrix: how a root was restored, whether the reader was running, who it is, and how long the log is by then."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
import pytest

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.errors import LogTruncationError, TopicChangedError
from tests.restore.conftest import AFTER, BEFORE, MADE_AGAIN, RESTORES, Scene, values
from tests.spark.driver import Checkpoint, Driver
from tests.support.consumers import at

TOLD = "restored from an older copy"
matrix = pytest.mark.parametrize(
    ("way", "alive", "length"),
    [(way, alive, length) for way in RESTORES for alive in (True, False) for length in AFTER],
)


def told(caplog: pytest.LogCaptureFixture, way: str) -> bool:
    """Return whether a warning said what happened."""
    expected = "was deleted" if way == MADE_AGAIN else TOLD
    return any(expected in record.message for record in caplog.records if record.levelno >= logging.WARNING)


@pytest.mark.usefixtures("at_once")
@matrix
def test_a_running_consumer_goes_back_to_where_the_histories_parted(
    scene: Scene, caplog: pytest.LogCaptureFixture, way: str, alive: bool, length: str
) -> None:
    with scene.consumer() as reader:
        scene.copy()
        assert values(reader) == scene.all
        scene.restore(way)
        if alive:
            assert values(reader) == []
        scene.put(AFTER[length])
        assert values(reader) == AFTER[length]
        assert told(caplog, way)


@pytest.mark.usefixtures("at_once")
@matrix
def test_a_running_consumer_without_a_policy_raises_until_it_seeks(
    scene: Scene, way: str, alive: bool, length: str
) -> None:
    with scene.consumer(auto_offset_reset="none") as reader:
        scene.copy()
        reader.assign([at()])
        reader.seek(at(), 0)
        assert values(reader) == scene.all
        scene.restore(way)
        expected = TopicChangedError if way == MADE_AGAIN else LogTruncationError
        if alive:
            with pytest.raises(expected, match=r"[Ss]eek"):
                reader.poll()
        scene.put(AFTER[length])
        for _ in range(2):
            with pytest.raises(expected):
                reader.poll()


@pytest.mark.usefixtures("late")
@matrix
def test_a_new_consumer_of_the_process_reads_what_is_there(scene: Scene, way: str, alive: bool, length: str) -> None:
    with scene.consumer() as other:
        scene.copy()
        assert values(other) == scene.all
        scene.restore(way)
        if alive:
            other.poll()
        scene.put(AFTER[length])
        expected = AFTER[length] if way == MADE_AGAIN else [*BEFORE, *AFTER[length]]
        with scene.consumer() as reader:
            assert values(reader) == expected


@pytest.mark.usefixtures("at_once")
@matrix
def test_a_group_goes_back_to_where_the_histories_parted(
    scene: Scene, caplog: pytest.LogCaptureFixture, way: str, alive: bool, length: str
) -> None:
    settings = {"group_id": "g", "auto_commit_interval_ms": 0}
    with scene.consumer(**settings) as first:
        assert values(first) == BEFORE
        first.commit()
        if not alive:
            first.close()
        scene.copy()
        reader = first if alive else scene.consumer(**settings)
        assert values(reader) == scene.all[3:]
        reader.commit()
        if not alive:
            reader.close(commit=False)
        scene.restore(way)
        if alive:
            assert values(reader) == []
        scene.put(AFTER[length])
        again = reader if alive else scene.consumer(**settings)
        with again:
            assert values(again) == AFTER[length]
            while not again.assignment():  # of a root that was made again, it has to join the group once more
                again.poll(0.1)
            again.commit()
            [place] = again.assignment()
            assert again.committed(place) == (len(AFTER[length]) if way == MADE_AGAIN else 3 + len(AFTER[length]))
    if way == "topic":
        assert told(caplog, way)


class Query:
    """A streaming query in the driver without Spark."""

    def __init__(self, scene: Scene, **options: str) -> None:
        self._options = {"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest", **options}
        self._checkpoint, self._driver = Checkpoint(), None
        self.found: list[bytes] = []

    def run(self, *, again: bool = False, **options: str) -> list[bytes]:
        """Return what a run reads, in the same process (`again`) or in a new one."""
        self._options |= options
        if self._driver is None or not again:
            self._driver = Driver(DefaultSource(self._options), self._checkpoint, self._sink)
        self.found.clear()
        self._driver.run()
        return list(self.found)

    def _sink(self, batch: int, rows: list[pa.RecordBatch]) -> None:
        self.found += [value for each in rows for value in each.column("value").to_pylist()]


@matrix
def test_a_query_says_what_it_lost(
    scene: Scene, caplog: pytest.LogCaptureFixture, way: str, alive: bool, length: str
) -> None:
    query = Query(scene)
    scene.copy()
    assert query.run() == scene.all
    scene.restore(way)
    if alive:
        with pytest.raises(TopicChangedError if way == MADE_AGAIN else LogTruncationError):
            query.run(again=True)
    scene.put(AFTER[length])
    with pytest.raises(TopicChangedError if way == MADE_AGAIN else LogTruncationError):
        query.run(again=alive)
    assert query.run(failOnDataLoss="false") == AFTER[length]
    assert query.run(failOnDataLoss="true") == []


def test_a_consumer_that_polls_on_notices_within_a_second(scene: Scene) -> None:
    """The restored log is as long as it was, so no next entry's name tells; frames of before are kept, and not served."""
    with scene.consumer() as reader:
        scene.copy()
        assert values(reader) == scene.all
        scene.restore("cp -a")
        scene.put(AFTER["equal"])
        began = time.monotonic()
        while not (found := values(reader)):
            assert time.monotonic() - began < 10
            time.sleep(0.05)
        assert found == AFTER["equal"]


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("way", RESTORES[:-1])
def test_who_seeks_reads_what_is_there(scene: Scene, way: str) -> None:
    """At once: the records that stood at these offsets are kept decoded, under the same topic id."""
    with scene.consumer() as reader:
        scene.copy()
        assert values(reader) == scene.all
        scene.restore(way)
        scene.put(AFTER["equal"])
        reader.seek(at(), 3)
        assert values(reader) == AFTER["equal"]

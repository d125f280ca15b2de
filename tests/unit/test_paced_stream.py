"""A streaming query that waits where each look is a request: Spark asks for the latest offset all the time."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import AccessDeniedError, OptionError
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.progress.paced import PacedLooks
from pyspark_commitlog.spark.read.schema import chosen
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of
from tests.support.remote import RemoteStorage

ALL = ReadAllAvailable()


class Query:
    """A reader as Spark's driver has it, and its root."""

    def __init__(self, root: Path, **options: str) -> None:
        self.clock = ManualClock()
        self.local = CommitLog.on(LocalStorage(root, clock=self.clock))
        self.local.create_topic("t")
        self.storage = RemoteStorage(root, clock=self.clock)
        asked = {"path": str(root), "subscribe": "t", "startingOffsets": "earliest", **options}
        if "subscribePattern" in options:
            del asked["subscribe"]
        given = source_options(asked)
        self.reader = CommitLogStreamReader(lambda path, storage: Root.on(self.storage), given, chosen(given))
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def put(self) -> None:
        append(self.local.root.topic("t"), batch_of([b"x"]))

    def triggers(self) -> bool:
        """Ask as Spark does; return whether there is a batch."""
        before, self.offset = self.offset, self.reader.latestOffset(self.offset, ALL)
        self.reader.reportLatestOffset()
        return before != self.offset

    def part_of_three(self) -> Any:
        """Commit three records; return the one part of the batch that they make."""
        for _ in range(3):
            self.put()
        start = self.offset
        assert self.triggers()
        (part,) = self.reader.partitions(start, self.offset)
        return part

    def idle(self, seconds: int) -> None:
        for _ in range(seconds * 10):
            assert not self.triggers()
            self.clock.advance(100)


@pytest.mark.parametrize("interval_ms", [1000, 6000])
def test_an_idle_hour_takes_its_requests_and_no_listing(tmp_path: Path, interval_ms: int) -> None:
    query, per_hour = Query(tmp_path / "root", idlePollIntervalMs=str(interval_ms)), 3_600_000 // interval_ms
    query.triggers()
    query.storage.reset()
    query.idle(3600)
    assert 0.6 * per_hour <= query.storage.requests.total() <= per_hour + 2
    assert query.storage.requests["LIST"] == 0


def test_a_record_is_read_within_the_pace(tmp_path: Path) -> None:
    query = Query(tmp_path / "root")
    query.triggers()
    for pause in (600, 1, 30):
        query.idle(pause)
        query.put()
        query.clock.advance(1200)
        assert query.triggers()
    query.put()
    query.clock.advance(30)
    assert query.triggers(), "where records flow it looks at once"


def test_topics_of_a_pattern_are_listed_seldom(tmp_path: Path) -> None:
    query = Query(tmp_path / "root", subscribePattern=".*")
    query.triggers()
    query.storage.reset()
    query.idle(600)
    assert query.storage.requests["LIST"] <= 22, "topics and access rules, once a minute"
    query.local.create_topic("another")
    for _ in range(620):
        query.triggers()
        query.clock.advance(100)
    assert "another" in str(query.offset)


def test_an_application_that_was_silent_looks_in_full(tmp_path: Path) -> None:
    """What was put in between may be settled and collected, and the entry that was seen last with it."""
    query = Query(tmp_path / "root")
    query.triggers()
    query.idle(5)
    query.local.topic("t").alter({"file.delete.delay.ms": 0})
    for _ in range(3):
        query.put()
        query.clock.advance(3000)
        query.local.topic("t").maintain()
    assert query.triggers()


def test_what_was_looked_at_stays_with_the_driver(tmp_path: Path) -> None:
    query = Query(tmp_path / "root")
    query.triggers()
    state = query.reader.__getstate__()
    assert isinstance(state["_looks"], PacedLooks)
    assert state["_looks"].last_states is None
    assert pickle.loads(pickle.dumps(state["_looks"])).last_states is None


def test_a_task_lists_nothing_and_asks_little(tmp_path: Path) -> None:
    """What the driver knows of both journals goes with the ranges."""
    query = Query(tmp_path / "root")
    part = query.part_of_three()
    query.storage.reset()
    query.put()  # a newer entry is none of the task's
    (batch,) = query.reader.read(pickle.loads(pickle.dumps(part)))
    assert batch.num_rows == 3
    assert query.storage.requests["LIST"] == 0
    assert query.storage.requests.total() <= 16


def test_a_task_whose_plan_is_outdated_finds_its_records(tmp_path: Path) -> None:
    """The driver's entries are collected meanwhile."""
    query = Query(tmp_path / "root")
    part = query.part_of_three()
    for _ in range(3):
        query.put()
        query.local.topic("t").maintain()
        query.clock.advance(120_000)
        query.local.topic("t").maintain()
    assert len(query.local.root.topic("t").journal.sequences()) <= 3
    assert sum(batch.num_rows for batch in query.reader.read(part)) == 3


def test_who_may_read_no_longer_is_refused_within_a_minute(tmp_path: Path) -> None:
    query = Query(tmp_path / "root", principal="reader")
    query.put()
    start = query.offset
    assert query.triggers()
    assert query.reader.partitions(start, query.offset)
    query.local.access.allow("ops", "admin")
    query.storage.reset()
    assert query.reader.partitions(start, query.offset)
    assert query.storage.requests["LIST"] == 0, "it was asked just before"
    query.clock.advance(61_000)
    with pytest.raises(AccessDeniedError):
        query.reader.partitions(start, query.offset)


def test_an_entry_put_again_is_no_anchor(tmp_path: Path) -> None:
    """Anchor rule: a file of the same name counts only if it is the one that was remembered."""
    query = Query(tmp_path / "root")
    query.put()
    journal = query.local.root.topic("t").journal
    (first,) = (stored for stored in [journal.newest()] if stored is not None)
    other = TopicLog(query.storage, "t").journal
    other.resume(first.sequence, "another file")
    query.storage.reset()
    assert other.newest() == first
    assert query.storage.requests["LIST"] == 2, "found as by who remembers nothing"


def test_local_disks_are_looked_at_whenever_spark_asks(tmp_path: Path) -> None:
    query = Query(tmp_path / "root")
    query.storage.can_append = True  # type: ignore[assignment]
    query.triggers()
    query.put()
    assert query.triggers()


@pytest.mark.parametrize("interval", ["0", "-1", "60001", "1.5", "1s"])
def test_an_interval_that_is_not_allowed_is_named(interval: str) -> None:
    said = f"option 'idlePollIntervalMs'='{interval}': use a whole number of milliseconds, 1 to 60000"
    with pytest.raises(OptionError, match=said):
        source_options({"path": "/root", "subscribe": "t", "idlePollIntervalMs": interval})

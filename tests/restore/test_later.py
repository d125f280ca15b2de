"""What was committed while a reader was looking is of an entry behind its look: that is no restored root."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.consumer.coordinator import ConsumerCoordinator
from pyspark_commitlog.spark.read.group_progress import GroupProgress
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from tests.restore.conftest import AFTER, Scene
from tests.support.consumers import at, drain
from tests.support.records import append, batch_of
from tests.support.world import once


def further(scene: Scene) -> None:
    """Somebody else appends, reads that, and commits it to the group."""
    scene.put([b"n3", b"n4"])
    with scene.consumer(group_id="g") as other:
        drain(other)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_group_that_is_ahead_of_what_a_consumer_has_seen_was_not_restored(
    scene: Scene, reset: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer looks at the topic, then at the group: in between both have moved."""
    real, go_on = ConsumerCoordinator.group_state, once(lambda: further(scene))

    def slow(self: ConsumerCoordinator) -> object:
        if self._config.client_id == "slow":
            go_on()
        return real(self)

    monkeypatch.setattr(ConsumerCoordinator, "group_state", slow)
    with scene.consumer(client_id="slow", group_id="g", auto_offset_reset=reset) as each:
        each.unsubscribe()
        each.assign([at()])
        assert each.poll() == []
        assert each.position(at()) == 5
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_a_query_starts_at_what_its_group_commits_meanwhile(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at the topics and at the group: in between both have moved."""
    options = {"path": str(scene.path), "subscribe": "t", "startingOffsets": "group", "groupId": "g"}
    source = DefaultSource(options)
    reader = source.streamReader(source.schema()) if kind == "stream" else source.reader(source.schema())
    real, go_on = GroupProgress.start, once(lambda: further(scene))

    def slow(self: GroupProgress) -> object:
        go_on()
        return real(self)

    monkeypatch.setattr(GroupProgress, "start", slow)
    if isinstance(reader, CommitLogStreamReader):
        assert reader.initialOffset()["t"] == {"0": 5}
    else:
        assert reader.partitions() == []


def test_a_topic_that_was_deleted_and_put_back_is_judged_by_the_mark_of_before(scene: Scene) -> None:
    """In between the query read another topic, and its offset had to be told again."""
    scene.copy()
    log = CommitLog(str(scene.path))
    log.create_topic("u", 1)
    source = DefaultSource(
        {"path": str(scene.path), "subscribe": "t,u", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    )
    reader = source.streamReader(source.schema())
    begin = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    log.topic("t").delete()
    append(log.root.topic("u"), batch_of([b"u0"]))
    without = reader.latestOffset(begin, ReadAllAvailable())
    assert without["t"] == {"0": 6}
    scene.restore("topic")
    scene.put(AFTER["longer"])
    [part] = reader.partitions(without, reader.latestOffset(without, ReadAllAvailable()))
    assert (part.value.start, part.value.end) == (3, 8)

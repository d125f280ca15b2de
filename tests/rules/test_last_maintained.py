"""A topic that nobody maintains: writers warn, and `describe` shows when `maintain` last ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.topic.maintain.last_maintained import renew_note
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import ObjectWorld
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

HOUR_MS = 3_600_000
EVERY_COMMIT = {**CHUNKS, "settle.entries": 1}


def commit(topic: TopicLog) -> None:
    """Write a record and settle as every writer does."""
    append(topic, batch_of([b"v"]))
    settle_after_commit(topic, topic.newest()[1].topic_id)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what writers said of maintenance."""
    return [r.getMessage() for r in caplog.records if "maintenance has not run" in r.getMessage()]


def test_a_writer_warns_after_an_hour_without_maintenance_and_says_what_to_run(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention and compaction run nowhere else: a disk would fill up without a word."""
    world.create(config=EVERY_COMMIT)
    commit(world.handle())
    world.clock.advance(HOUR_MS - 1)
    commit(world.handle())
    assert not warnings(caplog)
    world.clock.advance(1)
    commit(world.handle())
    (said,) = warnings(caplog)
    assert "topic 't': maintenance has not run for 60 minutes" in said
    assert f"commitlog maintain {world.path}" in said
    caplog.clear()
    world.maintain()
    commit(world.handle())
    assert not warnings(caplog)


def test_so_it_does_where_nothing_can_be_appended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = ObjectWorld(tmp_path / "root")
    world.create(config=EVERY_COMMIT)
    commit(world.handle())
    world.clock.advance(HOUR_MS)
    commit(world.handle())
    assert len(warnings(caplog)) == 1
    world.maintain()
    commit(world.handle())
    assert len(warnings(caplog)) == 1


def test_a_writer_warns_once_an_hour(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A handle of a stream commits every few seconds."""
    world.create(config=EVERY_COMMIT)
    topic = world.handle()
    commit(topic)
    for _ in range(8):
        world.clock.advance(HOUR_MS // 2)
        commit(topic)
    assert len(warnings(caplog)) == 4


def test_a_root_that_is_maintained_once_a_day_is_not_warned_of_within_two(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """`log.retention.check.interval.ms` says how often `commitlog maintain` goes round."""
    world.create(config=EVERY_COMMIT)
    world.log().config.alter({"log.retention.check.interval.ms": 24 * HOUR_MS})
    commit(world.handle())
    world.clock.advance(48 * HOUR_MS - 1)
    commit(world.handle())
    assert not warnings(caplog)
    world.clock.advance(1)
    commit(world.handle())
    assert len(warnings(caplog)) == 1


def test_what_was_never_settled_needs_no_maintenance(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An idle topic, a week old."""
    world.create(config={**EVERY_COMMIT, "settle.entries": 1000})
    world.clock.advance(7 * 24 * HOUR_MS)
    commit(world.handle())
    assert world.log().topic("t").describe().since_maintained_ms is None
    assert not warnings(caplog)


def test_describe_says_when_it_last_ran(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The first settling starts the time, each run of `maintain` starts it again; settling does not."""
    world.create(config=EVERY_COMMIT)
    commit(world.handle())
    world.clock.advance(5_000)
    commit(world.handle())
    assert world.log().topic("t").describe().since_maintained_ms == 5_000
    assert "t: not maintained yet, first settled 5 s ago" in str(world.log().topic("t").describe())
    world.clock.advance(2 * HOUR_MS)
    text = str(world.log().topic("t").describe())
    assert "t: not maintained for 120 minutes: run `commitlog maintain` as a service, or from cron" in text
    world.maintain()
    world.clock.advance(1_000)
    assert world.log().topic("t").describe().since_maintained_ms == 1_000
    commit(world.handle())
    assert "t: maintained 1 s ago" in str(world.log().topic("t").describe())


def test_maintenance_that_is_put_off_renews_the_time_alone(world: World) -> None:
    """As where another thread copies the topic's segments to a root."""
    world.create(config=EVERY_COMMIT)
    commit(world.handle())
    topic = world.handle()
    for maintain, said in ((False, "not maintained yet, first settled 0 s ago"), (True, "maintained 0 s ago")):
        if maintain:
            world.maintain()
        world.clock.advance(5_000)
        renew_note(topic, topic.newest()[1].topic_id)
        assert f"t: {said}" in str(world.log().topic("t").describe())


def test_the_note_is_no_stray_file(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """`verify` names files that nothing refers to."""
    world.create(config=EVERY_COMMIT)
    commit(world.handle())
    assert world.files("settle/maintained")
    report = world.log().topic("t").verify()
    assert (report.faults, report.unnamed) == ((), ())

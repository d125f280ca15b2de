"""Offsets by timestamp, against a walk over all records: in segments, behind them, with and without indexes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError, UsageError
from pyspark_commitlog.format.frame import Payload
from pyspark_commitlog.format.index import TimeEntry, encode_time
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_max_timestamp, find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read import reader
from pyspark_commitlog.topic.segments.frames import Located, Span, check
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition
from tests.support.times import CONFIG, START_MS, agree, batch
from tests.support.world import DELAY_MS, Recorder, World, once


@pytest.fixture(params=["in order", "shuffled"])
def topic(world: World, request: pytest.FixtureRequest) -> TopicLog:
    """Records 10 ms apart (or up to 300 ms out of order), in several segments, a chunk and the entry itself."""
    topic = world.create(1, CONFIG)
    chance = random.Random(3)
    times = [
        START_MS + 10 * number + (chance.randrange(300) if request.param == "shuffled" else 0) for number in range(90)
    ]
    for first in range(0, 60, 5):
        append(topic, batch(times[first : first + 5]))
        settle(topic, topic.newest()[1].topic_id)
    append(topic, batch(times[60:80]))
    world.log().topic("t").alter({"inline.max.bytes": 65536})
    append(world.handle(), batch(times[80:]))
    return world.handle()


def test_every_timestamp_is_found_as_by_a_walk(topic: TopicLog) -> None:
    assert len(topic.sealed(topic.settled(topic.newest()[1].topic_id)[1], 0)) > 3
    agree(topic)


def test_nothing_below_the_log_start_offset_is_found(world: World, topic: TopicLog) -> None:
    for start in (7, 33, 65, 85, 90):
        world.log().topic("t").delete_records({0: start})
        agree(world.handle())
        world.maintain()
        agree(world.handle())


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "zero", "random"])
def test_a_damaged_index_costs_time_only(world: World, topic: TopicLog, suffix: str, damage: str) -> None:
    chance = random.Random(5)
    for path in world.files(f".{suffix}"):
        full = world.path / path
        if damage == "missing":
            full.unlink()
        else:
            full.write_bytes(bytes(full.stat().st_size) if damage == "zero" else chance.randbytes(full.stat().st_size))
    agree(world.handle())


def test_segments_that_are_too_early_are_not_opened(world: World, topic: TopicLog) -> None:
    """The last of the settled records: one segment is walked, behind the entry that the time index names."""
    topic_id = topic.newest()[1].topic_id
    seen = Recorder()
    found = find_time(world.handle(seen), topic_id, 0, read_partition(topic, 0)[59].timestamp // 1000)
    assert found is not None
    opened = {path for path in seen.paths("map") if path.endswith(".log")}
    assert len(opened) <= 2
    assert len(opened) < len(world.files(".log"))


def test_the_largest_timestamp_is_looked_up_in_one_frame(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """That which the time index of a sealed segment names, or the settle entry for the active one."""
    topic = world.create(1, CONFIG)
    for at in (50, 10, 60, 60, 20, 99, 99, 30, 40, 70, 99, 80, 80, 5, 5):
        append(topic, batch([START_MS + at] * 5))
        settle(topic, topic.newest()[1].topic_id)
    topic_id = topic.newest()[1].topic_id
    decoded: list[int] = []

    def noted(located: Located, span: Span) -> Payload:
        decoded.append(located.base_offset)
        return check(located, span)

    monkeypatch.setattr(reader, "check", noted)
    assert find_max_timestamp(world.handle(), topic_id, 0) == OffsetAndTimestamp(25, START_MS + 99)
    assert set(decoded) == {25}
    append(topic, batch([START_MS + 200] * 5))
    settle(topic, topic_id)
    decoded.clear()
    assert find_max_timestamp(world.handle(), topic_id, 0) == OffsetAndTimestamp(75, START_MS + 200)
    assert set(decoded) == {75}


def test_the_largest_timestamp_behind_a_log_start_that_cuts_its_frame(world: World) -> None:
    """What is left of the frame is earlier than a record behind it."""
    topic = world.create(1, CONFIG)
    for times in ([START_MS + 50, START_MS + 10], [START_MS + 20] * 4):
        append(topic, batch(times))
        settle(topic, topic.newest()[1].topic_id)
    topic_id = topic.newest()[1].topic_id
    assert find_max_timestamp(world.handle(), topic_id, 0) == OffsetAndTimestamp(0, START_MS + 50)
    world.log().topic("t").delete_records({0: 1})
    assert find_max_timestamp(world.handle(), topic_id, 0) == OffsetAndTimestamp(2, START_MS + 20)


def test_a_time_index_that_leads_into_a_later_frame_of_the_same_time_is_not_believed(world: World) -> None:
    topic = world.create(1, CONFIG)
    for _ in range(8):
        append(topic, batch([START_MS] * 5))
        settle(topic, topic.newest()[1].topic_id)
    topic_id = topic.newest()[1].topic_id
    first = next(path for path in world.files(".timeindex") if path.endswith("/00000000000000000000.timeindex"))
    (world.path / first).write_bytes(encode_time(TimeEntry(START_MS, 7), 0))
    assert find_max_timestamp(world.handle(), topic_id, 0) == OffsetAndTimestamp(0, START_MS)


def test_a_search_for_the_largest_that_retention_overtakes_is_made_again(world: World, topic: TopicLog) -> None:
    def let_go() -> None:
        world.log().topic("t").delete_records({0: 90})
        for _ in range(3):
            world.maintain()
            world.clock.advance(DELAY_MS)

    late = world.handle(on_path("/manifests/", "read", once(let_go)))
    assert find_max_timestamp(late, topic.newest()[1].topic_id, 0) is None


def test_retention_that_overtakes_the_search_is_searched_again(world: World, topic: TopicLog) -> None:
    def let_go() -> None:
        world.log().topic("t").delete_records({0: 58})
        for _ in range(3):
            world.maintain()
            world.clock.advance(DELAY_MS)

    late = world.handle(on_path(".timeindex", "map", once(let_go)))
    found = find_time(late, topic.newest()[1].topic_id, 0, START_MS)
    assert found is not None
    assert found.offset == 58


def test_offsets_for_times_answers_for_each_partition(world: World, tmp_path: Path) -> None:
    topic = world.create(2)
    append(topic, batch_of([b"a", b"b", b"c"], partition=[0, 1, 1], timestamp=[5_000, 5_000, 9_000]))
    log = world.log()
    assert log.topic("t").offsets_for_times({0: 5, 1: 6}) == {0: OffsetAndTimestamp(0, 5), 1: OffsetAndTimestamp(1, 9)}
    assert log.topic("t").offsets_for_times({0: 6}) == {0: None}
    with pytest.raises(UsageError, match="has partitions 0 to 1, not 2"):
        log.topic("t").offsets_for_times({2: 0})
    assert log.topic("t").max_timestamps() == {0: OffsetAndTimestamp(0, 5), 1: OffsetAndTimestamp(1, 9)}
    log.topic("t").delete_records({1: -1})
    assert log.topic("t").max_timestamps([1]) == {1: None}
    with pytest.raises(UsageError, match="has partitions 0 to 1, not 2"):
        log.topic("t").max_timestamps([2])


def test_a_missing_manifest_is_an_error_that_names_it(world: World, topic: TopicLog) -> None:
    topic_id = topic.newest()[1].topic_id
    row = topic.settled(topic_id)[1].partition(0)
    assert row.manifest is not None
    path = f"{topic.paths(topic_id).manifests}/{row.manifest.name}"
    (world.path / path).unlink()
    with pytest.raises(CorruptionError, match=f"{path} is missing, and the newest entries still name it"):
        find_time(world.handle(), topic_id, 0, START_MS)
    with pytest.raises(CorruptionError, match=f"{path} is missing, and the newest entries still name it"):
        find_max_timestamp(world.handle(), topic_id, 0)

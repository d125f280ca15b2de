"""Offsets by time, what filters leave out, and stored sizes: in the tail, in own pieces, and with damaged indexes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pyspark_commitlog.storage.shared import caches
from pyspark_commitlog.topic.damage.dump import dump
from pyspark_commitlog.topic.lookup.sizes import StoredSizes
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.frames import segment_part
from pyspark_commitlog.topic.settle.merge import split
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import append
from tests.support.times import CONFIG, START_MS, agree, batch, check_windows
from tests.support.world import Recorder


@pytest.fixture(params=["in order", "shuffled"])
def topic(unlocked: ObjectWorld, request: pytest.FixtureRequest) -> TopicLog:
    """Records 10 ms apart (or up to 300 ms out of order): own pieces, six objects of the tail, a chunk."""
    topic = unlocked.create(1, CONFIG)
    chance = random.Random(3)
    shuffled = request.param == "shuffled"
    times = [START_MS + 10 * number + (chance.randrange(300) if shuffled else 0) for number in range(80)]
    for first in range(0, 60, 5):
        append(topic, batch(times[first : first + 5]))
        settle(topic, topic_id(topic))
    assert split(topic, topic_id(topic), unlocked.settled().tail[:6])
    append(topic, batch(times[60:]))
    assert len(unlocked.settled().tail) == 6
    return unlocked.handle()


def test_every_timestamp_is_found_as_by_a_walk(topic: TopicLog) -> None:
    agree(topic)


def test_nothing_below_the_log_start_offset_is_found(unlocked: ObjectWorld, topic: TopicLog) -> None:
    for start in (7, 33, 65, 80):
        unlocked.log().topic("t").delete_records({0: start})
        agree(unlocked.handle())
        unlocked.maintain()
        agree(unlocked.handle())


def test_no_record_of_a_window_of_time_is_left_out(topic: TopicLog) -> None:
    assert check_windows(topic) > 1000


def zeros(size: int) -> bytes:
    return bytes(size)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", [zeros, noise])
def test_a_damaged_index_part_costs_time_only(
    unlocked: ObjectWorld, topic: TopicLog, suffix: str, damage: Callable[[int], bytes]
) -> None:
    """An index is a hint: every reader checks where it leads."""
    paths, damaged = topic.paths(topic_id(topic)), 0
    for segment in topic.sealed(unlocked.settled(), 0):
        part = segment_part(paths, 0, segment, suffix)
        with (unlocked.path / part.path).open("r+b") as file:
            file.seek(part.start)
            file.write(damage(part.length))
        damaged += part.length > 0
    assert damaged >= 3
    caches.process_cache.renew()
    agree(unlocked.handle())
    check_windows(unlocked.handle())


def test_segments_that_are_too_early_are_not_opened(unlocked: ObjectWorld, topic: TopicLog) -> None:
    seen = Recorder()
    late = unlocked.handle(seen)
    caches.process_cache.renew()
    assert find_time(late, topic_id(late), 0, START_MS + 10 * 59) is not None
    opened = {path for path in seen.paths("map") + seen.paths("read") if path.endswith(".segment")}
    own = {segment.place.object for segment in topic.own_segments(unlocked.settled(), 0).every() if segment.place}
    assert not {path.rpartition("/")[2] for path in opened} & own


def test_stored_bytes_are_those_of_the_logs(unlocked: ObjectWorld, topic: TopicLog) -> None:
    sizes = StoredSizes(topic, topic_id(topic))
    sizes.look()
    every = topic.sealed(unlocked.settled(), 0)
    assert sizes.estimate_bytes(0, 0, 60) == sum(segment.length for segment in every)
    for segment in every:
        assert sizes.estimate_bytes(0, segment.base_offset, segment.end_offset) == segment.length
        assert sizes.reached(0, segment.base_offset, 80, segment.length) == segment.end_offset


def test_an_object_is_dumped_slice_by_slice(unlocked: ObjectWorld, topic: TopicLog) -> None:
    (first, *_) = topic.sealed(unlocked.settled(), 0)[-6:]
    assert first.place is not None
    path = topic.paths(topic_id(topic)).object(first.place.object)
    slices, *frames = list(dump(unlocked.storage(), path))
    assert (slices["partition"], slices["baseOffset"], slices["endOffset"]) == (0, 30, 35)
    assert frames[0]["baseOffset"] == 30
    assert frames[-1]["lastOffset"] == 34
    data = bytearray((unlocked.path / path).read_bytes())
    data[100] ^= 1
    (unlocked.path / path).write_bytes(data)
    assert any("fault" in row for row in dump(unlocked.storage(), path))
    (unlocked.path / path).write_bytes(data[:-1])
    (row,) = dump(unlocked.storage(), path)
    assert "a segment object with" in row["fault"]

"""When a segment rolls by time: early by its own jitter, and by the clock where its first frame has no timestamp."""

from __future__ import annotations

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.writer import SegmentWriter, roll_limits
from pyspark_commitlog.topic.state.settle_state import SettledPartition
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

_ID = "00000000-0000-4000-8000-000000000001"
#: Every frame stays as it is: none is small enough to be joined.
CONFIG = {**CHUNKS, "batch.size": 1024, "segment.ms": 1000, "segment.jitter.ms": 900, "segment.bytes": 2**20}


def jitter(segment_ms: int, jitter_ms: int, partition: int = 0, base: int = 0, topic_id: str = _ID) -> int:
    config = TopicConfig({"segment.ms": str(segment_ms), "segment.jitter.ms": str(jitter_ms)})
    return roll_limits(config, topic_id, partition, base).jitter_ms


def test_without_the_config_there_is_no_jitter() -> None:
    assert {jitter(1000, 0, base=base) for base in range(50)} == {0}


@pytest.mark.parametrize(("segment_ms", "jitter_ms", "below"), [(1000, 10, 10), (10, 1000, 10), (10, 10, 10)])
def test_jitter_lies_below_both_configs_and_all_of_it_is_used(segment_ms: int, jitter_ms: int, below: int) -> None:
    assert {jitter(segment_ms, jitter_ms, base=base) for base in range(300)} == set(range(below))


def test_segments_partitions_and_topics_have_their_own_jitter() -> None:
    large = 2**60
    found = {jitter(large, large, p, base, topic) for p in (1, 11) for base in (1, 11, 111) for topic in ("a", "b")}
    assert len(found) == 12
    assert max(found) > 2**32, "as far as the config goes"


def test_a_segment_keeps_its_jitter_over_processes_and_releases() -> None:
    """A changed draw would have two releases roll one segment at two places."""
    assert jitter(7 * 86_400_000, 3_600_000, partition=3, base=42) == 871_453


def bases(world: World) -> list[int]:
    """Return the base offsets of the segments on disk."""
    return [int(path.rsplit("/", 1)[1].split(".")[0]) for path in world.files(".log")]


def test_settling_at_once_or_commit_by_commit_rolls_at_the_same_places(world: World) -> None:
    topic = world.create(config=CONFIG)
    topic_id = topic.newest()[1].topic_id
    roll_at = [roll_limits(topic.config(topic.newest()[1]), topic_id, 0, base).jitter_ms for base in range(100)]
    expected = [0]
    for offset in range(100):
        if 40 * (offset - expected[-1]) > 1000 - roll_at[expected[-1]]:
            expected.append(offset)
    assert len(expected) > 3
    for offset in range(100):
        append(topic, batch_of([b"x" * 200], timestamp=[1_000_000_000_000 + 40_000 * offset]))
        if offset < 50:
            other = world.handle()
            settle(other, topic_id)
    settle(topic, topic_id)
    assert bases(world) == expected


def written(world: World, topic: TopicLog, row: SettledPartition, timestamp: int) -> SettledPartition:
    """Append one frame with this largest timestamp in a run of its own; return the row as the next run reads it."""
    state = topic.newest()[1]
    paths, config = topic.paths(state.topic_id), topic.config(state)
    writer = SegmentWriter(
        world.storage(),
        paths,
        0,
        row,
        lambda: topic.sealed(topic.settled(state.topic_id)[1].with_row(0, row), 0),
        config,
    )
    writer.append(Stamped((b"x" * 100,), 100, row.end_offset, row.end_offset, timestamp))
    return SettledPartition.from_json(writer.finish(2, published_ms=0).to_json())


def test_frames_without_timestamps_roll_by_the_clock_over_several_runs(world: World) -> None:
    """Imported frames may have none; the time when the first came is published with the segment."""
    topic = world.create(config={**CONFIG, "segment.jitter.ms": 0})
    row = topic.settled(topic.newest()[1].topic_id)[1].partition(0)
    for _ in range(3):
        row = written(world, topic, row, -1)
        world.clock.advance(500)
    assert bases(world) == [0], "a second later it is exactly segment.ms old"
    row = written(world, topic, row, -1)
    assert bases(world) == [0, 3]
    world.clock.advance(1000)
    row = written(world, topic, row, 5)
    assert bases(world) == [0, 3]
    world.clock.advance(1)
    row = written(world, topic, row, 6)
    assert bases(world) == [0, 3, 5]
    assert row.active.index.first_timestamp == 6

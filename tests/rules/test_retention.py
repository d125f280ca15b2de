"""Retention: what goes by size, by age and by hand, in which order, and who may still read it.

Interleavings: a crash between the entry and the settle entry; a reader under way; one that reads the two journals on
both sides of it; a settler at work; a config changed meanwhile.
"""

from __future__ import annotations

import os

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import OffsetOutOfRangeError, StorageError, UsageError
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain import retention
from pyspark_commitlog.topic.maintain.retention import collect_segments, plan_log_start, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, DELAY_MS, World, failing, once

DAY_MS = 86_400_000
KEPT_MS = 2 * DAY_MS + DAY_MS // 2
CONFIG = {**CHUNKS, "segment.bytes": 1024, "compression.type": "none"}


# --- the plan ---------------------------------------------------------------------------------------------


def segment(base: int, end: int, length: int = 100, at: int = 0) -> Sealed:
    """Return a sealed segment whose latest record is of `at`."""
    return Sealed(base, end, 0, length, 0, 0, 0, at)


def active(base: int, end: int, length: int = 100, at: int = 0) -> SettledPartition:
    """Return a partition's row with this active segment."""
    return SettledPartition(end, Active(IndexState(base, position=length, max_timestamp=at)))


def planned(sealed: list[Sealed], row: SettledPartition, now: int = 0, start: int = 0, **config: int) -> int:
    """Return the log start offset under a config."""
    stored = {"retention.ms": "-1", **{name.replace("_", "."): str(value) for name, value in config.items()}}
    files = dict.fromkeys((each.stem for each in (*sealed, row.active)), 0)
    return plan_log_start(sealed, row, start, TopicConfig(stored), now, files)


THREE = [segment(0, 10), segment(10, 20), segment(20, 30)]


@pytest.mark.parametrize(
    ("limit", "start"), [(-1, 0), (400, 0), (301, 0), (300, 10), (299, 10), (200, 20), (100, 30), (1, 30), (0, 40)]
)
def test_size_lets_the_oldest_go_while_what_stays_is_enough(limit: int, start: int) -> None:
    """A segment goes only when the rest has retention.bytes at least (`deleteRetentionSizeBreachedSegments`)."""
    assert planned(THREE, active(30, 40), retention_bytes=limit) == start


@pytest.mark.parametrize(("now", "start"), [(100, 0), (101, 10), (150, 10), (151, 20), (201, 40)])
def test_age_lets_the_oldest_go_up_to_the_first_that_stays(now: int, start: int) -> None:
    sealed = [segment(0, 10, at=0), segment(10, 20, at=50), segment(20, 30, at=100)]
    assert planned(sealed, active(30, 40, at=60), now, retention_ms=100) == start


def test_size_counts_before_age_and_what_was_deleted_does_not_count() -> None:
    assert planned(THREE, active(30, 40, at=500), 500, retention_bytes=300, retention_ms=100) == 30
    assert planned(THREE, active(30, 40), start=10, retention_bytes=300) == 10
    assert planned(THREE, active(30, 40), start=25, retention_bytes=100) == 30


@pytest.mark.parametrize(("at", "start"), [(-1, 0), (0, 0), (1, 10)])
def test_a_segment_without_a_timestamp_is_as_old_as_its_file(at: int, start: int) -> None:
    """Such segments went at the first run, whenever they were written."""
    sealed, row, config = [segment(0, 10, at=at)], active(10, 20, at=1000), TopicConfig({"retention.ms": "100"})
    young, old = {"00000000000000000000": 900}, {"00000000000000000000": 899}
    assert plan_log_start(sealed, row, 0, config, 1000, young) == start
    assert plan_log_start(sealed, row, 0, config, 1000, old) == 10
    assert plan_log_start(sealed, row, 0, config, 1000, {}) == start, "no file, no age"


def test_records_that_say_0_stay_for_as_long_as_their_file_is_young(world: World) -> None:
    topic = world.create(1, {**CONFIG, "retention.ms": KEPT_MS})
    for number in range(3):
        append(topic, batch_of([b"%d" % number + b"x" * 900], timestamp=[0]))
        settle(topic, topic.newest()[1].topic_id)
    now = world.clock.now_ms()
    for path, age in zip(world.files(".log"), (KEPT_MS + 1, KEPT_MS, 0), strict=True):
        os.utime(world.path / path, ns=((now - age) * 1_000_000,) * 2)
    assert world.maintain().retained.log_start == {0: (0, 1)}
    assert numbers(world) == [1, 2]


def test_an_empty_active_segment_stays() -> None:
    assert planned(THREE, active(30, 30, length=0), 10**9, retention_ms=1) == 30


def test_records_above_a_log_start_offset_inside_a_segment_keep_it() -> None:
    """Segments 0, 11, 23 and log start offset 25: 0 and 11 go."""
    sealed = [segment(0, 11), segment(11, 23)]
    assert planned(sealed, active(23, 30), start=25) == 25


# --- what happens -----------------------------------------------------------------------------------------


def written(world: World, count: int = 9, **config: int) -> TopicLog:
    """Return a topic with a segment per record, settled, one record a day."""
    topic = world.create(1, {**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}})
    for number in range(count):
        append(topic, batch_of([b"%d" % number + b"x" * 700]))
        settle(topic, topic.newest()[1].topic_id)
        world.clock.advance(DAY_MS)
    return topic


def numbers(world: World) -> list[int]:
    """Return the numbers of the records that a fresh process reads."""
    return [int((value or b"").rstrip(b"x")) for value in world.values()]


def logs(world: World) -> list[int]:
    """Return the base offsets of the segments on disk."""
    return [int(path.rsplit("/", 1)[1].split(".")[0]) for path in world.files(".log")]


def test_age_hides_at_once_and_frees_the_disk_after_the_delay(world: World) -> None:
    """Retention of two and a half days: readable within, gone after, read or not."""
    written(world, retention_ms=KEPT_MS)
    done = world.maintain()
    assert done.retained.log_start == {0: (0, 7)}
    assert done.retained.segments == 7
    assert numbers(world) == [7, 8]
    assert logs(world) == list(range(9))
    world.clock.advance(DELAY_MS - 1)
    assert world.maintain().collected.segments == 0
    world.clock.advance(1)
    removed = [world.maintain().collected.segments for _ in range(3)]
    assert sum(removed) == 7 * 3, "log and both indexes"
    assert logs(world) == [7, 8]
    assert numbers(world) == [7, 8]


def test_all_may_go_and_the_log_goes_on(world: World) -> None:
    topic = written(world, retention_ms=KEPT_MS)
    world.maintain()
    world.clock.advance(10 * DAY_MS)
    assert world.maintain().retained.log_start == {0: (7, 9)}
    assert numbers(world) == []
    assert world.log().topic("t").describe().partitions[0].size_bytes == 0
    append(topic, batch_of([b"9"]))
    world.maintain()
    assert numbers(world) == [9]
    world.clock.advance(DELAY_MS)
    world.maintain()
    world.maintain()
    assert logs(world) == [9]
    assert read_partition(world.handle(), 0)[0].offset == 9


def test_size_keeps_what_is_enough(world: World) -> None:
    written(world)
    world.maintain()
    size = world.log().topic("t").describe().partitions[0].size_bytes
    world.log().topic("t").alter({"retention.bytes": size // 3})
    world.maintain()
    assert numbers(world) == [6, 7, 8]
    assert world.log().topic("t").describe().partitions[0].segments == 3


def test_nothing_goes_twice(world: World) -> None:
    written(world, retention_ms=KEPT_MS)
    world.maintain()
    entries = world.entries()
    again = world.maintain()
    assert (again.retained.log_start, again.retained.segments) == ({}, 0)
    assert world.entries() == entries


def test_delete_records_hides_at_once_and_only_whole_segments_go(world: World) -> None:
    topic = world.create(1, {**CONFIG, "segment.bytes": 10**6})
    for first in (0, 10, 20):
        append(topic, batch_of([b"%d" % number for number in range(first, first + 10)]))
    world.maintain()
    assert world.log().topic("t").delete_records({0: 25}) == {0: 25}
    assert numbers(world) == [25, 26, 27, 28, 29]
    assert world.log().topic("t").describe().partitions[0].log_start_offset == 25
    world.maintain()
    assert numbers(world) == [25, 26, 27, 28, 29]
    assert world.log().topic("t").delete_records({0: 3}) == {0: 25}
    assert world.log().topic("t").delete_records({0: -1}) == {0: 30}
    world.maintain()
    assert numbers(world) == []


def test_a_sealed_segment_stays_while_the_log_starts_inside_it(world: World) -> None:
    """R4: its records above the log start offset are still to be read."""
    topic = world.create(1, CONFIG)
    for first in (0, 2, 4):
        append(topic, batch_of([b"%d" % number + b"x" * 500 for number in (first, first + 1)]))
        settle(topic, topic.newest()[1].topic_id)
    assert logs(world) == [0, 2, 4]
    assert world.log().topic("t").delete_records({0: 3}) == {0: 3}
    for _ in range(2):
        world.maintain()
        world.clock.advance(DELAY_MS)
    world.maintain()
    assert logs(world) == [2, 4]
    assert numbers(world) == [3, 4, 5]


def test_delete_records_above_what_is_settled(world: World) -> None:
    """The settler goes on with records that nobody may read any more, and a reader with those that lie behind."""
    topic = world.create(1, CONFIG)
    append(topic, batch_of([b"%d" % number for number in range(10)]))
    world.log().topic("t").delete_records({0: 4})
    assert numbers(world) == [4, 5, 6, 7, 8, 9]
    world.maintain()
    assert numbers(world) == [4, 5, 6, 7, 8, 9]


def test_delete_records_in_a_partition_that_was_added_and_never_settled(world: World) -> None:
    topic = world.create(1, CONFIG)
    world.log().topic("t").add_partitions(2)
    append(topic, batch_of([b"%d" % number for number in range(10)], partition=[1] * 10))
    world.log().topic("t").delete_records({1: 4})
    world.maintain()
    assert world.log().topic("t").describe().partitions[1].unsettled == 0
    assert numbers(world) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("offsets", "error", "told"),
    [
        ({0: 31}, OffsetOutOfRangeError, "up to 31, the high watermark is 30; nothing was deleted"),
        ({0: 5, 1: 0}, UsageError, "has partitions 0 to 0, not 1"),
        ({0: -2}, UsageError, "-2 is no offset"),
    ],
)
def test_wrong_offsets_delete_nothing(world: World, offsets: dict[int, int], error: type[Exception], told: str) -> None:
    topic = world.create()
    append(topic, batch_of([b"x"] * 30))
    entries = world.entries()
    with pytest.raises(error, match=told):
        world.log().topic("t").delete_records(offsets)
    assert world.entries() == entries


# --- interleavings ----------------------------------------------------------------------------------------


def test_a_crash_before_the_settle_entry_is_made_good_by_the_next_run(world: World) -> None:
    """R13: the entry came first, so nobody reads what goes; the next run lets go of it."""
    topic = written(world, retention_ms=KEPT_MS)
    world.log().topic("t").alter({"retention.ms": -1})
    world.maintain()
    world.log().topic("t").alter({"retention.ms": KEPT_MS})
    crashing = world.handle(on_path("/manifests/", "write_once", failing()))
    topic_id = topic.newest()[1].topic_id
    with pytest.raises(StorageError, match="injected"):
        retain(crashing, topic_id)
    assert numbers(world) == [7, 8]
    assert logs(world) == list(range(9))
    assert world.maintain().retained.segments == 7
    assert numbers(world) == [7, 8]


def test_a_reader_under_way_ends_what_it_began(world: World) -> None:
    """R13, I6: its segments stay for the delay, although nobody else may see them."""
    topic = written(world)
    world.maintain()
    reader = PartitionReader(topic, topic.newest()[1].topic_id, 0).read(0, 9)
    seen = [next(reader).first_offset]
    world.log().topic("t").delete_records({0: 8})
    world.maintain()
    world.maintain()
    seen += [rows.first_offset for rows in reader]
    assert seen == list(range(9))


def test_a_reader_that_retention_overtook_is_told_which_offsets_are_gone(world: World) -> None:
    topic = written(world)
    world.maintain()
    reader = PartitionReader(topic, topic.newest()[1].topic_id, 0).read(0, 9)
    next(reader)
    world.log().topic("t").delete_records({0: 8})
    world.maintain()
    for _ in range(3):
        world.clock.advance(DELAY_MS)
        world.maintain()
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 1 to 7 were deleted .*the log start offset is 8"):
        list(reader)


def test_retention_between_the_two_journals_is_seen_as_such(world: World) -> None:
    """R12: a reader has the old log start offset and the new settle entry: it must not take another segment."""
    topic = written(world)
    world.maintain()
    topic_id = topic.newest()[1].topic_id

    def let_go() -> None:
        world.log().topic("t").delete_records({0: 8})
        world.maintain()

    late = world.handle(on_path("/settle", "names", once(let_go)))
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to 7 were deleted|log start offset is 8"):
        list(PartitionReader(late, topic_id, 0).read(0, 9))


def test_a_settler_at_work_is_left_alone(world: World) -> None:
    """R3: retention is a settler; it does not wait."""
    topic = written(world, retention_ms=KEPT_MS)
    topic_id = topic.newest()[1].topic_id
    with world.storage().try_lock(topic.paths(topic_id).lock) as held:
        assert held
        assert retain(world.handle(), topic_id) == retention.Retained({})
    assert len(numbers(world)) == 9


def test_a_longer_retention_set_meanwhile_holds(world: World) -> None:
    """R9: the plan is made anew on the entry that it builds on."""
    topic = written(world)
    world.maintain()
    world.log().topic("t").alter({"retention.ms": KEPT_MS})

    def longer() -> None:
        world.log().topic("t").alter({"retention.ms": -1})

    late = world.handle(on_path("/journal/", "put_if_absent", once(longer)))
    assert retain(late, topic.newest()[1].topic_id).log_start == {}
    assert len(numbers(world)) == 9


def test_a_segment_that_a_settler_has_just_begun_is_not_collected(world: World) -> None:
    """R13: nothing at or above the active segment's base offset goes, named or not."""
    topic = written(world)
    world.maintain()
    topic_id = topic.newest()[1].topic_id
    begun = topic.paths(topic_id).segment_file(0, f"{9:020d}", "log")
    world.storage().write_once(begun, b"begun")
    world.clock.advance(10 * DELAY_MS)
    assert collect_segments(topic, topic_id) == 0
    assert begun in world.files(".log")


def test_two_that_maintain_at_once_do_not_trip_over_each_other(world: World) -> None:
    """R13: the other collector removes a settle entry and its manifest between our look at both."""
    topic = written(world, retention_ms=KEPT_MS)
    world.maintain()
    topic_id = topic.newest()[1].topic_id

    def other() -> None:
        for _ in range(2):
            world.clock.advance(DAY_MS)
            world.maintain()

    late = world.handle(on_path("/manifests/", "read", once(other)))
    assert collect_segments(late, topic_id) >= 0
    assert find_time(world.handle(on_path("/manifests/", "read", once(other))), topic_id, 0, 0) is None

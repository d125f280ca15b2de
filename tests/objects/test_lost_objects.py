"""An object of the tail that is lost, or whose footer is: what it can't hold goes on, what it may hold is an error."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.segment_object import TRAILER_BYTES
from pyspark_commitlog.testing.faults import lose_reply, on_path
from pyspark_commitlog.topic import topic_tables as handles
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.lookup.sizes import StoredSizes
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.retention import retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.settle.merge import split
from pyspark_commitlog.topic.state.settle_state import Shared
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import LATER_MS, ObjectWorld, own, topic_id
from tests.support.records import append, batch_of, read_partition
from tests.support.verify import verify
from tests.support.world import CHUNKS, World


def settled(world: ObjectWorld, *rounds: str, **config: object) -> TopicLog:
    """Return a topic of three partitions with an object for each round, which says whose records it holds: "01"."""
    topic = world.create(3, {**CHUNKS, **config})
    for number, partitions in enumerate(rounds):
        more(world, number, partitions)
        world.clock.advance(1_000)
    return topic


def more(world: ObjectWorld, number: int, partitions: str) -> None:
    """Settle a record of each of these partitions, at a second of its own."""
    count = len(partitions)
    stamps, keys = [1_000_000 * number] * count, [b"key"] * count
    values, numbers = [b"%d" % number] * count, [int(each) for each in partitions]
    append(world.handle(), batch_of(values, key=keys, timestamp=stamps, partition=numbers))
    settle(world.handle(), topic_id(world.handle()))


def lose(world: ObjectWorld, number: int) -> Shared:
    """Lose an object of the tail, which a new process has to read."""
    lost = world.settled().tail[number]
    (world.path / world.files(lost.name)[0]).unlink()
    handles._footers.clear()
    return lost


def break_footer(world: ObjectWorld, number: int) -> Shared:
    """Flip a bit in the footer of an object of the tail, which a new process has to read."""
    damaged = world.settled().tail[number]
    path = world.path / world.files(damaged.name)[0]
    data = bytearray(path.read_bytes())
    data[-TRAILER_BYTES - 10] ^= 1
    path.write_bytes(data)
    handles._footers.clear()
    return damaged


def shown(world: ObjectWorld, partition: int, start: int | None = None, end: int | None = None) -> list[bytes | None]:
    """Return the values that a process reads."""
    return [record.value for record in read_partition(world.handle(), partition, start, end)]


@pytest.mark.parametrize("break_object", [lose, break_footer])
def test_only_offsets_that_it_may_hold_can_not_be_read(unlocked: ObjectWorld, break_object: object) -> None:
    topic = settled(unlocked, "01", "1", "01", "0")
    lost = break_object(unlocked, 1)  # type: ignore[operator]
    assert shown(unlocked, 0) == [b"0", b"2", b"3"]
    assert shown(unlocked, 2) == []
    assert (shown(unlocked, 1, 0, 1), shown(unlocked, 1, 2, 3)) == ([b"0"], [b"2"])
    for start, end in ((1, 2), (0, 3)):
        with pytest.raises(CorruptionError, match=lost.name):
            shown(unlocked, 1, start, end)
    found = find_time(unlocked.handle(), topic_id(topic), 0, 2_000)
    assert found is not None
    assert found.offset == 1
    with pytest.raises(CorruptionError, match=lost.name):
        find_time(unlocked.handle(), topic_id(topic), 1, 2_000)
    sizes = StoredSizes(unlocked.handle(), topic_id(topic))
    sizes.look()
    assert sizes.estimate_bytes(0, 0, 3) > 0
    assert sizes.estimate_bytes(1, 2, 3) > 0, "nothing from there on is lost"


def test_what_lies_behind_the_last_segment_is_not_passed_over(unlocked: ObjectWorld) -> None:
    settled(unlocked, "0", "0", "0", "1")
    lost = lose(unlocked, 3)
    assert shown(unlocked, 0) == [b"0", b"1", b"2"]
    with pytest.raises(CorruptionError, match=lost.name):
        shown(unlocked, 1)
    more(unlocked, 4, "01")
    assert shown(unlocked, 0) == [b"0", b"1", b"2", b"4"]
    assert shown(unlocked, 1, 1) == [b"4"]
    with pytest.raises(CorruptionError, match=lost.name):
        shown(unlocked, 1)


def test_a_footer_on_a_bad_sector_is_as_good_as_lost(unlocked: ObjectWorld) -> None:
    settled(unlocked, "0", "1", "0")
    damaged = unlocked.settled().tail[1]
    handles._footers.clear()
    bad = on_path(damaged.name, "read", lose_reply, times=99)
    assert [record.value for record in read_partition(unlocked.handle(bad), 0)] == [b"0", b"2"]
    with pytest.raises(CorruptionError, match="bad sector"):
        read_partition(unlocked.handle(bad), 1)


def test_its_own_segments_say_where_a_partition_s_slices_begin(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, "01", "01", "1", "01")
    assert split(unlocked.handle(), topic_id(topic), unlocked.settled().tail[:2])
    lost = lose(unlocked, 0)
    assert [segment.base_offset for segment in unlocked.handle().sealed(unlocked.settled(), 0)] == [0, 2]
    assert shown(unlocked, 0) == [b"0", b"1", b"3"]
    assert (shown(unlocked, 1, 0, 2), shown(unlocked, 1, 3)) == ([b"0", b"1"], [b"3"])
    with pytest.raises(CorruptionError, match=lost.name):
        shown(unlocked, 1, 2, 3)


def test_what_is_below_the_log_start_need_not_be_known(unlocked: ObjectWorld) -> None:
    """Nobody can tell what comes before the first slice that is known; nobody needs it where retention let go of it."""
    topic = settled(unlocked, "01", "1", "01", "01")
    unlocked.log().topic("t").delete_records({0: 1})
    lose(unlocked, 0)
    assert [segment.base_offset for segment in unlocked.handle().sealed(unlocked.settled(), 0, 1)] == [1, 2]
    found = find_time(unlocked.handle(), topic_id(topic), 0, 0)
    assert found is not None
    assert found.offset == 1
    with pytest.raises(FileNotFoundError):
        unlocked.handle().sealed(unlocked.settled(), 0)


def test_it_stops_the_retention_of_its_partition_only(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, "012", "02", "1", "01", "0", **{"retention.ms": 10_000})
    lost = lose(unlocked, 2)
    unlocked.clock.advance(100_000)
    with pytest.raises(CorruptionError, match=f"{lost.name} is missing: restore it from a copy$"):
        retain(unlocked.handle(), topic_id(topic))
    assert unlocked.handle().newest()[1].log_start == (4, 1, 2), "partition 1 ends before what it may have lost"
    assert unlocked.settled().tail[0] == lost, "what it can't have held before it is gone"
    assert len(unlocked.settled().tail) == 3
    more(unlocked, 5, "02")
    assert (shown(unlocked, 0), shown(unlocked, 2)) == ([b"5"], [b"5"])


def test_nothing_behind_it_goes_by_size_either(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, "01", "1", "01", "01", **{"retention.bytes": 0})
    lost = lose(unlocked, 1)
    with pytest.raises(CorruptionError, match=lost.name):
        retain(unlocked.handle(), topic_id(topic))
    assert unlocked.handle().newest()[1].log_start == (3, 1, 0)


def test_a_segment_that_was_appended_after_it_stays(unlocked: ObjectWorld) -> None:
    """By a process that sees the directory as its own disk."""
    topic, disk = settled(unlocked, "01", "1", "01", **{"retention.ms": 10_000}), World(unlocked.path, unlocked.clock)
    append(disk.handle(), batch_of([b"3"] * 2, timestamp=[3_000_000] * 2, partition=[0, 1]))
    assert settle(disk.handle(), topic_id(topic)).records == 2
    lost = lose(unlocked, 1)
    unlocked.clock.advance(100_000)
    with pytest.raises(CorruptionError, match=lost.name):
        retain(unlocked.handle(), topic_id(topic))
    assert unlocked.handle().newest()[1].log_start == (3, 1, 0)


def test_it_stops_the_compaction_of_its_partition_only(unlocked: ObjectWorld) -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    topic = settled(unlocked, "01", "01", "01", "1", **config)
    lost = lose(unlocked, 3)
    with pytest.raises(CorruptionError, match=lost.name):
        compact(unlocked.handle(), topic_id(topic))
    assert shown(unlocked, 0) == [b"2"]
    assert shown(unlocked, 1, 0, 3) == [b"2"], "up to what it may have lost"
    assert unlocked.settled().tail == (lost,)


def test_what_lies_before_it_is_compacted(unlocked: ObjectWorld) -> None:
    """What lies after it stays where it is: own segments come before all of the tail."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    topic = settled(unlocked, "01", "01", "1", "01", "01", **config)
    lost = lose(unlocked, 2)
    with pytest.raises(CorruptionError, match=lost.name):
        compact(unlocked.handle(), topic_id(topic))
    assert [unlocked.settled().partition(partition).cleaned for partition in (0, 1)] == [2, 2]
    assert shown(unlocked, 0) == [b"1", b"3", b"4"]
    assert [segment.end_offset for segment in own(unlocked.handle(), 0)][-1] == 2


def test_verify_names_it(unlocked: ObjectWorld) -> None:
    settled(unlocked, "0", "01", "0")
    lost = lose(unlocked, 1)
    with pytest.raises(AssertionError, match=lost.name):
        verify(unlocked.handle())


def test_a_void_in_a_partition_without_records_is_settled_beside_it(unlocked: ObjectWorld) -> None:
    """What takes the place of a void is as old as the last segment, if there is one."""
    topic = settled(unlocked, "01", "1")
    unlocked.log().topic("t").delete_records({0: 1})
    before = set(unlocked.files(".chunk"))
    append(topic, batch_of([b"lost"], partition=[0]))
    (chunk,) = set(unlocked.files(".chunk")) - before
    (unlocked.path / chunk).unlink()
    lose(unlocked, 0)
    assert len(unlocked.log().topic("t").void({0: (1, 2)})) == 1
    unlocked.clock.advance(LATER_MS)
    assert settle(unlocked.handle(), topic_id(topic)).failures == ()
    assert unlocked.settled().partition(0).end_offset == 2

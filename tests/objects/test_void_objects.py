"""Giving up lost records without a lock: objects are written again, and swapped by operations (O2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, ConflictError, CorruptionError, StorageError, UsageError
from pyspark_commitlog.journal import Stored, own_writes
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic import topic_tables as handles
from pyspark_commitlog.topic.collect.sweep_objects import sweep_objects
from pyspark_commitlog.topic.damage.verify import verify as look_for_faults
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.settle.merge import split
from pyspark_commitlog.topic.settle.pieces import replace_own
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared
from tests.support.objects import ObjectWorld, copied, topic_id
from tests.support.records import append, batch_of, read_partition
from tests.support.verify import verify
from tests.support.world import CHUNKS, RETENTION_MS, Recorder, once, raising, several

CONFIG = {**CHUNKS, "batch.size": 1024, "compression.type": "none", "index.interval.bytes": 1000}


@pytest.fixture
def settled(unlocked: ObjectWorld) -> ObjectWorld:
    """Two partitions with offsets 0 to 8, in three objects of three frames each."""
    topic = unlocked.create(2, CONFIG)
    for first in (0, 3, 6):
        for n in range(first, first + 3):
            append(topic, batch_of([b"%d " % n + b"x" * 1200] * 2, partition=[0, 1], timestamp=[n * 10**6] * 2))
        settle(topic, topic_id(topic))
    return unlocked


def offsets(world: ObjectWorld, partition: int = 0) -> list[int]:
    return [record.offset for record in read_partition(world.handle(), partition)]


def segments(world: ObjectWorld, partition: int = 0) -> tuple[Sealed, ...]:
    return world.handle().sealed(world.settled(), partition)


def file_of(world: ObjectWorld, segment: Sealed) -> Path:
    topic = world.handle()
    assert segment.place is not None
    return world.path / topic.paths(topic_id(topic)).object(segment.place.object)


def strike(world: ObjectWorld, segment: Sealed, frame: int) -> None:
    """Flip a bit inside a frame of a segment; its frames are alike."""
    assert segment.place is not None
    path = file_of(world, segment)
    data = bytearray(path.read_bytes())
    data[segment.place.position + segment.length * frame // 3 + 200] ^= 1
    path.write_bytes(data)


def own(world: ObjectWorld, objects: int = 2) -> None:
    """Make own pieces of the oldest objects."""
    assert split(world.handle(), topic_id(world.handle()), world.settled().tail[:objects])


def test_a_damaged_frame_of_a_shared_object_is_given_up_and_nothing_else(settled: ObjectWorld) -> None:
    strike(settled, segments(settled)[1], 1)
    (lost,) = settled.log().topic("t").void()
    assert (lost.partition, lost.start, lost.end) == (0, 4, 5)
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert offsets(settled, 1) == list(range(9))
    assert [len(segments(settled, p)) for p in (0, 1)] == [3, 3]
    verify(settled.handle())


def test_a_damaged_frame_of_an_own_piece(settled: ObjectWorld) -> None:
    own(settled)
    damaged, _ = segments(settled)
    data = bytearray(file_of(settled, damaged).read_bytes())
    data[200] ^= 1
    file_of(settled, damaged).write_bytes(data)
    (lost,) = settled.log().topic("t").void()
    assert (lost.partition, lost.start, lost.end) == (0, 0, 1)
    assert offsets(settled) == list(range(1, 9))
    assert offsets(settled, 1) == list(range(9))
    verify(settled.handle())


@pytest.mark.parametrize("number", range(3))
def test_a_lost_shared_object_is_given_up_whole(settled: ObjectWorld, number: int) -> None:
    """What it held is known from the segments before and after it."""
    start = 3 * number
    file_of(settled, segments(settled)[number]).unlink()
    with pytest.raises(CorruptionError):
        offsets(settled)
    handles._footers.clear()  # another process has to read it
    assert {(lost.partition, lost.start, lost.end) for lost in settled.log().topic("t").void()} == {
        (partition, start, start + 3) for partition in (0, 1)
    }
    assert offsets(settled) == offsets(settled, 1) == [n for n in range(9) if not start <= n < start + 3]
    append(settled.handle(), batch_of([b"on"], partition=[0]))
    settled.maintain()
    assert offsets(settled)[-1] == 9
    verify(settled.handle())
    found = find_time(settled.handle(), topic_id(settled.handle()), 0, 8000)
    assert found is not None
    assert found.offset == (9 if number == 2 else 8)


LATEST = [2000, 5000, 8000]  # ms; those of the records are in µs


@pytest.mark.parametrize(("number", "latest"), [(0, [LATEST[1], *LATEST[1:]]), (1, [LATEST[0], LATEST[0], LATEST[2]])])
def test_what_stands_for_a_lost_object_is_as_old_as_its_neighbours(
    settled: ObjectWorld, number: int, latest: list[int]
) -> None:
    """Of now it would hold retention up for as long again; nobody can read what it held."""
    file_of(settled, segments(settled)[number]).unlink()
    handles._footers.clear()
    settled.log().topic("t").void()
    assert [each.max_timestamp for each in segments(settled)] == latest


@pytest.mark.parametrize("number", range(3))
def test_a_slice_that_is_lost_whole_is_as_old_as_before_it(settled: ObjectWorld, number: int) -> None:
    for frame in range(3):
        strike(settled, segments(settled)[number], frame)
    settled.log().topic("t").void()
    latest = [each.max_timestamp for each in segments(settled)]
    assert latest == [*LATEST[:number], LATEST[max(number - 1, 0)], *LATEST[number + 1 :]]


def test_an_own_object_that_is_lost_is_as_old_as_it_was(settled: ObjectWorld) -> None:
    own(settled)
    file_of(settled, segments(settled, 1)[0]).unlink()
    settled.log().topic("t").void()
    assert [each.max_timestamp for each in segments(settled, 1)] == LATEST[1:]


def test_several_lost_objects_and_one_between(settled: ObjectWorld) -> None:
    first, _, last = segments(settled)
    for each in (first, last):
        file_of(settled, each).write_bytes(b"no object")
    assert len(settled.log().topic("t").void()) == 4
    assert offsets(settled) == [3, 4, 5]
    verify(settled.handle())


def test_a_lost_own_object(settled: ObjectWorld) -> None:
    own(settled)
    file_of(settled, segments(settled, 1)[0]).unlink()
    (lost,) = settled.log().topic("t").void()
    assert (lost.partition, lost.start, lost.end) == (1, 0, 6)
    assert offsets(settled) == list(range(9))
    assert offsets(settled, 1) == [6, 7, 8]
    verify(settled.handle())


def test_a_part_of_a_lost_object_is_given_up_with_the_rest_only(settled: ObjectWorld) -> None:
    file_of(settled, segments(settled)[1]).unlink()
    handles._footers.clear()  # another process has to read it
    before = settled.settled()
    with pytest.raises(UsageError, match="partition 1: offsets 3 to 6"):
        settled.log().topic("t").void({0: (3, 6)})
    assert settled.settled() == before
    assert len(settled.log().topic("t").void({0: (3, 6), 1: (3, 6)})) == 2
    verify(settled.handle())


def test_a_slice_below_the_log_start_is_not_copied(settled: ObjectWorld) -> None:
    """It may be damaged, and what is copied stays damage."""
    settled.log().topic("t").delete_records({0: 7})
    for partition in (0, 1):
        strike(settled, segments(settled, partition)[1], 1)
    settled.log().topic("t").void({1: (4, 5)})
    assert [offsets(settled), offsets(settled, 1)] == [[7, 8], [0, 1, 2, 3, 5, 6, 7, 8]]
    verify(settled.handle())


def test_damage_to_the_slice_beside_stays_damage(settled: ObjectWorld) -> None:
    """No damaged byte gets a fresh CRC (R11)."""
    strike(settled, segments(settled)[1], 1)
    strike(settled, segments(settled, 1)[1], 0)
    assert len(settled.log().topic("t").void({0: (4, 5)})) == 1
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    with pytest.raises(CorruptionError):
        offsets(settled, 1)
    assert look_for_faults(settled.handle()).faults
    assert len(settled.log().topic("t").void()) == 1
    verify(settled.handle())


def test_a_dry_run_changes_nothing(settled: ObjectWorld) -> None:
    strike(settled, segments(settled)[1], 1)
    before, objects = settled.settled(), settled.objects()
    assert len(settled.log().topic("t").void(dry_run=True)) == 1
    assert (settled.settled(), settled.objects()) == (before, objects)


def test_settles_meanwhile_take_nothing_from_it(settled: ObjectWorld) -> None:
    """O3."""
    strike(settled, segments(settled)[1], 1)

    def more() -> None:
        append(settled.handle(), batch_of([b"more"], partition=[0]))
        settle(settled.handle(), topic_id(settled.handle()))

    log = settled.log(on_path("/objects/", "create", once(more)))
    assert len(log.topic("t").void()) == 1
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    verify(settled.handle())


@pytest.mark.parametrize("owned", [False, True])
def test_a_look_may_take_longer_than_what_nobody_named_is_kept(settled: ObjectWorld, owned: bool) -> None:
    """O4: what is written again is named by the newest entry then, not by the one of before all was read."""
    if owned:
        own(settled)
    strike(settled, segments(settled)[0], 1)

    def floor_raised() -> None:
        settled.idle(settled.handle(), 2)
        settled.clock.advance(RETENTION_MS)
        sweep_objects(settled.handle(), topic_id(settled.handle()))

    before = settled.handle().settled(topic_id(settled.handle()))[0].sequence
    (lost,) = settled.log(on_path("/objects/", "map", once(floor_raised))).topic("t").void()
    assert settled.settled().files_floor > before
    at = 2 if owned else 1  # of six frames, or three
    assert (lost.partition, lost.start, lost.end) == (0, at, at + 1)
    assert offsets(settled) == [offset for offset in range(9) if offset != at]
    verify(settled.handle())


def settled_and_collected(world: ObjectWorld) -> None:
    for n in (11, 12):
        append(world.handle(), batch_of([b"%d" % n], partition=[0]))
    world.collect_all()
    append(world.handle(), batch_of([b"13"], partition=[0]))


def merged_and_collected(world: ObjectWorld) -> None:
    own(world)
    world.collect_all()


def rewritten_and_collected(world: ObjectWorld) -> None:
    """Have a compactor put a copy in the place of an own piece."""
    topic = world.handle()
    base, now = topic.settled(topic_id(topic))
    old = list(topic.own_segments(now, 0).every())
    change = replace_own(topic, base, now, 0, old, copied(topic, now, 0, old))
    assert topic.change(topic_id(topic), lambda base, now: change)
    world.collect_all()


def waiting(world: ObjectWorld) -> None:
    """Have two more records of partition 0 wait to be settled, and another process look at everything."""
    for n in (9, 10):
        append(world.handle(), batch_of([b"%d" % n], partition=[0]))
    handles._footers.clear()
    own_writes.own_puts.renew()


@pytest.mark.parametrize("other", [settled_and_collected, merged_and_collected, rewritten_and_collected])
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_others_let_go_of_meanwhile_is_not_given_up(
    settled: ObjectWorld, other: Callable[[ObjectWorld], None], dry_run: bool
) -> None:
    """R8: what is missing is lost only where an entry that was read after that still names it."""
    if other is rewritten_and_collected:
        own(settled)
    strike(settled, segments(settled)[-1], 1)
    waiting(settled)
    before = settled.files()
    log = settled.log(on_path("/objects/", "read", once(lambda: other(settled))))
    (lost,) = log.topic("t").void(dry_run=dry_run)
    assert set(before) - set(settled.files()), "some is collected"
    assert (lost.partition, lost.start, lost.end) == (0, 7, 8)
    voids = settled.handle().newest()[1].voids
    assert [(void.start, void.end) for void in voids] == ([] if dry_run else [(7, 8)])
    if not dry_run:
        assert offsets(settled) == [n for n in range(settled.handle().newest()[1].log_end[0]) if n != 7]
        assert offsets(settled, 1) == list(range(9))
        verify(settled.handle())


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_settled_and_collected_while_it_is_looked_at_is_not_given_up(
    settled: ObjectWorld, dry_run: bool
) -> None:
    waiting(settled)
    log = settled.log(on_path(".chunk", "map", once(lambda: settled_and_collected(settled))))
    assert log.topic("t").void(dry_run=dry_run) == ()
    assert settled.handle().newest()[1].voids == ()


@pytest.mark.parametrize(("first", "other"), [(0, merged_and_collected), (9, settled_and_collected)])
def test_a_range_that_others_let_go_of_meanwhile_is_looked_at_again(
    settled: ObjectWorld, first: int, other: Callable[[ObjectWorld], None]
) -> None:
    """Else a wrong reason would be given, or none: neither that it is given up, nor why not."""
    waiting(settled)
    log = settled.log(on_path("/objects/", "read", once(lambda: other(settled))))
    with pytest.raises(UsageError, match=f"all offsets from {first} to {first} can be read"):
        log.topic("t").void({0: (first, first + 1)})


def test_only_what_took_the_place_of_something_is_read_again(settled: ObjectWorld) -> None:
    """All of a topic may take hours, in which more is merged."""
    strike(settled, segments(settled)[2], 1)
    path, alone, again = str(file_of(settled, segments(settled)[2]).name), Recorder(), Recorder()
    assert settled.log(alone).topic("t").void(dry_run=True)
    merges = on_path("/objects/", "map", once(lambda: merged_and_collected(settled)))
    assert settled.log(several(merges, again)).topic("t").void(dry_run=True)
    assert len([each for each in again.paths("map") if path in each]) == len(
        [each for each in alone.paths("map") if path in each]
    )


def replaced_by_a_copy(world: ObjectWorld, *, collected: bool = False) -> Shared:
    """Have another process put a copy in the place of the second object of the tail; return it."""
    topic, victim = world.handle(), world.settled().tail[1]
    copy = replace(victim, name=victim.name[:-12] + "0000.segment")
    objects = world.path / Path(topic.paths(topic_id(topic)).object(copy.name)).parent

    def swapped(_: Stored, now: SettleState) -> Change:
        return Change(replace(now, tail=tuple(copy if each == victim else each for each in now.tail)))

    (objects / copy.name).write_bytes((objects / victim.name).read_bytes())
    topic.change(topic_id(topic), swapped)
    if collected:
        (objects / victim.name).unlink()
    return copy


def test_what_another_replaced_meanwhile_is_not_touched(settled: ObjectWorld) -> None:
    """O2: exactly these pieces; else what the other made would be lost, or the damage come back."""
    strike(settled, segments(settled)[1], 1)
    copies: list[Shared] = []
    other = once(lambda: copies.append(replaced_by_a_copy(settled)))
    with pytest.raises(ConflictError, match="void it again"):
        settled.log(on_path("/journal/", "put_if_absent", other, when="after")).topic("t").void()
    assert copies[0] in settled.settled().tail
    assert len(settled.log().topic("t").void()) == 1
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    verify(settled.handle())


def test_what_is_voided_counts_as_sound_where_another_partition_is_to_be_voided_again(settled: ObjectWorld) -> None:
    strike(settled, segments(settled)[1], 1)
    before = set(settled.files(".chunk"))
    append(settled.handle(), batch_of([b"9"], partition=[1]))
    (lost,) = set(settled.files(".chunk")) - before
    (settled.path / lost).unlink()
    own_writes.own_puts.renew()
    with pytest.raises(CorruptionError):
        settle(settled.handle(), topic_id(settled.handle()))
    assert [each.partition for each in settled.settled().damaged] == [1]
    other = once(lambda: replaced_by_a_copy(settled))
    with pytest.raises(ConflictError, match="void it again"):
        settled.log(on_path("/journal/", "put_if_absent", other, when="after")).topic("t").void()
    assert settled.settled().damaged == ()


@pytest.mark.parametrize("collected", [False, True])
def test_what_another_replaced_before_the_entry_is_looked_at_where_it_is_now(
    settled: ObjectWorld, collected: bool
) -> None:
    strike(settled, segments(settled)[1], 1)
    other = once(lambda: replaced_by_a_copy(settled, collected=collected))
    (lost,) = settled.log(on_path("/objects/", "create", other)).topic("t").void()
    assert (lost.partition, lost.start, lost.end) == (0, 4, 5)
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert offsets(settled, 1) == list(range(9))
    verify(settled.handle())


def test_who_dies_before_the_swap_leaves_damage_that_can_be_voided_again(settled: ObjectWorld) -> None:
    strike(settled, segments(settled)[1], 1)
    dies = on_path("/settle/", "put_if_absent", raising(StorageError("killed")), times=100)
    with pytest.raises(CommitLogError):
        settled.log(dies).topic("t").void()
    with pytest.raises(CorruptionError):
        offsets(settled)
    settled.log().topic("t").void()
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    verify(settled.handle())


def test_what_is_not_settled_is_given_up_and_settled_as_nothing(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, CONFIG)
    for n in range(3):
        append(topic, batch_of([b"%d" % n]))
    (unlocked.path / unlocked.files(".chunk")[1]).unlink()
    with pytest.raises(CorruptionError):
        settle(topic, topic_id(topic))
    assert len(unlocked.settled().damaged) == 1
    (lost,) = unlocked.log().topic("t").void()
    assert (lost.start, lost.end) == (1, 2)
    assert unlocked.settled().damaged == ()
    assert offsets(unlocked) == [0, 2]
    settle(unlocked.handle(), topic_id(topic))
    assert unlocked.settled().partition(0).end_offset == 3
    assert offsets(unlocked) == [0, 2]
    verify(unlocked.handle())


def test_force_takes_settled_records_only_for_a_settler_may_be_at_work(settled: ObjectWorld) -> None:
    append(settled.handle(), batch_of([b"9"], partition=[0]))
    with pytest.raises(UsageError, match="run maintain first"):
        settled.log().topic("t").void({0: (9, 10)}, force=True)
    settle(settled.handle(), topic_id(settled.handle()))
    assert len(settled.log().topic("t").void({0: (9, 10)}, force=True)) == 1
    assert len(settled.log().topic("t").void({0: (4, 5)}, force=True)) == 1
    assert offsets(settled) == [0, 1, 2, 3, 5, 6, 7, 8]
    verify(settled.handle())


def test_the_offsets_of_a_range_are_checked(settled: ObjectWorld) -> None:
    with pytest.raises(UsageError, match="between 0, where its first segment begins, and the high watermark 9"):
        settled.log().topic("t").void({0: (5, 12)})
    with pytest.raises(UsageError, match="can be read"):
        settled.log().topic("t").void({0: (4, 5)})

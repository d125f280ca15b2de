"""`void` of what is not settled: an operator gives up what is lost; all else goes on (I2 and I3's exception)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, ConflictError, CorruptionError, UsageError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.damage.verify import verify as check
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read import unsettled
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, World, failing

CONFIG = {**CHUNKS, "batch.size": 1024, "compression.type": "none"}
START_MS = 10**12


def write(topic: TopicLog, first: int, count: int = 3, partition: int = 0, size: int = 1200) -> str:
    """Commit records `first` to `first + count - 1` in one chunk, a frame each; return the chunk's name."""
    values = [b"%d " % number + b"x" * size for number in range(first, first + count)]
    batches = [
        batch_of([value], partition=[partition], timestamp=[(START_MS + 1000 * (first + i)) * 1000])
        for i, value in enumerate(values)
    ]
    done = append(topic, *batches)
    return topic.chunks(topic.journal.read(done.sequence or 0).entry)[0].name


def topic_id(topic: TopicLog) -> str:
    return topic.newest()[1].topic_id


def chunk(world: World, name: str) -> Path:
    (path,) = world.files(name)
    return world.path / path


def entry(world: World, sequence: int) -> Path:
    return world.path / f"topics/t/journal/{sequence:020d}.json"


def numbers(world: World, partition: int = 0) -> list[int]:
    return [int((r.value or b"").split()[0]) for r in read_partition(world.handle(), partition)]


def offsets(world: World, partition: int = 0) -> list[int]:
    return [r.offset for r in read_partition(world.handle(), partition)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def frames_of(path: Path) -> list[int]:
    """Return where the frames of a chunk start."""
    data, starts, at = path.read_bytes(), list[int](), 0
    while at < len(data):
        starts.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return starts


def ends_well(world: World, expected: list[int]) -> None:
    """Read, settle, read again, collect all: the same records at the same offsets, and no fault left."""
    assert numbers(world) == offsets(world) == expected
    for _ in range(3):
        world.maintain()
        assert numbers(world) == offsets(world) == expected
        world.clock.advance(DELAY_MS)
    append(world.handle(), batch_of([b"99 next"], partition=[0]))
    world.collect_all()
    assert numbers(world) == [*expected, 99]
    verify(world.handle())
    assert world.entries() == sorted(world.entries())
    assert len(world.entries()) == 2


# --- what is lost ------------------------------------------------------------------------------------------


def test_a_chunk_that_is_missing_is_given_up_whole(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """I8: loudly: the reader says which offsets it skips, once; and the partition settles again."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    write(topic, 6)
    lost.unlink()
    for _ in range(2):
        with pytest.raises(CorruptionError):
            world.maintain()
    assert world.log().topic("t").void(dry_run=True) == world.log().topic("t").void()
    with caplog.at_level(logging.WARNING):
        assert numbers(world) == [0, 1, 2, 6, 7, 8]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["topic 't' partition 0: offsets 3 to 5 were lost, and voided by an operator: they are skipped"], (
        said
    )
    ends_well(world, [0, 1, 2, 6, 7, 8])
    assert world.handle().newest()[1].log_end == (10,)


def test_it_says_what_is_given_up_and_changes_nothing_when_dry(world: World) -> None:
    topic = world.create(2, CONFIG)
    name = write(topic, 0)
    write(topic, 0, partition=1)
    chunk(world, name).unlink()
    world.log().topic("t").delete_records({0: 1})
    before = topic.newest()[0].sequence
    (found,) = world.log().topic("t").void(dry_run=True)
    assert (found.partition, found.start, found.end, found.records) == (0, 0, 3, 2)
    assert name in found.why
    assert "missing" in found.why
    assert topic.newest()[0].sequence == before
    assert world.log().topic("t").void() == (found,)
    assert topic.newest()[1].log_end == (3, 3)
    assert world.log().topic("t").void() == ()
    assert topic.newest()[0].sequence == before + 1


@pytest.mark.parametrize("position", [3, 8, 17, 26, 300])
@pytest.mark.parametrize("frame", [0, 1, 2])
def test_only_the_damaged_frame_of_a_chunk_is_given_up(world: World, frame: int, position: int) -> None:
    """I8: a bit of one frame: base offset, length, CRC, rows, payload. What is behind is kept where its place is sure."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    write(topic, 6)
    flip(lost, frames_of(lost)[frame] + position)
    assert sum(each.records for each in world.log().topic("t").void()) == (3 - frame if position in (8, 26) else 1)
    kept = {8: [0, 1, 2, *range(3, 3 + frame), 6, 7, 8], 26: [0, 1, 2, *range(3, 3 + frame), 6, 7, 8]}
    ends_well(world, kept.get(position, [n for n in range(9) if n != 3 + frame]))


def test_a_frame_whose_offset_lies_is_no_witness(world: World) -> None:
    """I2: frame 1 fails its CRC, and frame 2's base offset is another: its record must not get that offset."""
    topic = world.create(config=CONFIG)
    lost = chunk(world, write(topic, 0))
    starts = frames_of(lost)
    flip(lost, starts[1] + 300)
    flip(lost, starts[2] + 7)
    (found,) = world.log().topic("t").void()
    assert (found.start, found.end) == (1, 3)
    ends_well(world, [0])


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: flip(path, 40)], ids=["missing", "damaged"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_lost_journal_entry(world: World, damage: Callable[[Path], None], count: int) -> None:
    """I3: it does not say any more what it held; the entries around it do. Partition 1 goes on without a void."""
    topic = world.create(2, CONFIG)
    write(topic, 0)
    write(topic, 3)
    write(topic, 6)
    write(topic, 0, partition=1)
    write(topic, 9)
    for sequence in (3, 4)[:count]:
        damage(entry(world, sequence))
    assert numbers(world, 1) == [0, 1, 2]
    with pytest.raises(CorruptionError, match=r"partition 0 offsets? 3.* journal entry 3 is missing or damaged"):
        settle(world.handle(), topic_id(topic))
    with pytest.raises(CorruptionError, match=r"partition 0 offset 3: .*journal entry 3 is missing or damaged"):
        numbers(world)
    assert [row.end_offset for row in world.handle().settled(topic_id(topic))[1].partitions] == [0, 3]
    (found,) = world.log().topic("t").void()
    assert (found.partition, found.start, found.end) == (0, 3, 3 + 3 * count)
    assert "journal entry 3" in found.why
    ends_well(world, [0, 1, 2, *range(3 + 3 * count, 12)])
    assert numbers(world, 1) == [0, 1, 2]


def test_the_first_unsettled_entry_is_lost(world: World) -> None:
    """I3: nothing is before it but what is settled."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    settle(topic, topic_id(topic))
    write(topic, 3)
    world.log().topic("t").alter({"retention.bytes": 10**9})
    write(topic, 6)
    entry(world, 3).unlink()
    (found,) = world.log().topic("t").void()
    assert (found.start, found.end) == (3, 6)
    ends_well(world, [0, 1, 2, 6, 7, 8])


def test_an_entry_behind_the_lost_one_that_appended_nothing(world: World) -> None:
    """I3: its state tells the log end behind the lost one, and nothing else follows."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    write(topic, 3)
    world.log().topic("t").alter({"segment.ms": 10**6})
    entry(world, 3).unlink()
    (found,) = world.log().topic("t").void()
    assert (found.start, found.end) == (3, 6)
    ends_well(world, [0, 1, 2])


def test_inline_frames_that_are_damaged(world: World) -> None:
    topic = world.create(config={**CONFIG, "inline.max.bytes": 65536})
    for number in range(3):
        append(topic, batch_of([b"%d x" % number]))
    path = entry(world, 3)
    flip(path, path.stat().st_size - 20)
    (found,) = world.log().topic("t").void()
    assert (found.start, found.end) == (1, 2)
    assert "inline frames" in found.why
    ends_well(world, [0, 2])


def test_a_lost_entry_keeps_the_chunks_that_it_may_name_from_the_sweep(world: World) -> None:
    """R1: while the entry may be restored from a copy, its chunks are no orphans."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    write(topic, 3)
    write(topic, 6)
    lost = entry(world, 3).read_bytes()
    entry(world, 3).unlink()
    world.clock.advance(RETENTION_MS)
    write(topic := world.handle(), 9)
    world.clock.advance(2 * RETENTION_MS)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            world.maintain()
    assert topic.newest()[1].staged_floor > 3
    entry(world, 3).write_bytes(lost)
    assert numbers(world) == list(range(12))
    world.maintain()
    assert numbers(world) == list(range(12))


def test_a_void_larger_than_a_frame_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: several frames without rows, one behind the other; time index and rolls go by the time before them."""
    monkeypatch.setattr("pyspark_commitlog.topic.settle.frame_joiner.MAX_ROWS", 2)
    topic = world.create(config={**CONFIG, "index.interval.bytes": 0, "segment.bytes": 4000, "segment.ms": 60_000})
    write(topic, 0)
    lost = chunk(world, write(topic, 3, count=5))
    write(topic, 8, count=4)
    lost.unlink()
    world.log().topic("t").void()
    ends_well(world, [0, 1, 2, 8, 9, 10, 11])
    topic = world.handle()
    for number in (2, 8, 11):
        found = find_time(topic, topic_id(topic), 0, START_MS + 1000 * number)
        assert found is not None
        assert found.offset == number
    found = find_time(topic, topic_id(topic), 0, START_MS + 4000)
    assert found is not None
    assert found.offset == 8


def test_a_void_at_the_very_start_takes_the_time_of_what_follows(world: World) -> None:
    """I3: there is no earlier record whose time it could have: retention and rolls go by those behind it."""
    topic = world.create(config={**CONFIG, "segment.ms": 60_000})
    lost = chunk(world, write(topic, 0))
    write(topic, 3)
    lost.unlink()
    world.log().topic("t").void()
    settle(topic, topic_id(topic))
    row = topic.settled(topic_id(topic))[1].partition(0)
    assert (row.manifest, row.active.index.first_timestamp) == (None, START_MS + 3000)
    ends_well(world, [3, 4, 5])


# --- what is refused ---------------------------------------------------------------------------------------


def test_what_can_be_read_is_not_given_up(world: World) -> None:
    topic = world.create(2, CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    flip(lost, frames_of(lost)[1] + 300)
    log = world.log()
    for wanted, told in (
        ({0: (0, 3)}, "can be read; nothing was voided"),
        ({0: (5, 6)}, "can be read"),
        ({0: (0, 7)}, "no range of offsets between 0, where its first segment begins, and the high watermark 6"),
        ({0: (2, 2)}, "no range"),
        ({2: (0, 1)}, "has partitions 0 to 1"),
        ({1: (0, 1)}, "no range"),
    ):
        with pytest.raises(UsageError, match=told):
            log.topic("t").void(wanted)
    with pytest.raises(UsageError, match="say which"):
        log.topic("t").void(force=True)
    assert topic.newest()[1].voids == ()
    assert log.topic("t").void({0: (0, 6)})[0].start == 4
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(4, 5)]
    assert log.topic("t").void({0: (4, 5)}) == (), "voided already"


def test_a_lost_file_is_given_up_whole_or_not_at_all(world: World) -> None:
    """I2: where a frame begins is not known; part of a frame that comes back could not be read."""
    topic = world.create(config=CONFIG)
    chunk(world, write(topic, 0)).unlink()
    with pytest.raises(UsageError, match=r"offsets 0 to 3 \(exclusive\) can only be given up whole"):
        world.log().topic("t").void({0: (1, 2)})
    assert topic.newest()[1].voids == ()


def test_force_gives_up_what_can_be_read_frame_by_frame(world: World) -> None:
    topic = world.create(config={**CONFIG, "batch.size": 10_000})
    write(topic, 0, size=10)  # one frame
    with pytest.raises(UsageError, match=r"offsets 0 to 3 \(exclusive\) are one frame"):
        world.log().topic("t").void({0: (0, 2)}, force=True)
    write(topic, 3, size=10)
    (found,) = world.log().topic("t").void({0: (3, 6)}, force=True)
    assert (found.records, found.why) == (3, "these can be read, and are given up by force")
    ends_well(world, [0, 1, 2])


# --- interleavings -----------------------------------------------------------------------------------------


def test_what_a_settler_is_about_to_publish_is_not_given_up(world: World) -> None:
    """R3: it has read the records of partition 1 and will publish them: a void by force must not come between."""
    topic = world.create(2, CONFIG)
    chunk(world, write(topic, 0)).unlink()
    write(topic, 0, partition=1)
    told: list[str] = []

    def meanwhile() -> None:
        with pytest.raises(ConflictError) as error:
            world.log().topic("t").void({1: (0, 3)}, force=True)
        told.append(str(error.value))

    with pytest.raises(CorruptionError):
        settle(world.handle(on_path("/settle/", "put_if_absent", meanwhile)), topic_id(topic))
    assert "nothing was voided" in told[0]
    assert topic.newest()[1].voids == ()
    assert numbers(world, 1) == [0, 1, 2]


def test_a_settler_under_way_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: it gives the lock back; then the void looks at what is settled by now."""
    topic = world.create(config=CONFIG)
    chunk(world, write(topic, 0)).unlink()
    held = ExitStack()
    held.enter_context(world.storage().try_lock(topic.paths(topic_id(topic)).lock))
    monkeypatch.setattr(world.clock, "sleep", lambda seconds: held.close())
    assert world.log().topic("t").void()[0].records == 3


def test_a_topic_that_is_always_settled_is_told(world: World) -> None:
    """R3: nothing is half done."""
    topic = world.create(config=CONFIG)
    chunk(world, write(topic, 0)).unlink()
    with world.storage().try_lock(topic.paths(topic_id(topic)).lock), pytest.raises(ConflictError, match="try again"):
        world.log().topic("t").void()
    assert topic.newest()[1].voids == ()


def test_a_reader_in_the_middle_goes_on_behind_the_void(world: World) -> None:
    """R8: it has the view of before; the file is gone; it looks again and finds the void."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    write(topic, 6)

    def give_up() -> None:
        lost.unlink()
        world.log().topic("t").void()

    reader = world.handle(on_path(lost.name, "info", give_up))
    assert [r.offset for r in read_partition(reader, 0)] == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("start", range(9))
@pytest.mark.parametrize("settled", [False, True])
def test_a_plan_may_start_and_end_anywhere(world: World, start: int, settled: bool) -> None:
    """R8: a range that begins, ends or lies inside a void, before it is settled and behind."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    flip(lost, frames_of(lost)[0] + 300)
    flip(lost, frames_of(lost)[1] + 300)
    write(topic, 6)
    world.log().topic("t").void()
    if settled:
        world.maintain()
    for end in range(start + 1, 10):
        found = [r.offset for r in read_partition(world.handle(), 0, start, end)]
        assert found == [n for n in range(start, end) if n not in (3, 4)]


def test_two_voids_at_once(world: World) -> None:
    """R9: both find the same damage; the loser looks again and has nothing left to give up."""
    topic = world.create(config=CONFIG)
    chunk(world, write(topic, 0)).unlink()
    other: list[object] = []

    def first() -> None:
        log = world.log()
        topic = log.root.topic("t")
        state = topic.newest()[1]
        topic.journal.append(lambda base, slot: _void_draft(topic, state.topic_id, base))
        other.append(True)

    assert world.log(on_path("/journal/", "put_if_absent", first)).topic("t").void() == ()
    assert other == [True]
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(0, 3)]


def _void_draft(topic: TopicLog, found_id: str, base: object) -> object:
    from dataclasses import replace

    from pyspark_commitlog.journal import Draft
    from pyspark_commitlog.topic.state.topic_state import Void

    state = topic.newest(found_id)[1]
    return Draft("void", found_id, {"state": replace(state, voids=(Void(0, 0, 3),)).to_json()}, result=None)


def test_a_chunk_that_comes_back_stays_given_up(world: World) -> None:
    """I2: some readers have passed over it: what is voided is voided, whatever bytes are there."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    write(topic, 6)
    data = lost.read_bytes()
    lost.unlink()
    world.log().topic("t").void()
    lost.write_bytes(data)
    ends_well(world, [0, 1, 2, 6, 7, 8])


def test_a_frame_that_comes_back_stays_given_up(world: World) -> None:
    """I2: it lies whole between two others of its chunk; no reader returns it any more."""
    topic = world.create(config=CONFIG)
    lost = chunk(world, write(topic, 0))
    for _ in range(2):
        flip(lost, frames_of(lost)[1] + 300)
        world.log().topic("t").void()
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(1, 2)]
    ends_well(world, [0, 2])


def test_a_chunk_that_comes_back_before_is_not_given_up(world: World) -> None:
    """R9: restored between the look and the put: the put lost a race, and the next attempt finds all readable."""
    topic = world.create(config=CONFIG)
    lost = chunk(world, write(topic, 0))
    data = lost.read_bytes()
    lost.unlink()

    def restore() -> None:
        lost.write_bytes(data)
        write(world.handle(), 3)

    assert world.log(on_path("/journal/", "put_if_absent", restore)).topic("t").void() == ()
    ends_well(world, list(range(6)))


def test_more_damage_of_the_same_chunk_can_be_given_up_later(world: World) -> None:
    topic = world.create(config=CONFIG)
    lost = chunk(world, write(topic, 0))
    write(topic, 3)
    flip(lost, frames_of(lost)[2] + 300)
    world.log().topic("t").void()
    lost.unlink()
    with pytest.raises(CorruptionError, match="offsets 0 to 2"):
        settle(world.handle(), topic_id(topic))
    world.log().topic("t").void()
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(0, 3)]
    ends_well(world, [3, 4, 5])


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: flip(path, 300)], ids=["missing", "damaged"])
def test_what_is_void_and_not_settled_is_no_fault(world: World, damage: Callable[[Path], None]) -> None:
    topic = world.create(config=CONFIG)
    damage(chunk(world, write(topic, 0)))
    world.log().topic("t").void()
    verify(world.handle())


def test_what_is_damaged_beside_a_void_is_a_fault(world: World) -> None:
    topic = world.create(config=CONFIG)
    lost = chunk(world, write(topic, 0))
    flip(lost, 300)
    world.log().topic("t").void()
    flip(lost, frames_of(lost)[2] + 300)
    (fault,) = check(world.handle()).faults
    assert "offsets 2 to 2" in fault


def test_writers_go_on_and_repetitions_change_nothing(world: World) -> None:
    """I5, R6: the batch that was lost is known as committed: its retry is skipped, the next one is committed."""
    topic = world.create(config=CONFIG)
    staged = stage(topic, batch_of([b"0 a"]))
    commit(topic, staged.topic_id, [staged], Transaction("w", 7))
    chunk(world, staged.chunk.name if staged.chunk else "").unlink()
    world.log().topic("t").void()
    assert commit(world.handle(), staged.topic_id, [staged], Transaction("w", 7)).skipped
    again = stage(world.handle(), batch_of([b"1 b"]))
    assert commit(world.handle(), staged.topic_id, [again], Transaction("w", 8)).ranges == {0: (1, 2)}
    ends_well(world, [1])


def test_a_settler_that_dies_in_a_void_is_done_again(world: World) -> None:
    """R3: frames without rows lie beyond the published length: cut off and written again."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    lost = chunk(world, write(topic, 3))
    write(topic, 6)
    lost.unlink()
    world.log().topic("t").void()
    with pytest.raises(CommitLogError, match="injected"):
        settle(world.handle(on_path("/settle/", "put_if_absent", failing(), times=9)), topic_id(topic))
    ends_well(world, [0, 1, 2, 6, 7, 8])


def test_a_void_below_the_log_start_is_forgotten(world: World) -> None:
    """An entry does not grow for ever."""
    topic = world.create(config=CONFIG)
    first = chunk(world, write(topic, 0))
    write(topic, 3)
    first.unlink()
    world.log().topic("t").void()
    world.log().topic("t").delete_records({0: 3})
    world.maintain()
    second = chunk(world, write(topic, 6))
    second.unlink()
    world.log().topic("t").void()
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(6, 9)]


def test_merged_ranges_are_few_and_sorted() -> None:
    from pyspark_commitlog.topic.state.topic_state import Void, merged

    voids = [Void(1, 5, 7), Void(0, 4, 6), Void(0, 1, 4), Void(1, 8, 9), Void(0, 2, 3)]
    assert merged(voids) == (Void(0, 1, 6), Void(1, 5, 7), Void(1, 8, 9))


def test_a_void_that_is_not_settled_yet_is_not_forgotten_by_the_next_one(world: World) -> None:
    """Also below the log start offset: the settler still meets the damage."""
    topic = world.create(2, CHUNKS)
    for partition in (0, 1):
        lost = append(topic, batch_of([b"1", b"2"], partition=[partition] * 2))
        assert lost.sequence is not None
        for chunk in topic.chunks(topic.journal.read(lost.sequence).entry):
            (world.path / topic.paths(topic_id(topic)).chunk(chunk.name)).unlink()
    assert world.log().topic("t").void({0: (0, 2)})
    world.log().topic("t").delete_records({0: 2})
    assert world.log().topic("t").void({1: (0, 2)})
    settle(world.handle(), topic_id(topic))
    assert world.log().topic("t").describe().partitions[0].unsettled == 0


def test_what_is_lost_behind_many_entries_can_be_voided(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsettled, "MAX_ENTRIES", 3)
    topic = world.create(1, {**CHUNKS, "settle.entries": 10**6})
    done = [append(topic, batch_of([b"%d" % n])) for n in range(6)]
    assert done[5].sequence is not None
    (chunk,) = topic.chunks(topic.journal.read(done[5].sequence).entry)
    (world.path / topic.paths(topic_id(topic)).chunk(chunk.name)).unlink()
    assert [(each.start, each.end) for each in world.log().topic("t").void({0: (5, 6)})] == [(5, 6)]

"""`void` of settled records: their segments are written anew without what can't be read (I2 and I3's exception).

Interleavings: a reader in the old files; a death between the entry that gives up and the swap; no space; a writer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, CorruptionError, StorageError, UsageError
from pyspark_commitlog.format.index import OffsetEntry
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.damage.verify import verify as look_for_faults
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.damage import fragments_of
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, World, failing, once

CONFIG = {
    **CHUNKS,
    "batch.size": 1024,
    "compression.type": "none",
    "segment.bytes": 20_000,
    "index.interval.bytes": 4000,
}
#: A sealed segment with offsets 0 to 9, an active one with 10 to 14: a frame each, of about 2 KB.
SEALED, ACTIVE = f"/{0:020d}.log", f"/{10:020d}.log"
Damage = Callable[[Path, list[int]], None]


@pytest.fixture
def topic(world: World) -> TopicLog:
    topic = world.create(1, CONFIG)
    values = [b"%d " % n + b"x" * 1200 for n in range(15)]
    append(topic, *(batch_of([value], partition=[0]) for value in values))
    settle(topic, topic_id(topic))
    assert [len(world.files(path)) for path in (SEALED, ACTIVE)] == [1, 1]
    return topic


def topic_id(topic: TopicLog) -> str:
    return topic.newest()[1].topic_id


def starts(data: bytes) -> list[int]:
    """Return where frames start."""
    found, at = list[int](), 0
    while at < len(data) and data[at + 8 : at + 12] != bytes(4):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def strike(world: World, path: str, damage: Damage) -> None:
    """Damage a segment."""
    (name,) = world.files(path)
    damage(world.path / name, starts((world.path / name).read_bytes()))


def flip(frame: int, inside: int) -> Damage:
    """Return what flips a bit of a frame."""

    def damage(path: Path, frames: list[int]) -> None:
        data = bytearray(path.read_bytes())
        data[frames[frame] + inside] ^= 1
        path.write_bytes(data)

    return damage


def copied(frame: int, over: int) -> Damage:
    """Return what copies a frame over another one."""

    def damage(path: Path, frames: list[int]) -> None:
        data, size = bytearray(path.read_bytes()), frames[1] - frames[0]
        data[frames[over] : frames[over] + size] = data[frames[frame] : frames[frame] + size]
        path.write_bytes(data)

    return damage


def cut(frame: int) -> Damage:
    """Return what cuts a file off inside a frame."""
    return lambda path, frames: path.write_bytes(path.read_bytes()[: frames[frame] + 100]) and None


def missing(path: Path, frames: list[int]) -> None:
    """Lose the file."""
    path.unlink()


def offsets(world: World) -> list[int]:
    """Return the offsets that a fresh process reads; every value is the one that was written there."""
    found = read_partition(world.handle(), 0)
    assert all((record.value or b"").split()[0] == b"%d" % record.offset for record in found)
    return [record.offset for record in found]


def ends_well(world: World, lost: set[int]) -> None:
    """Read, maintain, write: all but what was given up, no fault, and the damaged files go."""
    left = [n for n in range(15) if n not in lost]
    assert offsets(world) == left
    for _ in range(3):
        world.maintain()
        world.clock.advance(DELAY_MS)
    append(world.handle(), batch_of([b"15 next"], partition=[0]))
    world.collect_all()
    assert offsets(world) == [*left, 15]
    verify(world.handle())
    topic = world.handle()
    row = topic.settled(topic_id(topic))[1].partition(0)
    named = {segment.stem for segment in (*topic.sealed(topic.settled(topic_id(topic))[1], 0), row.active)}
    assert {path.rsplit("/", 1)[1].rsplit(".", 1)[0] for path in world.files("/0/")} == named


# --- what is lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "damage", "lost"),
    [
        (SEALED, flip(4, 300), {4}),
        (SEALED, flip(0, 300), {0}),
        (SEALED, flip(9, 300), {9}),
        (SEALED, flip(4, 7), {4}),  # its base offset: what it holds may be right, but where?
        (SEALED, flip(3, 26), {3, 4, 5}),  # its lastOffsetDelta: the next one begins elsewhere; an index entry names 6
        (SEALED, flip(3, 10), {3, 4, 5}),  # its batchLength: where the next one starts only the index tells
        (SEALED, flip(7, 10), {7, 8}),
        (SEALED, cut(6), {6, 7, 8, 9}),
        (SEALED, missing, set(range(10))),
        (ACTIVE, flip(0, 300), {10}),
        (ACTIVE, flip(4, 300), {14}),
        (ACTIVE, cut(2), {12, 13, 14}),
        (ACTIVE, missing, set(range(10, 15))),
    ],
)
def test_what_is_lost_is_given_up_and_nothing_else(
    world: World, topic: TopicLog, path: str, damage: Damage, lost: set[int]
) -> None:
    strike(world, path, damage)
    with pytest.raises(CorruptionError):
        offsets(world)
    told = world.log().topic("t").void(dry_run=True)
    assert {n for each in told for n in range(each.start, each.end)} == lost
    assert sum(each.records for each in told) == len(lost)
    assert all(path in each.why for each in told)
    with pytest.raises(CorruptionError):
        offsets(world)
    assert world.log().topic("t").void() == told
    assert world.log().topic("t").void() == ()
    ends_well(world, lost)


def test_without_its_index_what_is_behind_a_broken_length_is_lost_too(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(3, 10))
    strike(world, SEALED.replace(".log", ".index"), missing)
    assert [(each.start, each.end) for each in world.log().topic("t").void()] == [(3, 10)]
    ends_well(world, set(range(3, 10)))


def test_damage_in_several_segments_and_behind_them(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(2, 300))
    strike(world, ACTIVE, flip(1, 300))
    done = append(topic, batch_of([b"15 x" + b"x" * 1200], partition=[0]))
    name = topic.chunks(topic.journal.read(done.sequence or 0).entry)[0].name
    (chunk,) = world.files(name)
    (world.path / chunk).unlink()
    assert [(each.start, each.end) for each in world.log().topic("t").void()] == [(2, 3), (11, 12), (15, 16)]
    assert offsets(world) == [n for n in range(15) if n not in (2, 11)]
    world.maintain()
    verify(world.handle())


def test_of_a_compacted_segment(world: World) -> None:
    topic = world.create(1, {**CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    for n in range(15):
        append(topic, batch_of([b"%d " % n + b"x" * 1500], key=[b"%d" % (n % 4)], partition=[0]))
    world.maintain()
    before = offsets(world)
    assert before[0] > 0
    path = topic.paths(topic_id(topic)).segment_file(
        0, topic.sealed(topic.settled(topic_id(topic))[1], 0)[0].stem, "log"
    )
    data = bytearray((world.path / path).read_bytes())
    data[starts(bytes(data))[1] + 300] ^= 1
    (world.path / path).write_bytes(data)
    (told,) = world.log().topic("t").void()
    assert (told.start, told.end) == (before[1], before[1] + 1)
    assert offsets(world) == [before[0], *before[2:]]
    verify(world.handle())


def test_by_force_what_can_be_read(world: World, topic: TopicLog) -> None:
    assert world.log().topic("t").void({0: (8, 12)}, force=True)[0].records == 4
    ends_well(world, {8, 9, 10, 11})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({6: 6}, (3, 6)),
        ({5: 5, 6: 6, 8: 8}, (3, 6)),  # a damaged frame is no witness
        ({6: 7, 8: 8}, (3, 8)),  # nor is one that ends at another offset
        ({6: 4, 9: 9}, (3, 9)),
        ({2: 6, 9: 9}, (3, 9)),  # nor an entry of what was read already
        ({6: 3, 9: 9}, (3, 9)),  # nor what is no further: there, a copy of frame 3 lies in the place of 6
        ({50: 6}, (3, 10)),
        ({}, (3, 10)),
    ],
)
def test_which_index_entries_lead_behind_damage(
    world: World, topic: TopicLog, entries: dict[int, int], expected: tuple[int, int]
) -> None:
    """Entries name the frame of an offset by the number of the frame; 50 is behind the end."""
    if entries.get(6) == 3:
        strike(world, SEALED, copied(3, 6))
    strike(world, SEALED, flip(5, 300))
    strike(world, SEALED, flip(3, 10))
    (name,) = world.files(SEALED)
    data = (world.path / name).read_bytes()
    size = len(data) // 10
    index = [OffsetEntry(offset, number * size) for number, offset in entries.items()]
    span = segment_span(topic.paths(topic_id(topic)), 0, topic.sealed(topic.settled(topic_id(topic))[1], 0)[0])
    fragments = list(fragments_of(world.storage(), span, 0, 10, index))
    assert next((fragment.start, fragment.end) for fragment in fragments if fragment.located is None) == expected
    assert fragments[-1].end == 10


# --- what is refused ---------------------------------------------------------------------------------------


def test_a_part_of_the_damage_in_a_segment(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(2, 300))
    strike(world, SEALED, flip(6, 300))
    files = sorted(world.files("/0/"))
    with pytest.raises(UsageError, match=r"offsets 6 to 7 \(exclusive\) of the same segment can't be read either"):
        world.log().topic("t").void({0: (2, 3)})
    with pytest.raises(UsageError, match="all offsets from 3 to 5 can be read"):
        world.log().topic("t").void({0: (3, 6)})
    assert topic.newest()[1].voids == ()
    assert sorted(world.files("/0/")) == files
    assert len(world.log().topic("t").void({0: (2, 7)})) == 2
    ends_well(world, {2, 6})


def test_offsets_below_the_first_segment(world: World, topic: TopicLog) -> None:
    world.log().topic("t").delete_records({0: 12})
    world.maintain()
    with pytest.raises(
        UsageError, match=r"5 to 12 .* is no range of offsets between 10, where its first segment begins"
    ):
        world.log().topic("t").void({0: (5, 12)}, force=True)


# --- interleavings -----------------------------------------------------------------------------------------


def test_a_reader_in_the_old_file_goes_on_behind_the_damage(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(4, 300))
    reader = PartitionReader(world.handle(), topic_id(topic), 0)
    rows = reader.read(0, 15)
    first = [next(rows).first_offset for _ in range(3)]
    world.log().topic("t").void()
    assert [*first, *(each.first_offset for each in rows)] == [n for n in range(15) if n != 4]


def test_who_dies_before_the_swap_leaves_damage_that_can_be_voided_again(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(4, 300))
    with pytest.raises(CommitLogError, match="injected"):
        world.log(on_path(f"/settle/{4:020d}", "put_if_absent", failing(), times=9)).topic("t").void()
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(4, 5)]
    assert look_for_faults(world.handle()).faults
    with pytest.raises(CorruptionError):
        offsets(world)
    assert [(each.start, each.end) for each in world.log().topic("t").void()] == [(4, 5)]
    ends_well(world, {4})


@pytest.mark.parametrize("suffix", [".4.log", ".4.index", ".4.timeindex", "/manifests/"])
def test_without_space_nothing_is_given_up(world: World, topic: TopicLog, suffix: str) -> None:
    strike(world, SEALED, flip(4, 300))
    operation = "create" if suffix.endswith(".log") else "write_once"
    with pytest.raises(StorageError, match="injected"):
        world.log(on_path(suffix, operation, failing(), times=9)).topic("t").void()
    assert topic.newest()[1].voids == ()
    assert len(world.log().topic("t").void()) == 1
    ends_well(world, {4})


def test_a_commit_meanwhile_stays(world: World, topic: TopicLog) -> None:
    strike(world, SEALED, flip(4, 300))
    late = once(lambda: append(world.handle(), batch_of([b"15 late"], partition=[0])))
    world.log(on_path("/t/journal/", "put_if_absent", late)).topic("t").void()
    assert offsets(world) == [n for n in range(16) if n != 4]
    assert [(v.start, v.end) for v in topic.newest()[1].voids] == [(4, 5)]


@pytest.mark.parametrize(("damage", "expected"), [(missing, "its segment's"), (flip(0, 300), "the first frame left")])
def test_frames_without_rows_have_a_timestamp(world: World, topic: TopicLog, damage: Damage, expected: str) -> None:
    """Kafka takes a segment without one to be as new as its file; one of now would hold retention up."""
    before = topic.sealed(topic.settled(topic_id(topic))[1], 0)[0].max_timestamp
    strike(world, SEALED, damage)
    world.clock.advance(86_400_000)
    world.log().topic("t").void()
    first = topic.sealed(topic.settled(topic_id(topic))[1], 0)[0]
    span = segment_span(topic.paths(topic_id(topic)), 0, first)
    frames = [located.frame for located in walk(world.storage(), span)]
    assert frames[0].max_timestamp == (before if expected == "its segment's" else frames[1].max_timestamp)
    assert first.max_timestamp == before

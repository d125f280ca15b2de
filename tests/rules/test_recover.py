"""Indexes that are lost or damaged are rebuilt by who holds the settler's lock, and by nobody else (R3, R4)."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.check_indexes import recover
from pyspark_commitlog.topic.maintain.settle import settle, settle_after_commit
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.state.settle_state import Active
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.appends import TellingStorage
from tests.support.records import append, batch_of, read_partition
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, Recorder, World, failing

#: Frames of 2 kB that never merge, an index entry for each but the first; segments of five.
CONFIG = {
    **CHUNKS,
    "batch.size": 1024,
    "compression.type": "none",
    "index.interval.bytes": 0,
    "segment.bytes": 12_000,
    "segment.index.bytes": 240,
}
START_MS = 10**12


def write(topic: TopicLog, count: int, partition: int = 0) -> None:
    """Append `count` records as a frame each, a second apart."""
    first, noise = topic.newest()[1].log_end[partition], random.Random(1)
    for number in range(first, first + count):
        value = b"%d " % number + noise.randbytes(1500)
        append(topic, batch_of([value], partition=[partition], timestamp=[(START_MS + 1000 * number) * 1000]))


def topic_id(topic: TopicLog) -> str:
    return topic.newest()[1].topic_id


def run(topic: TopicLog) -> int:
    """Settle; return the number of segments whose indexes were rebuilt."""
    return settle(topic, topic_id(topic)).rebuilt


def active(topic: TopicLog, partition: int = 0) -> Active:
    return topic.settled(topic_id(topic))[1].partition(partition).active


def indexes(world: World, part: str = "") -> dict[str, bytes]:
    """Return the content of all index files."""
    return {path: (world.path / path).read_bytes() for path in world.files("index") if part in path}


def of_two_partitions(world: World) -> TopicLog:
    """Settle 13 records of each of two partitions: two sealed segments and an active one."""
    topic = world.create(2, CONFIG)
    for partition in (0, 1):
        write(topic, 13, partition)
    run(topic)
    return topic


def lose_indexes(world: World) -> dict[str, bytes]:
    """Delete all indexes; return what they were, by path."""
    before = indexes(world)
    for path in before:
        (world.path / path).unlink()
    return before


def numbers(topic: TopicLog, partition: int = 0, start: int | None = None) -> list[int]:
    """Return the numbers that the records of a partition begin with."""
    return [int((record.value or b"").split()[0]) for record in read_partition(topic, partition, start)]


def lost(path: Path) -> None:
    path.unlink()


def short(path: Path) -> None:
    os.truncate(path, 7)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def backwards(path: Path) -> None:
    data, size = path.read_bytes(), 12 if path.suffix == ".timeindex" else 8
    path.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])


def beyond(path: Path) -> None:
    """Make the last published entry point behind the segment."""
    data = bytearray(path.read_bytes())
    size = 12 if path.suffix == ".timeindex" else 8
    end = len(data.rstrip(b"\0")) // size * size
    struct.pack_into(">i", data, end + size - 4 if end == len(data) - size else end - 4, 2**31 - 1)
    path.write_bytes(data)


DAMAGE = [lost, short, zeroed, backwards, beyond]


# --- the active segment ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_settler_rebuilds_the_active_indexes_byte_for_byte(
    world: World, damage: Callable[[Path], None], suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R3: before it appends: what it writes behind a hole would never be found, and published again and again."""
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30})
    write(topic, 5)
    run(topic)
    before = indexes(world)
    (path,) = (world.path / path for path in before if path.endswith(f".{suffix}"))
    damage(path)
    write(topic, 1)
    assert run(topic) == 1
    assert path.name in caplog.text
    used = {"index": 4 * 8, "timeindex": 4 * 12}
    for name, data in indexes(world).items():
        length = used[name.rsplit(".", 1)[1]]
        assert data[:length] == before[name][:length]
        assert len(data) == 240, "preallocated again"
    assert verify(topic) == 6
    assert numbers(topic) == list(range(6))
    assert run(topic) == 0


@pytest.mark.parametrize("off", [-1, 1, 10, 60, 61, 10**6])
def test_readers_go_by_no_wrong_index(world: World, off: int) -> None:
    """A position in it may lie anywhere, such as some bytes behind where a frame starts: the frames tell."""
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30})
    write(topic, 6)
    run(topic)
    (path,) = (world.path / path for path in world.files(".index"))
    sound = path.read_bytes()
    entries = list(struct.iter_unpack(">ii", sound[: 5 * 8]))
    for slot, (relative, _) in enumerate(entries):
        for _, position in entries:
            path.write_bytes(sound[: 8 * slot] + struct.pack(">ii", relative, position + off) + sound[8 * slot + 8 :])
            for start, end in combinations(range(7), 2):
                found = read_range(world.handle(), OffsetRange("t", topic_id(topic), 0, start, end))
                assert [rows.first_offset for rows in found] == list(range(start, end))


def test_nothing_is_looked_at_where_nothing_is_to_be_settled(world: World) -> None:
    """R3: partition 1 has a damaged index and nothing new: a settler of partition 0 does not open it."""
    topic = world.create(2, CONFIG)
    for partition in (0, 1):
        write(topic, 3, partition)
    run(topic)
    for path in world.files("/1/"):
        if path.endswith("index"):
            (world.path / path).unlink()
    write(topic, 1, 0)
    seen = Recorder()
    assert run(world.handle(seen)) == 0
    assert not [path for _, path in seen.calls if "/1/" in path]


def test_a_settle_run_reads_its_tail_and_its_indexes_not_the_past(world: World) -> None:
    """R3: what a run reads does not grow with what is sealed, nor with the active log: only indexes and the tail."""
    topic = world.create(config=CONFIG)
    reads: list[list[tuple[str, str]]] = []
    for _ in range(4):
        write(topic, 14)  # ends two frames into a segment each time
        run(topic)
        write(topic, 1)
        seen = Recorder()
        run(world.handle(seen))
        reads.append([(op, path.rsplit(".", 1)[1]) for op, path in seen.calls if op in ("read", "map", "fetch")])
        assert not [path for op, path in seen.calls if op in ("read", "map") and path.endswith(".log")]
        assert len({path for op, path in seen.calls if op == "read" and path.endswith("index")}) == 2
    assert reads[0] == reads[1] == reads[2] == reads[3]


def test_a_damaged_log_is_told_and_not_rebuilt_over(world: World) -> None:
    """R3, R11, I8: the index is lost, and a bit of the published log: partition 0 stays as it is, partition 1 settles."""
    topic = world.create(2, CONFIG)
    for partition in (0, 1):
        write(topic, 3, partition)
    run(topic)
    index, log = (world.path / path for path in world.files("/0/") if not path.endswith("timeindex"))
    index.unlink()
    data = bytearray(log.read_bytes())
    data[4000] ^= 1
    log.write_bytes(data)
    for partition in (0, 1):
        write(topic, 1, partition)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=rf"topic 't' partition 0 offset \d: .*{log.name} position \d+ "):
            run(topic)
    assert not index.exists()
    assert log.read_bytes() == data
    rows = topic.settled(topic_id(topic))[1].partitions
    assert [row.end_offset for row in rows] == [3, 4]
    with pytest.raises(CorruptionError, match=r"partition 0 offset \d"):
        world.maintain()


def test_a_stamp_that_no_frame_covers_is_told_too(world: World) -> None:
    """R3, I8: the leader epoch lies outside every frame's CRC: the CRC of the published log tells."""
    topic = world.create(config=CONFIG)
    write(topic, 3)
    run(topic)
    (log,) = (world.path / path for path in world.files("0.log"))
    (world.path / world.files("0.index")[0]).unlink()
    data = bytearray(log.read_bytes())
    data[15] ^= 1
    log.write_bytes(data)
    write(topic, 1)
    with pytest.raises(CorruptionError, match=r"have CRC-32C [0-9a-f]{8} .*, expected [0-9a-f]{8}"):
        run(topic)


@pytest.mark.parametrize("interval", [0, 3000, 10_000])
def test_readers_with_the_old_lengths_stay_right(world: World, interval: int) -> None:
    """R3, R4: index.interval.bytes has changed, so the rebuilt indexes have other lengths than are published.

    Readers with the view of before resolve offsets and timestamps while both files are new and nothing is published;
    and again after the settle entry.
    """
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30, "index.interval.bytes": 3000})
    write(topic, 12)
    run(topic)
    world.log().topic("t").alter({"index.interval.bytes": interval})
    (world.path / world.files("0.timeindex")[0]).unlink()
    write(topic, 1)
    seen: list[list[int]] = []

    def look() -> None:
        reader = world.handle()
        for start in range(13):
            seen.append(numbers(reader, start=start))
            assert seen[-1] == list(range(start, 13))
            at = find_time(reader, topic_id(topic), 0, START_MS + 1000 * start - 500)
            assert at is not None
            assert at.offset == start

    settler = world.handle(on_path("/settle/", "put_if_absent", look))
    assert run(settler) == 1
    assert seen
    look()
    assert verify(world.handle()) == 13


def test_an_index_never_gets_shorter_in_place(world: World) -> None:
    """R3, R4: a reader maps an index as far as its old view says; the rebuilt file is shorter (a larger interval).

    If it were preallocated and cut when the segment is sealed, that reader would die of SIGBUS. So the segment is
    sealed by the rebuild: the file has its last length when it gets its name.
    """
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30})
    write(topic, 12)
    run(topic)
    old = active(topic)
    world.log().topic("t").alter({"index.interval.bytes": 5000})
    (path,) = world.files("0.index")
    (world.path / path).unlink()
    with open(world.path / path.replace(".index", ".log"), "ab") as file:
        file.write(b"torn tail")
    write(topic, 1)
    cuts: list[int] = []

    def tell(operation: str, found: str, moment: str) -> None:
        if operation == "open_append" and found == path:
            cuts.append(1)

    assert run(world.handle(tell)) == 1
    assert cuts == [], "never opened for writing in place"
    row = topic.settled(topic_id(topic))[1].partition(0)
    assert (row.active.base_offset, row.end_offset) == (12, 13)
    (sealed,) = topic.sealed(topic.settled(topic_id(topic))[1], 0)
    assert 0 < sealed.offset_bytes < old.index.offset_bytes
    assert (world.path / path).stat().st_size == sealed.offset_bytes
    assert verify(topic) == 13
    assert numbers(topic) == list(range(13))


@pytest.mark.parametrize(
    ("shorter", "first", "then", "rebuilt"),
    [
        # entries come at other frames, where the largest timestamp has not grown
        ("timeindex", (0.0, (1, 1, 2)), (2.5, (2, 2)), 1.5),
        # all have one timestamp, so one time entry is all there is
        ("index", (0.0, (1, 1, 1)), (0.0, (1, 1)), 2.5),
    ],
)
def test_one_of_the_two_indexes_that_gets_shorter_seals(
    world: World, shorter: str, first: tuple[float, Sequence[int]], then: tuple[float, Sequence[int]], rebuilt: float
) -> None:
    """R3, R4: the intervals (in frames) of what is published, and of the rebuild; and the seconds of each frame."""
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30})
    noise = random.Random(1)

    def put(interval: float, seconds: Sequence[int]) -> None:
        world.log().topic("t").alter({"index.interval.bytes": int(interval * (active(topic).length // 3))})
        for each in seconds:
            stamp = (START_MS + 1000 * each) * 1000
            append(world.handle(), batch_of([noise.randbytes(1500)], timestamp=[stamp]))

    put(*first)
    run(topic)
    frame = active(topic).length // 3
    put(*then)
    run(topic)
    old = active(topic).index
    world.log().topic("t").alter({"index.interval.bytes": int(rebuilt * frame)})
    append(world.handle(), batch_of([noise.randbytes(1500)], timestamp=[(START_MS + 9000) * 1000]))
    (world.path / world.files(f"0.{shorter}")[0]).unlink()
    assert run(world.handle()) == 1
    row = topic.settled(topic_id(topic))[1].partition(0)
    assert row.active.base_offset == 5, "sealed, and a new one begun"
    (sealed,) = topic.sealed(topic.settled(topic_id(topic))[1], 0)
    grown = {"index": sealed.offset_bytes - old.offset_bytes, "timeindex": sealed.time_bytes - old.time_bytes}
    assert grown.pop(shorter) < 0
    assert min(grown.values()) >= 0, "only one of them is shorter"
    assert verify(topic) == 6


@pytest.mark.parametrize(
    ("part", "moment"),
    [
        ("0.index", "before"),
        ("0.index", "after"),
        ("0.timeindex", "before"),
        ("0.timeindex", "after"),
        ("/settle/", "before"),
    ],
)
@pytest.mark.parametrize("interval", [0, 3000, 10_000])
def test_a_rebuild_that_dies_anywhere_is_done_again(world: World, part: str, moment: str, interval: int) -> None:
    """R3: one index is new and the other old, or both are and nothing is published: the next settler sees it."""
    topic = world.create(config={**CONFIG, "segment.bytes": 2**30, "index.interval.bytes": 3000})
    write(topic, 12)
    run(topic)
    world.log().topic("t").alter({"index.interval.bytes": interval})
    for path in world.files("index"):
        zeroed(world.path / path)
    write(topic, 2)
    operation = "put_if_absent" if part == "/settle/" else "write_once"
    dying = world.handle(on_path(part, operation, failing(), when=moment, times=9))
    with pytest.raises(CommitLogError, match="injected"):
        run(dying)
    assert numbers(world.handle()) == list(range(14))
    run(world.handle())
    assert verify(world.handle()) == 14
    assert numbers(world.handle()) == list(range(14))


# --- sealed segments -------------------------------------------------------------------------------------


def too_long(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(bytes(24))


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", [*DAMAGE, too_long])
def test_maintain_rebuilds_sealed_indexes_byte_for_byte(
    world: World, damage: Callable[[Path], None], suffix: str
) -> None:
    """R3: with the last time entry that sealing forces; the lengths are the same, so nothing is published."""
    topic = world.create(2, CONFIG)
    write(topic, 17)
    run(topic)
    before, entry = indexes(world), topic.settled(topic_id(topic))[0].sequence
    path = next(path for path in before if path.endswith(f"{5:020d}.{suffix}"))
    damage(world.path / path)
    assert world.maintain().rebuilt_indexes == 1
    assert indexes(world) == before
    assert topic.settled(topic_id(topic))[0].sequence == entry
    assert verify(topic) == 17
    assert world.maintain().rebuilt_indexes == 0


def test_every_lost_index_of_a_topic_comes_back(world: World) -> None:
    """R3: a copy of the logs alone was restored: sealed and active, of both partitions."""
    topic = of_two_partitions(world)
    before = lose_indexes(world)
    assert world.maintain().rebuilt_indexes == 6
    assert indexes(world) == before
    assert verify(topic) == 26


def test_other_lengths_are_published_in_one_entry(world: World) -> None:
    """R3, R4: index.interval.bytes has changed: new manifests, readers in between and behind find every offset."""
    topic = of_two_partitions(world)
    entry = topic.settled(topic_id(topic))[0].sequence
    world.log().topic("t").alter({"index.interval.bytes": 3000})
    for path in indexes(world):
        zeroed(world.path / path)

    def look() -> None:
        for partition in (0, 1):
            for start in range(13):
                assert numbers(world.handle(), partition, start) == list(range(start, 13))

    assert recover(world.handle(on_path("/settle/", "put_if_absent", look)), topic_id(topic)) == 6
    look()
    assert topic.settled(topic_id(topic))[0].sequence == entry + 1
    assert verify(topic) == 26


def test_a_damaged_sealed_log_stops_no_other_segment(world: World) -> None:
    """R3, I8: one sealed log and its index are damaged: told with offset and position; all others are rebuilt."""
    of_two_partitions(world)
    before = lose_indexes(world)
    log = world.path / next(path for path in world.files("/0/") if path.endswith(f"{5:020d}.log"))
    data = bytearray(log.read_bytes())
    data[3000] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptionError, match=rf"topic 't' partition 0 offset 6: .*{log.name} position \d+ "):
        world.maintain()
    stem = str(log.relative_to(world.path)).removesuffix("log")
    assert indexes(world) == {path: data for path, data in before.items() if not path.startswith(stem)}


def test_maintain_looks_without_the_lock_and_gives_way_with_it(world: World) -> None:
    """R3: a settler holds the lock: nothing is rebuilt; and where all is sound the lock is not taken for it."""
    topic = world.create(config=CONFIG)
    write(topic, 7)
    run(topic)
    tried: list[int] = []
    (index,) = (world.path / path for path in world.files("/0/") if path.endswith(f"{0:020d}.index"))

    def meanwhile() -> None:
        index.unlink()
        tried.append(recover(world.handle(), topic_id(topic)))

    write(topic, 1)
    run(world.handle(on_path("/settle/", "put_if_absent", meanwhile)))
    assert tried == [0]
    assert not index.exists()
    assert recover(topic, topic_id(topic)) == 1
    seen = Recorder()
    assert recover(world.handle(seen), topic_id(topic)) == 0
    assert {operation for operation, _ in seen.calls} <= {"read", "fetch", "map", "info", "names"}
    assert not [path for _, path in seen.calls if path.endswith(".log")]


def test_what_was_sealed_meanwhile_is_looked_at_again_under_the_lock(world: World) -> None:
    """R3: the segment was active when maintain looked, and another process seals it: nothing is wrong, or damaged."""
    topic = world.create(config=CONFIG)
    write(topic, 3)
    run(topic)
    write(topic, 9)
    slow = world.handle(on_path("0.index", "read", lambda: run(world.handle())))
    assert recover(slow, topic_id(topic)) == 0
    assert verify(topic) == 12


def test_what_another_rebuilt_is_not_rebuilt_again(world: World) -> None:
    """R3: two maintain at once; one waits for the lock, and finds all in order, with other lengths, when it has it."""
    topic = world.create(config=CONFIG)
    write(topic, 7)
    run(topic)
    world.log().topic("t").alter({"index.interval.bytes": 3000})
    for path in indexes(world):
        (world.path / path).unlink()
    storage = TellingStorage(world.path, clock=world.clock)
    done: list[int] = []
    storage.before_lock = lambda: done.append(recover(topic, topic_id(topic)))
    assert recover(TopicLog(storage, "t"), topic_id(topic)) == 0
    assert done == [2]
    assert verify(topic) == 7


def test_what_a_killed_rebuild_left_is_swept(world: World) -> None:
    """R3: temporary files in a partition's directory go when they are as old as an orphan may get."""
    topic = world.create(config=CONFIG)
    write(topic, 1)
    run(topic)
    left = world.path / topic.paths(topic_id(topic)).partition(0) / ".tmp-left"
    left.write_bytes(b"half an index")
    os.utime(left, (world.clock.now_ms() / 1000,) * 2)
    world.maintain()
    assert left.exists()
    world.clock.advance(RETENTION_MS + 1)
    world.maintain()
    assert not left.exists()


def test_damage_does_not_keep_a_topic_from_being_swept_and_collected(world: World) -> None:
    """R11: a corrupt chunk of partition 1: told, and all else of maintain is done."""
    topic = world.create(2, {**CONFIG, "retention.bytes": 5000, "settle.entries": 10**6})
    write(topic, 13, 0)
    world.maintain()
    append(topic, batch_of([b"damaged"], partition=[1]))
    chunk = world.path / max(world.files(".chunk"))
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"!")
    write(topic, 8, 0)
    chunks = len(world.files(".chunk"))
    for _ in range(3):
        with pytest.raises(CorruptionError, match="partition 1"):
            world.maintain()
        world.clock.advance(DELAY_MS)
    rows = topic.settled(topic_id(topic))[1].partitions
    assert [row.end_offset for row in rows] == [21, 0]
    assert topic.newest()[1].log_start[0] > 10, "retention ran"
    assert len(world.files(".chunk")) < chunks, "the collector ran"
    assert len(world.files("/0/")) == 6, "segments that went are deleted"


def test_a_commit_mends_what_it_settles_into(world: World) -> None:
    """R3, R5: settling inside a commit does the same."""
    topic = world.create(config={**CONFIG, "settle.entries": 1})
    write(topic, 3)
    run(topic)
    (world.path / world.files("0.index")[0]).unlink()
    write(topic, 1)
    assert settle_after_commit(topic, topic_id(topic)).rebuilt == 1
    assert verify(topic) == 4

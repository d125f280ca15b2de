"""`verify`: a sound topic has no fault, and damage to any byte that counts is named with its file."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.frame import Times
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments import encoding
from pyspark_commitlog.topic.segments.encoding import frame_times
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.damage import cut, flip, newest, published, remove, zero
from tests.support.entries import rewrite
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, DELAY_MS, World, once

CONFIG = {**CHUNKS, "segment.bytes": 4096, "index.interval.bytes": 100, "batch.size": 1024, "compression.type": "none"}


@pytest.fixture
def topic(world: World) -> TopicLog:
    """Sealed and active segments, with index entries; then chunks and an inline entry that are not settled."""
    topic = world.create(2, CONFIG)
    topic_id = topic.newest()[1].topic_id
    noise = random.Random(1)
    for first in range(0, 60, 10):
        values = [b"%d " % number + noise.randbytes(400) for number in range(first, first + 10)]
        times = [10**12 + 1000 * number for number in range(first, first + 10)]
        append(topic, batch_of(values, partition=[number % 2 for number in range(10)], timestamp=times))
        settle(topic, topic_id)
        world.clock.advance(1000)
    for number in range(2):
        append(topic, batch_of([b"late %d" % number] * 4, partition=[0, 1, 0, 1]))
    world.log().topic("t").alter({"inline.max.bytes": 65536})
    append(world.handle(), batch_of([b"inline"]))
    return world.handle()


def test_a_sound_topic_has_no_fault(topic: TopicLog) -> None:
    report = verify(topic)
    assert report.faults == ()
    assert report.segments > 4
    assert (report.chunks, report.entries) == (2, 4)
    assert report.segment_bytes > 20_000


def whole(world: World, topic: TopicLog) -> list[str]:
    """Return the files all of whose bytes count, but for the newest entries."""
    counted = published(world, topic)
    return [p for p, n in counted.items() if n == (world.path / p).stat().st_size and p not in newest(topic)]


@pytest.mark.parametrize("damage", [flip, cut, zero, remove])
def test_damage_to_any_file_that_counts_is_named(
    world: World, topic: TopicLog, damage: Callable[[Path, random.Random], None]
) -> None:
    chance = random.Random(damage.__name__)
    files = whole(world, topic)
    assert {path.rsplit(".", 1)[1] for path in files} == {"chunk", "index", "timeindex", "log", "json"}
    for path in files:
        for _ in range(20 if damage is flip else 2):
            full = world.path / path
            sound = full.read_bytes()
            damage(full, chance)
            faults = verify(world.handle()).faults
            name = path.rsplit("/", 1)[1].split(".")[0].lstrip("0") if "/journal/" in path else path
            assert any(name in fault for fault in faults), f"{damage.__name__} of {path}: {faults}"
            full.write_bytes(sound)
    assert verify(world.handle()).faults == ()


def test_what_no_frame_covers_is_covered_by_the_file(world: World, topic: TopicLog) -> None:
    """A leader epoch lies outside its frame's CRC: the running CRC of a segment, and a chunk's own, tell."""
    for suffix in (".log", ".chunk"):
        path = next(path for path in whole(world, topic) if path.endswith(suffix))
        data = bytearray((world.path / path).read_bytes())
        data[15] ^= 1
        (world.path / path).write_bytes(bytes(data))
        assert any(path in fault and "CRC-32C" in fault for fault in verify(world.handle()).faults)


def test_damage_to_inline_frames_is_named(world: World, topic: TopicLog) -> None:
    path = world.path / f"topics/t/journal/{topic.newest()[0].sequence:020d}.json"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert any(path.name in fault for fault in verify(world.handle()).faults)


def test_two_segments_that_were_swapped_are_named(world: World, topic: TopicLog) -> None:
    logs = [path for path in whole(world, topic) if path.endswith(".log")]
    first, second = (world.path / logs[0]), (world.path / logs[1])
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    faults = verify(world.handle()).faults
    assert any(logs[0] in fault for fault in faults)
    assert any(logs[1] in fault for fault in faults)


def test_a_torn_tail_of_the_active_segment_is_no_fault(world: World, topic: TopicLog) -> None:
    """R3: bytes beyond the published length are a settler's work that was cut off."""
    state = topic.newest()[1]
    row = topic.settled(state.topic_id)[1].partition(0)
    path = world.path / topic.paths(state.topic_id).segment_file(0, row.active.stem, "log")
    path.write_bytes(path.read_bytes() + b"torn")
    assert verify(world.handle()).faults == ()


def test_a_topic_that_is_settled_and_collected_meanwhile_has_no_fault(world: World, topic: TopicLog) -> None:
    """What went between the view and the look at it is looked for again."""

    def settled() -> None:
        for _ in range(2):
            world.maintain()
            world.clock.advance(DELAY_MS)
        world.maintain()

    late = world.handle(on_path(".log", "info", once(settled)))
    assert verify(late).faults == ()


def test_damage_in_several_places_is_told_all(world: World, topic: TopicLog) -> None:
    chunks = [path for path in whole(world, topic) if path.endswith(".chunk")]
    for path in chunks:
        (world.path / path).unlink()
    faults = verify(world.handle()).faults
    assert all(any(path in fault and "missing" in fault for fault in faults) for path in chunks)


def test_a_missing_table_of_writers_is_named(world: World) -> None:
    topic = world.create(1, CONFIG)
    for number in range(70):
        append(topic, batch_of([b"x"]), writer=Transaction(f"w{number}", 1))
    (table,) = world.files(".writers")
    assert verify(world.handle()).faults == ()
    (world.path / table).unlink()
    assert any(table in fault for fault in verify(world.handle()).faults)


def test_a_topic_that_is_always_being_written_has_no_fault(world: World, topic: TopicLog) -> None:
    """Entries, chunks and manifests that were needed when the check began are gone before it gets there."""
    topic_id = topic.newest()[1].topic_id

    def write() -> None:
        for _ in range(3):
            settle(world.handle(), topic_id)
            world.clock.advance(DELAY_MS)
            collect(world.handle(), topic_id)
        for _ in range(3):
            append(world.handle(), batch_of([b"more"] * 20))

    late = world.handle(on_path(".log", "info", write, times=10**6))
    assert verify(late).faults == ()


def test_a_missing_table_of_the_newest_settle_entry_is_named_to_readers_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 60)
    topic = world.create(2, CONFIG)
    append(topic, batch_of([b"x"] * 8))
    settle(topic, topic.newest()[1].topic_id)
    table = world.files(".partitions")[-1]
    (world.path / table).unlink()
    assert any(table in fault and "missing" in fault for fault in verify(world.handle()).faults)
    with pytest.raises(CorruptionError, match=f"{table} is missing"):
        world.values()


def test_a_zeroed_index_is_named_where_the_first_frame_has_one_record(world: World) -> None:
    """Offset 0 at position 0 is a frame, but the first one of a segment never gets an entry."""
    topic = world.create(1, {**CONFIG, "segment.bytes": 10**6, "index.interval.bytes": 0})
    for _ in range(2):
        append(topic, batch_of([b"x" * 700]))
    settle(topic, topic.newest()[1].topic_id)
    (path,) = world.files(".index")
    zero(world.path / path, random.Random(0))
    assert any(path in fault and "names no frame" in fault for fault in verify(world.handle()).faults)


def test_times_that_are_not_those_of_the_rows_are_faults(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters go by a segment's smallest timestamp, and that by the headers of its frames."""

    def wrong(timestamps: pa.Array, *, log_append_time: bool) -> Times:
        found = frame_times(timestamps, log_append_time=log_append_time)
        return Times(found.base_ms + 5, found.max_ms + 5, log_append_time)

    monkeypatch.setattr(encoding, "frame_times", wrong)
    topic = world.create(1, CONFIG)
    append(topic, batch_of([b"v"] * 3, timestamp=[3_000_000, 1_000_000, 2_000_000]))
    settle(topic, topic.newest()[1].topic_id)
    append(topic, batch_of([b"v"], timestamp=[2_001_000]))
    settle(topic, topic.newest()[1].topic_id)
    header, segment, _, late = verify(topic).faults  # the second frame's header is as wrong as the first one's
    assert header.endswith("position 0: its header's smallest timestamp is 1005, its rows' 1000")
    assert segment.endswith("a record is of 1000, before 1005, the segment's smallest published timestamp")
    assert late.endswith("a record comes 1004 ms late, the segment's published lateness is 999")


def test_an_entry_that_is_not_what_the_next_was_built_on_is_named(world: World, topic: TopicLog) -> None:
    """A stray, or an entry of an older copy, is whole by itself: only the chain tells."""
    number = world.entries()[-2]
    rewrite(
        world.path / f"topics/t/journal/{number:020d}.json", lambda fields: fields.update(writeId=str(uuid.uuid4()))
    )
    (fault,) = verify(world.handle()).faults
    assert fault == f"journal entry {number + 1} of t does not follow the one before"

"""The worked examples of the segmented log, as they are told wherever Kafka's log is explained, on real files.

A frame here has at least 762 bytes, for it holds an Arrow message. The positions of the examples leave their batches
106 bytes, so the same look-ups are shown at nine times those positions; offsets and timestamps are the examples' own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import OffsetOutOfRangeError
from pyspark_commitlog.format import frame, index
from pyspark_commitlog.format.columns.untyped import SCHEMA
from pyspark_commitlog.format.index import OffsetEntry, TimeEntry
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.segments.encoding import encode_frame
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.reads import MappingStorage
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, DELAY_MS, World

CONFIG = {**CHUNKS, "batch.size": 7000, "compression.type": "none"}  # no frame is split or joined
DAY_MS = 86_400_000
TIMES = 9
AT_MS = 1526384718288


@dataclass(frozen=True)
class Wanted:
    """A frame to be: so many records, so many bytes in all, all with one timestamp (ms)."""

    records: int
    bytes: int
    at_ms: int = AT_MS


def padded(wanted: Wanted, topic_id: str) -> pa.RecordBatch:
    """Return rows that make a frame of exactly the bytes that are wanted: the first value is padded."""

    def rows(pad: int) -> pa.RecordBatch:
        values = [b"x" * pad, *[b""] * (wanted.records - 1)]
        return batch_of(values, timestamp=[wanted.at_ms * 1000] * wanted.records)

    def size(pad: int) -> int:
        batch = rows(pad)
        nothing = [pa.nulls(wanted.records, SCHEMA.field(name).type) for name in ("key", "headers")]
        columns = [nothing[0], batch.column("value"), nothing[1], batch.column("timestamp")]
        whole = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        some = "0" * len(topic_id)
        return encode_frame(
            whole, codec="none", topic_id=topic_id, partition=0, log_append_time=False, base_offset=0, chunk=some
        ).size

    pad = wanted.bytes - size(0)
    assert size(pad) == wanted.bytes, f"{wanted} cannot be made"
    return rows(pad)


def segments(world: World, frames: Sequence[Wanted], config: Mapping[str, object]) -> MappingStorage:
    """Write these frames into the segments of partition 0; return a door to them that tells what is mapped."""
    topic = world.create(1, {**CONFIG, **config})
    topic_id = topic.newest()[1].topic_id
    for wanted in frames:
        append(topic, padded(wanted, topic_id))
    world.maintain()
    assert topic.settled(topic_id)[1].partition(0).end_offset == sum(wanted.records for wanted in frames)
    return MappingStorage(world.path, clock=world.clock)


def indexed(world: World, base: int, suffix: str) -> bytes:
    """Return the used bytes of an index."""
    (path,) = world.files(f"/{base:020d}.{suffix}")
    return (world.path / path).read_bytes().rstrip(b"\0")


# --- find an offset ---------------------------------------------------------------------------------------


def header(base_offset: int, last_offset: int, size: int) -> bytes:
    """Return a frame of `size` bytes that is all header: enough to walk."""
    fields = (base_offset, size - 12, 0, 2, 0, 0, last_offset - base_offset, 0, 0, -1, -1, -1, 1)
    return struct.pack(">qiibIhiqqqhii", *fields).ljust(size, b"\0")


def test_offset_23_by_the_numbers_from_entry_22_656_to_position_762() -> None:
    log = pa.py_buffer(bytes(656) + header(18, 22, 762 - 656) + header(23, 27, 100))
    entries = [OffsetEntry(10, 320), OffsetEntry(22, 656), OffsetEntry(27, 762)]

    found = index.lookup_offset(pa.py_buffer(b"".join(index.encode_offset(e, 0) for e in entries)), 0, 23)

    assert found == OffsetEntry(22, 656)
    before = frame.parse(log, found.position)
    assert before is not None
    behind = frame.parse(log, found.position + before.length)
    assert behind is not None
    assert (found.position + before.length, behind.base_offset) == (762, 23)


def test_offset_23_in_a_segment_from_entry_22_to_the_frame_behind_it(world: World) -> None:
    first = [*[Wanted(5, 1474)] * 3, Wanted(3, 656 * TIMES - 3 * 1474)]
    frames = [*first, Wanted(5, (762 - 656) * TIMES), Wanted(5, 1002)]
    door = segments(world, frames, {"index.interval.bytes": 5000})
    assert indexed(world, 0, "index") == struct.pack(">ii", 22, 656 * TIMES)

    topic = TopicLog(door, "t")
    located = PartitionReader(topic, topic.newest()[1].topic_id, 0).frame_at(23)

    assert (located.base_offset, located.position) == (23, 762 * TIMES)
    assert door.mapped[:2] == [("00000000000000000000.index", 0), ("00000000000000000000.log", 656 * TIMES)]
    assert min(start for file, start in door.mapped if file.endswith(".log")) == 656 * TIMES
    assert [record.offset for record in fetch(topic, 0, 23, 1)] == [23]


def test_offset_268_is_relative_17_in_the_segment_with_base_offset_251(world: World) -> None:
    frames = [Wanted(251, 8003), Wanted(9, 4002), Wanted(9, 3002), Wanted(5, 1002)]
    door = segments(world, frames, {"segment.bytes": 8003, "index.interval.bytes": 4000})
    names = [path.rsplit("/", 1)[1] for path in world.files(".log")]
    assert names == [f"{base:020d}.log" for base in (0, 251, 269)]
    assert indexed(world, 251, "index") == struct.pack(">ii", 17, 4002)

    (record,) = fetch(TopicLog(door, "t"), 0, 268, 1)

    assert record.offset == 268
    assert door.mapped[:2] == [("00000000000000000251.index", 0), ("00000000000000000251.log", 4002)]
    assert {file[:20] for file, _ in door.mapped} == {"00000000000000000251"}
    assert min(start for file, start in door.mapped if file.endswith(".log")) == 4002


# --- find a timestamp -------------------------------------------------------------------------------------


def test_timestamp_1526384718288_by_the_numbers_through_both_indexes() -> None:
    times = [TimeEntry(1526384718270, 17), TimeEntry(1526384718283, 28), TimeEntry(1526384718290, 35)]
    offsets = [OffsetEntry(17, 320), OffsetEntry(26, 838), OffsetEntry(35, 1200)]

    found = index.lookup_time(pa.py_buffer(b"".join(index.encode_time(e, 0) for e in times)), 0, AT_MS)

    assert found == TimeEntry(1526384718283, 28)
    by_offset = pa.py_buffer(b"".join(index.encode_offset(e, 0) for e in offsets))
    assert index.lookup_offset(by_offset, 0, found.offset) == OffsetEntry(26, 838)


def test_timestamp_1526384718288_in_a_segment_through_both_indexes(world: World) -> None:
    first = 838 * TIMES // 3
    early, late = 1526384718270, 1526384718283
    frames = [
        *[Wanted(6, first, early)] * 3, Wanted(9, 3002, early),  # offsets 18 to 26 at 9 × 838
        Wanted(2, 3002, late), Wanted(7, 1002, early), Wanted(4, 1002, AT_MS),
    ]  # fmt: skip
    door = segments(world, frames, {"index.interval.bytes": 6000})
    assert indexed(world, 0, "timeindex") == struct.pack(">qiqi", early, 5, late, 28)
    assert indexed(world, 0, "index") == struct.pack(">iiii", 26, 838 * TIMES, 35, 838 * TIMES + 6004)
    topic = TopicLog(door, "t")

    found = find_time(topic, topic.newest()[1].topic_id, 0, AT_MS)

    assert found == OffsetAndTimestamp(36, AT_MS)
    expected = [("timeindex", 0), ("index", 0), ("log", 838 * TIMES)]
    assert door.mapped[:3] == [(f"{0:020d}.{suffix}", start) for suffix, start in expected]
    assert min(start for file, start in door.mapped if file.endswith(".log")) == 838 * TIMES


# --- what may be read, and what goes ----------------------------------------------------------------------


def test_log_start_offset_25_over_segments_0_11_23_deletes_0_and_11(world: World) -> None:
    segments(world, [Wanted(11, 1130), Wanted(12, 1130), Wanted(7, 1130)], {"segment.bytes": 1130})
    assert bases(world) == [0, 11, 23]
    world.log().topic("t").delete_records({0: 25})
    world.maintain()
    assert world.log().topic("t").describe().partitions[0].segments == 1
    for _ in range(2):
        world.clock.advance(DELAY_MS)
        world.maintain()
    assert bases(world) == [23]
    assert [record.offset for record in read_partition(world.handle(), 0)] == [25, 26, 27, 28, 29]


def bases(world: World) -> list[int]:
    """Return the base offsets of the segments on disk."""
    return [int(path.rsplit("/", 1)[1].removesuffix(".log")) for path in world.files(".log")]


class Behind(TopicLog):
    """A handle whose high watermark is 6, whatever the log end offset: as if a replica had not caught up."""

    def newest_at(self, stored: Stored | None, topic_id: str | None) -> tuple[Stored, TopicState]:
        """Return the newest state, with another high watermark."""
        found, state = super().newest_at(stored, topic_id)
        return found, replace(state, log_end=(6,))


@pytest.mark.parametrize(("commits", "settled"), [(1, 0), (1, 9), (9, 0), (9, 4), (9, 9)])
def test_of_nine_messages_below_log_end_offset_9_and_high_watermark_6_exactly_0_to_5_are_read(
    world: World, commits: int, settled: int
) -> None:
    topic = world.create(config={**CONFIG, "batch.size": 1024})
    for number in range(0, 9, 9 // commits):
        numbers = range(number, number + 9 // commits)
        append(topic, batch_of([b"%d" % n for n in numbers], timestamp=[n * 1000 for n in numbers]))
        if numbers.stop == settled:
            settle(topic, topic.newest()[1].topic_id)
    partition = world.log().topic("t").describe().partitions[0]
    assert (partition.log_start_offset, partition.log_end_offset, partition.unsettled) == (0, 9, 9 - settled)
    behind = Behind(world.storage(), "t")
    topic_id = behind.newest()[1].topic_id

    assert [record.value for record in read_partition(behind, 0)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [record.offset for record in fetch(behind, 0, 3, 100)] == [3, 4, 5]
    assert fetch(behind, 0, 6, 1) == ()
    assert find_time(behind, topic_id, 0, 5) == OffsetAndTimestamp(5, 5)
    assert find_time(behind, topic_id, 0, 6) is None
    for offset in (7, 8, 9):
        with pytest.raises(OffsetOutOfRangeError, match="high watermark 6"):
            fetch(behind, 0, offset, 1)
    with pytest.raises(OffsetOutOfRangeError, match="high watermark 6"):
        list(PartitionReader(behind, topic_id, 0).read(0, 7))


@pytest.mark.parametrize("consumed", [True, False])
def test_retention_of_2_days_keeps_for_2_days_and_then_frees_the_disk_consumed_or_not(
    world: World, consumed: bool
) -> None:
    segments(world, [Wanted(11, 1130, world.clock.now_ms())], {"segment.bytes": 1130, "retention.ms": 2 * DAY_MS})
    if consumed:
        assert len(world.values()) == 11
    world.clock.advance(2 * DAY_MS)
    world.maintain()
    assert len(world.values()) == 11
    world.clock.advance(1)
    world.maintain()
    assert world.values() == []
    with pytest.raises(OffsetOutOfRangeError, match="start offset is 11"):
        world.log().topic("t").read(0, 0)
    for _ in range(2):
        world.clock.advance(DELAY_MS)
        world.maintain()
    assert world.log().topic("t").describe().partitions[0].size_bytes == 0
    assert sum((world.path / path).stat().st_size for path in world.files(".log")) == 0

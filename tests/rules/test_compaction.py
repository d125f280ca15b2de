"""Compaction: which records stay, who may read meanwhile, and what a crash leaves.

Interleavings: a reader before, in and behind the swap, with the old files there and gone; a crash before every step; a
collector with an old view while new files are made; a second compaction; a commit, delete_records and delete_topic
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    InvalidRecordError,
    StorageError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.format.index import decode_time
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.collect.collect import sweep
from pyspark_commitlog.topic.compaction.compact import CompactionJob, compact, key_source, work_here
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.retention import collect_segments
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.state.settle_state import Sealed
from pyspark_commitlog.topic.write.commit import commit
from tests.support.compactions import ABA, CONFIG, HOUR_MS, KEPT, created, identity, put, read
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.verify import verify
from tests.support.world import DELAY_MS, World, failing, once


def sealed(world: World) -> tuple[Sealed, ...]:
    """Return the sealed segments of partition 0 as published."""
    topic = world.handle()
    return topic.sealed(topic.settled(identity(world))[1], 0)


# --- which records stay -----------------------------------------------------------------------------------


def test_the_last_record_of_every_key_stays_with_its_offset_and_the_active_segment_whole(world: World) -> None:
    created(world)
    put(world, *ABA, b"end=2")
    done = world.maintain().compacted
    assert [(one.partition, one.segments) for one in done] == [(0, (5, 4))]
    assert read(world) == [*KEPT, (5, b"end", b"2")], "the record that supersedes end=1 is in the active segment"
    assert world.log().topic("t").describe().partitions[0].log_start_offset == 0
    verify(world.handle())
    assert world.maintain().compacted == (), "once is enough"


def test_every_column_of_what_stays_is_as_it_was(world: World) -> None:
    topic = created(world, segment_bytes=4096, batch_size=1024, message_timestamp_before_max_ms=2**62)
    for n in range(40):
        keys, times = [b"%d" % (i % 7) for i in range(n, n + 9)], [10**15 + n * 1000 + i for i in range(9)]
        headers = [[("h", b"%d" % i)] if i % 2 else None for i in range(9)]
        append(topic, batch_of([b"%d-%d" % (n, i) for i in range(9)], key=keys, timestamp=times, headers=headers))
        settle(topic, identity(world))
    before = {record.offset: record for record in read_partition(world.handle(), 0)}
    assert world.maintain().compacted
    after = read_partition(world.handle(), 0)
    assert 7 <= len(after) < 40 * 9
    assert all(before[record.offset] == record for record in after)
    verify(world.handle())


def test_a_tombstone_stays_until_its_horizon_and_goes_with_the_next_round(world: World) -> None:
    """KIP-534: the first round that sees it sets the horizon; time counts from there, not from when it was written."""
    created(world)
    put(world, b"a=1", b"a", b"b=1", b"end=1")
    world.clock.advance(10 * HOUR_MS)
    world.maintain()
    assert read(world) == [(1, b"a", None), (2, b"b", b"1"), (3, b"end", b"1")]
    world.clock.advance(HOUR_MS - 1)
    put(world, b"end=2")
    world.maintain()
    assert (1, b"a", None) in read(world), "one millisecond to go, and another round does not prolong it"
    world.clock.advance(1)
    put(world, b"end=3")
    world.maintain()
    assert read(world) == [(2, b"b", b"1"), (4, b"end", b"2"), (5, b"end", b"3")]
    verify(world.handle())


def test_a_tombstone_in_a_large_segment_that_nothing_else_touches_goes_too(world: World) -> None:
    created(world, delete_retention_ms=0)
    put(world, b"gone", b"b=1", b"end=1")
    world.maintain()
    put(world, b"other=1", b"end=2")
    assert [key for _, key, _ in read(world)] == [b"gone", b"b", b"end", b"other", b"end"]
    world.maintain()
    assert [key for _, key, _ in read(world)] == [b"b", b"end", b"other", b"end"]


def three(world: World, values: list[bytes | None], keys: list[bytes]) -> None:
    """Write some small records as one frame, and settle."""
    append(world.handle(), batch_of(values, key=keys, headers=[[("pad", b"x" * 200)]] * len(keys)))
    settle(world.handle(), identity(world))


def test_a_horizon_stays_when_the_frame_is_written_again(world: World) -> None:
    created(world, segment_bytes=1100)
    three(world, [None, b"1", b"1"], [b"gone", b"b", b"c"])
    put(world, b"end=1")
    world.maintain()
    world.clock.advance(HOUR_MS - 1)
    put(world, b"b=2", b"end=2")
    world.maintain()
    assert [key for _, key, _ in read(world)] == [b"gone", b"c", b"end", b"b", b"end"], "its frame lost b=1"
    world.clock.advance(1)
    put(world, b"end=3")
    world.maintain()
    assert [key for _, key, _ in read(world)] == [b"c", b"b", b"end", b"end"]


def test_frames_of_two_horizons_are_not_joined(world: World) -> None:
    created(world, segment_bytes=2000)
    three(world, [None, b"1"], [b"gone first", b"b"])
    put(world, b"pad=1", b"pad=2", b"pad=3")
    world.maintain()
    world.clock.advance(HOUR_MS // 2)
    three(world, [None, b"2"], [b"gone later", b"b"])
    put(world, b"pad=4", b"pad=5", b"pad=6")
    world.maintain()
    keys = [key for _, key, _ in read(world)]
    assert b"gone first" in keys
    assert b"gone later" in keys
    world.clock.advance(HOUR_MS // 2)
    put(world, b"pad=7", b"pad=8", b"pad=9")
    world.maintain()
    keys = [key for _, key, _ in read(world)]
    assert b"gone first" not in keys
    assert b"gone later" in keys


def test_records_of_two_clocks_are_not_joined(world: World) -> None:
    created(world, segment_bytes=4000)
    three(world, [b"1", b"1"], [b"a", b"b"])
    world.log().topic("t").alter({"message.timestamp.type": "LogAppendTime"})
    three(world, [b"2", b"2", b"2"], [b"b", b"c", b"d"])
    put(world, b"d=3", *(b"pad=%d" % n for n in range(6)))
    assert world.maintain().compacted
    rows = PartitionReader(world.handle(), identity(world), 0).read(0, 4)
    told = [(offset, each.log_append_time) for each in rows for offset in offsets_of(each)]
    assert told == [(0, False), (2, True), (3, True)]


def test_deleted_records_of_a_segment_compacted_before_go_too(world: World) -> None:
    created(world, cleanup_policy="delete,compact", segment_bytes=1100)
    three(world, [b"1", b"1", b"1"], [b"a", b"b", b"c"])
    put(world, b"end=1", b"end=2")
    world.maintain()
    world.log().topic("t").delete_records({0: 2})
    put(world, b"other=1", b"end=3")
    world.maintain()
    assert [key for _, key, _ in read(world)] == [b"c", b"end", b"other", b"end"]
    assert sealed(world)[0].base_offset == 0
    directory = SegmentDir(world.storage(), world.handle().paths(identity(world)), 0)
    stored = [key for keys in key_source(directory, sealed(world)[0]).read() for key in keys.keys.to_pylist()]
    assert stored[0] == b"c", "a and b are not on disk any more"


def test_segments_that_retention_has_still_to_let_go_of_stay_named(world: World) -> None:
    created(world, cleanup_policy="delete,compact")
    put(world, *ABA)
    world.log().topic("t").delete_records({0: 2})
    compact(world.handle(), identity(world))
    assert [segment.base_offset for segment in sealed(world)] == [0, 1, 2, 3]
    verify(world.handle())
    assert world.maintain().retained.segments == 2
    assert [segment.base_offset for segment in sealed(world)] == [2, 3]


def test_clean_segments_without_superseded_records_are_not_written_again(world: World) -> None:
    created(world)
    put(world, b"a=1", b"b=1", b"end=1")
    world.maintain()
    first = sealed(world)
    put(world, b"b=2", b"end=2")
    world.maintain()
    assert sealed(world)[0] == first[0], "a stays as it is; b was written anew"
    assert [key for _, key, _ in read(world)] == [b"a", b"end", b"b", b"end"]


def test_all_records_of_a_segment_may_go_and_its_offsets_are_still_covered(world: World) -> None:
    created(world, delete_retention_ms=0)
    put(world, b"a=1", b"a", b"end=1")
    world.maintain()
    put(world, b"end=2")
    world.maintain()
    world.clock.advance(1)
    put(world, b"end=3")
    world.maintain()
    assert read(world) == [(3, b"end", b"2"), (4, b"end", b"3")]
    assert sealed(world)[0].base_offset == 0
    assert [record.offset for record in read_partition(world.handle(), 0, 0, 2)] == []
    assert [record.offset for record in read_partition(world.handle(), 0, 1, 4)] == [3]
    verify(world.handle())


def test_records_below_the_log_start_offset_go(world: World) -> None:
    created(world, cleanup_policy="delete,compact", segment_bytes=1500)
    topic = world.handle()
    append(topic, batch_of([b"1", b"1", b"1"], key=[b"a", b"b", b"c"], headers=[[("pad", b"x" * 300)]] * 3))
    put(world, b"end=1", b"end=2")
    world.log().topic("t").delete_records({0: 2})
    size = sum(segment.length for segment in sealed(world))
    world.maintain()
    assert read(world) == [(2, b"c", b"1"), (3, b"end", b"1"), (4, b"end", b"2")]
    assert sum(segment.length for segment in sealed(world)) < size - 500


def test_records_without_a_key_are_refused_and_older_ones_go_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be there from before the policy changed (Kafka counts them as invalid and drops them)."""
    topic = created(world, cleanup_policy="delete")
    append(topic, batch_of([b"1", b"2"], headers=[[("pad", b"x" * 700)]] * 2))
    put(world, b"a=1", b"end=1")
    world.log().topic("t").alter({"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecordError, match="1 of 2 records have no key"):
        append(world.handle(), batch_of([b"x", b"y"], key=[b"k", None]))
    with pytest.raises(InvalidRecordError, match="2 of 2 records have no key"):
        append(world.handle(), batch_of([b"x", b"y"]))
    with caplog.at_level(logging.WARNING):
        assert [one.keyless for one in world.maintain().compacted] == [2]
    assert "partition 0: compaction dropped 2 records without a key" in caplog.text
    assert read(world) == [(2, b"a", b"1"), (3, b"end", b"1")]


def test_retention_leaves_a_compacted_topic_alone_unless_it_says_delete(world: World) -> None:
    created(world, retention_bytes=1, retention_ms=1)
    put(world, *ABA)
    world.clock.advance(HOUR_MS)
    world.maintain()
    assert read(world) == KEPT
    with pytest.raises(UsageError, match="deletes by key"):
        world.log().topic("t").delete_records({0: 2})
    world.log().topic("t").alter({"cleanup.policy": "compact, delete"})
    world.maintain()
    assert read(world) == []


def test_max_compaction_lag_rolls_the_active_segment_and_makes_it_due(world: World) -> None:
    config = {"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": HOUR_MS, "segment_bytes": 10**6}
    created(world, **config)
    put(world, b"a=1", b"a=2")
    world.clock.advance(HOUR_MS)
    put(world, b"b=1")
    assert len(sealed(world)) == 0
    world.clock.advance(1)
    put(world, b"b=2")
    assert len(sealed(world)) == 1, "LogConfig.maxSegmentMs"
    world.maintain()
    assert [offset for offset, _, _ in read(world)] == [1, 2, 3], "b=1 was not superseded in a sealed segment"


def test_rounds_go_on_until_all_is_clean(world: World) -> None:
    """A small buffer takes part of the dirty segments at a time; keys of one round and the next meet all the same."""
    created(world, cleaner_dedupe_buffer_size=1024, segment_bytes=16384, batch_size=8192)
    topic = world.handle()
    for n in range(40):
        append(topic, batch_of([b"%d" % n + b"x" * 30] * 100, key=[b"key-%d" % (i % 90) for i in range(100)]))
        settle(topic, identity(world))
    rounds = len(world.maintain().compacted)
    assert rounds > 1
    last = sealed(world)[-1].end_offset
    below = [(offset, key) for offset, key, _ in read(world) if offset < last]
    assert len({key for _, key in below}) == len(below) == 90
    verify(world.handle())


def test_a_timestamp_is_found_among_what_stays(world: World) -> None:
    created(world)
    start = world.clock.now_ms()
    for record in (*ABA, b"end=2"):
        put(world, record)
        world.clock.advance(1000)
    world.maintain()
    found = find_time(world.handle(), identity(world), 0, start)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, start + 1000)


def offsets_of(rows: Rows) -> list[int]:
    """Return the offsets of some rows."""
    dense = range(rows.first_offset, rows.first_offset + rows.count)
    return list(dense) if rows.offsets is None else rows.offsets.tolist()


# --- readers ----------------------------------------------------------------------------------------------


def forget_old(world: World) -> None:
    """Let the delay pass until the files of replaced segments are gone."""
    for _ in range(3):
        world.clock.advance(DELAY_MS)
        world.maintain()


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("gone", [False, True])
def test_a_reader_sees_the_last_value_of_every_key_wherever_it_is_when_segments_are_swapped(
    world: World, after: int, gone: bool
) -> None:
    """R4, R8, I2: it goes on in the old files, or, when they are gone, in the new ones; at the next offset."""
    created(world)
    put(world, *ABA)
    reader = PartitionReader(world.handle(), identity(world), 0).read(0, 5)
    seen = [offset for _ in range(after) for offset in offsets_of(next(reader))]
    world.maintain()
    if gone:
        forget_old(world)
        assert not any(path.endswith(f"/{0:020d}.log") for path in world.files())
    seen += [offset for rows in reader for offset in offsets_of(rows)]
    assert seen == sorted(seen)
    assert {1, 2, 3, 4} <= set(seen)
    assert (0 in seen) == (after > 0 or not gone)


def test_a_reader_between_the_two_journals_finds_the_new_segments(world: World) -> None:
    """R12: the logical entry is older than the settle entry."""
    created(world)
    put(world, *ABA)
    late = world.handle(on_path("/settle", "names", once(lambda: (world.maintain(), forget_old(world)))))
    found = [offset for rows in PartitionReader(late, identity(world), 0).read(0, 5) for offset in offsets_of(rows)]
    assert found == [1, 2, 3, 4]


def test_old_files_stay_for_the_delay_and_then_go(world: World) -> None:
    """R13, I6."""
    created(world)
    put(world, *ABA)
    old = set(world.files(".log"))
    world.maintain()
    world.clock.advance(DELAY_MS - 1)
    world.maintain()
    assert old <= set(world.files(".log"))
    forget_old(world)
    named = {s.stem for s in sealed(world)} | {f"{4:020d}"}
    assert {path.rsplit("/", 1)[1].removesuffix(".log") for path in world.files(".log")} == named
    assert read(world) == KEPT


# --- crashes, and others at work --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "operation"),
    [(".log", "create"), (".index", "write_once"), (".timeindex", "write_once"), ("/manifests/", "write_once")],
)
def test_a_crash_before_the_swap_changes_nothing_and_leaves_nothing(world: World, part: str, operation: str) -> None:
    """R4: nobody reads what no settle entry names; the next round writes it again, and the leftovers go."""
    created(world)
    put(world, *ABA)
    before = read(world)
    with pytest.raises(StorageError, match="injected"):
        compact(world.handle(on_path(part, operation, failing())), identity(world))
    assert read(world) == before
    put(world, b"end=2")  # the next settle entry is not the compaction's
    world.maintain()
    assert read(world) == [*KEPT, (5, b"end", b"2")]
    forget_old(world)
    named = {s.stem for s in sealed(world)} | {f"{5:020d}"}
    assert {path.rsplit("/", 1)[1].rpartition(".")[0] for path in world.files("/0/")} == named
    verify(world.handle())


def test_a_collector_with_an_old_view_leaves_the_new_files_alone(world: World) -> None:
    """R1: their names carry the settle number that they are meant for, and that is above all it has read."""
    created(world)
    put(world, *ABA)
    world.maintain()
    put(world, b"b=2", b"end=2")
    topic_id = identity(world)
    collecting: list[int] = []

    def collector() -> None:
        world.clock.advance(10 * DELAY_MS)
        collecting.append(collect_segments(world.handle(), topic_id))

    made = compact(world.handle(on_path("/manifests/", "write_once", once(collector))), topic_id)
    assert len(made) == 1
    assert collecting == [0]
    assert read(world) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"end", b"1"), (5, b"b", b"2"), (6, b"end", b"2")]
    verify(world.handle())


def test_the_sweep_removes_what_a_killed_compaction_was_writing(world: World) -> None:
    created(world)
    put(world, *ABA)
    topic_id = identity(world)
    left = world.path / world.handle().paths(topic_id).partition(0) / ".tmp-killed"
    left.write_bytes(b"half a segment")
    sweep(world.handle(), topic_id)
    assert left.exists(), "it may be in the making"
    world.clock.advance(10**12)
    sweep(world.handle(), topic_id)
    assert not left.exists()


def test_a_settler_at_work_is_left_alone(world: World) -> None:
    """R3."""
    created(world)
    put(world, *ABA)
    with world.storage().try_lock(world.handle().paths(identity(world)).lock) as held:
        assert held
        assert compact(world.handle(), identity(world)) == []
    assert len(read(world)) == 5


def during(world: World, act: Callable[[], object]) -> list[object]:
    """Compact, with `act` in the middle of the work; return what it answered."""
    told: list[object] = []

    def worker(job: object) -> object:
        told.append(act())
        return work_here(job)  # type: ignore[arg-type]

    compact(world.handle(), identity(world), once_then_here(worker))
    return told


def once_then_here(worker: Callable[..., object]) -> Callable[..., object]:  # type: ignore[explicit-any]
    """Return a worker that is `worker` in the first round."""
    rounds: list[bool] = []

    def work(job: object) -> object:
        rounds.append(True)
        return worker(job) if len(rounds) == 1 else work_here(job)  # type: ignore[arg-type]

    return work


def test_commits_go_on_and_nobody_settles_or_compacts_beside_it(world: World) -> None:
    created(world)
    put(world, *ABA)
    topic_id = identity(world)

    def meanwhile() -> object:
        append(world.handle(), batch_of([b"3"], key=[b"a"]))
        return settle(world.handle(), topic_id).sequence, compact(world.handle(), topic_id)

    assert during(world, meanwhile) == [(None, [])]
    assert read(world) == [*KEPT, (5, b"a", b"3")]
    world.maintain()
    assert read(world) == [*KEPT, (5, b"a", b"3")]
    verify(world.handle())


def test_records_deleted_meanwhile_stay_deleted(world: World) -> None:
    created(world, cleanup_policy="compact,delete")
    put(world, *ABA)
    assert during(world, lambda: world.log().topic("t").delete_records({0: 3})) == [{0: 3}]
    assert read(world) == KEPT[2:]
    world.maintain()
    assert read(world) == KEPT[2:]
    verify(world.handle())


def test_a_topic_deleted_meanwhile_is_not_touched(world: World) -> None:
    """R14: what the compaction writes goes with the topic's directory."""
    created(world, partitions=2)
    put(world, *ABA)
    with pytest.raises(TopicChangedError):
        during(world, lambda: world.log().topic("t").delete())


def test_a_damaged_frame_stops_it_and_nothing_is_swapped(world: World) -> None:
    """R11: compaction never gives damaged bytes a fresh CRC; other partitions are compacted all the same."""
    topic = created(world, partitions=2)
    put(world, *ABA)
    append(topic, batch_of([b"1", b"2", b"3"], key=[b"k"] * 3, partition=[1] * 3, headers=[[("pad", b"x" * 400)]] * 3))
    for value in (b"4", b"5"):
        append(topic, batch_of([value], key=[b"k"], partition=[1], headers=[[("pad", b"x" * 400)]]))
        settle(topic, identity(world))
    path = world.path / topic.paths(identity(world)).segment_file(0, f"{2:020d}", "log")
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    before = sealed(world)
    with pytest.raises(CorruptionError, match=r"00000000000000000002\.log position 0 .*CRC-32C"):
        compact(world.handle(), identity(world))
    assert sealed(world) == before
    assert len(read_partition(world.handle(), 1)) < 5
    assert world.files(".tmp-") == []


def test_a_frame_has_no_more_rows_than_the_format_allows(world: World) -> None:
    topic = created(world, segment_bytes=10**7, batch_size=10**6)
    for first in (0, 30_000, 60_000):
        keys = [b"%d" % n for n in range(first, first + 30_000)]
        append(topic, batch_of([b""] * 30_000, key=keys))
    append(topic, batch_of([b""], key=[b"0"]))
    world.log().topic("t").alter({"segment.bytes": 1024})
    settle(topic, identity(world))
    world.log().topic("t").alter({"segment.bytes": 10**7, "batch.size": 10**8})
    put(world, b"end=1")
    assert world.maintain().compacted
    topic_id, segments = identity(world), sealed(world)
    spans = [segment_span(topic.paths(topic_id), 0, segment) for segment in segments]
    rows = [located.frame.last_offset_delta + 1 for span in spans for located in walk(world.storage(), span)]
    assert len(rows) > 1
    assert max(rows) <= 65_536
    assert len({key for _, key, _ in read(world)}) == 90_001


def test_a_storage_that_fails_while_it_writes_leaves_no_temporary_file(world: World) -> None:
    created(world)
    put(world, *ABA)
    begun: list[str] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and path.endswith(".log"):
            begun.append(path)
        if begun and operation == "map" and path.endswith(f"{3:020d}.log"):
            raise StorageError("injected")

    with pytest.raises(StorageError, match="injected"):
        compact(world.handle(hook), identity(world))
    assert begun
    assert world.files(".tmp-") == []


def test_what_stays_is_joined_to_larger_frames_that_cover_the_same_offsets(world: World) -> None:
    topic = created(world, segment_bytes=16384, batch_size=4096)
    for n in range(60):
        world.clock.advance(1000)
        append(topic, batch_of([b"x" * 300] * 4, key=[b"%d" % (n % 20), b"%d" % n, b"same", b"same"]))
        settle(topic, identity(world))
    assert world.maintain().compacted
    for segment in sealed(world):
        span = segment_span(topic.paths(identity(world)), 0, segment)
        frames = list(walk(world.storage(), span))
        assert sum(f.frame.length for f in frames) / len(frames) > 2048
        assert max(f.frame.length for f in frames) < 4096 + 1024
        assert frames[0].base_offset >= segment.base_offset
        assert frames[-1].next_offset <= segment.end_offset
        index = world.storage().read(f"{span.path.removesuffix('log')}timeindex")
        assert decode_time(index, -1 + len(index) // 12, segment.base_offset).timestamp == segment.max_timestamp
    verify(world.handle())


# --- what others do, or did -----------------------------------------------------------------------------


def test_a_task_of_a_compaction_whose_driver_died_does_not_write_over_what_was_published(world: World) -> None:
    """R1: the lock dies with the driver, its executors a while later. By then another compaction has published."""
    world.create(1, CONFIG)
    put(world, *ABA)
    jobs: list[CompactionJob] = []

    def dies(job: CompactionJob) -> object:
        jobs.append(job)
        raise CommitLogError("the driver is killed; a task of its goes on for a while")

    with pytest.raises(CommitLogError, match="driver is killed"):
        compact(world.handle(), identity(world), dies)  # type: ignore[arg-type]
    world.log().topic("t").alter({"compression.type": "zstd", "segment.bytes": 10_000})
    assert compact(world.handle(), identity(world))
    kept = [(r.offset, r.key, r.value) for r in read_partition(world.handle(), 0)]
    list(work_here(jobs[0])[0])  # the task ends: it renames its segments into place
    assert [(r.offset, r.key, r.value) for r in read_partition(world.handle(), 0)] == kept
    verify(world.handle())


def test_tombstones_can_be_kept_for_ever(world: World) -> None:
    """Now and the longest delay together are no i64."""
    world.create(1, {**CONFIG, "delete.retention.ms": 2**63 - 1})
    put(world, b"a=1", b"a", b"end=1")
    assert world.maintain().compacted
    assert [(r.offset, r.key) for r in read_partition(world.handle(), 0)] == [(1, b"a"), (2, b"end")]


def test_a_record_without_a_sensible_timestamp_is_not_overdue(world: World) -> None:
    """Kafka counts timestamps above 0 only (`LogCleanerManager.maxCompactionDelay`)."""
    config = {**CONFIG, "min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": HOUR_MS}
    topic = world.create(1, {**config, "message.timestamp.before.max.ms": 2**62})
    for n in range(3):
        pad = [[("pad", b"x" * 700)]]
        append(topic, batch_of([b"%d" % n], key=[b"k"], timestamp=[0], headers=pad))
        settle(topic, identity(world))
    assert world.maintain().compacted == ()


def test_records_without_a_key_are_not_acknowledged_and_then_dropped(world: World) -> None:
    """R9: the policy changes between staging and commit."""
    topic = world.create(1, {**CONFIG, "cleanup.policy": "delete"})
    staged = stage(topic, batch_of([b"1", b"2"], key=[None, b"2"]), batch_of([b"3"], key=[b"3"]))
    world.log().topic("t").alter({"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecordError):
        commit(topic, staged.topic_id, [staged])

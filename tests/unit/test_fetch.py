"""`Topic.read`: the records that a (topic, partition, offset) names, and no more work than they take."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

from pyspark_commitlog import CommitLog, Record
from pyspark_commitlog.errors import OffsetOutOfRangeError, UnknownTopicError, UsageError
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.storage import limits
from pyspark_commitlog.storage.shared import caches
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import find_time
from tests.golden import make_golden
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, Recorder, World

#: A segment of its own for every record.
ONE_EACH = {**CHUNKS, "segment.bytes": 1024, "batch.size": 1024, "compression.type": "none"}
EXPECTED = json.loads(make_golden.EXPECTED.read_text())["golden"]
GOLDEN = {int(number): rows for number, rows in EXPECTED.items()}


def numbered(world: World, count: int = 9) -> list[bytes]:
    """Write so many records, one commit and one segment each; the last three are not settled. Return the values."""
    topic = world.create(1, ONE_EACH)
    values = [b"%d" % number + b"x" * 700 for number in range(count)]
    for number, value in enumerate(values):
        append(topic, batch_of([value]))
        if number == count - 4:
            world.maintain()
    return values


def test_a_record_is_what_was_written_with_its_place(world: World) -> None:
    world.create(2)
    row: dict[str, list[Any]] = {"key": [b"k"], "timestamp": [1_526_384_718_283_007], "partition": [1]}
    append(world.handle(), batch_of([b"v"], headers=[[("a", b"1"), ("a", None)]], **row))
    append(world.handle(), batch_of([None], **{**row, "key": [None]}))
    first, second = world.log().topic("t").read(1, 0, max_records=2)
    assert first == Record("t", 1, 0, 1_526_384_718_283_007, 0, b"k", b"v", (("a", b"1"), ("a", None)))
    assert first.timestamp == 1_526_384_718_283
    assert first.datetime == datetime(2018, 5, 15, 11, 45, 18, 283_007, UTC)
    assert second == Record("t", 1, 1, 1_526_384_718_283_007, 0, None, None, ())


def test_a_record_is_a_frozen_value(world: World) -> None:
    numbered(world, 4)
    (record,) = world.log().topic("t").read(0, 3)
    assert not hasattr(record, "__dict__")
    assert {record: 1}[dataclasses.replace(record)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.offset = 4  # type: ignore[misc]


def test_a_timestamp_of_the_write_task_is_told_as_such(world: World) -> None:
    world.create(config={"message.timestamp.type": "LogAppendTime"})
    append(world.handle(), batch_of([b"v"], timestamp=[5]))
    (record,) = world.log().topic("t").read(0, 0)
    assert (record.timestamp_type, record.timestamp) == (1, world.clock.now_ms())


def test_a_timestamp_that_python_cannot_say_is_still_a_number(world: World) -> None:
    world.create(config={"message.timestamp.after.max.ms": 2**60})
    late = round((datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) + 1
    append(world.handle(), batch_of([b"v"], timestamp=[late]))
    (record,) = world.log().topic("t").read(0, 0)
    assert record.timestamp == late // 1000
    with pytest.raises(OverflowError):
        _ = record.datetime


@pytest.mark.parametrize("most", [1, 2, 5, 9, 100])
def test_records_come_from_the_offset_on_and_no_more_than_asked(world: World, most: int) -> None:
    values = numbered(world)
    for offset in range(9):
        found = world.log().topic("t").read(0, offset, most)
        assert [(r.offset, r.value) for r in found] == list(enumerate(values))[offset : offset + most]
    assert [r.offset for r in world.log().topic("t").read(0, 4)] == [4]


def test_at_the_high_watermark_there_is_nothing_yet(world: World) -> None:
    """As Kafka's fetch answers: empty, not an error."""
    world.create()
    assert world.log().topic("t").read(0, 0) == ()
    append(world.handle(), batch_of([b"v"]))
    assert world.log().topic("t").read(0, 1, 5) == ()


def test_an_offset_outside_the_log_is_refused_with_both_ends(world: World) -> None:
    numbered(world)
    world.log().topic("t").delete_records({0: 3})
    assert world.log().topic("t").read(0, 3)[0].offset == 3
    for offset in (-2, -1, 0, 2, 10, 2**70):
        with pytest.raises(OffsetOutOfRangeError, match=rf"offset {offset} .* start offset is 3 and high watermark 9"):
            world.log().topic("t").read(0, offset)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (("nope", 0, 0), UnknownTopicError, "unknown topic 'nope'"),
        (("t", 1, 0), UsageError, "has partitions 0 to 0, not 1"),
        (("t", -1, 0), UsageError, "has partitions 0 to 0, not -1"),
        (("t", 0, 0, 0), UsageError, "max_records=0 is not allowed"),
        (("t", 0, 0, True), UsageError, "max_records=True is not allowed"),
        (("t", 0, 0, 1.5), UsageError, "max_records=1.5 is not allowed"),
    ],
)
def test_a_wrong_call_is_told(world: World, call: tuple[Any, ...], error: type[Exception], told: str) -> None:
    world.create()
    with pytest.raises(error, match=told):
        world.log().topic(call[0]).read(*call[1:])


@pytest.mark.parametrize("partition", sorted(GOLDEN))
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_where_a_rewrite_left_offsets_out_the_next_record_is_first(partition: int, most: int) -> None:
    """The golden root: sparse frames, gaps between frames and at a segment's end, chunks, inline entries."""
    log, rows = CommitLog(str(make_golden.ROOT)), GOLDEN[partition]
    for offset in range(rows[-1][0] + 2):
        expected = [row for row in rows if row[0] >= offset][:most]
        found = log.topic("golden").read(partition, offset, most)
        assert [[r.offset, r.timestamp_us] for r in found] == [[row[0], row[3]] for row in expected]
        told = [[r.key, r.value, [list(pair) for pair in r.headers]] for r in found]
        assert told == [[text(row[1]), text(row[2]), [[h[0], text(h[1])] for h in row[4] or ()]] for row in expected]


def text(told: str | None) -> bytes | None:
    """Return the bytes that the golden root's list tells as Latin-1."""
    return None if told is None else told.encode("latin-1")


# --- the work ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "most"), [(0, 1), (2, 1), (1, 3), (4, 3), (8, 1), (5, 100)])
def test_no_file_is_opened_that_holds_none_of_the_records(world: World, offset: int, most: int) -> None:
    numbered(world)
    seen = Recorder()
    found = world.log(seen).topic("t").read(0, offset, most)
    opened = {path for path in seen.paths("map") + seen.paths("read") if path.endswith((".log", ".chunk"))}
    assert len(opened) == len(found) == min(most, 9 - offset)


@pytest.mark.parametrize(("offset", "most", "frames"), [(0, 1, 1), (57, 1, 1), (60, 10, 1), (65, 10, 2), (199, 9, 1)])
def test_no_frame_is_decoded_that_holds_none_of_the_records(world: World, offset: int, most: int, frames: int) -> None:
    """One segment of 20 frames of 10 records."""
    topic = world.create(1, {**CHUNKS, "batch.size": 1024, "index.interval.bytes": 3000, "compression.type": "none"})
    for first in range(0, 200, 10):
        append(topic, batch_of([b"%d" % number + b"x" * 60 for number in range(first, first + 10)]))
    world.maintain()
    with mock.patch.object(untyped, "decode", wraps=untyped.decode) as decode:
        found = world.log().topic("t").read(0, offset, most)
    assert [record.offset for record in found] == list(range(offset, min(offset + most, 200)))
    assert decode.call_count == frames


def test_a_handle_reads_a_manifest_once_and_a_new_one_when_there_is_one(world: World) -> None:
    """Its name carries a uuid and it is written once: parsing it again would cost every look-up all its segments."""
    values = numbered(world)
    seen = Recorder()
    topic = world.handle(seen)
    for offset in range(5):
        assert fetch(topic, 0, offset, 1)[0].value == values[offset]
        assert find_time(topic, topic.newest()[1].topic_id, 0, 0) is not None
    assert len([path for path in seen.paths("read") if "/manifests/" in path]) == 1
    world.maintain()
    for offset in range(9):
        assert fetch(topic, 0, offset, 1)[0].value == values[offset]
    assert len([path for path in seen.paths("read") if "/manifests/" in path]) == 2


def test_manifests_are_remembered_within_the_bytes_of_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = 6
    topic = world.create(partitions, ONE_EACH)
    for number in range(2):
        append(topic, batch_of([b"%d" % number * 700] * partitions, partition=range(partitions)))
    world.maintain()
    monkeypatch.setattr(caches.process_cache, "value", caches.process_cache._make())
    topic = world.handle()
    fetch(topic, 0, 0, 1)
    one = caches.process_cache.value.size_bytes
    assert 0 < one < 5000
    monkeypatch.setattr(limits, "_limits", limits.ProcessLimits(cache_bytes=one * 5))
    seen = Recorder()
    topic = world.handle(seen)
    for partition in [*range(partitions), partitions - 1, 0]:
        assert fetch(topic, partition, 0, 1)[0].value == b"0" * 700
    read = [path.rsplit("/", 1)[1].split("-")[0] for path in seen.paths("read") if "/manifests/" in path]
    assert read == [*map(str, range(partitions)), "0"]

"""R8: a plan carries ranges; tasks find the files when they run, and look again when one is gone."""

from __future__ import annotations

import dataclasses
import os

import pytest

from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows, read_range
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, DELAY_MS, World, many, once

_ROLLING = {**CHUNKS, "segment.bytes": 2048, "compression.type": "none", "segment.index.bytes": 4096}


def reader(topic: TopicLog) -> PartitionReader:
    return PartitionReader(topic, topic.newest()[1].topic_id, 0)


def values(rows: list[Rows]) -> list[bytes]:
    return [value for each in rows if each.batch for value in each.batch.column("value").to_pylist()]


def test_a_plan_is_a_range_and_nothing_else() -> None:
    """R8: no file name or length goes into a plan; `planned` names a history, and nothing is looked up by it (R15).

    `anchors` are where a task begins to look for the newest entries, on storage without append; they may be gone.
    """
    names = {f.name for f in dataclasses.fields(OffsetRange)}
    assert names == {"topic", "topic_id", "partition", "start", "end", "planned", "anchors"}


def test_settled_and_deleted_between_plan_and_read(world: World) -> None:
    """R8, I2: planned over a chunk; before the task runs, it is settled, collected and gone."""
    topic = world.create()
    append(topic, batch_of(many(50)))
    plan = OffsetRange("t", topic.newest()[1].topic_id, 0, 10, 40)
    append(topic, batch_of([b"x"]))
    append(topic, batch_of([b"y"]))
    world.collect_all()
    assert len(world.files(".chunk")) < 3
    assert values(list(read_range(world.handle(), plan))) == many(50)[10:40]


def test_settled_and_deleted_while_a_task_reads(world: World) -> None:
    """R8, I3: a task has read one extent; the others go under its hands: it goes on at the next offset."""
    topic = world.create()
    for number in range(5):
        append(topic, batch_of(many(10, b"%d-" % number)))
    rows = reader(topic).read(5, 50)
    found = [next(rows)]
    world.collect_all()
    assert len(world.files(".chunk")) <= 2
    found += list(rows)
    assert values(found) == [v for number in range(5) for v in many(10, b"%d-" % number)][5:]
    offsets = [offset for each in found for offset in range(each.first_offset, each.first_offset + each.count)]
    assert offsets == list(range(5, 50))


def test_a_running_task_outlives_its_manifest(world: World) -> None:
    """R8: segments roll, so the manifest that a task knew is replaced and collected: the newest one is read."""
    topic = world.create(config=_ROLLING)
    for number in range(4):
        append(topic, batch_of(many(30, b"%d-" % number)))
        world.maintain()
    rows = reader(topic).read(0, 120)
    found = [next(rows)]
    known = world.files("/manifests/")
    for number in range(4, 8):
        append(topic, batch_of(many(30, b"%d-" % number)))
        world.maintain()
        world.clock.advance(DELAY_MS)
    world.maintain()
    assert not set(known) & set(world.files("/manifests/"))
    found += list(rows)
    assert values(found) == [v for number in range(4) for v in many(30, b"%d-" % number)]


@pytest.mark.parametrize(
    ("part", "settle"),
    [(".chunk", False), (".log", True), ("/manifests/", True), ("journal/00000000000000000002", False)],
)
def test_a_named_file_that_is_gone_is_an_error(world: World, part: str, settle: bool) -> None:
    """R8, I8: looked twice, and the newest entries still name it: an error with partition and offset, not silence."""
    topic = world.create(config=_ROLLING)
    for number in range(3):
        append(topic, batch_of(many(30, b"%d-" % number)))
        if settle:
            world.maintain()
    for path in world.files(part):
        (world.path / path).unlink()
    with pytest.raises(CorruptionError, match=r"partition 0 offset 0: .*(missing|gone)"):
        world.values()


@pytest.mark.parametrize("start", [0, 3, 9])
@pytest.mark.parametrize("part", [".chunk", ".log"])
def test_a_named_file_that_is_short_or_damaged_is_an_error(world: World, part: str, start: int) -> None:
    """R8, I8: cut, or with a flipped bit, and still named: an error, from whatever offset one starts."""
    topic = world.create()
    append(topic, batch_of(many(10)))
    if part == ".log":
        world.maintain()
    path = world.path / world.files(part)[0]
    data = path.read_bytes()
    for damaged in (data[:-7], data[:200] + bytes([data[200] ^ 1]) + data[201:], b""):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError):
            read_partition(world.handle(), 0, start)
    path.write_bytes(data)
    assert world.values() == many(10)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("start", [0, 5, 9])
def test_a_frame_that_claims_fewer_rows_hides_nothing(world: World, start: int, rolled: bool) -> None:
    """I8, I3: a segment's last frame says lastOffsetDelta 4 for 9; a read from its middle must not end in silence."""
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    append(topic, batch_of([b"%d" % n * 60 for n in range(10)]))
    world.maintain()
    if rolled:
        append(topic, batch_of([b"z" * 900]))
        world.maintain()
    path = world.path / world.files(".log")[0]
    data = bytearray(path.read_bytes())
    data[23:27] = (4).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        read_partition(world.handle(), 0, start, 10)


def test_a_short_file_is_looked_at_again_before_it_is_an_error(world: World) -> None:
    """R8: the bytes under a running task change because it is settled: CRC mismatch first, then the newest entries."""
    topic = world.create()
    append(topic, batch_of(many(10)))
    (chunk,) = world.files(".chunk")

    def settled_and_gone() -> None:
        world.maintain()
        os.truncate(world.path / chunk, 30)

    slow = world.handle(on_path(".chunk", "info", once(settled_and_gone)))
    assert [record.value for record in read_partition(slow, 0)] == many(10)


@pytest.mark.parametrize(("start", "end"), [(0, 11), (11, 12), (-1, 3)])
def test_a_range_beyond_the_high_watermark_is_refused(world: World, start: int, end: int) -> None:
    """R8, I1: tasks check the range against the newest entry."""
    topic = world.create()
    append(topic, batch_of(many(10)))
    with pytest.raises(OffsetOutOfRangeError, match="high watermark 10"):
        list(reader(topic).read(start, end))

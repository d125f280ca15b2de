"""Typed topics of a root that stands alone: what moves their frames changes no row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.topic.damage.dump import dump
from pyspark_commitlog.topic.damage.salvage import segments_of
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.retention import delete_records
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import stage
from tests.support.typed import (
    DECLARED,
    START_MS,
    offsets,
    placed_rows,
    read_rows,
    row,
    rows,
    typed_batch,
    write,
)
from tests.support.verify import verify
from tests.support.world import CHUNKS, RETENTION_MS, World

#: Each of `rows(…, size=2100)` is a frame.
FRAMES: Mapping[str, object] = {**CHUNKS, "batch.size": 1024, "compression.type": "none"}
SIZE = 2100


def kinds(world: World, partition: int = 0) -> list[tuple[str, int]]:
    """Return the kind and offsets of each settled frame."""
    topic, found = world.handle(), list[tuple[str, int]]()
    settled = topic.settled(topic_id(topic))[1]
    for segment, _ in segments_of(topic, settled, partition):
        for located in walk(topic.storage, segment_span(topic.paths(topic_id(topic)), partition, segment)):
            payload = codec.open_payload(located.frame)
            found.append((payload.identity.kind, located.frame.last_offset_delta + 1))
    return found


def test_every_type_comes_back_before_and_after_settling(either: World) -> None:
    topic = either.create(2, **DECLARED)
    write(topic, *rows(0, 7))
    write(topic, *rows(7, 9), partition=1)
    expected = {**{(0, n): row(n) for n in range(7)}, **{(1, n): row(n + 7) for n in range(2)}}
    assert placed_rows(either.handle()) == expected
    for _ in range(2):
        either.collect_all()
        assert placed_rows(either.handle()) == expected
        assert verify(either.handle()) == 9


def test_small_frames_of_one_schema_are_joined(world: World) -> None:
    topic = world.create(**DECLARED)
    for number in range(5):
        write(topic, row(number))
    world.maintain()
    assert kinds(world) == [("arrow-columns", 5)]
    assert read_rows(world.handle()) == rows(0, 5)


def test_frames_of_other_columns_are_not_joined(world: World) -> None:
    """A frame without headers has no such column."""
    topic = world.create(**DECLARED)
    write(topic, row(0))
    headers = pa.array(
        [[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    staged = stage(topic, typed_batch([row(1)]).append_column("_headers", headers))
    commit(topic, staged.topic_id, [staged], None)
    write(topic, row(2))
    world.maintain()
    assert kinds(world) == [("arrow-columns", 1)] * 3
    assert read_rows(world.handle()) == rows(0, 3)


def test_segments_roll_and_merge(world: World) -> None:
    topic = world.create(config={**FRAMES, "segment.bytes": 8192}, **DECLARED)
    write(topic, *rows(0, 9, SIZE), each=True)
    world.maintain()
    assert len(topic.sealed(topic.settled(topic_id(topic))[1], 0)) >= 2
    assert [covered for _, covered in kinds(world)] == [1] * 9
    assert read_rows(world.handle()) == rows(0, 9, SIZE)
    assert verify(world.handle()) == 9


def test_objects_are_merged(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(2, **DECLARED)
    for number in range(20):
        write(topic, row(number, 300), partition=number % 2)
        unlocked.maintain()
    expected = placed_rows(unlocked.handle())
    assert sorted(found["n"] for found in expected.values()) == [row(number)["n"] for number in range(20)]
    assert len(unlocked.settled().tail) < 20, "some were merged"
    unlocked.collect_all()
    unlocked.clock.advance(2 * RETENTION_MS)
    unlocked.maintain()
    assert (placed_rows(unlocked.handle()), unlocked.missing()) == (expected, set())
    assert verify(unlocked.handle()) == 20


def test_retention_goes_by_the_timestamp_column(either: World) -> None:
    """Old rows, just written, go; their age is not that of the file."""
    day = 86_400_000
    topic = either.create(config={**FRAMES, "segment.bytes": 4096, "retention.ms": day}, **DECLARED)
    either.clock.advance(START_MS + 10 * day - either.clock.now_ms())
    now = row(0)["at"].timestamp() + 10 * day / 1000
    old, new = (
        rows(0, 2, 2 * SIZE),
        [row(n, 2 * SIZE, at=row(0)["at"].fromtimestamp(now, row(0)["at"].tzinfo)) for n in (2, 3)],
    )
    write(topic, *old, *new, each=True)
    either.maintain()
    either.maintain()
    assert read_rows(either.handle()) == new
    assert offsets(either.handle()) == [2, 3]


def test_a_time_is_found_in_the_timestamp_column(either: World) -> None:
    topic = either.create(config=FRAMES, **DECLARED)
    write(topic, *rows(0, 6, SIZE), each=True)
    for _ in range(2):
        found = find_time(topic, topic_id(topic), 0, START_MS + 3500)
        assert found is not None
        assert found.offset == 4
        either.maintain()


def test_deleted_records_are_gone_for_readers(either: World) -> None:
    topic = either.create(config=FRAMES, **DECLARED)
    write(topic, *rows(0, 6, SIZE), each=True)
    either.maintain()
    delete_records(topic, topic_id(topic), {0: 4})
    either.collect_all()
    assert read_rows(either.handle()) == rows(4, 6, SIZE)
    with pytest.raises(OffsetOutOfRangeError):
        list(PartitionReader(topic, topic_id(topic), 0).read(0, 6))
    assert verify(either.handle())


def test_partitions_are_added(either: World) -> None:
    topic = either.create(1, **DECLARED)
    write(topic, *rows(0, 3))
    either.log().topic("t").add_partitions(3)
    topic = either.handle()
    write(topic, *rows(3, 40), partition=None)
    either.collect_all()
    found = placed_rows(either.handle())
    assert sorted(each["n"] for each in found.values()) == [each["n"] for each in rows(0, 40)]
    homes = {each["user"]: partition for (partition, _), each in found.items() if each["n"] >= row(3)["n"]}
    assert all(homes[each["user"]] == p for (p, _), each in found.items() if each["n"] >= row(3)["n"]), "keys stay"


def test_a_recreated_topic_has_its_own_schema(either: World) -> None:
    topic = either.create(**DECLARED)
    write(topic, *rows(0, 3))
    before = topic.newest()[1]
    either.log().topic("t").delete()
    other = pa.schema([("n", pa.string()), ("more", pa.int32())])
    topic = either.create(schema=other)
    state = topic.newest()[1]
    assert state.schema is not None
    assert before.schema is not None
    assert not {column.id for column in state.schema.columns} & {column.id for column in before.schema.columns}
    staged = stage(topic, typed_batch([{"n": "text", "more": 7}], schema=other))
    commit(topic, staged.topic_id, [staged], None)
    either.collect_all()
    assert read_rows(either.handle()) == [{"n": "text", "more": 7}]
    with pytest.raises(TopicChangedError):
        topic.newest(before.topic_id)


def test_a_deleted_typed_topic_may_be_untyped_again(either: World) -> None:
    topic = either.create(**DECLARED)
    write(topic, row(0))
    either.log().topic("t").delete()
    assert either.create().newest()[1].schema is None


@pytest.mark.parametrize("inline", [0, 2**20])
def test_what_many_tasks_staged_is_one_commit(either: World, inline: int) -> None:
    """Small frames of many tasks are staged again, in one chunk."""
    topic = either.create(config={**CHUNKS, "inline.max.bytes": inline}, **DECLARED)
    staged = [stage(topic, typed_batch([row(number, 40_000)]), task=number) for number in range(30)]
    commit(topic, staged[0].topic_id, staged, None)
    assert read_rows(either.handle()) == rows(0, 30, 40_000)
    either.collect_all()
    assert read_rows(either.handle()) == rows(0, 30, 40_000)
    assert verify(either.handle()) == 30


def test_what_nobody_committed_is_swept(either: World) -> None:
    topic = either.create(**DECLARED)
    stage(topic, typed_batch(rows(0, 3)))
    write(topic, row(5))
    for _ in range(3):
        either.clock.advance(2 * RETENTION_MS)
        either.maintain()
    assert either.files(".chunk") == []
    assert read_rows(either.handle()) == [row(5)]


def test_a_reader_asks_for_some_columns(either: World) -> None:
    topic = either.create(**DECLARED)
    write(topic, *rows(0, 3))
    either.maintain()
    schema = topic.newest()[1].schema
    assert schema is not None
    wanted = schema.column("n")
    assert wanted is not None
    (part,) = PartitionReader(topic, topic_id(topic), 0, (wanted.stored_name,)).read(0, 3)
    assert part.batch is not None
    assert part.batch.to_pylist() == [{wanted.stored_name: each["n"]} for each in rows(0, 3)]


def frame_starts(path: Path) -> list[int]:
    """Return where a file's frames start."""
    data, starts, at = path.read_bytes(), list[int](), 0
    while at < len(data) and data[at + 8 : at + 12] != bytes(4):
        starts.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return starts


def flip(path: Path, frame: int) -> None:
    """Flip a bit inside a frame."""
    data, start = bytearray(path.read_bytes()), frame_starts(path)[frame]
    data[start + 700] ^= 1
    path.write_bytes(bytes(data))


def file_of(world: World, part: str) -> Path:
    (name,) = world.files(part)
    return world.path / name


def damage(world: World, settled: bool) -> TopicLog:
    """Write six rows, a frame each, and damage the third."""
    topic = world.create(config=FRAMES, **DECLARED)
    write(topic, *rows(0, 6, SIZE), each=True)
    if settled:
        world.collect_all()
        flip(file_of(world, ".segment" if isinstance(world, ObjectWorld) else ".log"), 2)
    else:
        flip(file_of(world, ".chunk"), 2)
    return world.handle()


@pytest.mark.parametrize("settled", [True, False])
def test_a_lost_row_is_given_up_and_nothing_else(either: World, settled: bool) -> None:
    damage(either, settled)
    assert either.log().topic("t").verify().faults
    either.log().topic("t").void()
    left = [each for number, each in enumerate(rows(0, 6, SIZE)) if number != 2]
    assert read_rows(either.handle()) == left
    either.collect_all()
    assert (read_rows(either.handle()), offsets(either.handle())) == (left, [0, 1, 3, 4, 5])
    assert either.log().topic("t").verify().faults == ()
    write(either.handle(), row(6))
    either.maintain()
    assert read_rows(either.handle()) == [*left, row(6)]


def test_a_roots_default_compacts_no_typed_topic(either: World) -> None:
    """Nor does it have every record have a key: the policy is not there for them."""
    topic = either.create(config={**FRAMES, "segment.bytes": 4096, "min.cleanable.dirty.ratio": 0}, **DECLARED)
    other = either.create(name="keyless", schema=pa.schema([("n", pa.int64())]))
    either.log().config.alter({"log.cleanup.policy": "compact"})
    expected = [{**each, "user": "one"} for each in rows(0, 6, SIZE)]
    write(topic, *expected, each=True)
    for _ in range(2):
        done = either.maintain()
        assert done.compacted == ()
        assert list(done.not_compacted.values()) == ([] if isinstance(either, ObjectWorld) else [1])
        either.clock.advance(10 * RETENTION_MS)
    assert read_rows(either.handle()) == expected
    staged = stage(other, typed_batch([{"n": 1}], schema=pa.schema([("n", pa.int64())])))
    commit(other, staged.topic_id, [staged], None)
    assert read_rows(either.handle(name="keyless")) == [{"n": 1}]


def test_dump_tells_the_columns_of_a_frame(world: World) -> None:
    topic = world.create(**DECLARED)
    write(topic, *rows(0, 3))
    world.maintain()
    (found,) = dump(world.storage(), world.files(".log")[0])
    schema = topic.newest()[1].schema
    assert schema is not None
    told = {column.name: found["columns"][column.stored_name] for column in schema.columns}
    assert found["kind"] == "arrow-columns"
    assert told["tags"] == "list<element: string>"
    assert told["n"].startswith("int64")
    assert told["day"] in ("date32[day]", "date32[day], delta", "date32[day], reference")


def test_dump_tells_that_the_columns_of_a_frame_contradict_themselves(world: World) -> None:
    """The CRC of a frame that was written so is right."""
    encoded = codec.encode(
        pa.py_buffer(b"no schema"), rows=1, times=codec.Times(0, 0),
        identity=codec.Identity("0" * 32, 0, "none", codec.COLUMNS, columns="{}"), base_offset=0,
    )  # fmt: skip
    world.create(**DECLARED)
    (world.path / "x.log").write_bytes(encoded)
    (found,) = dump(world.storage(), "x.log")
    assert "fault" in found

"""R11: merging never blesses: every source frame is checked before it is re-encoded or its source may go."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.frame import MAX_ROWS, SPARSE, Identity, Times
from pyspark_commitlog.topic.maintain.settle import FrameJoiner, settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.read.unsettled import Unsettled
from pyspark_commitlog.topic.segments.frames import Located, Span, check, walk
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.entries import rewrite
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.world import CHUNKS, World


def settled(topic: TopicLog) -> list[int]:
    state = topic.newest()[1]
    return [topic.settled(state.topic_id)[1].partition(p).end_offset for p in range(state.partitions)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("position", [3, 20, 26, 90, -30])
def test_a_corrupt_source_publishes_nothing_of_its_partition(world: World, position: int) -> None:
    """R11, I8: one bit anywhere in a frame of partition 1: partitions 0 and 2 settle, 1 stays, its chunk stays too."""
    topic = world.create(3)
    committed = append(topic, batch_of([b"a", b"b", b"c"], partition=range(3)))
    append(topic, batch_of([b"d", b"e", b"f"], partition=range(3)))
    entry = topic.journal.read(committed.sequence or 0).entry
    extent = next(e for e in topic.extents(entry) if e.partition == 1)
    chunk = world.path / topic.paths(entry.topic_id).chunk(topic.chunks(entry)[0].name)
    flip(chunk, (extent.position if position >= 0 else extent.position + extent.length) + position)
    with pytest.raises(CorruptionError, match="partition 1"):
        settle(topic, entry.topic_id)
    assert settled(topic) == [2, 0, 2]
    for _ in range(2):
        world.clock.advance(10**9)
        with pytest.raises(CorruptionError):
            world.maintain()
    assert chunk.exists()
    assert [r.value for r in read_partition(topic, 0)] == [b"a", b"d"]
    with pytest.raises(CorruptionError):
        read_partition(topic, 1)


def test_inline_frames_are_checked_too(world: World) -> None:
    """R11, I8: frames in the entry itself."""
    topic = world.create(config={})
    committed = append(topic, batch_of([b"a"]))
    path = world.path / f"topics/t/journal/{committed.sequence:020d}.json"
    flip(path, len(path.read_bytes()) - 20)
    with pytest.raises(CorruptionError):
        settle(topic, topic.newest()[1].topic_id)
    assert settled(topic) == [0]


def test_a_frame_of_another_partition_or_topic_is_not_taken(world: World) -> None:
    """R11, I8: valid frames, but somebody else's: a swapped chunk of the same size."""
    topic = world.create(2, {**CHUNKS, "compression.type": "none"})
    for partition in (0, 1):
        append(topic, batch_of([b"same size"], partition=[partition]))
    first, second = (world.path / path for path in world.files(".chunk"))
    first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
    assert len(first_bytes) == len(second_bytes)
    first.write_bytes(second_bytes)
    second.write_bytes(first_bytes)
    with pytest.raises(CorruptionError, match="the file was swapped"):
        settle(topic, topic.newest()[1].topic_id)
    assert settled(topic) == [0, 0]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_chunk_in_the_place_of_another_of_the_same_topic_is_not_taken(world: World, keep: int) -> None:
    """R11, I2: the same partition, rows and lengths; and a copy of one in the place of the other."""
    topic = world.create(1, {**CHUNKS, "compression.type": "none"})
    for value in (b"one", b"two"):
        append(topic, batch_of([value]))
    chunks = [world.path / path for path in sorted(world.files(".chunk"))]
    chunks[keep].write_bytes(chunks[1 - keep].read_bytes())
    with pytest.raises(CorruptionError, match="the file was swapped"):
        read_partition(topic, 0)
    with pytest.raises(CorruptionError, match="the file was swapped"):
        settle(topic, topic.newest()[1].topic_id)
    assert settled(topic) == [0]


def test_an_extent_with_other_rows_than_its_frames_is_not_taken(world: World) -> None:
    """R11, I3: the entry claims five rows where the frames hold three: the offsets behind it would be wrong."""
    topic = world.create()
    committed = append(topic, batch_of([b"a", b"b", b"c"]))

    def claim(fields: dict[str, object]) -> None:
        extent = fields["extents"][0]  # type: ignore[index]
        extent[4] = 5
        fields["state"]["logEnd"] = [5]  # type: ignore[index]

    rewrite(world.path / f"topics/t/journal/{committed.sequence:020d}.json", claim)
    topic = world.handle()
    with pytest.raises(CorruptionError, match="has rows to offset 3, its entry says 5"):
        settle(topic, topic.newest()[1].topic_id)
    assert settled(topic) == [0]


def test_small_neighbours_are_merged_and_read_the_same(world: World) -> None:
    """R11: twenty tiny commits become one frame; keys, headers, nulls and times are the same."""
    topic = world.create()
    for n in range(20):
        key = None if n % 3 else b"k%d" % n
        append(topic, batch_of([None if n == 7 else b"v%d" % n], key=[key], timestamp=[n * 1001],
                               headers=[[("h", b"%d" % n)] if n % 2 else None]))  # fmt: skip
    before = read_partition(topic, 0)
    settle(topic, topic.newest()[1].topic_id)
    assert read_partition(world.handle(), 0) == before
    (log,) = world.files(".log")
    frame = codec.parse(pa.py_buffer((world.path / log).read_bytes()), 0)
    assert frame is not None
    assert frame.last_offset_delta == 19


def test_frames_of_another_codec_do_not_merge(world: World) -> None:
    """R11: only frames of one codec join; compression.type changed in between."""
    topic = world.create(config={**CHUNKS, "compression.type": "none"})
    for codec_name in ("none", "none", "zstd", "zstd", "none"):
        world.log().topic("t").alter({"compression.type": codec_name})
        append(topic, batch_of([codec_name.encode()]))
    settle(topic, topic.newest()[1].topic_id)
    (log,) = world.files(".log")
    buffer, position, deltas = pa.py_buffer((world.path / log).read_bytes()), 0, []
    while (found := codec.parse(buffer, position)) is not None:
        deltas.append(found.last_offset_delta)
        position += found.length
    assert deltas == [1, 1, 0]
    assert world.values() == [b"none", b"none", b"zstd", b"zstd", b"none"]


def test_frames_of_two_clocks_do_not_merge(world: World) -> None:
    """R11: a frame has one timestamp type; message.timestamp.type changed in between."""
    topic = world.create()
    for kind in ("CreateTime", "CreateTime", "LogAppendTime", "LogAppendTime", "CreateTime"):
        world.log().topic("t").alter({"message.timestamp.type": kind})
        append(world.handle(), batch_of([kind.encode()]))
    settle(topic, topic.newest()[1].topic_id)
    rows = PartitionReader(topic, topic.newest()[1].topic_id, 0).read(0, 5)
    assert [(each.count, each.log_append_time) for each in rows] == [(2, False), (2, True), (1, False)]


@pytest.mark.parametrize(("topic_id", "partition"), [("other", 0), ("id", 1)])
def test_a_frame_of_a_segment_of_another_topic_or_partition_is_not_taken(topic_id: str, partition: int) -> None:
    """R11, I8: a segment names no chunk: there the record's own headers are all that tells."""
    rows = pa.RecordBatch.from_pydict(
        {"key": [None], "value": [b"a"], "headers": [None], "timestamp": [0]}, schema=untyped.SCHEMA
    )
    identity = Identity(topic_id, partition, "none")
    data = codec.encode(untyped.encode(rows, "none"), rows=1, times=Times(0, 0), identity=identity)
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    with pytest.raises(CorruptionError, match=f"frame belongs to topic id {topic_id} partition {partition}, expected"):
        check(Located(frame, 0, 0), Span("x.log", 0, frame.length, 0, 0, "id", 0))


def test_a_frame_that_does_not_follow_the_one_before_is_not_taken(world: World) -> None:
    """R11, I3: each is sound by itself, and what lies between them is not there."""
    identity, times = Identity("id", 0, "none"), Times(0, 0)
    rows = pa.RecordBatch.from_pydict(
        {"key": [None], "value": [b"a"], "headers": [None], "timestamp": [0]}, schema=untyped.SCHEMA
    )
    message = untyped.encode(rows, "none")
    frames = [codec.encode(message, rows=1, times=times, identity=identity, base_offset=at) for at in (0, 5)]
    data = b"".join(frames)
    span = Span("x.log", 0, len(data), 0, 0, "id", 0, data=pa.py_buffer(data))
    found = walk(world.storage(), span)
    assert next(found).next_offset == 1
    with pytest.raises(CorruptionError, match="frame has offset 5, expected 1"):
        next(found)


def test_a_thinned_frame_in_the_place_of_another_is_not_taken() -> None:
    """R11, I2: its header may be stamped anew, as CRC-32C leaves the offset out; the offset in its record tells."""
    rows = pa.RecordBatch.from_pydict(
        {"key": [b"k"], "value": [b"a"], "headers": [None], "timestamp": [0], "offsetDelta": [0]},
        schema=untyped.SPARSE_SCHEMA,
    )
    identity = Identity("id", 0, "none", SPARSE, base_offset=10)
    span = Span("x.log", 0, 10**6, 16, 0, "id", 0)
    for base_offset, told in ((10, None), (16, "frame has offset 16, its record says 10")):
        data = codec.encode(
            untyped.encode(rows, "none"), rows=6, times=Times(0, 0), identity=identity, base_offset=base_offset
        )
        frame = codec.parse(pa.py_buffer(data), 0)
        assert frame is not None
        with nullcontext() if told is None else pytest.raises(CorruptionError, match=told):
            check(Located(frame, 0, base_offset), span)


def test_thinned_frames_never_merge(world: World) -> None:
    """R11: a frame with offsetDelta has gaps: joined as if dense, its records would get other offsets."""
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [None, None],
            "value": [b"a", b"b"],
            "headers": [None, None],
            "timestamp": [0, 0],
            "offsetDelta": [0, 5],
        },
        schema=untyped.SPARSE_SCHEMA,
    )
    identity = Identity("id", 0, "none", SPARSE, base_offset=10)
    data = codec.encode(untyped.encode(rows, "none"), rows=6, times=Times(0, 0), identity=identity, base_offset=10)
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    merger = FrameJoiner(2**20, "none", "id", 0)
    ready = [s for base in (10, 16) for s in merger.offer(Unsettled(frame, codec.open_payload(frame), base, 99, 0))]
    assert len(ready) == 2
    assert list(merger.drain()) == []


def test_a_frame_with_a_delete_horizon_does_not_merge() -> None:
    """R11: tombstones go at the horizon of their frame: joined, they would lose it, or have another."""
    row = pa.RecordBatch.from_pydict(
        {"key": [b"k"], "value": [None], "headers": [None], "timestamp": [0]}, schema=untyped.SCHEMA
    )
    message, identity = untyped.encode(row, "none"), Identity("id", 0, "none")
    horizons, merger = (None, None, 7, 7, 8, None, None), FrameJoiner(2**20, "none", "id", 0)
    ready = []
    for base, horizon in enumerate(horizons):
        times = Times(0, 0, False, horizon)
        frame = codec.parse(pa.py_buffer(codec.encode(message, rows=1, times=times, identity=identity)), 0)
        assert frame is not None
        ready += merger.offer(Unsettled(frame, codec.open_payload(frame), base, 99, 0))
    ready += merger.drain()
    assert [stamped.last_offset for stamped in ready] == [1, 2, 3, 4, 6]
    frames = [codec.parse(pa.py_buffer(b"".join(stamped.pieces)), 0) for stamped in ready]
    assert [frame and frame.delete_horizon_ms for frame in frames] == [None, 7, 7, 8, None]


def test_a_joined_frame_has_no_more_rows_than_the_format_allows() -> None:
    """R11: records without a value take next to nothing: their number is what bounds a frame."""
    rows = MAX_ROWS // 2 + 1
    empty = pa.RecordBatch.from_pydict(
        {"key": [None] * rows, "value": [None] * rows, "headers": [None] * rows, "timestamp": [0] * rows},
        schema=untyped.SCHEMA,
    )
    identity = Identity("id", 0, "zstd")
    data = codec.encode(untyped.encode(empty, "zstd"), rows=rows, times=Times(0, 0), identity=identity)
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    merger = FrameJoiner(2**28, "zstd", "id", 0)
    ready = [s for base in (0, rows) for s in merger.offer(Unsettled(frame, codec.open_payload(frame), base, 99, 0))]
    one = untyped.encode(empty.slice(0, 1), "zstd")
    last = codec.parse(pa.py_buffer(codec.encode(one, rows=1, times=Times(0, 0), identity=identity)), 0)
    assert last is not None
    ready += merger.offer(Unsettled(last, codec.open_payload(last), 2 * rows, 99, 0))
    ready += merger.drain()
    assert [stamped.last_offset for stamped in ready] == [rows - 1, 2 * rows]


def test_what_a_frame_says_of_itself_is_checked_once_where_frames_merge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: it costs as much as decoding a few records."""
    topic = world.create()
    for n in range(10):
        append(topic, batch_of([b"%d" % n]))
    calls, checked = [], untyped.arrow_metadata.checked_bytes
    monkeypatch.setattr(untyped.arrow_metadata, "checked_bytes", lambda *args: calls.append(args) or checked(*args))
    settle(topic, topic.newest()[1].topic_id)
    assert len(calls) == 10
    assert [record.value for record in read_partition(topic, 0)] == [b"%d" % n for n in range(10)]


def test_a_source_is_checked_even_where_nothing_merges(world: World) -> None:
    """R11, I8: a large frame is only stamped, not decoded: its CRC is looked at all the same."""
    topic = world.create(config={**CHUNKS, "batch.size": 1024, "compression.type": "none"})
    staged = stage(topic, batch_of([b"large" * 500]))
    commit(topic, staged.topic_id, [staged])
    flip(world.path / world.files(".chunk")[0], 900)
    with pytest.raises(CorruptionError, match="CRC-32C"):
        settle(topic, staged.topic_id)
    assert settled(topic) == [0]

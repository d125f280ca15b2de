"""Frames are bounded by what they decode to: staged, joined, made sparse, decoded. Memory is measured in a process each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.columns.untyped import SCHEMA, TIMESTAMP
from pyspark_commitlog.format.frame import SPARSE, Frame
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.segments.encoding import encode_frame
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.staging import Staged, StagedExtent
from tests.support.forged import GIB, bomb
from tests.support.peak import peak_of
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, World

MIB = 2**20
LARGE = {"compression.type": "zstd", "max.message.bytes": 16 * MIB, "retention.ms": -1, "file.delete.delay.ms": 60_000}
COMMITS = 270
#: What it takes beside the imports' 85 MiB to settle records that compress well; to read frames; to refuse one.
SETTLE_MIB = 32
READ_MIB = 90
REFUSE_MIB = 16


def frames_of(world: World, topic: TopicLog, partition: int = 0) -> list[Frame]:
    """Return the frames of a partition's segments as the newest settle entry names them."""
    topic_id = topic.newest()[1].topic_id
    row = topic.settled(topic_id)[1].partition(partition)
    found: list[Frame] = []
    for segment in (*topic.sealed(topic.settled(topic_id)[1], partition), row.active):
        data = (world.path / topic.paths(topic_id).segment_file(partition, segment.stem, "log")).read_bytes()
        buffer, position = pa.py_buffer(data[: segment.length]), 0
        while (frame := codec.parse(buffer, position)) is not None:
            found.append(frame)
            position += frame.length
    return found


def decoded_sizes(frames: list[Frame]) -> list[tuple[int, int]]:
    """Return of every frame the rows, and the bytes that it decodes to."""
    found = []
    for frame in frames:
        payload = codec.open_payload(frame)
        sparse = payload.identity.kind == SPARSE
        rows = untyped.decode(payload.message, sparse=sparse, names=["timestamp"]).num_rows
        found.append((rows, untyped.decoded_bytes(payload.message, sparse=sparse)))
    return found


def is_bounded(frames: list[Frame], batch_size: int = MIB) -> bool:
    """Return whether no frame of several rows decodes to more than twice `batch.size`, and a few offsets."""
    return all(rows <= 1 or size <= 2 * batch_size + 2048 for rows, size in decoded_sizes(frames))


def put_frame(topic: TopicLog, data: bytes, rows: int) -> Committed:
    """Commit one frame of partition 0 as it is, made by nobody who stages today."""
    topic_id = topic.newest()[1].topic_id
    return commit(topic, topic_id, [Staged(topic.name, topic_id, (StagedExtent(0, 0, len(data), rows),), None, data)])


def oversized(topic: TopicLog, values: list[bytes | None], keys: list[bytes] | None = None) -> Committed:
    """Commit one frame with all of these records."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * len(values), pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(len(values), untyped.HEADERS),
            pa.array(range(1, len(values) + 1), pa.int64()).view(TIMESTAMP),
        ],
        schema=SCHEMA,
    )
    topic_id = topic.newest()[1].topic_id
    data = encode_frame(batch, codec="zstd", topic_id=topic_id, partition=0, log_append_time=False, base_offset=0)
    return put_frame(topic, data.joined(), len(values))


# --- joined -----------------------------------------------------------------------------------------------


def fill(root: str, commits: str) -> int:
    """Commit records of 8 MiB of zeros, one each, each with a byte of its own."""
    topic = World(Path(root)).create(1, LARGE)
    for n in range(int(commits)):
        append(topic, batch_of([bytes(8 * MIB - 1) + bytes((n % 256,))], timestamp=[n]))
    return int(commits)


def settle_all(root: str) -> int:
    """Settle; return how far."""
    World(Path(root)).maintain()
    topic = World(Path(root)).handle()
    return topic.settled(topic.newest()[1].topic_id)[1].partition(0).end_offset


def read_all(root: str) -> list[int]:
    """Read all, frame by frame; return the byte that each record ends with, where all others are zero."""
    topic = World(Path(root)).handle()
    state = topic.newest()[1]
    told = []
    for rows in PartitionReader(topic, state.topic_id, 0).read(0, state.log_end[0]):
        assert rows.batch is not None
        for value in rows.batch.column("value"):
            found = np.frombuffer(value.as_buffer(), np.uint8)
            assert len(found) == 8 * MIB
            assert not found[:-1].any()
            told.append(int(found[-1]))
    return told


def test_commits_of_large_records_that_compress_well_settle(tmp_path: Path) -> None:
    """Joined by their compressed size, 270 records of 8 MiB of zeros were one frame of 2.1 GiB: an overflow."""
    peak_of(__name__, "fill", tmp_path, COMMITS)
    grown, settled = peak_of(__name__, "settle_all", tmp_path)
    assert settled == COMMITS
    assert grown < SETTLE_MIB
    grown, told = peak_of(__name__, "read_all", tmp_path)
    assert told == [n % 256 for n in range(COMMITS)]
    assert grown < READ_MIB
    world = World(tmp_path)
    assert is_bounded(frames_of(world, world.handle()))


def test_small_neighbours_are_joined_by_what_they_decode_to(world: World) -> None:
    """Records of 300 KB that compress to nothing: six of them, not the 500 that fit before, are a frame."""
    topic = world.create(1, {**CHUNKS, "compression.type": "zstd"})
    for n in range(30):
        append(topic, batch_of([bytes(300_000) + b"%d" % n]))
    before = read_partition(topic, 0)
    settle(topic, topic.newest()[1].topic_id)
    frames = frames_of(world, topic)
    assert is_bounded(frames)
    assert [rows for rows, _ in decoded_sizes(frames)] == [6] * 5
    assert read_partition(world.handle(), 0) == before


# --- staged -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 40, 90])
def test_staged_frames_are_bounded_where_large_records_lie_together(world: World, at: int) -> None:
    """Cut into pieces of as many rows, one of them would have held all the large ones."""
    topic = world.create(1, {**CHUNKS, "batch.size": 10_000, "compression.type": "zstd"})
    values = [b"small"] * 100
    values[at : at + 10] = [bytes(9_000 + n) for n in range(10)]
    headers = [[("h", bytes(50))] if n % 2 else None for n in range(100)]
    append(topic, batch_of(values, headers=headers))
    frames = []
    for path in world.files(".chunk"):
        buffer, position = pa.py_buffer((world.path / path).read_bytes()), 0
        while (frame := codec.parse(buffer, position)) is not None:
            frames.append(frame)
            position += frame.length
    assert sum(rows for rows, _ in decoded_sizes(frames)) == 100
    assert is_bounded(frames, 10_000)
    assert [record.value for record in read_partition(topic, 0)] == values


# --- frames that exist ------------------------------------------------------------------------------------


def test_an_oversized_frame_stays_readable(world: World) -> None:
    """300 MiB in one frame: before and behind settling, and a frame at a time."""
    topic = world.create(1, LARGE)
    values: list[bytes | None] = [bytes(MIB) + b"%d" % n for n in range(300)]
    oversized(topic, values)
    for _ in range(2):
        assert [record.value for record in read_partition(world.handle(), 0)] == values
        settle(topic, topic.newest()[1].topic_id)
    ((rows, size),) = decoded_sizes(frames_of(world, topic))
    assert rows == 300
    assert size > 300 * MIB
    assert world.log().topic("t").verify().faults == ()


COMPACT = {**LARGE, "cleanup.policy": "compact", "segment.bytes": 1024 * 4, "min.cleanable.dirty.ratio": 0}


def fill_oversized(root: str, frames: str) -> int:
    """Commit frames of 100 records of 1 MiB each, every other of which the next frame supersedes, and seal them."""
    topic = World(Path(root)).create(1, COMPACT)
    for n in range(int(frames)):
        keys = [b"always %d" % k if k % 2 else b"once %d %d" % (k, n) for k in range(100)]
        oversized(topic, [bytes(MIB - 1) + bytes((k,)) for k in range(100)], keys)
        settle(topic, topic.newest()[1].topic_id)
    append(topic, batch_of([b"end" * 2000], key=[b"end"]))
    return int(frames)


def test_an_oversized_frame_that_is_thinned_becomes_several(tmp_path: Path) -> None:
    """Half of 100 MiB are left of each; compaction takes the memory of one such frame and what it keeps of it."""
    peak_of(__name__, "fill_oversized", tmp_path, 4)
    world = World(tmp_path)
    before = {record.key: record for record in read_partition(world.handle(), 0)}
    grown, _ = peak_of(__name__, "settle_all", tmp_path)
    topic = World(tmp_path).handle()
    after = read_partition(topic, 0)
    assert {record.key: record for record in after} == before
    assert len(after) == len(before)
    sparse = [frame for frame in frames_of(world, topic) if codec.open_payload(frame).identity.kind == SPARSE]
    assert len(sparse) >= 3 * 25
    assert is_bounded(sparse)
    assert grown < 100 + 50 + SETTLE_MIB


# --- claims -----------------------------------------------------------------------------------------------


def refuse_bomb(root: str) -> None:
    """Have whoever meets the frame refuse it: reading, settling, verifying; then give it up."""
    world = World(Path(root))
    with pytest.raises(CorruptionError, match=r"decodes to 8589\d+ bytes, a frame to 2147483647 at most"):
        read_partition(world.handle(), 0)
    with pytest.raises(CorruptionError, match="decodes to 8589"):
        world.maintain()
    assert any("decodes to 8589" in fault for fault in world.log().topic("t").verify().faults)
    (given_up,) = world.log().topic("t").void()
    assert (given_up.start, given_up.end) == (0, 10)


def test_a_small_frame_that_decodes_to_8_gib_costs_nothing(tmp_path: Path) -> None:
    """It is whole, by its CRC, and says the truth; so it is told as damage, which `void` gives up."""
    topic = World(tmp_path).create(1, LARGE)
    topic_id = topic.newest()[1].topic_id
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(10, pa.binary()), pa.array([b"v"] * 10, pa.binary()), pa.nulls(10, untyped.HEADERS),
         pa.array([1] * 10, pa.int64()).view(TIMESTAMP)],
        schema=SCHEMA,
    )  # fmt: skip
    identity = codec.Identity(topic_id, 0, "zstd")
    message = pa.py_buffer(bomb(rows, 5, 8 * GIB))
    data = codec.encode(message, rows=10, times=codec.Times(0, 0), identity=identity)
    assert len(data) < 300 * 1024
    put_frame(topic, data, 10)
    append(topic, batch_of([b"behind"]))
    grown, _ = peak_of(__name__, "refuse_bomb", tmp_path)
    assert grown < REFUSE_MIB
    world = World(tmp_path)
    world.maintain()
    assert world.values() == [b"behind"]

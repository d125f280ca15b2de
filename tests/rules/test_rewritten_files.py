"""A segment that was written anew, and in its place the file of before: its frames are sound, and superseded (I8).

Both lie there for as long as the delay, with frames of the same identities at the same offsets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.state.settle_state import Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, each_record
from tests.support.world import CHUNKS, World

CONFIG = {
    **CHUNKS,
    "cleanup.policy": "compact",
    "batch.size": 1024,
    "compression.type": "none",
    "min.cleanable.dirty.ratio": 0,
}
#: Bytes of a segment that holds one record, and of one that holds four: without some, one becomes larger (it is told
#: which offset is left), the other smaller.
ONE, FOUR = 2048, 7000


def topic_id(topic: TopicLog) -> str:
    return topic.newest()[1].topic_id


def put(topic: TopicLog, keys: bytes) -> None:
    """Append a frame for each key, and settle."""
    for key in keys:
        append(topic, batch_of([b"%d" % key], key=[bytes([key])], headers=[[("pad", b"x" * 900)]]))
    settle(topic, topic_id(topic))


def compacted(world: World, segment_bytes: int) -> tuple[TopicLog, Sealed, Path]:
    """Return a topic whose first segment was written anew, as it is published, and the path of its old file."""
    topic = world.create(1, {**CONFIG, "segment.bytes": segment_bytes})
    put(topic, b"abca" + b"zz")
    (old,) = world.files(f"/{0:020d}.log")
    assert compact(topic, topic_id(topic))
    segment = topic.sealed(topic.settled(topic_id(topic))[1], 0)[0]
    assert segment.base_offset == 0 < segment.rewrite
    return topic, segment, world.path / old


def fresh(old: Path, segment: Sealed) -> Path:
    """Return the file that took the place of the old one."""
    return old.with_name(f"{segment.stem}.log")


def read(world: World) -> tuple[list[int], str]:
    """Return the offsets that are read, and the error that ends it."""
    found: list[int] = []
    try:
        found.extend(record.offset for record in each_record(world.handle(), 0))
    except CommitLogError as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("segment_bytes", [ONE, FOUR], ids=["shorter", "longer"])
def test_the_file_of_before_is_no_source_of_records(world: World, segment_bytes: int) -> None:
    topic, segment, old = compacted(world, segment_bytes)
    kept = read(world)[0]
    assert 0 not in kept, "superseded"
    assert (old.stat().st_size > segment.length) is (segment_bytes == FOUR)
    fresh(old, segment).write_bytes(old.read_bytes())
    assert read(world) == ([], read(world)[1])
    assert f"{segment.length} were published" in read(world)[1]
    with pytest.raises(CorruptionError, match="were published"):
        list(PartitionReader(world.handle(), topic_id(topic), 0).read(0, 1))
    assert verify(world.handle()).faults
    put(topic, b"bczzzz")  # something to do for a compaction, which must not take the old records over
    with pytest.raises(CorruptionError, match="were published"):
        compact(topic, topic_id(topic))


def test_bytes_behind_a_rewritten_segment_hurt_nobody(world: World) -> None:
    _, segment, old = compacted(world, FOUR)
    before = read(world)
    assert before[0]
    with fresh(old, segment).open("ab") as file:
        file.write(old.read_bytes())
    assert read(world) == before
    assert verify(world.handle()).faults


def test_damage_to_the_file_that_was_replaced_is_named_and_is_no_fault(world: World) -> None:
    _, _, old = compacted(world, FOUR)
    assert verify(world.handle()).unnamed == ()
    data = bytearray(old.read_bytes())
    data[len(data) // 2] ^= 1
    old.write_bytes(data)
    report = verify(world.handle())
    assert (report.faults, report.unnamed) == ((), (str(old.relative_to(world.path)),))
    old.unlink()
    report = verify(world.handle())
    assert (report.faults, report.unnamed) == ((), ())


def test_of_a_rewritten_segment_that_was_cut_the_frames_before_are_saved(world: World) -> None:
    _, segment, old = compacted(world, FOUR)
    before = read(world)[0]
    data = fresh(old, segment).read_bytes()
    fresh(old, segment).write_bytes(data[:-1])
    assert read(world)[0] == []
    world.log().topic("t").void({0: (segment.end_offset - 1, segment.end_offset)})
    after, error = read(world)
    assert error == ""
    assert after == [offset for offset in before if offset != segment.end_offset - 1]


def test_a_segment_that_has_no_other_file_is_read_as_far_as_it_goes(world: World) -> None:
    topic = world.create(1, {**CONFIG, "segment.bytes": FOUR})
    put(topic, b"abcdz")
    path = world.path / world.files(f"/{0:020d}.log")[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert read(world)[0] == [0, 1, 2]

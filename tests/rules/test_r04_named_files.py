"""R4: readers open what the settle state names, and look no further than the published lengths."""

from __future__ import annotations

import shutil

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.topic.maintain.settle import settle
from tests.support.records import append, batch_of, read_partition, read_topic
from tests.support.world import Recorder, World, many

_SMALL = {"segment.bytes": 2048, "inline.max.bytes": 0, "compression.type": "none", "segment.index.bytes": 4096}


def rolled(world: World) -> list[bytes]:
    """Make a topic with several sealed segments; return its values."""
    topic = world.create(config=_SMALL)
    for first in range(4):
        append(topic, batch_of(many(30, b"%d-" % first)))
        world.maintain()
    assert len(world.files(".log")) >= 3
    return [value for first in range(4) for value in many(30, b"%d-" % first)]


def test_old_and_new_segments_lie_side_by_side(world: World) -> None:
    """R4, I2: a directory listing shows rewrites, leftovers and unpublished rolls: readers open none of them."""
    expected = rolled(world)
    logs = world.files(".log")
    for index, log in enumerate(logs):
        other = logs[(index + 1) % len(logs)]
        shutil.copy(world.path / other, world.path / log.replace(".log", ".1.log"))
    directory = (world.path / logs[-1]).parent
    shutil.copy(world.path / logs[0], directory / "00000000000000000115.log")
    shutil.copy(world.path / logs[0], directory / "00000000000000009999.log")
    assert world.values() == expected


def test_a_reader_never_lists_segments(world: World) -> None:
    """R4: names come from the entries and manifests; the only listings are those of journals."""
    expected = rolled(world)
    seen = Recorder()
    assert [record.value for record in read_topic(world.handle(seen))] == expected
    listed = {path.rsplit("/", 1)[1] for path in seen.paths("names")}
    assert listed <= {"journal", "settle"}


def test_valid_frames_beyond_the_published_length_are_not_read(world: World) -> None:
    """R4, I1: a settler wrote whole frames, and died before its entry: nobody sees them."""
    topic = world.create(config=_SMALL)
    append(topic, batch_of([b"a"]))
    world.maintain()
    append(topic, batch_of([b"b"]))
    topic_id = topic.newest()[1].topic_id
    (log,) = world.files(".log")
    published = (world.path / log).read_bytes()
    settle(topic, topic_id)
    unpublished = (world.path / log).read_bytes()
    assert len(unpublished) > len(published)
    newest, _ = topic.settled(topic_id)
    (world.path / f"{topic.paths(topic_id).settle}/{newest.sequence:020d}.json").unlink()
    assert world.handle().settled(topic_id)[1].partition(0).end_offset == 1
    seen = Recorder()
    assert [record.value for record in read_topic(world.handle(seen))] == [b"a", b"b"]
    assert any(".chunk" in path for path in seen.paths("info")), "b is read from its chunk"


def test_an_index_beyond_its_published_length_is_not_believed(world: World) -> None:
    """R4: index entries of a dead settler point behind the published end; every offset is still found."""
    topic = world.create(config={**_SMALL, "segment.bytes": 10**6, "index.interval.bytes": 0})
    for first in range(5):
        append(topic, batch_of(many(30, b"%d-" % first)))
        world.maintain()
    topic_id = topic.newest()[1].topic_id
    used = topic.settled(topic_id)[1].partition(0).active.index.offset_bytes
    (index,) = world.files(".index")
    with open(world.path / index, "r+b") as file:
        file.seek(used)
        file.write(bytes.fromhex("0000000100000030") * 8)
    assert [v for v in world.values() if v] == [v for first in range(5) for v in many(30, b"%d-" % first)]


@pytest.mark.parametrize("shift", [-1, 1])
def test_an_index_that_lies_is_not_believed(world: World, shift: int) -> None:
    """R4, I3, I8: published index entries name the position of another frame: no record is skipped or doubled."""
    topic = world.create(config={**_SMALL, "segment.bytes": 10**6, "index.interval.bytes": 0, "batch.size": 1024})
    for first in range(8):
        append(topic, batch_of([b"%d" % first * 300, b"x"]))
    world.maintain()
    used = topic.settled(topic.newest()[1].topic_id)[1].partition(0).active.index.offset_bytes
    path = world.path / world.files(".index")[0]
    data = path.read_bytes()
    slots = [data[at : at + 8] for at in range(0, used, 8)]
    assert len(slots) >= 6
    lying = [slot[:4] + slots[(i + shift) % len(slots)][4:] for i, slot in enumerate(slots)]
    path.write_bytes(b"".join(lying) + data[used:])
    for start in range(16):
        found = read_partition(world.handle(), 0, start)
        assert [record.offset for record in found] == list(range(start, 16))


def test_the_leftovers_of_an_interrupted_roll_go_when_the_next_settler_comes(world: World) -> None:
    """R4: a rolled segment that nobody published would stay for ever if the next settler rolls elsewhere."""
    topic = world.create(config=_SMALL)
    append(topic, batch_of([b"a"]))
    world.maintain()
    directory = (world.path / world.files(".log")[0]).parent
    for suffix in ("log", "index", "timeindex"):
        (directory / f"00000000000000000077.{suffix}").write_bytes(b"left over")
    append(topic, batch_of([b"b"]))
    world.maintain()
    assert not world.files("00077")
    assert world.values() == [b"a", b"b"]


def test_a_damaged_manifest_is_an_error(world: World) -> None:
    """R4, I8: the manifest is checked against length and CRC in the settle entry."""
    rolled(world)
    for manifest in world.files("/manifests/"):
        path = world.path / manifest
        path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    with pytest.raises(CorruptionError, match="manifests"):
        world.values()

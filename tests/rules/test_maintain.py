"""``maintain``: what fails in one step, or one topic, does not stop the others."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog import maintenance, topics
from pyspark_commitlog.errors import CorruptionError, StorageError, StorageFullError
from pyspark_commitlog.log.settle import settle
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.maintenance import Maintained
from pyspark_commitlog.model import Progress
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, DELAY_MS, World

HOUR_MS = 3_600_000
COMPACT = {
    **CHUNKS,
    "cleanup.policy": "compact",
    "segment.bytes": 1024,
    "compression.type": "none",
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": HOUR_MS,
}
ABA = (b"a=1", b"b=1", b"a=2", b"c=1", b"end=1")


def put(world: World, *records: bytes, name: str = "t") -> None:
    """Write ``key=value`` and ``key`` (a tombstone), each large enough for a segment of its own, and settle."""
    topic = world.handle(name=name)
    for record in records:
        key, equals, value = record.partition(b"=")
        append(topic, batch_of([value if equals else None], key=[key], headers=[[("pad", b"x" * 700)]]))
        settle(topic, topic.newest()[1].topic_id)


def identity(topic: TopicLog) -> str:
    """Return the topic id."""
    return topic.newest()[1].topic_id


def full(*_: object) -> None:
    """Fail as a full disk does."""
    raise StorageFullError("no space left (injected)")


def frees_disk(world: World, operation: str, rounds: int) -> None:
    """Maintain while an operation on segments finds the disk full: each run says so, and logs go all the same."""
    before = len(world.files(".log"))

    def hook(found: str, path: str, moment: str) -> None:
        if found == operation and path.endswith(("log", "index")):
            full()

    for _ in range(rounds):
        with pytest.raises(StorageFullError):
            world.log(hook).maintain("t")
        world.clock.advance(10 * DELAY_MS)
    assert len(world.files(".log")) < before


def test_a_disk_too_full_to_compact_is_still_collected(world: World) -> None:
    """What frees the disk comes behind compaction: replaced segments behind their delay."""
    world.create(1, COMPACT)
    put(world, *ABA)
    world.maintain()
    for n in range(3):
        put(world, b"a=%d" % n, b"end=%d" % n)
        world.clock.advance(DELAY_MS)
    frees_disk(world, "create", rounds=3)


def test_a_disk_too_full_to_settle_is_still_retained(world: World) -> None:
    world.create(1, {**CHUNKS, "segment.bytes": 1024, "retention.bytes": 1024})
    put(world, *ABA)
    topic = world.handle()
    append(topic, batch_of([b"x" * 700]))
    frees_disk(world, "open_append", rounds=4)


def test_a_compaction_that_fills_the_disk_gives_back_what_it_took(world: World) -> None:
    world.create(1, COMPACT)
    put(world, *ABA)
    made: list[str] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "create" and moment == "before" and path.endswith(".log"):
            made.append(path)
            if len(made) == 3:
                full()

    with pytest.raises(StorageFullError):
        world.log(hook).maintain("t")
    assert [path for path in world.files("/0/") if path.rsplit("/", 1)[1].count(".") == 2] == []


def test_former_lives_that_cannot_be_removed_hide_no_other_fault(world: World) -> None:
    world.create(name="t")
    world.log().delete_topic("t")
    topic = world.create()
    append(topic, batch_of([b"a"]))
    (world.path / topic.paths(identity(topic)).chunk(topic.chunks(topic.newest()[0].entry)[0].name)).unlink()
    world.clock.advance(DELAY_MS)

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "delete_tree" and moment == "before":
            raise StorageError("directory not empty (injected)")

    with pytest.raises(CorruptionError, match=r"(?s)is missing.*directory not empty"):
        world.log(hook).maintain("t")


def test_a_missing_segment_is_corruption_and_does_not_stop_other_topics(world: World) -> None:
    topic = world.create(1, COMPACT, name="a")
    world.create(1, CHUNKS, name="b")
    put(world, *ABA, name="a")
    append(world.handle(name="b"), batch_of([b"1"]))
    (world.path / topic.paths(identity(topic)).segment_file(0, f"{1:020d}", "log")).unlink()
    with pytest.raises(ExceptionGroup, match="1 topics or groups"):
        world.log().maintain()
    assert world.log().describe("b").partitions[0].unsettled == 0


def test_a_missing_manifest_is_corruption_and_does_not_stop_other_topics(world: World) -> None:
    topic = world.create(1, COMPACT, name="a")
    world.create(1, CHUNKS, name="b")
    put(world, *ABA, name="a")
    append(world.handle(name="b"), batch_of([b"1"]))
    row = topic.settled(identity(topic))[1].partition(0)
    assert row.manifest is not None
    (world.path / topic.paths(identity(topic)).manifests / row.manifest.name).unlink()
    with pytest.raises(ExceptionGroup, match="1 topics or groups"):
        world.log().maintain()
    assert world.log().describe("b").partitions[0].unsettled == 0


def test_a_damaged_old_settle_entry_does_not_stop_collecting_for_ever(world: World) -> None:
    """Nobody needs it any more."""
    world.create(1, {**CHUNKS, "segment.bytes": 1024})
    put(world, *ABA)
    settles = world.files("/settle/")
    old = next(Path(path) for path in settles if path.endswith(f"{2:020d}.json"))
    data = bytearray((world.path / old).read_bytes())
    data[40] ^= 1
    (world.path / old).write_bytes(data)
    chunks = len(world.files(".chunk"))
    for _ in range(4):
        world.clock.advance(DELAY_MS)
        with contextlib.suppress(CorruptionError):
            world.maintain()
    assert chunks > len(world.files(".chunk"))
    assert not (world.path / old).exists()


def test_a_missing_segment_of_a_partition_does_not_stop_the_others(world: World) -> None:
    topic = world.create(2, COMPACT)
    for partition in (0, 1):
        for key in (b"a", b"b", b"a", b"end"):
            append(topic, batch_of([b"1"], key=[key], partition=[partition], headers=[[("pad", b"x" * 700)]]))
            settle(topic, identity(topic))
    (world.path / topic.paths(identity(topic)).segment_file(0, f"{1:020d}", "log")).unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        world.maintain()
    assert [row.cleaned for row in topic.settled(identity(topic))[1].partitions] == [0, 3]


@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid("offset overflow"), MemoryError("malloc"), ZeroDivisionError(), OSError(5, "I/O")]
)
def test_whatever_fails_in_a_topic_the_others_are_maintained(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is no error of ours."""
    for name in "abc":
        append(world.create(name=name), batch_of([b"1"]))
    real = maintenance.maintain_topic

    def fails(topic: TopicLog, progress: Progress) -> Maintained:
        if topic.name == "b":
            raise error
        return real(topic, progress)

    monkeypatch.setattr(topics, "maintain_topic", fails)
    with pytest.raises(ExceptionGroup, match="1 topics or groups could not be maintained") as told:
        world.log().maintain()
    assert told.value.exceptions == (error,)
    assert [world.log().describe(name).partitions[0].unsettled for name in "abc"] == [0, 1, 0]


def test_a_progress_that_raises_ends_all_of_it(world: World) -> None:
    """It is no failure of a topic: nothing behind it is done."""
    for name in "ab":
        append(world.create(name=name), batch_of([b"1"]))

    def progress(what: str, done: int, total: int) -> None:
        raise InterruptedError(what)

    with pytest.raises(InterruptedError):
        world.log().maintain(progress=progress)
    assert [world.log().describe(name).partitions[0].unsettled for name in "ab"] == [1, 1]

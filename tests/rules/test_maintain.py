"""`maintain`: what fails in one step, or one topic, does not stop the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.api import maintenance
from pyspark_commitlog.errors import CorruptionError, StorageError, StorageFullError
from pyspark_commitlog.model import Progress
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.compaction.compact import CompactionJob, Replacement, compact, work_here
from pyspark_commitlog.topic.maintain import maintain as steps, settle as settling
from pyspark_commitlog.topic.maintain.check_indexes import recover
from pyspark_commitlog.topic.maintain.maintain import Maintained
from pyspark_commitlog.topic.maintain.retention import collect_segments, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.topic_log import TopicLog
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
    """Write `key=value` and `key` (a tombstone), each large enough for a segment of its own, and settle."""
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
            world.log(hook).topic("t").maintain()
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
        world.log(hook).topic("t").maintain()
    assert [path for path in world.files("/0/") if path.rsplit("/", 1)[1].count(".") == 2] == []


def test_former_lives_that_cannot_be_removed_hide_no_other_fault(world: World) -> None:
    world.create(name="t")
    world.log().topic("t").delete()
    topic = world.create()
    append(topic, batch_of([b"a"]))
    (world.path / topic.paths(identity(topic)).chunk(topic.chunks(topic.newest()[0].entry)[0].name)).unlink()
    world.clock.advance(DELAY_MS)

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "delete_tree" and moment == "before":
            raise StorageError("directory not empty (injected)")

    with pytest.raises(CorruptionError, match=r"(?s)is missing.*directory not empty"):
        world.log(hook).topic("t").maintain()


def test_a_missing_segment_is_corruption_and_does_not_stop_other_topics(world: World) -> None:
    topic = world.create(1, COMPACT, name="a")
    world.create(1, CHUNKS, name="b")
    put(world, *ABA, name="a")
    append(world.handle(name="b"), batch_of([b"1"]))
    (world.path / topic.paths(identity(topic)).segment_file(0, f"{1:020d}", "log")).unlink()
    with pytest.raises(ExceptionGroup, match="1 topics or groups"):
        world.log().maintain()
    assert world.log().topic("b").describe().partitions[0].unsettled == 0


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
    assert world.log().topic("b").describe().partitions[0].unsettled == 0


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


class StoppedError(Exception):
    """What a progress raises to end the work."""


def failing_for(name: str, error: Exception) -> Callable[..., None]:
    """Return a stand-in for a step of maintenance that fails for one topic."""

    def step(topic: TopicLog, *_: object, **__: object) -> None:
        if topic.name == name:
            raise error

    return step


def three(world: World) -> None:
    """Create topics a, b and c with something to settle."""
    for name in "abc":
        append(world.create(name=name), batch_of([b"1"]))


def unsettled(world: World) -> list[int]:
    """Return how many records of a, b and c are not settled."""
    return [world.log().topic(name).describe().partitions[0].unsettled for name in "abc"]


@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid("offset overflow"), MemoryError("malloc"), ZeroDivisionError(), OSError(5, "I/O")]
)
def test_whatever_fails_in_a_topic_the_others_are_maintained(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is no error of ours; one that comes before any step, too."""
    three(world)
    real = maintenance.maintain_topic

    def fails(topic: TopicLog, progress: Progress) -> Maintained:
        failing_for("b", error)(topic)
        return real(topic, progress)

    monkeypatch.setattr(maintenance, "maintain_topic", fails)
    with pytest.raises(ExceptionGroup, match="1 topics or groups could not be maintained") as told:
        world.log().maintain()
    assert told.value.exceptions == (error,)
    assert unsettled(world) == [0, 1, 0]


def test_all_topics_that_fail_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    three(world)
    found = {"a": pa.ArrowInvalid("offset overflow"), "c": KeyError("x")}

    def sweep(topic: TopicLog, topic_id: str) -> int:
        if topic.name in found:
            raise found[topic.name]
        return 0

    monkeypatch.setattr(steps, "sweep", sweep)
    with pytest.raises(ExceptionGroup) as told:
        world.log().maintain()
    assert told.value.exceptions == tuple(found.values())
    assert unsettled(world) == [0, 0, 0]


def test_whatever_a_step_fails_with_the_steps_behind_it_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be what frees the memory, or the disk, that it wanted; and all that failed is told."""
    three(world)
    ran: list[str] = []
    first, second = pa.ArrowInvalid("offset overflow"), StorageError("no space (injected)")
    monkeypatch.setattr(steps, "settle_on", failing_for("a", first))
    monkeypatch.setattr(steps, "sweep", failing_for("a", second))
    monkeypatch.setattr(steps, "remove_former", lambda topic, stored: ran.append(topic.name) or 0)
    with pytest.raises(ExceptionGroup, match="topic 'a': 2 steps failed") as told:
        world.log().topic("a").maintain()
    assert told.value.exceptions == (first, second)
    assert ran == ["a"]


def test_a_progress_that_raises_ends_all_of_it(world: World) -> None:
    """It is no failure of a topic: nothing behind it is done."""
    three(world)

    def progress(what: str, done: int, total: int) -> None:
        raise StoppedError(what)

    for maintain in (world.log().maintain, world.log().topic("a").maintain):
        with pytest.raises(StoppedError):
            maintain(progress=progress)
    assert unsettled(world) == [1, 1, 1]


def test_a_progress_that_raises_within_a_step_ends_all_of_it(world: World) -> None:
    """Of a compaction, whose other partitions are left, too."""
    topic = world.create(2, COMPACT)
    for partition in (0, 1):
        for key in (b"a", b"b", b"a", b"end"):
            append(topic, batch_of([b"1"], key=[key], partition=[partition], headers=[[("pad", b"x" * 700)]]))
            settle(topic, identity(topic))

    told: list[str] = []

    def progress(what: str, done: int, total: int) -> None:
        told.append(what)
        if what.startswith("compact:") and "sweep" not in told:
            raise StoppedError(what)

    with pytest.raises(StoppedError):
        world.log().maintain(progress=progress)
    assert told[-1].startswith("compact:"), "no step behind it was begun"
    assert [row.cleaned for row in topic.settled(identity(topic))[1].partitions] == [0, 0]


def test_whatever_fails_in_a_partition_the_others_are_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four fail, by errors that are none of ours: both are told."""
    topic = world.create(4)
    append(topic, batch_of([b"1", b"2", b"3", b"4"], partition=range(4)))
    real = settling._settle_partition

    def fails(*given: Any) -> tuple[SettledPartition, bool]:
        if given[3] in (1, 2):
            raise pa.ArrowInvalid(f"offset overflow in {given[3]}")
        return real(*given)

    monkeypatch.setattr(settling, "_settle_partition", fails)
    with pytest.raises(ExceptionGroup, match="2 partitions could not be settled"):
        settle(topic, identity(topic))
    assert [row.end_offset for row in topic.settled(identity(topic))[1].partitions] == [1, 0, 0, 1]
    assert topic.damaged(identity(topic)) == (), "it is no damage: commits go on"
    monkeypatch.undo()
    settle(topic, identity(topic))
    assert [row.end_offset for row in topic.settled(identity(topic))[1].partitions] == [1, 1, 1, 1]


def test_a_sector_that_cannot_be_read_stops_its_partition_only_a_full_disk_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.create(2)
    append(topic, batch_of([b"1", b"2"], partition=range(2)))
    real, error = settling._settle_partition, StorageError("cannot read: Input/output error")

    def fails(*given: Any) -> tuple[SettledPartition, bool]:
        if given[3] == 0:
            raise error
        return real(*given)

    monkeypatch.setattr(settling, "_settle_partition", fails)
    with pytest.raises(StorageError, match="Input/output"):
        settle(topic, identity(topic))
    assert [row.end_offset for row in topic.settled(identity(topic))[1].partitions] == [0, 1]
    append(topic, batch_of([b"3"], partition=[1]))
    error = StorageFullError("no space (injected)")
    with pytest.raises(StorageFullError):
        settle(topic, identity(topic))
    assert [row.end_offset for row in topic.settled(identity(topic))[1].partitions] == [0, 1]


def test_a_commit_s_settler_tells_what_ended_a_partition(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And does not say that commits are refused: only damage has them refused."""
    topic = world.create(2, {**CHUNKS, "settle.entries": 1})

    def fails(*given: Any) -> tuple[SettledPartition, bool]:
        if given[3] == 0:
            raise pa.ArrowInvalid("offset overflow")
        raise StorageError("Input/output error")

    monkeypatch.setattr(settling, "_settle_partition", fails)
    append(topic, batch_of([b"1", b"2"], partition=range(2)))
    settling.settle_after_commit(topic, identity(topic))
    assert "please report this" in caplog.text
    assert "tried again: Input/output error" in caplog.text
    assert "refused" not in caplog.text


def test_whatever_a_compaction_s_worker_fails_with_the_other_partitions_are_compacted(world: World) -> None:
    """A Spark job's task, say; and all that failed is told."""
    topic = world.create(3, COMPACT)
    for partition in range(3):
        for key in (b"a", b"b", b"a", b"end"):
            append(topic, batch_of([b"1"], key=[key], partition=[partition], headers=[[("pad", b"x" * 700)]]))
            settle(topic, identity(topic))

    def worker(job: CompactionJob) -> tuple[Iterator[Replacement], int]:
        if job.partition < 2:
            raise RuntimeError(f"task of partition {job.partition} failed")
        return work_here(job)

    with pytest.raises(ExceptionGroup, match="2 partitions could not be compacted") as told:
        compact(topic, identity(topic), worker)
    assert [f"{each}" for each in told.value.exceptions] == [f"task of partition {p} failed" for p in (0, 1)]
    assert [row.cleaned for row in topic.settled(identity(topic))[1].partitions] == [0, 0, 3]


def test_a_manifest_that_is_lost_stops_the_retention_of_its_partition_only(world: World) -> None:
    topic = world.create(2, {**CHUNKS, "segment.bytes": 1024, "retention.bytes": 1024})
    for n in range(4):
        append(topic, batch_of([b"%d" % n * 900, b"%d" % n * 900], partition=[0, 1]))
        settle(topic, identity(topic))
    row = topic.settled(identity(topic))[1].partition(0)
    assert row.manifest is not None
    (world.path / topic.paths(identity(topic)).manifests / row.manifest.name).unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        retain(world.handle(), identity(topic))
    assert world.handle().newest()[1].log_start[0] == 0
    assert world.handle().newest()[1].log_start[1] > 0


def test_whatever_a_manifest_can_not_be_read_for_the_other_partitions_are_seen_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retained, and rid of segments that nothing names; and the indexes of those that can be read are rebuilt."""
    topic = world.create(2, {**CHUNKS, "segment.bytes": 1024, "retention.bytes": 1024})
    for n in range(4):
        append(topic, batch_of([b"%d" % n * 900, b"%d" % n * 900], partition=[0, 1]))
        settle(topic, identity(topic))
    topic_id, real = identity(topic), TopicLog.sealed
    first = topic.settled(topic_id)[1].partition(0).manifest
    directory = world.path / topic.paths(topic_id).partition(1)

    def fails(handle: TopicLog, settled: SettleState, partition: int) -> Sequence[Sealed]:
        if settled.partition(partition).manifest == first:
            raise MemoryError("malloc")
        return real(handle, settled, partition)

    monkeypatch.setattr(TopicLog, "sealed", fails)
    stem = real(topic, topic.settled(topic_id)[1], 1)[-1].stem
    (directory / f"{stem}.timeindex").unlink()
    with pytest.raises(MemoryError):
        recover(world.handle(), topic_id)
    assert (directory / f"{stem}.timeindex").exists()
    with pytest.raises(MemoryError):
        retain(world.handle(), topic_id)
    assert world.handle().newest()[1].log_start[0] == 0
    assert world.handle().newest()[1].log_start[1] > 0
    for _ in range(3):
        world.clock.advance(DELAY_MS + 1)
        append(world.handle(), batch_of([b"more"], partition=[1]))
        settle(world.handle(), topic_id)
        collect(world.handle(), topic_id)
    before = len(list(directory.glob("*.log")))
    with pytest.raises(MemoryError):
        collect_segments(world.handle(), topic_id)
    assert len(list(directory.glob("*.log"))) < before

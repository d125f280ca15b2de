"""Settling without a lock: one object and one entry a run, and the first of several settlers wins (O1, O2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError, StorageError
from pyspark_commitlog.journal import own_writes
from pyspark_commitlog.storage import OutputFile
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic import topic_tables as handles
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.maintain.settle import settle, settle_on
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.topic.settle.merge import merge
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import LATER_MS, ObjectWorld, UnknownMount, split, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, Recorder, once


def run(topic: TopicLog) -> int:
    return settle(topic, topic_id(topic)).records


def test_a_run_puts_one_object_for_all_partitions_and_one_entry(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(3)
    for value in (b"a", b"b"):
        append(topic, batch_of([value] * 3, partition=[0, 1, 2]))
    assert run(topic) == 6
    (shared,) = unlocked.settled().tail
    assert unlocked.objects() == [shared.name]
    assert unlocked.values() == [b"a", b"b"] * 3
    assert unlocked.handle().settle_journal(topic_id(topic)).sequences() == [1, 2]
    verify(unlocked.handle())


def test_a_second_run_goes_on_where_the_first_ended(unlocked: ObjectWorld) -> None:
    topic = unlocked.create()
    for value in (b"a", b"b", b"c"):
        append(topic, batch_of([value]))
        assert run(topic) == 1
    assert len(unlocked.settled().tail) == 3
    assert unlocked.values() == [b"a", b"b", b"c"]
    assert run(topic) == 0, "nothing is due"
    assert len(unlocked.settled().tail) == 3
    verify(unlocked.handle())


def test_of_two_settlers_of_the_same_offsets_the_first_wins(unlocked: ObjectWorld) -> None:
    """O2: `settled` is exactly what the run began with. Else offsets would be doubled."""
    topic = unlocked.create()
    append(topic, batch_of([b"a"]))
    other = once(lambda: run(unlocked.handle()))

    def first(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "/settle/" in path:
            other()

    assert run(unlocked.handle(first)) == 0
    assert len(unlocked.settled().tail) == 1
    assert len(unlocked.objects()) == 2, "the loser's object is the sweep's"
    assert unlocked.values() == [b"a"]
    verify(unlocked.handle())


def test_what_another_settled_meanwhile_is_not_even_put(unlocked: ObjectWorld) -> None:
    """O13: the newest entry is read again before the object is put."""
    topic = unlocked.create(1, CHUNKS)
    append(topic, batch_of([b"a"]))
    other = once(lambda: run(unlocked.handle()))

    def first(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("read", "after") and path.endswith(".chunk"):
            other()

    assert run(unlocked.handle(first)) == 0
    assert len(unlocked.objects()) == 1
    assert unlocked.values() == [b"a"]


def test_an_object_that_could_not_be_written_is_named_by_nobody(unlocked: ObjectWorld) -> None:
    topic = unlocked.create()
    append(topic, batch_of([b"a"]))

    def fails(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("create", "before") and path.endswith(".segment"):
            raise StorageError("injected")

    with pytest.raises(StorageError):
        run(unlocked.handle(fails))
    assert unlocked.settled().tail == ()
    assert run(unlocked.handle()) == 1
    assert unlocked.values() == [b"a"]


def test_an_object_with_bytes_that_could_not_be_written_is_given_up(unlocked: ObjectWorld) -> None:
    """A write that failed once leaves a hole, though the next one succeeds."""
    topic = unlocked.create()
    append(topic, batch_of([b"a"]))
    _, state = topic.newest()
    writer = ObjectWriter(unlocked.storage(), topic.paths(state.topic_id), 1, SliceLimits(2**30, 2**20, 4096))
    frame = Stamped((b"x" * 5_000_000,), 5_000_000, 0, 0, 0)
    inner, writer._output = writer._output, Fails(writer._output)  # type: ignore[assignment]
    part = writer.slice(0, 0)
    with pytest.raises(StorageError, match="injected"):
        part.append(frame)
    part.finish()
    with pytest.raises(StorageError, match="given up"):
        writer.finish(tier=0)
    inner.discard()
    assert unlocked.objects() == []


@pytest.mark.parametrize("failures", [1, 99])
def test_a_slice_that_could_not_be_ended_ends_its_object(unlocked: ObjectWorld, failures: int) -> None:
    topic = unlocked.create()
    paths = topic.paths(topic_id(topic))
    writer = ObjectWriter(FailingMount(unlocked, failures), paths, 1, SliceLimits(2**30, 2**20, 4096))
    for partition in (0, 1):
        part = writer.slice(partition, 0)
        part.append(Stamped((b"x" * 100,), 100, 0, 0, 0))
        if partition < failures:
            with pytest.raises(StorageError, match="injected"):
                part.finish()
        else:
            part.finish()
    with pytest.raises(StorageError, match="given up"):
        writer.finish(tier=0)
    writer.discard()
    assert unlocked.objects() == []


@pytest.mark.parametrize("failures", [1, 99])
@pytest.mark.parametrize("size", [1, 5_000_000], ids=["small", "large"])
def test_a_run_whose_object_can_not_be_written_tells_why(unlocked: ObjectWorld, failures: int, size: int) -> None:
    """Nothing of it is published, and no other partition is moved in vain; damage that was met before is reported, too."""
    topic = unlocked.create(4, {**CHUNKS, "compression.type": "none", "max.message.bytes": 2**23})
    append(topic, batch_of([b"lost"], partition=[0]))
    (chunk,) = unlocked.files(".chunk")
    (unlocked.path / chunk).unlink()
    for partition in (1, 2, 3):
        append(topic, batch_of([b"%d" % partition * size], partition=[partition]))
    mount = FailingMount(unlocked, failures)
    with pytest.raises(StorageError, match=r"injected: no answer; .*partition 0"):
        run(TopicLog(mount, "t"))
    assert mount.writes <= 3, "of partition 1: its log, again when it is ended, and its indexes"
    assert (unlocked.objects(), unlocked.settled().tail, unlocked.settled().damaged) == ([], (), ())
    with pytest.raises(CorruptionError, match="partition 0"):
        run(unlocked.handle())
    assert [row.end_offset for row in unlocked.settled().partitions] == [0, 1, 1, 1]


class FailingMount(UnknownMount):
    """A mount on which the first writes to a segment object fail."""

    def __init__(self, world: ObjectWorld, failures: int) -> None:
        super().__init__(world.path, clock=world.clock)
        self._failures, self._made = failures, list[Fails]()

    @property
    def writes(self) -> int:
        """How many were tried."""
        return sum(output.writes for output in self._made)

    def create(self, path: str) -> OutputFile:
        output = super().create(path)
        if not path.endswith(".segment"):
            return output
        self._made.append(Fails(output, self._failures))
        return self._made[-1]  # type: ignore[return-value]


class Fails:
    """An output file whose first writes fail."""

    def __init__(self, inner: OutputFile, failures: int = 1) -> None:
        self._inner, self._failures, self.writes = inner, failures, 0

    def write(self, *pieces: bytes) -> None:
        self.writes += 1
        if self.writes <= self._failures:
            raise StorageError("injected: no answer")
        self._inner.write(*pieces)

    def close(self) -> tuple[int, int]:
        return self._inner.close()

    def discard(self) -> None:
        self._inner.discard()


def test_a_small_chunk_of_several_partitions_is_read_once(unlocked: ObjectWorld) -> None:
    """Where each read is a request: not one for each partition's share."""
    topic = unlocked.create(4, CHUNKS)
    for value in (b"a", b"b"):
        append(topic, batch_of([value] * 4, partition=[0, 1, 2, 3]))
    recorder = Recorder()
    assert run(unlocked.handle(recorder)) == 8
    reads = [path for kind in ("read", "map", "fetch") for path in recorder.paths(kind) if path.endswith(".chunk")]
    assert len(reads) == 2
    assert unlocked.values() == [b"a", b"b"] * 4
    verify(unlocked.handle())


def test_what_another_process_left_inline_is_read_once(unlocked: ObjectWorld) -> None:
    """Where each read is a request: not one for each partition's share."""
    topic = unlocked.create(4, {"inline.max.bytes": 2**20})
    for number in range(3):
        append(topic, batch_of([b"%d" % number * 5000] * 4, partition=[0, 1, 2, 3]))
    own_writes.own_puts.renew()
    recorder = Recorder()
    assert run(unlocked.handle(recorder)) == 12
    reads = [path for path in recorder.paths("read") if "/journal/" in path]
    assert len(reads) == len(set(reads)) == 2  # the newest is read with its line
    assert unlocked.values() == [b"%d" % number * 5000 for number in range(3)] * 4
    verify(unlocked.handle())


def cut_short(world: ObjectWorld) -> tuple[Path, bytes]:
    """Cut the end off the only chunk; return where it is, and its bytes of before."""
    (name,) = world.files(".chunk")
    path = world.path / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    return path, whole


def test_a_chunk_that_is_cut_short_is_damage_for_the_partitions_that_lack_it(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(2, CHUNKS)
    append(topic, batch_of([b"a", b"b"], partition=[0, 1]))
    cut_short(unlocked)
    with pytest.raises(CorruptionError, match="partition 1"):
        run(unlocked.handle())
    assert [row.end_offset for row in unlocked.settled().partitions] == [1, 0]


def test_a_damaged_partition_is_settled_while_a_later_one_is_written(unlocked: ObjectWorld) -> None:
    """Slices of an object ascend: what is tried again goes into one of its own, whatever the others have moved."""
    topic = unlocked.create(2, CHUNKS)
    append(topic, batch_of([b"a"], partition=[0]))
    path, whole = cut_short(unlocked)
    with pytest.raises(CorruptionError, match="partition 0"):
        run(unlocked.handle())
    append(topic, batch_of([b"b"], partition=[1]))
    with pytest.raises(CorruptionError, match="partition 0"):
        run(unlocked.handle())
    assert [row.end_offset for row in unlocked.settled().partitions] == [0, 1], "it holds up no other"
    append(topic, batch_of([b"c"], partition=[1]))
    path.write_bytes(whole)
    assert run(unlocked.handle()) == 2
    assert (unlocked.settled().damaged, unlocked.settled().ahead) == ((), None)
    assert unlocked.values() == [b"a", b"b", b"c"]
    verify(unlocked.handle())


def test_what_a_run_finds_damaged_is_not_tried_twice(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(2, CHUNKS)
    append(topic, batch_of([b"a", b"b"], partition=[0, 1]))
    cut_short(unlocked)
    done = settle_on(unlocked.handle(), topic_id(topic))
    assert (done.sequence, done.records, len(done.failures)) == (2, 1, 1)


@pytest.mark.parametrize(
    ("part", "operation"), [(".chunk", "read"), (f"/journal/{2:020}", "fetch")], ids=["chunks", "entries"]
)
def test_who_sleeps_past_the_delay_reports_no_damage(unlocked: ObjectWorld, part: str, operation: str) -> None:
    """What another has settled meanwhile is collected, chunks and entries: it is not lost, and commits go on."""
    topic = unlocked.create(1, CHUNKS)
    for value in (b"a", b"b", b"c", b"d"):
        append(topic, batch_of([value]))
    own_writes.own_puts.renew()  # another process has to read them

    def other() -> None:
        unlocked.collect_all()
        assert len(unlocked.files(".chunk")) < 4
        assert 2 not in unlocked.entries()

    done = settle_on(unlocked.handle(on_path(part, operation, other)), topic_id(topic))
    assert unlocked.settled().damaged == ()
    assert (done.records, done.failures) == (0, ())
    append(unlocked.handle(), batch_of([b"e"]))
    assert unlocked.values() == [b"a", b"b", b"c", b"d", b"e"]
    verify(unlocked.handle())


@pytest.mark.parametrize(
    ("part", "operation"), [(".chunk", "read"), ("/settle/", "put_if_absent")], ids=["read", "put"]
)
def test_what_is_voided_meanwhile_is_not_reported_as_damage(unlocked: ObjectWorld, part: str, operation: str) -> None:
    """Else commits would be refused because of it, though nothing is left to be voided."""
    topic = unlocked.create(1, CHUNKS)
    append(topic, batch_of([b"a"]))
    (chunk,) = unlocked.files(".chunk")
    (unlocked.path / chunk).unlink()

    def other() -> None:
        assert len(unlocked.log().topic("t").void()) == 1

    done = settle_on(unlocked.handle(on_path(part, operation, other)), topic_id(topic))
    assert unlocked.settled().damaged == ()
    assert (done.records, done.failures) == (0, ())
    append(unlocked.handle(), batch_of([b"b"]))
    assert unlocked.values() == [b"b"]
    verify(unlocked.handle())


@pytest.mark.parametrize("is_own", [False, True], ids=["tail", "own"])
def test_what_is_merged_and_collected_meanwhile_is_not_reported_as_damage(unlocked: ObjectWorld, is_own: bool) -> None:
    """What comes first of a partition is void, and takes the timestamp of what is settled before it."""
    topic = unlocked.create(2, CHUNKS)
    for _ in range(8):
        append(topic, batch_of([b"a", b"b"], partition=[0, 1]))
        run(topic)
        if is_own:
            split(topic, 1)
    append(topic, batch_of([b"c"], partition=[0]))
    others = set(unlocked.files(".chunk"))
    append(topic, batch_of([b"lost"], partition=[1]))
    (chunk,) = set(unlocked.files(".chunk")) - others
    (unlocked.path / chunk).unlink()
    assert len(unlocked.log().topic("t").void()) == 1
    own_writes.own_puts.renew()  # another process has to read them
    handles._footers.clear()

    def other() -> None:
        assert merge(unlocked.handle(), topic_id(topic)).merges > 0
        for _ in range(2):
            unlocked.clock.advance(LATER_MS)
            unlocked.idle(topic)
        unlocked.clock.advance(LATER_MS)
        assert collect(unlocked.handle(), topic_id(topic)).segments > 0
        handles._footers.clear()

    done = settle_on(unlocked.handle(on_path(".chunk", "map", other)), topic_id(topic))
    assert unlocked.settled().damaged == ()
    assert (done.records, done.failures) == (2, ())
    append(unlocked.handle(), batch_of([b"d"], partition=[1]))
    assert unlocked.values() == [*[b"a"] * 8, b"c", *[b"b"] * 8, b"d"]
    verify(unlocked.handle())


def test_an_object_that_is_lost_is_damage_where_what_follows_is_void(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, CHUNKS)
    append(topic, batch_of([b"a"]))
    run(topic)
    append(topic, batch_of([b"lost"]))
    (chunk,) = unlocked.files(".chunk")[-1:]
    (unlocked.path / chunk).unlink()
    assert len(unlocked.log().topic("t").void()) == 1
    (path,) = unlocked.files(".segment")
    (unlocked.path / path).unlink()
    handles._footers.clear()
    with pytest.raises(CorruptionError, match="is missing"):
        run(unlocked.handle())
    assert unlocked.settled().marked == {0}

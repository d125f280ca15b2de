"""Repair: what is damaged at one root is fetched from another, checked; what no root has can be given up.

Interleavings:

1. Each root has settled by itself: frames have other boundaries there, so they are cut.
2. The other root is damaged, too, at the same offsets or at others: the next one is asked, frame by frame.
3. A root of another history has a whole entry at the number: it is not taken.
4. Compaction removed a tombstone here, and not yet the older record there: no deleted record comes back.
5. A root that does not answer may have it: nothing is given up.
6. A reader stands on the entry that is replaced: it looks again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.damage.salvage import segments_of
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.replica_fetch import settled_copy as copying
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.replica_fetch.donors import attempts, lost_ranges
from pyspark_commitlog.topic.replica_fetch.mend import mend_segments
from pyspark_commitlog.topic.replica_fetch.settled_copy import SettledTopic
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.support.damage import cut, flip, remove, zero
from tests.support.records import batch_of, read_partition, stage
from tests.support.replicas import (
    COMPACTED,
    CONFIG,
    Replicated,
    compact_at,
    cut_off_after_a_piece,
    elect,
    faults,
    no_device,
    segment,
    settle_at,
)

LARGE = [Random(n).randbytes(20_000) for n in range(4)]
SMALL = {**CONFIG, "inline.max.bytes": 4096}
DAMAGES = pytest.mark.parametrize("damage", [flip, cut, zero, remove])


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def the_only(files: list[Path]) -> Path:
    (found,) = files
    return found


def chunk(roots: Replicated, root: str) -> Path:
    return the_only(list((roots.path / root).glob("topics/t/*/staged/*.chunk")))


def entry(roots: Replicated, root: str, sequence: int) -> Path:
    return roots.path / root / f"topics/t/journal/{sequence:020d}.json"


@DAMAGES
def test_a_chunk_is_fetched(roots: Replicated, damage: Callable[[Path, Random], None]) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    damage(chunk(roots, "b"), Random(1))
    with pytest.raises(CorruptionError):
        roots.values("b")
    done = roots.log("b").topic("t").repair()
    assert [Path(file).name for file in done.files] == [chunk(roots, "b").name]
    assert (done.root, done.left, done.away) == (str(roots.path / "b"), (), ())
    assert roots.values("b") == [LARGE[0]]
    assert not faults(roots, "b")


@pytest.mark.parametrize("at", ["b", "m"])
@pytest.mark.parametrize(
    ("damage", "back"), [(flip, 0), (flip, 1), (cut, 0), (cut, 1), (zero, 0), (zero, 1), (remove, 1)]
)
def test_an_entry_is_fetched(roots: Replicated, damage: Callable[[Path, Random], None], at: str, back: int) -> None:
    """Of a replica, and of the root that decides; the newest one, and one before it. (Without it a root is restored.)"""
    roots.create(config=SMALL)
    for n in range(3):
        roots.write(b"%d" % n)
    newest = max(int(path.stem) for path in (roots.path / at / "topics/t/journal").iterdir())
    damage(entry(roots, at, newest - back), Random(1))
    done = roots.log(at).topic("t").repair()
    assert done.files == (f"topics/t/journal/{newest - back:020d}.json",)
    assert entry(roots, at, newest - back).read_bytes() == entry(roots, "a", newest - back).read_bytes()
    roots.write(b"3")
    assert roots.values("b") == [b"0", b"1", b"2", b"3"]


def unreadable_at_b(roots: Replicated, what: str, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    """Have a chunk, or an entry below the newest one, fail to be read, until another file is in its place."""
    roots.create(config=SMALL)
    roots.write(LARGE[0], everywhere=True)
    roots.write(b"1")
    newest = max(int(path.stem) for path in (roots.path / "b/topics/t/journal").iterdir())
    bad = chunk(roots, "b") if what == "chunk" else entry(roots, "b", newest - 1)
    inode = bad.stat().st_ino

    opened = LocalStorage._opened

    def _opened(self: LocalStorage, path: str, act: Callable[[int, os.stat_result], Any]) -> Any:
        if self._root / path == bad and bad.stat().st_ino == inode and "info" not in act.__qualname__:
            raise OSError(code, "injected", path)
        return opened(self, path, act)

    monkeypatch.setattr(LocalStorage, "_opened", _opened)
    return bad


@pytest.mark.parametrize("what", ["chunk", "entry"])
def test_what_lies_on_a_bad_sector_is_fetched(roots: Replicated, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bad = unreadable_at_b(roots, what, monkeypatch, errno.EIO)
    done = roots.log("b").topic("t").repair()
    assert (done.files, done.left) == ((str(bad.relative_to(roots.path / "b")),), ())
    assert roots.values("b") == [LARGE[0], b"1"]


@pytest.mark.parametrize("what", ["chunk", "entry"])
def test_what_does_not_answer_is_not_replaced(roots: Replicated, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bad = unreadable_at_b(roots, what, monkeypatch, errno.ETIMEDOUT)
    inode = bad.stat().st_ino
    with pytest.raises(OSError, match="injected"):
        roots.log("b").topic("t").repair()
    assert bad.stat().st_ino == inode
    monkeypatch.undo()
    assert roots.log("b").topic("t").repair().files == ()


def test_inline_frames_are_fetched(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(b"record")
    path = next(p for p in sorted((roots.path / "b/topics/t/journal").iterdir()) if b"record" in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"record", b"recorD"))
    with pytest.raises(CorruptionError):
        roots.values("b")
    assert len(roots.log("b").topic("t").repair().files) == 1
    assert roots.values("b") == [b"record"]


def test_an_entry_of_another_history_is_not_taken(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(b"0")
    other = Replicated(roots.path / "other")
    other.path.mkdir()
    other.create(config=SMALL)
    other.write(b"0")
    newest = max(int(path.stem) for path in (roots.path / "b/topics/t/journal").iterdir())
    for root in "ac":
        shutil.copy(entry(other, root, newest - 1), entry(roots, root, newest - 1))
    entry(roots, "m", newest - 1).unlink()
    zero(entry(roots, "b", newest - 1), Random(1))
    done = roots.log("b").topic("t").repair()
    assert done.files == ()
    assert f"{newest - 1:020d}.json" in done.left[0]


@DAMAGES
@pytest.mark.parametrize("unknown", ["", "b", "ac"])
def test_segments_are_written_again(fast_path: Path, damage: Callable[[Path, Random], None], unknown: str) -> None:
    """Whatever kinds of storage they lie on, and however each root has joined its frames."""
    roots = Replicated(fast_path, unknown=unknown)
    roots.create()
    for n in range(3):
        roots.write(b"%d" % n, b"%d again" % n)
        settle_at(roots, "b")
    roots.write(LARGE[0], LARGE[1])
    for root in "ba":
        settle_at(roots, root)
    expected = [b"0", b"0 again", b"1", b"1 again", b"2", b"2 again", LARGE[0], LARGE[1]]
    damage(segment(roots, "b"), Random(5))
    assert faults(roots, "b")
    done = roots.log("b").topic("t").repair()
    assert done.left == ()
    assert done.ranges
    assert roots.values("b") == expected
    assert not faults(roots, "b")
    roots.write(b"next")
    settle_at(roots, "b")
    assert roots.values("b") == [*expected, b"next"]
    roots.clock.advance(DAY_MS)
    roots.log("b").topic("t").maintain()
    assert not faults(roots, "b")


def test_bytes_that_no_frame_proves_are_fetched(roots: Replicated) -> None:
    """The leader epoch is in no frame's CRC: the segment's is wrong."""
    roots.create()
    roots.write(b"0")
    settle_at(roots, "b")
    path = segment(roots, "b")
    data = bytearray(path.read_bytes())
    data[15] ^= 1
    path.write_bytes(data)
    assert roots.log("b").topic("t").repair().ranges == ((0, 0, 1),)
    assert not faults(roots, "b")


def test_frames_are_cut_at_what_is_damaged(roots: Replicated) -> None:
    """The leader has joined to one frame what lies in three here, of which one is damaged."""
    roots.create()
    for n in range(3):
        roots.write(b"%d" % n, b"%d again" % n)
        settle_at(roots, "b")
    settle_at(roots, "a")
    path = segment(roots, "b")
    data = path.read_bytes()
    at = data.index(b"1 again")
    path.write_bytes(data[:at] + b"X" + data[at + 1 :])
    done = roots.log("b").topic("t").repair()
    assert done.ranges == ((0, 2, 4),)
    assert roots.values("b") == [b"0", b"0 again", b"1", b"1 again", b"2", b"2 again"]
    assert not faults(roots, "b")


def test_two_damaged_roots_make_each_other_whole(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "batch.size": 100_000})  # nothing is joined
    roots.write(LARGE[0])
    roots.write(LARGE[1])
    for root, value in (("a", LARGE[1]), ("b", LARGE[1]), ("c", LARGE[0])):
        settle_at(roots, root)
        path = segment(roots, root)
        data = bytearray(path.read_bytes())
        data[data.index(value[100:200])] ^= 1
        path.write_bytes(data)
    for root in "bca":  # b asks a first
        assert roots.log(root).topic("t").repair().left == ()
        assert roots.values(root) == LARGE[:2]
        assert not faults(roots, root)


def settled_elsewhere(roots: Replicated) -> Path:
    """Have all but `b` settle a chunk, and collect theirs; return that of `b`."""
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    for number in range(3):
        for root in "ac":
            roots.log(root).topic("t").maintain()
        roots.clock.advance(DAY_MS)
        roots.write(b"%d" % number, everywhere=True)
    chunks = [list((roots.path / root).glob("topics/t/*/staged/*.chunk")) for root in "abc"]
    large = [[path for path in some if path.stat().st_size > len(LARGE[0])] for some in chunks]
    assert [len(some) for some in large] == [0, 1, 0]
    return large[1][0]


@pytest.mark.parametrize("unknown", ["", "b"])
def test_a_chunk_that_others_have_settled_is_taken_from_their_segments(fast_path: Path, unknown: str) -> None:
    roots = Replicated(fast_path, unknown=unknown)
    zero(settled_elsewhere(roots), Random(1))
    with pytest.raises(CorruptionError):
        roots.values("b")
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == [LARGE[0], b"0", b"1", b"2"]
    assert not faults(roots, "b")
    roots.write(b"more")
    settle_at(roots, "b")
    assert roots.values("b") == [LARGE[0], b"0", b"1", b"2", b"more"]


def test_maintain_takes_it_from_segments(roots: Replicated) -> None:
    zero(settled_elsewhere(roots), Random(1))
    roots.log("b").topic("t").maintain()
    assert roots.values("b") == [LARGE[0], b"0", b"1", b"2"]


def test_it_is_taken_from_segments_while_others_write(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at what this root has learned and the settling at the other one."""
    zero(settled_elsewhere(roots), Random(1))
    settle_there = TopicSegments.settled

    def settled(self: TopicSegments, donor: Storage) -> SettledTopic:
        roots.write(b"meanwhile", everywhere=True)
        roots.log("a").replicas.sync("t")
        return settle_there(self, donor)

    monkeypatch.setattr(TopicSegments, "settled", settled)
    done = roots.log("b").topic("t").repair()
    assert (done.left, done.away) == ((), ())


def test_nothing_is_taken_beyond_what_is_learned(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other root compacts while it is copied from, so a later entry would be copied up to."""
    zero(settled_elsewhere(roots), Random(1))
    topic = roots.at("b")
    before, head = topic.settled(topic.newest()[1].topic_id)[1], topic.journal.head()
    frames, once = copying.SettledCopy._frames, list[int]()

    def gone(self: Any, partition: int, *args: Any) -> Any:
        if not once:
            once.append(partition)
            elect(roots, "a")
            roots.decided_log().pusher.shrink(roots.id_of("b"), "test")
            roots.write(b"later")
            settle_at(roots, "a")
            raise copying._GoneError("compacted")
        return frames(self, partition, *args)

    monkeypatch.setattr(copying.SettledCopy, "_frames", gone)
    done = roots.log("b").topic("t").repair()
    assert once
    assert any("run `commitlog replicas sync`" in each for each in done.away)
    topic = roots.at("b")
    assert topic.journal.head() == head
    assert topic.settled(topic.newest()[1].topic_id)[1].through == before.through


def test_what_nobody_has_is_given_up_where_another_has_settled_what_was_before(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0", everywhere=True)
    roots.write(b"1", everywhere=True)
    settle_at(roots, "a")
    roots.write(LARGE[0], everywhere=True)
    for root in "abc":
        chunks = (roots.path / root).glob("topics/t/*/staged/*.chunk")
        zero(max(chunks, key=lambda path: path.stat().st_size), Random(1))
    (given_up,) = roots.log("b").topic("t").void()
    assert (given_up.start, given_up.end) == (2, 3)


def write_to(roots: Replicated, value: bytes, partition: int, at: str) -> None:
    topic = roots.topic(at)
    staged = stage(topic, batch_of([value], partition=[partition]), everywhere=True)
    commit(topic, staged.topic_id, [staged])


@pytest.mark.parametrize("unknown", ["", "b"])
def test_no_partition_goes_back_that_is_settled_further_than_there(fast_path: Path, unknown: str) -> None:
    """Partition 1 waits for its damaged chunk; partition 0 was settled further than at `a`, and collected."""
    roots = Replicated(fast_path, unknown=unknown)
    roots.create(2, {**CONFIG, "replica.lag.time.max.ms": 1000})
    elect(roots, "b")
    write_to(roots, LARGE[0], 1, "b")
    write_to(roots, b"1", 0, "b")
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    roots.log("a").replicas.sync("t")
    settle_at(roots, "a")
    for path in (roots.path / "a").glob("topics/t/*/staged/*.chunk"):
        path.unlink()  # as its collector does
    roots.decided_log().pusher.shrink(roots.id_of("a"), "test")
    for root in "ac":
        roots.take_away(root)
    zero(max((roots.path / "b").glob("topics/t/*/staged/*.chunk"), key=lambda path: path.stat().st_size), Random(1))
    for value in (b"2", b"3"):
        write_to(roots, value, 0, "b")
    for _ in range(4):
        roots.clock.advance(DAY_MS)
        with suppress(CorruptionError, ExceptionGroup):
            roots.log("b").topic("t").maintain()
    roots.give_back("a")
    done = roots.log("b").topic("t").repair()
    assert [record.value for record in read_partition(roots.at("b"), 0)] == [b"1", b"2", b"3"]
    if not unknown:
        assert done.left == ()
        assert [record.value for record in read_partition(roots.at("b"), 1)] == [LARGE[0]]


@pytest.mark.parametrize("damage", [zero, remove, flip])
def test_an_object_that_partitions_share_is_written_again(
    fast_path: Path, damage: Callable[[Path, Random], None]
) -> None:
    roots = Replicated(fast_path, unknown="b")
    roots.create(2)
    for partition in (0, 1):
        write_to(roots, b"%d" % partition, partition, "a")
    settle_at(roots, "b")
    damage(segment(roots, "b"), Random(1))
    assert roots.log("b").topic("t").repair().left == ()
    assert not faults(roots, "b")
    assert roots.values("b") == [b"0", b"1"]


def in_objects(roots: Replicated, partitions: int, *commits: Sequence[int]) -> list[Path]:
    """Write a record of its own to each of these partitions in each commit, settled one by one; return b's objects."""
    roots.create(partitions)
    for number, chosen in enumerate(commits):
        for partition in chosen:
            write_to(roots, b"%d-%d" % (number, partition), partition, "a")
        settle_at(roots, "b")
    topic = roots.at("b")
    topic_id = topic.newest()[1].topic_id
    tail = topic.settled(topic_id)[1].tail
    assert len(tail) == len(commits)
    return [roots.path / "b" / topic.paths(topic_id).object(shared.name) for shared in tail]


def test_records_below_the_log_start_that_are_lost_with_an_object_stop_nobody(fast_path: Path) -> None:
    roots = Replicated(fast_path, unknown="b")
    _, second, _ = in_objects(roots, 3, [0, 1, 2], [0, 1, 2], [0, 1, 2])
    roots.log("a").topic("t").delete_records({0: 2, 1: 3})
    second.unlink()
    assert roots.log("b").topic("t").repair().left == ()
    assert not faults(roots, "b")
    assert roots.values("b") == [b"2-0", b"0-2", b"1-2", b"2-2"]


def test_what_nobody_has_stops_those_of_its_object_alone(fast_path: Path) -> None:
    roots = Replicated(fast_path, unknown="b")
    first, _, third = in_objects(roots, 3, [0, 1], [1, 2], [2])
    settle_at(roots, "a")
    settle_at(roots, "c")
    for root in "ac":
        zero(the_only(list((roots.path / root).glob("topics/t/*/0/*.log"))), Random(1))
    first.unlink()
    third.unlink()
    done = roots.log("b").topic("t").repair()
    lacking, sharing = done.left
    assert "partition 0" in lacking
    assert "are lost with the same object" in sharing
    assert done.ranges == ((2, 1, 2),)


def test_void_takes_it_from_segments_first(roots: Replicated) -> None:
    zero(settled_elsewhere(roots), Random(1))
    assert roots.log("b").topic("t").void() == ()
    assert roots.values("b") == [LARGE[0], b"0", b"1", b"2"]


def test_a_root_takes_no_more_than_it_has_learned(roots: Replicated) -> None:
    damaged = settled_elsewhere(roots)
    roots.decided_log().pusher.shrink(roots.id_of("b"), "test")
    roots.hooks["b"] = no_device
    roots.write(b"not learned")
    for root in "ac":
        settle_at(roots, root)
    del roots.hooks["b"]
    zero(damaged, Random(1))
    with suppress(CorruptionError):
        roots.log("b").topic("t").repair()
    topic = roots.at("b")
    head = topic.journal.newest()
    assert head is not None
    assert topic.settled(head.entry.topic_id)[1].through[0] <= head.sequence


def test_nothing_is_given_up_that_a_root_could_not_hand_over(roots: Replicated) -> None:
    """Both have settled it, and are damaged elsewhere."""
    zero(settled_elsewhere(roots), Random(1))
    for root in "ac":
        zero(segment(roots, root), Random(1))
    with pytest.raises(ReplicaNotAvailableError, match="nothing was voided"):
        roots.log("b").topic("t").void()


def voided_by_a_clean_election(roots: Replicated) -> None:
    """Have a chunk that `a` alone has be void, `b` lead, and `a` be away."""
    roots.create(config=SMALL)
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE[0], acks_all=False)
    roots.hooks = {"a": no_device}
    elect(roots, "b")
    roots.write(b"1", topic=roots.topic("b"))


def test_what_an_election_made_void_is_no_fault(roots: Replicated) -> None:
    voided_by_a_clean_election(roots)
    assert roots.values("b") == [b"1"]
    assert faults(roots, "b") == ()


def test_a_void_below_the_log_start_stays_for_roots_that_have_not_settled_it(roots: Replicated) -> None:
    voided_by_a_clean_election(roots)
    roots.log("b").topic("t").delete_records({0: 1})
    settle_at(roots, "b")
    roots.hooks.clear()
    roots.write(LARGE[1], topic=roots.topic("b"))
    for root in "abc":
        if chunks := list((roots.path / root).glob("topics/t/*/staged/*.chunk")):
            zero(max(chunks), Random(1))
    (given_up,) = roots.log("b").topic("t").void()
    assert given_up.start == 2
    roots.decided_log("b").state_hw()
    settle_at(roots, "c")
    assert roots.values("c") == [b"1"]


def test_what_no_root_has_is_named_and_can_be_given_up(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    for root in "abc":
        zero(chunk(roots, root), Random(1))
    done = roots.log("b").topic("t").repair()
    assert (done.files, done.ranges) == ((), ())
    assert "no other root has it" in done.left[0]
    (given_up,) = roots.log("b").topic("t").void()
    assert (given_up.start, given_up.end) == (0, 1)


def test_nothing_is_given_up_that_a_root_may_have_which_is_away(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    for root in "ab":
        zero(chunk(roots, root), Random(1))
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError, match="may have what is damaged"):
        roots.log("b").topic("t").void()
    roots.give_back("c")
    assert roots.log("b").topic("t").void() == ()
    assert roots.values("b") == [LARGE[0]]


def test_a_deleted_record_does_not_come_back(roots: Replicated) -> None:
    """Compaction has removed the tombstone here; the other root was not compacted, and has the older record still."""
    compact = {
        "cleanup.policy": "compact",
        "delete.retention.ms": 0,
        "min.cleanable.dirty.ratio": 0,
        "segment.ms": 1000,
    }
    roots.create(config={**CONFIG, **compact})
    rows = [(b"key", b"old"), (b"key", None), (b"other", b"other"), (b"last", b"last"), (b"more", b"more")]
    for key, value in rows:
        topic = roots.topic()
        staged = stage(topic, batch_of([value], key=[key]))
        commit(topic, staged.topic_id, [staged])
        settle_at(roots, "b")
        roots.clock.advance(DAY_MS)
        roots.log("b").topic("t").maintain()
    assert roots.values("b") == [b"other", b"last", b"more"]
    settle_at(roots, "a")
    path = segment(roots, "b")
    zero(path, Random(1))
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == [b"old", None, b"other", b"last", b"more"], "not the record without its tombstone"
    assert roots.at("b").settled(topic.newest()[1].topic_id)[1].partition(0).cleaned == 0, "compaction looks again"
    assert not faults(roots, "b")


def test_a_deleted_record_does_not_come_back_from_a_root_that_was_compacted_further(roots: Replicated) -> None:
    """The tombstone is damaged here, and gone there: what it covers, the older record, goes as it went there."""
    roots.create(config={**CONFIG, **COMPACTED})
    for key, value in [(b"key", b"old"), (b"key", None), (b"other", b"other"), (b"last", b"last"), (b"more", b"more")]:
        topic = roots.topic()
        staged = stage(topic, batch_of([value], key=[key]))
        commit(topic, staged.topic_id, [staged])
        for root in "ab":
            settle_at(roots, root)
        roots.clock.advance(DAY_MS)
        roots.log("a").topic("t").maintain()
    here, topic_id = roots.at("b"), topic.newest()[1].topic_id
    spans = [segment_span(here.paths(topic_id), 0, each) for each, _ in segments_of(here, here.settled(topic_id)[1], 0)]
    frames = [(span, located) for span in spans for located in walk(here.storage, span)]
    span, tombstone = next((span, located) for span, located in frames if located.base_offset == 1)
    path = roots.path / "b" / span.path
    data = bytearray(path.read_bytes())
    data[tombstone.position + 80] ^= 1
    path.write_bytes(data)
    roots.take_away("c")
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == roots.values("a") == [b"other", b"last", b"more"]
    assert not faults(roots, "b")


def damage_frame(roots: Replicated, root: str, offset: int) -> None:
    """Flip a bit of the settled frame that holds an offset of partition 0."""
    topic = roots.at(root)
    topic_id = topic.newest()[1].topic_id
    segments = segments_of(topic, topic.settled(topic_id)[1], 0)
    spans = [segment_span(topic.paths(topic_id), 0, each) for each, _ in segments]
    frames = [(span, located) for span in spans for located in walk(topic.storage, span)]
    span, located = next((s, each) for s, each in frames if each.base_offset <= offset < each.next_offset)
    path = roots.path / root / span.path
    data = bytearray(path.read_bytes())
    data[located.position + located.frame.length - 5] ^= 1
    path.write_bytes(data)


def write_key(roots: Replicated, key: bytes, value: bytes | None, settled_at: str, compacted_at: str = "") -> None:
    topic = roots.topic()
    staged = stage(topic, batch_of([value], key=[key]))
    commit(topic, staged.topic_id, [staged])
    for root in settled_at:
        settle_at(roots, root)
    roots.clock.advance(DAY_MS)
    for root in compacted_at:
        compact_at(roots, root)


def test_a_root_that_was_compacted_is_not_taken_for_one_that_was_not(roots: Replicated) -> None:
    """It fetched what lies above from a root that was not compacted."""
    roots.create(config={**CONFIG, **COMPACTED})
    for key, value in [(b"k", b"old"), (b"k", None), *((b"%d" % n, b"%d" % n) for n in range(4))]:
        write_key(roots, key, value, "ab", "b")
    write_key(roots, b"last", b"last", "ab")
    assert b"old" not in roots.values("b")
    topic = roots.at("b")
    damage_frame(roots, "b", topic.settled(topic.newest()[1].topic_id)[1].partition(0).cleaned)
    roots.take_away("c")
    assert roots.log("b").topic("t").repair().left == ()
    damage_frame(roots, "a", 1)
    assert roots.log("a").topic("t").repair().left == ()
    values = roots.values("a")
    assert b"old" not in values or None in values


def test_nothing_is_taken_from_a_root_that_was_compacted_beyond_what_is_known_here(roots: Replicated) -> None:
    """It may have dropped what lives here, for a record that an election may lose."""
    roots.create(config={**CONFIG, **COMPACTED, "replica.lag.time.max.ms": 1000})
    for key, value in [(b"k", b"living"), (b"x", b"x"), (b"y", b"y")]:
        write_key(roots, key, value, "abc")
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
        roots.hooks[root] = no_device
    for key, value in [(b"k", b"new"), (b"z", b"z"), (b"zz", b"zz")]:
        write_key(roots, key, value, "a")
    compact_at(roots, "a")
    roots.hooks.clear()
    roots.take_away("c")
    damage_frame(roots, "b", 1)
    done = roots.log("b").topic("t").repair()
    assert "run `commitlog replicas sync` first" in done.left[0]
    roots.give_back("c")
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == [b"living", b"x", b"y"]


def test_pieces_of_a_partition_are_swapped_together_or_not_at_all(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two, a deleted record would be there again, and its tombstone not."""
    roots = Replicated(fast_path, unknown="b")
    roots.create(config={**CONFIG, **COMPACTED, "segment.bytes": 30_000})
    rows = [(b"k", b"old"), (b"p", b"p"), (b"k", None), *((b"%d" % n, b"%d" % n) for n in range(5))]
    for key, value in rows:
        write_key(roots, key, value and value + LARGE[0], "b", "b")
    settle_at(roots, "a")
    roots.take_away("c")
    damage_frame(roots, "b", 1)
    change, changes = TopicLog.change, []

    def counted(self: TopicLog, *args: Any) -> Stored | None:
        done = change(self, *args)
        if self.storage.url.endswith("/b"):
            changes.append(done)
        return done

    monkeypatch.setattr(TopicLog, "change", counted)
    mended = mend_segments(roots.at("b"), roots.at("b").newest()[1].topic_id, [roots.at("a")])
    assert mended.left == ()
    assert mended.ranges[0][1:2] == (0,), "all that compaction has seen"
    assert len(changes) == 1
    assert not faults(roots, "b")


def test_a_round_that_was_cut_off_counts_as_compaction(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without append its pieces are published one by one: what they lack was dropped for what comes after them."""
    roots = Replicated(fast_path, unknown="a")
    roots.create(config={**CONFIG, **COMPACTED, "segment.bytes": 30_000})
    rows = [(b"k", b"old"), (b"k", None), *((b"%d" % n, b"%d" % n) for n in range(3))]
    for key, value in rows:
        write_key(roots, key, value and value + LARGE[0], "ab")
    for _ in range(2):  # the tombstone goes in the second
        cut_off_after_a_piece(roots, "a", monkeypatch)
        roots.clock.advance(DAY_MS)
    damage_frame(roots, "b", 1)
    roots.take_away("c")
    assert roots.log("b").topic("t").repair().left == ()
    values = [value and value[:3] for value in roots.values("b")]
    assert b"old" not in values or None in values


@pytest.mark.parametrize("unknown", ["", "b"], ids=["appended", "objects"])
@pytest.mark.parametrize("damage", [flip, remove])
def test_a_manifest_that_is_lost_is_left_and_said(
    fast_path: Path, damage: Callable[[Path, Random], None], unknown: str
) -> None:
    """Each root has its own, and a copy that took a disk's place lacks what was made since: the root is to start over."""
    roots = Replicated(fast_path, unknown=unknown)
    roots.create(config={**CONFIG, **COMPACTED, "segment.bytes": 30_000})
    for n in range(6):
        write_key(roots, b"%d" % (n % 2), LARGE[n % 4], "b", "b")
        roots.clock.advance(2000)
    stale = roots.at("b")
    manifest = stale.settled(stale.newest()[1].topic_id)[1].partition(0).manifest
    assert manifest is not None
    (path,) = (roots.path / "b").glob(f"topics/t/*/manifests/{manifest.name}*")
    damage(path, Random(1))
    (left,) = roots.log("b").topic("t").repair().left
    assert path.name in left


def test_maintain_repairs_what_it_can_not_settle(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    zero(chunk(roots, "b"), Random(1))
    roots.log("b").topic("t").maintain()
    assert roots.values("b") == [LARGE[0]]
    assert not faults(roots, "b")


def test_a_reader_goes_on_after_its_entry_was_replaced(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(b"0")
    reader = roots.at("b")
    sequence = reader.newest()[0].sequence
    zero(entry(roots, "b", sequence), Random(1))
    roots.log("b").topic("t").repair()
    roots.write(b"1")
    assert reader.newest()[0].sequence > sequence


def test_what_is_fetched_of_a_partition() -> None:
    damage = [Fragment(5, 8, None), Fragment(1, 3, None)]
    assert lost_ranges(damage, 2, 0) == [(2, 3), (5, 8)]
    assert lost_ranges([Fragment(0, 2, None)], 2, 0) == []
    assert lost_ranges([Fragment(4, 6, None)], 0, 10) == [(0, 10)]
    assert lost_ranges([Fragment(4, 6, None), Fragment(8, 9, None)], 1, 5) == [(1, 6), (8, 9)]
    assert lost_ranges([Fragment(8, 9, None)], 1, 5) == [(8, 9)], "compaction has not seen it"


def test_from_whom_a_partition_is_fetched() -> None:
    damage = [Fragment(4, 6, None)]
    assert attempts(damage, 0, 0, [0, 4, 5]) == [([(4, 6)], [0, 1]), ([(0, 6)], [2])]
    assert attempts(damage, 0, 9, [0, 12]) == [([(0, 9)], [0]), ([(0, 12)], [1])], "each alone"
    assert attempts(damage, 6, 0, [0]) == []
    assert attempts(damage, 0, 0, []) == []


@pytest.mark.parametrize("old", [False, True])
def test_a_root_that_was_emptied_or_is_of_before_starts_over(roots: Replicated, old: bool) -> None:
    """Its directory is put aside, and an empty one takes its place: another root, of which nothing old counts."""
    roots.create()
    roots.write(b"0", everywhere=True)
    before = roots.id_of("b")
    if old:
        shutil.copytree(roots.path / "b", roots.path / "copy")
    roots.write(b"1", everywhere=True)
    shutil.rmtree(roots.path / "b")
    if old:
        (roots.path / "copy").rename(roots.path / "b")
    failed = roots.log().replicas.sync("t").failed
    assert list(failed) == [before]
    assert ("restored from a copy" if old else "does not answer") in failed[before]
    roots.log().replicas.remove([str(roots.path / "b")])
    if old:
        (roots.path / "b").rename(roots.path / "b.old")
    roots.log().replicas.add([str(roots.path / "b")])
    assert roots.log().topic("t").set_replication_factor(3).failed == {}
    assert roots.id_of("b") != before
    assert roots.isr() == "abc"
    roots.write(b"2", everywhere=True)
    assert [roots.values(root) for root in "abc"] == [[b"0", b"1", b"2"]] * 3


def without_the_first_entries(roots: Replicated, names: str) -> None:
    """A collector that ran while a root was set back has deleted what the copy has not settled."""
    roots.create(config=SMALL)
    for value in (b"0", b"1", b"2"):
        roots.write(value)
    for name in names:
        for sequence in range(1, 5):
            entry(roots, name, sequence).unlink()


def test_entries_that_are_missing_before_the_first_one_are_fetched(roots: Replicated) -> None:
    without_the_first_entries(roots, "c")
    assert "entry 2 of t is missing" in str(faults(roots, "c"))
    assert roots.log("c").topic("t").repair().left == ()
    assert faults(roots, "c") == ()
    assert roots.values("c") == [b"0", b"1", b"2"]


def test_entries_that_no_root_has_before_the_first_one_are_named(roots: Replicated) -> None:
    without_the_first_entries(roots, "abcm")
    (left,) = roots.log("c").topic("t").repair().left[:1]
    assert left == "entries 1 to 4 are missing, and not settled, and no other root has them"


def test_what_a_root_has_settled_is_not_missing(roots: Replicated) -> None:
    without_the_first_entries(roots, "")
    settle_at(roots, "c")
    for sequence in range(1, 5):
        entry(roots, "c", sequence).unlink()
    done = roots.log("c").topic("t").repair()
    assert (done.files, done.left) == ((), ())


def test_a_root_that_lists_those_of_before_asks_those_of_now(roots: Replicated) -> None:
    """It was set back to a copy of before another one was replaced."""
    roots.create(config=SMALL)
    shutil.copytree(roots.path / "b", roots.path / "copy")
    roots.log().replicas.remove([str(roots.path / "c")])
    shutil.rmtree(roots.path / "c")
    roots.log().replicas.add([str(roots.path / "c")])
    assert roots.log().topic("t").set_replication_factor(3).failed == {}
    shutil.rmtree(roots.path / "b")
    (roots.path / "copy").rename(roots.path / "b")
    assert roots.log("b").topic("t").repair().away == ()

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

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.log.maintain.mend import lost_ranges
from pyspark_commitlog.log.maintain.settle import settle
from pyspark_commitlog.log.read.damage import Fragment
from pyspark_commitlog.log.repair.verify import verify
from pyspark_commitlog.log.write.commit import commit
from pyspark_commitlog.model import silent
from tests.crash.conftest import fast_path as fast_path
from tests.support.damage import cut, flip, remove, zero
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, Replicated

LARGE = [Random(n).randbytes(20_000) for n in range(4)]
SMALL = {**CONFIG, "inline.max.bytes": 4096}
DAMAGES = pytest.mark.parametrize("damage", [flip, cut, zero, remove])


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def settle_at(roots: Replicated, root: str) -> None:
    topic = roots.at(root)
    settle(topic, topic.newest()[1].topic_id)


def faults(roots: Replicated, root: str) -> tuple[str, ...]:
    return verify(roots.at(root), silent).faults


def the_only(files: list[Path]) -> Path:
    (found,) = files
    return found


def chunk(roots: Replicated, root: str) -> Path:
    return the_only(list((roots.path / root).glob("topics/t/*/staged/*.chunk")))


def entry(roots: Replicated, root: str, sequence: int) -> Path:
    return roots.path / root / f"topics/t/journal/{sequence:020d}.json"


def segment(roots: Replicated, root: str) -> Path:
    """Return a file with settled records: a partition's first segment, or a segment object."""
    files = [*(roots.path / root).glob("topics/t/*/0/*.log"), *(roots.path / root).glob("topics/t/*/objects/*")]
    return max(files, key=lambda path: path.stat().st_size)


@DAMAGES
def test_a_chunk_is_fetched(roots: Replicated, damage: Callable[[Path, Random], None]) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    damage(chunk(roots, "b"), Random(1))
    with pytest.raises(CorruptionError):
        roots.values("b")
    done = roots.log("b").repair("t")
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
    done = roots.log(at).repair("t")
    assert done.files == (f"topics/t/journal/{newest - back:020d}.json",)
    assert entry(roots, at, newest - back).read_bytes() == entry(roots, "a", newest - back).read_bytes()
    roots.write(b"3")
    assert roots.values("b") == [b"0", b"1", b"2", b"3"]


def test_inline_frames_are_fetched(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(b"record")
    path = next(p for p in sorted((roots.path / "b/topics/t/journal").iterdir()) if b"record" in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"record", b"recorD"))
    with pytest.raises(CorruptionError):
        roots.values("b")
    assert len(roots.log("b").repair("t").files) == 1
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
    done = roots.log("b").repair("t")
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
    done = roots.log("b").repair("t")
    assert done.left == ()
    assert done.ranges
    assert roots.values("b") == expected
    assert not faults(roots, "b")
    roots.write(b"next")
    settle_at(roots, "b")
    assert roots.values("b") == [*expected, b"next"]
    roots.clock.advance(DAY_MS)
    roots.log("b").maintain("t")
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
    assert roots.log("b").repair("t").ranges == ((0, 0, 1),)
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
    done = roots.log("b").repair("t")
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
        assert roots.log(root).repair("t").left == ()
        assert roots.values(root) == LARGE[:2]
        assert not faults(roots, root)


def test_what_no_root_has_is_named_and_can_be_given_up(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    for root in "abc":
        zero(chunk(roots, root), Random(1))
    done = roots.log("b").repair("t")
    assert (done.files, done.ranges) == ((), ())
    assert "no other root has it" in done.left[0]
    (given_up,) = roots.log("b").void("t")
    assert (given_up.start, given_up.end) == (0, 1)


def test_nothing_is_given_up_that_a_root_may_have_which_is_away(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    for root in "ab":
        zero(chunk(roots, root), Random(1))
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError, match="may have what is damaged"):
        roots.log("b").void("t")
    roots.give_back("c")
    assert roots.log("b").void("t") == ()
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
        roots.log("b").maintain("t")
    assert roots.values("b") == [b"other", b"last", b"more"]
    settle_at(roots, "a")
    path = segment(roots, "b")
    zero(path, Random(1))
    assert roots.log("b").repair("t").left == ()
    assert roots.values("b") == [b"old", None, b"other", b"last", b"more"], "not the record without its tombstone"
    assert roots.at("b").settled(topic.newest()[1].topic_id)[1].partition(0).cleaned == 0, "compaction looks again"
    assert not faults(roots, "b")


def test_maintain_repairs_what_it_can_not_settle(roots: Replicated) -> None:
    roots.create()
    roots.write(LARGE[0], everywhere=True)
    zero(chunk(roots, "b"), Random(1))
    roots.log("b").maintain("t")
    assert roots.values("b") == [LARGE[0]]
    assert not faults(roots, "b")


def test_a_reader_goes_on_after_its_entry_was_replaced(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(b"0")
    reader = roots.at("b")
    sequence = reader.newest()[0].sequence
    zero(entry(roots, "b", sequence), Random(1))
    roots.log("b").repair("t")
    roots.write(b"1")
    assert reader.newest()[0].sequence > sequence


def test_what_is_fetched_of_a_partition() -> None:
    damaged = {0: [Fragment(5, 8, None), Fragment(1, 3, None)], 1: [Fragment(0, 2, None)], 2: [Fragment(4, 6, None)]}
    assert lost_ranges(damaged, [2, 2, 0], [0, 0, 10]) == {0: [(2, 3), (5, 8)], 2: [(0, 10)]}
    assert lost_ranges({0: [Fragment(4, 6, None), Fragment(8, 9, None)]}, [1], [5]) == {0: [(1, 6), (8, 9)]}


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
    failed = roots.log().replicate("t").failed
    assert list(failed) == [before]
    assert ("restored from a copy" if old else "does not answer") in failed[before]
    roots.log().remove_replicas([str(roots.path / "b")])
    if old:
        (roots.path / "b").rename(roots.path / "b.old")
    roots.log().add_replicas([str(roots.path / "b")])
    assert roots.log().set_replication_factor("t", 3).failed == {}
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
    assert roots.log("c").repair("t").left == ()
    assert faults(roots, "c") == ()
    assert roots.values("c") == [b"0", b"1", b"2"]


def test_entries_that_no_root_has_before_the_first_one_are_named(roots: Replicated) -> None:
    without_the_first_entries(roots, "abcm")
    (left,) = roots.log("c").repair("t").left[:1]
    assert left == "entries 1 to 4 are missing, and not settled, and no other root has them"


def test_what_a_root_has_settled_is_not_missing(roots: Replicated) -> None:
    without_the_first_entries(roots, "")
    settle_at(roots, "c")
    for sequence in range(1, 5):
        entry(roots, "c", sequence).unlink()
    done = roots.log("c").repair("t")
    assert (done.files, done.left) == ((), ())


def test_a_root_that_lists_those_of_before_asks_those_of_now(roots: Replicated) -> None:
    """It was set back to a copy of before another one was replaced."""
    roots.create(config=SMALL)
    shutil.copytree(roots.path / "b", roots.path / "copy")
    roots.log().remove_replicas([str(roots.path / "c")])
    shutil.rmtree(roots.path / "c")
    roots.log().add_replicas([str(roots.path / "c")])
    assert roots.log().set_replication_factor("t", 3).failed == {}
    shutil.rmtree(roots.path / "b")
    (roots.path / "copy").rename(roots.path / "b")
    assert roots.log("b").repair("t").away == ()

"""A root that was emptied, and replaced; and one that was set back to before that.

Interleavings:

1. A process that has seen what a bucket holds stops; the bucket is emptied; it goes on, and puts what comes next. A disk
   has no directory for that any more, a bucket takes it. The entry is in nobody's way, and stands for nothing.
2. Another root takes the place: what stands there already it has not learned.
3. A root that is set back lists those of before, under a number that new roots' lists have not reached.
"""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.replication.follower.catching_up import learn_or_catch_up
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.learning import Allowance, RestoredError
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import Replicated, no_device, settle_at


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def _replaced_without(roots: Replicated, root: str) -> bytes:
    """Take a root out and empty its place; return the newest entry, as a process has it that goes on pushing."""
    roots.create()
    roots.write(b"0", b"1")
    data = max((roots.path / root / "topics/t/journal").glob("*.json")).read_bytes()
    roots.log().replicas.remove([str(roots.path / root)])
    shutil.rmtree(roots.path / root)
    return data


def _put_late(roots: Replicated, root: str, data: bytes) -> None:
    """Put an entry at a root as a bucket takes it: no directory has to be there."""
    journal = roots.path / root / "topics/t/journal"
    journal.mkdir(parents=True)
    number = json.loads(data.splitlines()[0])["sequence"]
    (journal / f"{number:020d}.json").write_bytes(data)


def test_a_place_with_entries_and_without_a_root_is_not_empty(roots: Replicated) -> None:
    _put_late(roots, "c", _replaced_without(roots, "c"))
    with pytest.raises(UsageError, match="/c is not empty"):
        roots.log().replicas.add([str(roots.path / "c")])


def test_a_root_that_begins_at_an_entry_and_has_settled_nothing_starts_over(roots: Replicated) -> None:
    """The entry comes after the place was looked at: what is below it nobody looked for."""
    data = _replaced_without(roots, "c")
    roots.log().replicas.add([str(roots.path / "c")])
    _put_late(roots, "c", data)
    with pytest.raises(RestoredError, match="entry 2 is missing, and not settled"):
        roots.decided_log().places.at(roots.id_of("c")).learned()
    assert roots.log().topic("t").set_replication_factor(3).failed == {}
    assert roots.values("c") == [b"0", b"1"]


def test_a_root_that_is_restored_does_not_start_over_by_itself(roots: Replicated) -> None:
    """It lacks entries between others: what it has nobody else may have."""
    roots.create()
    for value in (b"0", b"1", b"2"):
        roots.write(value)
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    lacks = sorted((roots.path / "c/topics/t/journal").iterdir())[3]
    lacks.unlink()
    before = sorted((roots.path / "c/topics/t/journal").iterdir())
    assert "is missing, and not settled" in str(roots.log().replicas.sync("t").failed)
    assert sorted((roots.path / "c/topics/t/journal").iterdir()) == before


def _without_its_beginning(roots: Replicated, *, settles: bool = False) -> Path:
    """Have `c` be out of sync, and lack the entries before the last two; return its journal."""
    roots.create()
    roots.write(b"0")
    if settles:
        settle_at(roots, "c")
    for value in (b"1", b"2"):
        roots.write(value)
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    journal = roots.path / "c/topics/t/journal"
    for path in sorted(journal.glob("*.json"))[:-2]:
        path.unlink()
    return journal


@pytest.mark.parametrize("joins", [True, False], ids=["joining", "in sync"])
def test_what_a_root_has_learned_that_counts_is_not_deleted(roots: Replicated, *, joins: bool) -> None:
    """High watermarks were stated by it: another process may have had it join since it was found out of sync."""
    journal = _without_its_beginning(roots)
    decided_log, root = roots.decided_log(), roots.id_of("c")
    assert decided_log.pusher.change("joining", lambda state, base: rules.joining(state, root))
    if not joins:
        assert decided_log.pusher.change(
            "isr", lambda state, base: rules.joined(state, base.sequence, root, base.sequence)
        )
    before, allowed = sorted(journal.iterdir()), Allowance(roots.clock)
    with pytest.raises(RestoredError, match="is missing, and not settled"):
        learn_or_catch_up(decided_log.places, root, None, decided_log.places.newest(), allowed)
    assert sorted(journal.iterdir()) == before


def test_a_root_that_has_settled_something_does_not_start_over(roots: Replicated) -> None:
    """It is the root that it was, restored or damaged: nothing was put late there by what wrote to another one."""
    journal = _without_its_beginning(roots, settles=True)
    before = sorted(journal.iterdir())
    assert "is missing, and not settled" in roots.log().replicas.sync("t").failed[roots.id_of("c")]
    assert sorted(journal.iterdir()) == before


def test_a_root_that_begins_where_it_has_settled_is_asked_once(roots: Replicated) -> None:
    """What it has collected is not missing; and it is looked at again after a listing only."""
    roots.create()
    roots.write(b"0")
    for name in ("a", "c"):
        roots.log(name).topic("t").maintain()
    roots.clock.advance(120_000)
    roots.log("c").topic("t").maintain()
    assert not (roots.path / "c/topics/t/journal" / f"{1:020d}.json").exists(), "collected"
    places = roots.decided_log().places
    there = places.at(roots.id_of("c"))
    assert there.learned() is not None
    roots.hooks["c"] = lambda operation, path, moment: "settle" in path and no_device(operation, path, moment)
    assert there.learned() is not None


def test_a_topic_that_is_made_again_is_learned_where_nothing_is_left_of_the_one_before(roots: Replicated) -> None:
    """What was settled of it is gone with its directories; the entries that say so stay."""
    roots.create()
    roots.write(b"0")
    for _ in range(2):
        roots.write(b"1")
        for name in "abc":
            roots.log(name).topic("t").maintain()
        roots.clock.advance(120_000)
    roots.log().topic("t").delete()
    for _ in range(2):
        for name in "abc":
            roots.log(name).maintain()
        roots.clock.advance(120_000)
    roots.create()
    roots.write(b"2")
    assert roots.isr() == "abc"
    assert [roots.values(root) for root in "abc"] == [[b"2"]] * 3


# --- What roots list ----------------------------------------------------------------------------------------------


def test_a_root_that_was_set_back_gives_up_none_that_came_since(roots: Replicated) -> None:
    """Its list has a higher number than those of roots that were added later: it is older all the same."""
    roots.create()
    for _ in range(2):
        _replace(roots, "c")
    shutil.copytree(roots.path / "b", roots.path / "copy")
    for name in "ca":
        _replace(roots, name)
    shutil.rmtree(roots.path / "b")
    (roots.path / "copy").rename(roots.path / "b")
    for name in "ac":
        assert roots.log(name).replicas.sync("t").failed == {}
    assert roots.log("b").replicas.sync("t").failed == {}
    assert roots.isr() == "abc"


def _replace(roots: Replicated, root: str) -> None:
    log = roots.log("b")
    log.replicas.remove([str(roots.path / root)])
    shutil.rmtree(roots.path / root)
    log.replicas.add([str(roots.path / root)])
    assert log.topic("t").set_replication_factor(3).failed == {}


def no_removal(operation: str, path: str, moment: str) -> None:
    """A hook: nothing can be deleted."""
    if operation == "delete":
        raise OSError(errno.EROFS, "injected")


def test_a_root_that_was_set_back_is_not_in_sync_with_entries_whose_chunks_no_root_has(fast_path: Path) -> None:
    """The others have settled them, and let go; the metadata roots, which can't delete, have the entries yet."""
    roots = Replicated(fast_path, metadata="mno")
    roots.create()
    roots.write(b"0")
    shutil.copytree(roots.path / "c", roots.path / "copy")
    for value in (b"1", b"2", b"3"):
        roots.write(value)
    roots.hooks.update(dict.fromkeys("mno", no_removal))
    for _ in range(2):
        for name in "ab":
            with suppress(ExceptionGroup):
                roots.log(name).topic("t").maintain()
        roots.clock.advance(120_000)
    roots.hooks.clear()
    assert [roots.at(name).journal.sequences()[0] == 1 for name in "abm"] == [False, False, True], "the scene"
    newest = max((roots.path / "c/topics/t/journal").glob("*.json"))
    data = newest.read_bytes()
    shutil.rmtree(roots.path / "c")
    (roots.path / "copy").rename(roots.path / "c")
    newest.write_bytes(data)
    assert roots.log("c").topic("t").repair().left
    roots.write(b"4")
    assert roots.isr() == "ab"


@pytest.mark.parametrize("metadata", ["m", "mno"])
@pytest.mark.parametrize("when", ["before", "since"])
def test_what_is_put_late_at_a_root_that_starts_over_does_not_keep_it_out(
    fast_path: Path, metadata: str, when: str
) -> None:
    """A process wrote to the root of before, by what it knew a moment ago, when the new one was just made."""
    roots = Replicated(fast_path, metadata=metadata)
    roots.create()
    for value in (b"0", b"1", b"2"):
        roots.write(value)
    kept = {path.name: path.read_bytes() for path in sorted((roots.path / "c/topics/t/journal").iterdir())[-3:]}
    roots.log().replicas.remove([roots.id_of("c")])
    shutil.rmtree(roots.path / "c")
    for value in (b"3", b"4", b"5"):
        roots.write(value)
    roots.log().replicas.add([str(roots.path / "c")])
    for _ in range(3 if when == "before" else 0):  # they have let go of what comes before it
        for name in "ab":
            roots.log(name).topic("t").maintain()
        roots.clock.advance(120_000)
    journal = roots.path / "c/topics/t/journal"
    journal.mkdir(parents=True)
    for name, data in kept.items():
        (journal / name).write_bytes(data)
    done = roots.log().topic("t").set_replication_factor(3)
    assert done.failed == {}
    assert roots.isr() == "abc"
    assert roots.values("c") == [b"%d" % number for number in range(6)]
    roots.write(b"6")
    assert roots.values("c")[-1] == b"6"

"""A root is taken out, and another gets its replicas: whatever cuts that off, running it again ends it.

Interleavings:

1. The root that gets a replica does not catch up (its disk is full): it is taken out again, and nothing has changed.
2. The process is killed once that root is a replica: the next run goes on with it where it is named.
3. No other root is free, and one that holds a replica is not in sync: the one that goes may have what it lacks.
4. It is interrupted after the root has gone: the other one stays, which holds its records.
5. Another run, that was begun before, takes the root out again which this one goes by.
6. Between the turn of a group and the last one's, `replicate` gives the group a replica on the root that goes.
7. `replicate` runs in a process that has not read the list with the root that was added.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_commitlog.api import replicas
from pyspark_commitlog.errors import CommitLogError, NotLeaderError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.admin.joining import add_replicas, give_default, remove_replica
from pyspark_commitlog.replication.admin.replicating import Outcome, replicate
from pyspark_commitlog.replication.follower.catching_up import SegmentCopier
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.pushing import Pusher
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.roots import Roots
from tests.support.replicas import CONFIG, Replicated, commit_offset, committed_offset, group, takes_no_entry


def living_on_two(path: Path, names: str) -> Replicated:
    """Return roots, with a topic of one record on `a`, which leads, and `b`."""
    roots = Replicated(path, names=names)
    roots.create(config={**CONFIG, "replication.factor": 2, "min.insync.replicas": 2})
    roots.write(b"0")
    assert holding(roots) == "ab"
    return roots


def holding(roots: Replicated) -> str:
    return roots.named(*roots.state().replicas)


def take_out(roots: Replicated, root: str, to: str | None = None) -> None:
    """Take a root out, by another process."""
    log = roots.log("a")
    place = str(roots.path / root)
    if to is None:
        log.replicas.remove([place])
    else:
        log.replicas.move(place, str(roots.path / to))
    roots.names = roots.names.replace(root, "")


@pytest.mark.parametrize("names", ["abc", "abcde"])
def test_one_that_does_not_catch_up_gets_no_replica_and_the_other_stays(tmp_path: Path, names: str) -> None:
    roots = living_on_two(tmp_path, names)
    roots.hooks.update(dict.fromkeys(names[2:], takes_no_entry))
    for _ in range(2):
        with pytest.raises(ReplicaNotAvailableError, match=r"root .* has not caught up, and root .* was not taken out"):
            take_out(roots, "b")
        assert (holding(roots), roots.isr()) == ("ab", "ab")
        roots.write(b"1")
    roots.hooks.clear()
    take_out(roots, "b")
    assert (holding(roots), roots.isr()) == ("ac", "ac")
    assert roots.values("c") == [b"0", b"1", b"1"]


def test_a_move_that_was_killed_goes_on_with_the_root_that_is_named(tmp_path: Path) -> None:
    roots = living_on_two(tmp_path, "abcd")
    add_replicas(roots.decided_log(), [roots.id_of("d")])
    take_out(roots, "b", to="d")
    assert (holding(roots), roots.isr()) == ("ad", "ad")


def test_a_root_stays_while_the_last_one_that_can_hold_its_records_lags(tmp_path: Path) -> None:
    roots = living_on_two(tmp_path, "abc")
    add_replicas(roots.decided_log(), [roots.id_of("c")])
    roots.hooks["c"] = takes_no_entry
    with pytest.raises(ReplicaNotAvailableError, match="has not caught up"):
        take_out(roots, "b")
    assert (holding(roots), roots.isr()) == ("abc", "ab")
    roots.hooks.clear()
    take_out(roots, "b")
    assert (holding(roots), roots.isr()) == ("ac", "ac")


def test_one_that_is_away_keeps_no_other(tmp_path: Path) -> None:
    """Its list can't be changed, so the root that goes stays listed; the topic has left it."""
    roots = living_on_two(tmp_path, "abc")
    b, c = roots.id_of("b"), roots.id_of("c")
    add_replicas(roots.decided_log(), [c])
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError, match="does not answer"):
        roots.log("a").replicas.remove([b])
    assert b not in roots.state().replicas


def test_what_got_the_records_stays_where_it_is_interrupted_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = living_on_two(tmp_path, "abc")

    def interrupted(pusher: Pusher, root: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pusher, "tell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        take_out(roots, "b")
    assert (holding(roots), roots.isr()) == ("ac", "ac")


@pytest.mark.parametrize("to", ["c", None])
def test_a_root_stays_where_another_run_took_out_the_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str | None
) -> None:
    roots = living_on_two(tmp_path, "abc")
    c = roots.id_of("c")
    add_replicas(roots.decided_log(), [c])

    def beside(decided_log: DecidedLog, segments: SegmentCopier | None = None) -> Outcome:
        remove_replica(decided_log, c)
        return replicate(decided_log, segments)

    monkeypatch.setattr(replicas, "replicate", beside)
    with pytest.raises((NotLeaderError, ReplicaNotAvailableError), match=r"run it again|was not taken out"):
        take_out(roots, "b", to=to)
    assert (holding(roots), roots.isr()) == ("ab", "ab")


def test_a_root_that_has_a_replica_already_takes_no_other_one(tmp_path: Path) -> None:
    """There is one that is free: the topic keeps as many."""
    roots = Replicated(tmp_path, names="abcd")
    roots.create(config={**CONFIG, "replication.factor": 3})
    roots.write(b"0")
    take_out(roots, "b", to="c")
    assert (holding(roots), roots.isr()) == ("acd", "acd")
    with pytest.raises(UsageError, match="can't get the replicas of others"):
        roots.log("a").replicas.remove([str(tmp_path / "d")], to=str(tmp_path / "d"))


@pytest.mark.parametrize("lost", [False, True])
def test_a_root_that_helps_nobody_goes_though_another_one_lags(tmp_path: Path, lost: bool) -> None:
    """It is out of sync, or is lost: the one whose disk is full has nothing of it."""
    roots = Replicated(tmp_path, names="abc")
    roots.create()
    roots.write(b"0")
    b = roots.id_of("b")
    for out in "c" if lost else "bc":
        roots.decided_log().pusher.shrink(roots.id_of(out), "a test")
        roots.hooks[out] = takes_no_entry
    if lost:
        roots.take_away("b")
    elif roots.isr() != "a":
        raise AssertionError("the scene")
    with suppress(CommitLogError):  # a full root can't be given the list without it
        roots.log("a").replicas.remove([b])
    assert b not in roots.state().replicas


def test_a_root_that_is_lost_goes_though_the_one_in_its_place_lags(tmp_path: Path) -> None:
    roots = living_on_two(tmp_path, "abc")
    b = roots.id_of("b")
    roots.take_away("b")
    roots.hooks["c"] = takes_no_entry
    with suppress(CommitLogError):
        roots.log("a").replicas.remove([b])
    roots.names = "ac"
    assert (holding(roots), roots.isr()) == ("ac", "a")


def test_a_root_that_goes_too_gets_no_replica(tmp_path: Path) -> None:
    roots = living_on_two(tmp_path, "abcd")
    roots.hooks["c"] = takes_no_entry
    b, c = roots.id_of("b"), roots.id_of("c")
    with suppress(CommitLogError):  # that root can't be given the list without it
        roots.log("a").replicas.remove([b, c])
    assert b not in roots.state().replicas
    assert roots.id_of("d") in roots.state().isr


def test_a_run_that_gives_up_leaves_what_another_one_goes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has added a root, and another run has taken one out since, as there are enough."""
    roots = Replicated(tmp_path, names="abcd")
    roots.create(config={**CONFIG, "replication.factor": 3})
    roots.write(b"0")
    c = roots.id_of("c")

    def beside(decided_log: DecidedLog, segments: SegmentCopier | None = None) -> Outcome:
        done = replicate(decided_log, segments)
        remove_replica(decided_log, c)
        return done

    monkeypatch.setattr(replicas, "replicate", beside)
    with pytest.raises(NotLeaderError, match="run it again"):
        take_out(roots, "b")
    assert (holding(roots), roots.isr()) == ("abd", "abd")


def test_of_roots_that_are_taken_out_together_none_waits_for_the_other(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, names="abc")
    roots.create()
    roots.write(b"0")
    b, c = roots.id_of("b"), roots.id_of("c")
    roots.decided_log().pusher.shrink(c, "a test")
    roots.hooks["c"] = takes_no_entry
    with suppress(CommitLogError):
        roots.log("a").replicas.remove([b, c])
    assert b not in roots.state().replicas


def test_a_group_gives_up_a_replica_on_a_root_that_is_not_listed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = living_on_two(tmp_path, "abc")
    commit_offset(roots, 1)
    gone, remove_root = roots.id_of("b"), replicas.remove_root

    def beside(together: Roots, root: str) -> None:
        roots.log("c").replicas.sync()
        remove_root(together, root)

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "remove_root", beside)
        take_out(roots, "b")
    assert gone in of_group(roots), "the scene"
    roots.log("a").replicas.sync()
    assert gone not in of_group(roots)
    roots.write(b"1")
    commit_offset(roots, 2)
    assert committed_offset(roots) == 2


def test_a_replica_stays_on_a_root_that_this_process_has_not_read_of(tmp_path: Path) -> None:
    roots = living_on_two(tmp_path, "ab")
    commit_offset(roots, 1)
    late = group(roots).journal.decided_log()
    late.places.roots.compare()
    roots.log("b").replicas.add([str(tmp_path / "c")])
    roots.names = "abc"
    before = newest_of_group(roots)
    assert roots.id_of("c") in state_of(before.entry).replicas, "the scene"
    assert len(late.places.roots.listed().data) == 2, "the scene"
    give_default(late)
    assert newest_of_group(roots).sequence == before.sequence, "it was not taken out and added again"


def newest_of_group(roots: Replicated) -> Stored:
    return group(roots).journal.decided_log().places.newest()


def of_group(roots: Replicated) -> tuple[str, ...]:
    """Return where the group lives, by ids."""
    return state_of(newest_of_group(roots).entry).replicas

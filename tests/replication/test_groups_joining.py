"""Groups, defaults and access rules that are there when a root that stood alone gets others, while a consumer commits.

Interleavings:

1. A commit, by a handle of before, comes between any two steps of what adds replicas: it loses a number or wins it, and
   is in the state that follows.
2. The process is killed at any step: the group is whole at its root, and the next run, or `replicate`, goes on.
3. Entries of the group were collected before: the others begin with what is left.
4. A root does not take it, or has another group of that name: the others get it, and that is said.
"""

from __future__ import annotations

import shutil
import threading
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.cli.maintain import _MaintainRound
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from tests.crash.conftest import fast_path as fast_path
from tests.crash.processes import start
from tests.support.growing import Grown, add, alone
from tests.support.replicas import commit_offset, committed_offset, group, no_groups
from tests.support.syscalls import killed_before


def offset_at(roots: Grown, name: str) -> int | None:
    """Return the group's offset by what this very root has."""
    handle = GroupLog(roots.storage(name), "g")
    topic = roots.at("a").newest()[1].topic_id
    return handle.newest().offsets(topic).get(0)


def newest(roots: Grown) -> Stored:
    """Return the newest entry of the group, at the root that decides."""
    found = GroupLog(roots.storage("a"), "g").journal.head()
    assert found is not None
    return found


def in_sync(roots: Grown) -> str:
    """Return the roots that hold the group, in sync."""
    entry = newest(roots).entry
    return roots.named(*state_of(entry).isr) if entry.is_replicated else "alone"


def with_group(path: Path) -> Grown:
    """Return a root that stands alone, with a topic of two records and a group at 1."""
    roots = alone(path)
    commit_offset(roots, 0)
    commit_offset(roots, 1)
    return roots


def test_groups_are_on_all_roots_when_these_are_added(fast_path: Path) -> None:
    roots = with_group(fast_path)
    before = group(roots)
    assert before.newest().exists
    add(roots)
    assert in_sync(roots) == "abc"
    assert [offset_at(roots, name) for name in "abc"] == [1, 1, 1]
    commit_offset(roots, 2, before)
    assert [offset_at(roots, name) for name in "abc"] == [2, 2, 2]


def test_the_root_that_stood_alone_may_be_lost(fast_path: Path) -> None:
    roots = with_group(fast_path)
    roots.log("a").config.alter({"retention.ms": 12_345})
    roots.log("a").access.allow("*", "admin")
    add(roots)
    roots.log("a").topic("t").set_replication_factor(3)
    commit_offset(roots, 2, group(roots))
    roots.take_away("a")
    roots.log("b").replicas.recover(str(fast_path / "b"), [str(fast_path / "a")], execute=True)
    assert committed_offset(roots, "c") == 2
    assert roots.log("c").config.get() == {"retention.ms": "12345"}
    assert [rule.principal for rule in roots.log("c").access.rules()] == ["*"]


def add_and_commit(roots: Grown, step: int) -> list[str]:
    """Add roots, and commit by a handle of before when the `step`-th put of a group begins; return its path."""
    handle, puts, came = group(roots), count(1), list[str]()

    def other(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "groups/" in path and moment == "before" and next(puts) == step:
            came.append(path)
            commit_offset(roots, 2, handle)

    roots.hooks.update(dict.fromkeys("abc", other))
    add(roots)
    roots.hooks.clear()
    return came


def test_a_commit_between_any_two_steps_is_kept(fast_path: Path) -> None:
    for step in count(1):
        roots = with_group(fast_path / str(step))
        came = add_and_commit(roots, step)
        roots.log("b").replicas.sync()
        assert in_sync(roots) == "abc"
        if not came:
            return
        assert [offset_at(roots, name) for name in "abc"] == [2, 2, 2], f"a commit before put {step}, {came}"


def test_a_group_whose_first_entries_are_collected(fast_path: Path) -> None:
    roots = with_group(fast_path)
    for offset in (1, 2, 1, 2):
        roots.log("a").groups.reset("g", ["t"], offset=offset, dry_run=False)
    journal = GroupLog(roots.storage("a"), "g").journal
    for sequence in journal.sequences()[:-2]:
        journal.delete(sequence)
    add(roots)
    assert in_sync(roots) == "abc"
    assert [offset_at(roots, name) for name in "abc"] == [2, 2, 2]


@pytest.mark.parametrize("by", ["replicate", "maintain", "the command"])
def test_what_could_not_be_copied_is_by_the_next_run(fast_path: Path, by: str) -> None:
    roots = with_group(fast_path)
    add_without_groups(roots)
    assert in_sync(roots) == "alone"
    roots.hooks["c"] = no_groups
    with pytest.raises(ExceptionGroup, match="could not be replicated"):
        roots.log("a").replicas.sync()
    assert in_sync(roots) == "ab"
    roots.hooks.clear()
    if by == "the command":
        _MaintainRound(Maintenance(roots.log("a").root), threading.Event(), as_json=True).run(None)
    else:
        log = roots.log("a")
        (log.maintain if by == "maintain" else log.replicas.sync)()
    assert in_sync(roots) == "abc"


def test_a_group_gets_no_more_replicas_than_a_new_one(fast_path: Path) -> None:
    roots = with_group(fast_path)
    roots.names = "ab"
    add(roots, "b")
    assert in_sync(roots) == "ab"
    roots.names = "abcd"
    add(roots, "cd")
    assert in_sync(roots) == "abc"
    roots.log("a").replicas.sync()
    assert in_sync(roots) == "abc"


def test_another_group_of_that_name_is_left_alone(fast_path: Path) -> None:
    roots, other = with_group(fast_path / "one"), with_group(fast_path / "other")
    add_without_groups(roots)
    shutil.copytree(other.path / "a/groups", roots.path / "b/groups")
    with pytest.raises(ExceptionGroup, match="could not be replicated"):
        roots.log("a").replicas.sync()
    assert in_sync(roots) == "ac"
    assert [offset_at(roots, name) for name in "ac"] == [1, 1]
    assert roots.id_of("b") not in state_of(newest(roots).entry).replicas


def add_without_groups(roots: Grown) -> None:
    """Add b and c, where nothing of a group can be read or written."""
    roots.hooks.update(dict.fromkeys("bc", no_groups))
    add(roots)
    roots.hooks.clear()


def _grow_and_die(roots: Grown, number: int) -> None:
    with killed_before(number):
        add(roots, "b")


@pytest.mark.nightly
def test_killed_before_any_change(fast_path: Path) -> None:
    """A handle of before commits at every step, and the next run goes on."""
    for number in count(1):
        roots = with_group(fast_path / str(number))
        roots.names = "ab"
        handle = group(roots)
        assert handle.newest().exists
        process = start(_grow_and_die, roots, number)
        process.join()
        assert process.exitcode in (0, -9)
        assert committed_offset(roots) == 1
        commit_offset(roots, 2, handle)
        add(roots, "b")
        assert in_sync(roots) == "ab", f"killed before call {number}"
        assert [offset_at(roots, name) for name in "ab"] == [2, 2], f"killed before call {number}"
        shutil.rmtree(roots.path)
        if process.exitcode == 0:
            return

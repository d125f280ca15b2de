"""Which roots get replicas of a topic, and which give theirs up, while some do not answer, or have something else there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_commitlog.commit_log import CommitLog
from pyspark_commitlog.errors import NotLeaderError, ReplicaNotAvailableError, UsageError
from tests.support.replicas import CONFIG, Replicated


def living_on(path: Path, factor: int, names: str) -> Replicated:
    """Return roots that answer, with a topic of one record on the first of them."""
    roots = Replicated(path, names=names)
    roots.create(config={**CONFIG, "replication.factor": factor})
    roots.write(b"0")
    assert holding(roots) == names[:factor]
    return roots


def holding(roots: Replicated) -> str:
    return roots.named(*roots.state().replicas)


def has_another(roots: Replicated, root: str) -> None:
    """Have a root have a topic of that name, of another log."""
    other = roots.path / "other"
    CommitLog(str(other)).create_topic("t", 1, CONFIG)
    shutil.copytree(other / "topics", roots.path / root / "topics", dirs_exist_ok=True)


def test_a_root_that_does_not_answer_is_passed_over_where_replicas_are_added(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 2, "abcd")
    roots.take_away("c")
    assert roots.log().set_replication_factor("t", 3).failed == {}
    assert (holding(roots), roots.isr()) == ("abd", "abd")


def test_a_root_with_something_else_is_passed_over_where_replicas_are_added(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 2, "abcd")
    has_another(roots, "c")
    assert roots.log().set_replication_factor("t", 3).failed == {}
    assert (holding(roots), roots.isr()) == ("abd", "abd")


def test_where_too_few_roots_answer_none_is_added_and_each_is_named(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 1, "abcd")
    has_another(roots, "b")
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError, match=r"/b has another topics/t/journal .*/c .* does not answer"):
        roots.log().set_replication_factor("t", 3)
    assert holding(roots) == "a"


def test_where_too_many_roots_have_something_else_none_is_added(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 1, "abc")
    has_another(roots, "b")
    with pytest.raises(UsageError, match="/b has another topics/t/journal"):
        roots.log().set_replication_factor("t", 3)
    assert holding(roots) == "a"


def test_a_root_that_does_not_answer_is_passed_over_where_another_is_taken_out(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abcde")
    roots.take_away("d")
    with pytest.raises(ReplicaNotAvailableError, match=r"/d .* does not answer"):
        roots.log().remove_replicas([roots.id_of("b")])
    roots.names = "acde"
    assert (holding(roots), roots.isr()) == ("ace", "ace"), "all is done but d's list of the roots"
    assert roots.values("e") == [b"0"]


def test_a_root_stays_where_none_that_is_free_answers(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abcd")
    roots.take_away("d")
    with pytest.raises(ReplicaNotAvailableError, match=r"/d .* does not answer"):
        roots.log().remove_replicas([roots.id_of("b")])
    assert (holding(roots), roots.isr()) == ("abc", "abc")


@pytest.mark.parametrize(
    ("away", "factor", "left"), [("a", 2, "bc"), ("b", 2, "ac"), ("b", 1, "a"), ("ab", 2, "bc"), ("ab", 1, "c")]
)
def test_of_fewer_replicas_those_go_first_that_do_not_answer(tmp_path: Path, away: str, factor: int, left: str) -> None:
    """No writer has noticed that they are away: all are in sync."""
    roots = living_on(tmp_path, 3, "abc")
    for root in away:
        roots.take_away(root)
    roots.log(left[-1]).set_replication_factor("t", factor)
    assert holding(roots) == left
    assert roots.leader() not in away
    roots.write(b"1", topic=roots.topic(left[-1]))
    assert roots.values(left[-1]) == [b"0", b"1"]


def test_of_fewer_replicas_those_out_of_sync_go_before_others_that_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.order().pusher.shrink(roots.id_of("b"), "test")
    roots.log().set_replication_factor("t", 2)
    assert (holding(roots), roots.isr()) == ("ac", "ac")


def test_no_replica_goes_while_nobody_can_lead(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    for root in "bc":
        roots.order().pusher.shrink(roots.id_of(root), "test")
    roots.take_away("a")
    with pytest.raises(NotLeaderError, match="Bring one of them back"):
        roots.log("b").set_replication_factor("t", 2)
    assert (holding(roots), roots.isr()) == ("abc", "a")

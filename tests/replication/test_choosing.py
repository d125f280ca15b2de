"""Which roots get replicas of a topic, and which give theirs up, while some do not answer, or have something else there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import ConflictError, NotLeaderError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from tests.support.records import read_topic
from tests.support.replicas import CONFIG, Replicated, commit_offset, group, once_at


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
    assert roots.log().topic("t").set_replication_factor(3).failed == {}
    assert (holding(roots), roots.isr()) == ("abd", "abd")


def test_a_root_with_something_else_is_passed_over_where_replicas_are_added(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 2, "abcd")
    has_another(roots, "c")
    assert roots.log().topic("t").set_replication_factor(3).failed == {}
    assert (holding(roots), roots.isr()) == ("abd", "abd")


def test_where_too_few_roots_answer_none_is_added_and_each_is_named(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 1, "abcd")
    has_another(roots, "b")
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError, match=r"/b has another topics/t/journal .*/c .* does not answer"):
        roots.log().topic("t").set_replication_factor(3)
    assert holding(roots) == "a"


def test_where_too_many_roots_have_something_else_none_is_added(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 1, "abc")
    has_another(roots, "b")
    with pytest.raises(UsageError, match="/b has another topics/t/journal"):
        roots.log().topic("t").set_replication_factor(3)
    assert holding(roots) == "a"


def test_a_root_that_does_not_answer_is_passed_over_where_another_is_taken_out(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abcde")
    roots.take_away("d")
    with pytest.raises(ReplicaNotAvailableError, match=r"/d .* does not answer"):
        roots.log().replicas.remove([roots.id_of("b")])
    roots.names = "acde"
    assert (holding(roots), roots.isr()) == ("ace", "ace"), "all is done but d's list of the roots"
    assert roots.values("e") == [b"0"]


def test_a_root_stays_where_none_that_is_free_answers(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abcd")
    roots.take_away("d")
    with pytest.raises(ReplicaNotAvailableError, match=r"/d .* does not answer"):
        roots.log().replicas.remove([roots.id_of("b")])
    assert (holding(roots), roots.isr()) == ("abc", "abc")


@pytest.mark.parametrize(
    ("away", "factor", "left"), [("a", 2, "bc"), ("b", 2, "ac"), ("b", 1, "a"), ("ab", 2, "bc"), ("ab", 1, "c")]
)
def test_of_fewer_replicas_those_go_first_that_do_not_answer(tmp_path: Path, away: str, factor: int, left: str) -> None:
    """No writer has noticed that they are away: all are in sync."""
    roots = living_on(tmp_path, 3, "abc")
    for root in away:
        roots.take_away(root)
    roots.log(left[-1]).topic("t").set_replication_factor(factor)
    assert holding(roots) == left
    assert roots.leader() not in away
    roots.write(b"1", topic=roots.topic(left[-1]))
    assert roots.values(left[-1]) == [b"0", b"1"]


def test_of_fewer_replicas_those_out_of_sync_go_before_others_that_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.decided_log().pusher.shrink(roots.id_of("b"), "test")
    roots.log().topic("t").set_replication_factor(2)
    assert (holding(roots), roots.isr()) == ("ac", "ac")


def test_no_replica_goes_while_nobody_can_lead(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    roots.take_away("a")
    with pytest.raises(NotLeaderError, match="Bring one of them back"):
        roots.log("b").topic("t").set_replication_factor(2)
    assert (holding(roots), roots.isr()) == ("abc", "a")


def test_new_topics_are_made_on_roots_that_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abcd")
    roots.take_away("c")
    for name in ("u", "v", "w", "x"):
        topic = roots.create(name=name)
        assert roots.named(*roots.state(name).replicas) == roots.named(*roots.state(name).isr) == "abd"
        began = roots.clock.monotonic()
        roots.write(b"1", topic=topic)
        assert roots.clock.monotonic() == began, "no writer waits"
    assert {roots.named(roots.state(name).leader) for name in ("u", "v", "w", "x")} == set("abd")


def test_where_fewer_answer_than_are_usual_the_others_are_not_in_sync(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 1, "abc")
    roots.take_away("c")
    topic = roots.create(name="u")
    state = roots.state("u")
    assert (len(state.replicas), roots.named(*state.isr)) == (3, "ab")
    roots.write(b"1", topic=topic)
    roots.give_back("c")
    assert roots.log().replicas.sync("u").failed == {}
    assert roots.named(*roots.state("u").isr) == "abc"
    assert [record.value for record in read_topic(roots.at("c", "u"))] == [b"1"]


def test_a_new_group_is_on_roots_that_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.take_away("b")
    began = roots.clock.monotonic()
    commit_offset(roots, 1)
    assert roots.clock.monotonic() == began, "no commit waits"
    state = state_of(group(roots).journal.decided_log().places.newest().entry)
    assert (len(state.replicas), roots.named(*state.isr)) == (3, "ac")


@pytest.mark.parametrize(("away", "factor"), [("c", 3), ("bc", 2), ("abc", None)])
def test_no_topic_is_made_where_too_few_roots_answer(tmp_path: Path, away: str, factor: int | None) -> None:
    roots = living_on(tmp_path, 3, "abc")
    before = roots.log("a").topics()
    for root in away:
        roots.take_away(root)
    log = roots.log("m")
    with pytest.raises(ReplicaNotAvailableError, match=rf"of 3 roots for data answer, nothing was made: .*/{away[0]}"):
        log.create_topic("u", 1, {**CONFIG, **({} if factor is None else {"replication.factor": factor})})
    for root in away:
        roots.give_back(root)
    assert roots.log("a").topics() == before
    assert not (tmp_path / "m/topics/u").exists()


def test_a_topic_is_made_on_as_many_roots_as_answer_and_were_asked_for(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.take_away("b")
    roots.create(config={**CONFIG, "replication.factor": 2}, name="u")
    assert roots.named(*roots.state("u").replicas) == roots.named(*roots.state("u").isr) == "ac"


def test_a_topic_is_made_again_where_it_was_though_a_root_does_not_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.take_away("c")
    roots.log().topic("t").delete()
    roots.create(config={**CONFIG, "replication.factor": 3})
    assert holding(roots) == "abc"


def make_again(roots: Replicated, factor: int | None, at: str = "a") -> None:
    roots.log(at).topic("t").delete()
    roots.log(at).create_topic("t", 1, {**CONFIG, **({} if factor is None else {"replication.factor": factor})})


@pytest.mark.parametrize(("before", "factor", "left"), [(1, 3, "abc"), (3, 1, "a"), (2, None, "ab"), (2, 2, "ab")])
def test_a_topic_that_is_made_again_has_as_many_replicas_as_were_asked_for(
    tmp_path: Path, before: int, factor: int | None, left: str
) -> None:
    roots = living_on(tmp_path, before, "abc")
    make_again(roots, factor)
    assert (holding(roots), roots.isr()) == (left, left)
    roots.write(b"1")
    for root in "abc":
        read = [record.value for record in roots.log(root).topic("t").read(0, 0, 10)]
        assert read == [b"1"], f"opened at {root}"
    assert [roots.values(root) for root in left] == [[b"1"]] * len(left)


def test_a_topic_that_is_made_again_gets_replicas_on_roots_that_can_have_one(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 2, "abcd")
    roots.take_away("c")
    make_again(roots, 3)
    assert (holding(roots), roots.isr()) == ("abd", "abd")


@pytest.mark.parametrize("factor", [3, 4])
def test_no_topic_is_made_again_where_too_few_roots_can_have_a_replica(tmp_path: Path, factor: int) -> None:
    roots = living_on(tmp_path, 2, "abc")
    roots.take_away("c")
    with pytest.raises(ReplicaNotAvailableError if factor == 3 else UsageError):
        make_again(roots, factor)
    assert roots.log().topics() == []
    assert holding(roots) == "ab"


def test_a_topic_that_is_made_again_with_fewer_replicas_keeps_those_that_answer(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    roots.log().topic("t").delete()
    roots.take_away("a"), roots.take_away("b")
    roots.log("c").create_topic("t", 1, {**CONFIG, "replication.factor": 1})
    assert (holding(roots), roots.isr(), roots.leader()) == ("c", "c", "c")
    roots.write(b"1", topic=roots.topic("c"))
    assert roots.values("c") == [b"1"]


def test_a_topic_that_others_made_and_deleted_meanwhile_is_not_made_on_fewer_roots(tmp_path: Path) -> None:
    roots = living_on(tmp_path, 3, "abc")
    one, three = ({**CONFIG, "replication.factor": factor} for factor in (1, 3))

    def others() -> None:
        roots.log("b").create_topic("u", 1, one)
        roots.log("b").topic("u").delete()

    roots.hooks["m"] = once_at("put_if_absent", "topics/u/journal", others)
    with pytest.raises(ConflictError, match="run it again"):
        roots.log().create_topic("u", 1, three)
    assert roots.log().topics() == ["t"]
    roots.log().create_topic("u", 1, three)
    assert roots.named(*roots.state("u").isr) == "abc"

"""Members of a group: what each has, and what comes of it when they come, sleep, die and leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    OffsetOutOfRangeError,
    StorageError,
    StorageFullError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.groups.assignment.rebalance import is_due
from pyspark_commitlog.groups.membership import topic_pattern
from pyspark_commitlog.groups.state.members import MemberFile, Phase, Profile
from pyspark_commitlog.testing.faults import io_error, on_path
from tests.groups.conftest import BEAT_MS, COOPERATIVE, EAGER, SESSION_MS, Driven, Group, places, told
from tests.support.records import append, batch_of
from tests.support.world import raising

_JOURNAL = "groups/g/journal"
BOTH = pytest.mark.parametrize("strategy", [EAGER, ["roundrobin"], ["sticky"], COOPERATIVE], ids=lambda each: each[0])
#: Longer than it takes to notice that a member is silent, and to assign.
LONG = SESSION_MS * 3


def two(group: Group, strategy: list[str] = EAGER) -> tuple[Driven, Driven]:
    """Return two members that have two partitions each."""
    found = tuple(group.join(name, partition_assignment_strategy=strategy) for name in "ab")
    group.run()
    assert sorted(len(each.member.assignment) for each in found) == [2, 2]
    return found  # type: ignore[return-value]


def all_places(group: Group) -> str:
    return " ".join(sorted(" ".join(group.has().values()).split()))


# --- who comes and goes -----------------------------------------------------------------------------------


def test_the_first_member_gets_all(group: Group) -> None:
    a = group.join("a")
    assert a.member.generation == -1
    group.run()
    assert group.has() == {"a": "t0 t1 t2 t3"}
    (first,) = a.log
    assert (first.generation, told(first.assigned), told(first.revoked), first.lost) == (1, "t0 t1 t2 t3", "", False)
    assert first.topic_ids == {"t": group.state().members.topics["t"].topic_id}
    assert (a.member.generation, group.state().members.phase) == (1, Phase.STABLE)


def test_a_herd_makes_one_generation(group: Group) -> None:
    for name in "abcdefgh":
        group.join(name)
    group.run()
    assert {len(each.member.assignment) for each in group.members.values()} == {0, 1}
    assert all_places(group) == "t0 t1 t2 t3"
    assert group.state().members.generation == 1
    assert group.world.log().groups.open("g").journal.sequences() == [1]


@BOTH
def test_who_comes_later_gets_a_share(group: Group, strategy: list[str]) -> None:
    a = group.join("a", partition_assignment_strategy=strategy)
    group.run()
    b = group.join("b", partition_assignment_strategy=strategy)
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"
    assert (len(a.member.assignment), len(b.member.assignment)) == (2, 2)
    assert group.state().members.phase is Phase.STABLE


def test_an_eager_rebalance_takes_all_first(group: Group) -> None:
    a = group.join("a")
    group.run()
    group.join("b")
    group.run()
    assert [(each.generation, told(each.revoked), told(each.assigned)) for each in a.log[1:]] == [
        (2, "t0 t1 t2 t3", ""),
        (3, "", "t0 t1"),
    ]


def test_a_cooperative_rebalance_takes_only_what_moves(group: Group) -> None:
    a = group.join("a", partition_assignment_strategy=COOPERATIVE)
    group.run()
    b = group.join("b", partition_assignment_strategy=COOPERATIVE)
    group.run()
    assert [(told(each.revoked), told(each.assigned)) for each in a.log[1:]] == [("t2 t3", ""), ("", "")]
    assert [(each.generation, told(each.partitions)) for each in b.log] == [(2, ""), (3, "t2 t3")]


@BOTH
def test_what_is_revoked_may_be_committed_until_the_next_poll_and_is_not_handed_on_before(
    group: Group, strategy: list[str]
) -> None:
    a = group.join("a", partition_assignment_strategy=strategy)
    group.run()
    group.join("b", partition_assignment_strategy=strategy)
    before = len(a.log)
    while len(a.log) == before:
        group.run(ms=10)
    group.run("b", ms=200)
    assert a.log[-1].revoked
    assert (group.has()["b"], group.state().members.phase) == ("", Phase.PREPARING_REBALANCE)
    a.commit("t3", 7)
    group.run()
    assert group.offsets() == [None, None, None, 7]
    assert len(group.members["b"].member.assignment) == 2
    with pytest.raises(CommitFailedError, match=r"t partition . is not assigned to member"):
        a.commit(group.has()["b"], 8)


@BOTH
def test_who_leaves_leaves_its_partitions_at_once(group: Group, strategy: list[str]) -> None:
    a, b = two(group, strategy)
    b.member.leave()
    del group.members["b"]
    group.run(ms=2 * BEAT_MS)
    assert group.has() == {"a": "t0 t1 t2 t3"}
    assert b.poll() is None
    assert len(group.world.files("members", root="groups")) == 1
    a.member.leave()
    assert (group.state().members.phase, group.state().members.rows) == (Phase.EMPTY, {})
    assert group.world.files("members", root="groups") == []


@BOTH
def test_who_is_silent_for_its_session_loses_its_partitions(group: Group, strategy: list[str]) -> None:
    two(group, strategy)
    group.run("a", ms=LONG)
    assert group.members["a"].has() == "t0 t1 t2 t3"
    assert list(group.state().members.rows) == [group.members["a"].member.member_id]


def test_two_that_notice_an_expiry_at_once_make_one_generation(group: Group) -> None:
    """R9: the loser of the race plans anew, on the winner's entry, and finds nothing to do."""
    winner: list[int] = []

    def race(operation: str, path: str, moment: str) -> None:
        if "c" not in group.members and not winner and operation == "put_if_absent" and moment == "before":
            group.run("b", ms=270)
            winner.append(group.state().members.generation)

    group.join("a", hook=race)
    group.join("b")
    group.join("c")
    group.run()
    before = group.state().members.generation
    del group.members["c"]
    group.run(ms=LONG)
    assert winner == [before + 1]
    assert (all_places(group), group.state().members.generation) == ("t0 t1 t2 t3", before + 1)


def test_a_member_that_dies_while_others_wait_for_it_is_waited_for_a_session_only(group: Group) -> None:
    group.join("a")
    group.run()
    group.join("b")
    group.run("b", ms=LONG)
    assert group.members["b"].has() == "t0 t1 t2 t3"


def test_a_dead_member_does_not_come_in_again_by_its_file(group: Group) -> None:
    """It died before it knew that it was in, so its file still asks to join: gone before the entry that removes it."""
    removed: list[frozenset[str]] = []

    def later(operation: str, path: str, moment: str) -> None:
        if "c" not in group.members and "d" not in group.members and operation == "put_if_absent" and moment == "after":
            group.join("d")
            group.run("d", ms=150)
            removed.append(frozenset(group.state().members.rows))

    group.join("a", hook=later)
    dead = group.join("c").member.member_id
    group.members["c"].poll()
    group.run("a", ms=200)
    assert dead in group.state().members.rows
    del group.members["c"]
    group.run("a", ms=LONG)
    assert len(removed) == 1
    assert dead not in removed[0]
    assert len(removed[0]) == 2


def test_who_joins_while_somebody_has_to_give_up_comes_in_with_the_hand_over(group: Group) -> None:
    a = group.join("a")
    group.run()
    group.join("b")
    while len(a.log) == 1:
        group.run(ms=10)
    group.join("c")
    group.run("b", "c", ms=150)
    assert len(group.state().members.rows) == 2
    group.run()
    assert len(group.state().members.rows) == 3
    assert group.state().members.generation == 3
    assert all_places(group) == "t0 t1 t2 t3"


# --- zombies ----------------------------------------------------------------------------------------------


@BOTH
def test_a_member_that_wakes_cannot_commit_what_went_to_another(group: Group, strategy: list[str]) -> None:
    a, b = two(group, strategy)
    mine = b.has()
    b.commit(mine, 2)
    group.run("a", ms=LONG)
    a.commit("t0 t1 t2 t3", 5)
    with pytest.raises(CommitFailedError, match=r"is not a member any more: nothing was committed\. Poll"):
        b.commit(mine, 9)
    assert group.offsets() == [5, 5, 5, 5]
    found = b.poll()
    assert found is not None
    assert (found.lost, told(found.revoked), found.partitions) == (True, mine, frozenset())
    former = b.member.member_id
    group.run()
    assert (all_places(group), b.member.member_id) == ("t0 t1 t2 t3", former)
    assert len(b.member.assignment) == 2


def test_a_member_that_was_removed_and_let_in_again_before_it_noticed_lost_all(group: Group) -> None:
    """Its row tells in which generation it joined: another one than it knows."""
    b = group.join("b", partition_assignment_strategy=COOPERATIVE)
    group.run()
    assert b.has() == "t0 t1 t2 t3"
    stored = group.world.path / f"groups/g/members/{b.member.member_id}.json"
    first = stored.read_bytes().replace(b'"generation": 1', b'"generation": -1')
    group.join("a", partition_assignment_strategy=COOPERATIVE)
    group.run("a", ms=LONG)
    assert group.members["a"].has() == "t0 t1 t2 t3"
    stored.write_bytes(first)  # as it was when b had joined and did not know it yet
    group.run("a", ms=BEAT_MS)
    assert b.member.member_id in group.state().members.rows
    found = b.poll()
    assert found is not None
    assert (found.lost, told(found.revoked)) == (True, "t0 t1 t2 t3")
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"


def test_a_commit_of_a_generation_that_is_over_is_refused_though_the_partition_stayed(group: Group) -> None:
    a = group.join("a", partition_assignment_strategy=COOPERATIVE)
    group.run()
    group.join("b", partition_assignment_strategy=COOPERATIVE)
    group.run("b", ms=300)
    with pytest.raises(CommitFailedError, match=r"is in generation 2, member .* commits in generation 1 and is still"):
        a.commit("t0", 3)
    a.poll()
    a.commit("t0", 3)
    assert group.offsets()[0] == 3


def test_a_rebalance_between_look_and_put_refuses_the_commit(group: Group) -> None:
    """R9: generation and partition are looked at on every attempt."""
    a = group.join("a")
    group.run()
    b = group.join("b")

    def meanwhile() -> None:
        group.run("b", ms=LONG)
        b.commit("t0", 4)

    handle = group.world.log(on_path(_JOURNAL, "put_if_absent", meanwhile)).groups.open("g")
    topic_id = group.state().members.topics["t"].topic_id
    from pyspark_commitlog.groups.state.group_state import Position

    with pytest.raises(CommitFailedError):
        handle.advance([Position("t", topic_id, 0, 9)], member=a.member.tenure)
    assert group.offsets()[0] == 4


def test_who_gives_up_an_earlier_generation_has_not_given_up_the_later_one(group: Group) -> None:
    two(group, COOPERATIVE)
    rows = group.state().members.rows
    generation = group.state().members.generation
    group.join("c", partition_assignment_strategy=COOPERATIVE)
    while not any(row.revoking for row in group.state().members.rows.values()):
        group.run("c", ms=10)
    group.run("c", ms=200)
    now = group.state().members
    assert now.generation == generation + 1, "their files say an earlier generation"
    assert {m: row.places for m, row in now.rows.items() if m in rows} == {m: row.places for m, row in rows.items()}
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"


def test_a_member_commits_only_what_there_is(group: Group) -> None:
    a = group.join("a")
    group.run()
    with pytest.raises(OffsetOutOfRangeError, match="watermark is 10"):
        a.commit("t0", 11)
    with pytest.raises(CommitFailedError, match="u partition 0 is not assigned"):
        a.commit("u0", 0)
    assert group.offsets() == [None] * 4
    a.commit("t0 t1", 3)
    a.commit("t0", 2)
    assert group.offsets() == [3, 3, None, None]


# --- heartbeats -------------------------------------------------------------------------------------------


def test_a_heartbeat_file_that_is_lost_or_damaged_costs_nothing(group: Group) -> None:
    two(group)
    generation = group.state().members.generation
    for number in range(10):
        for name in group.world.files("members", root="groups"):
            path = group.world.path / name
            path.write_bytes(b"{}") if number % 2 else path.unlink()
        group.run(ms=SESSION_MS)
    assert group.state().members.generation == generation


def test_a_wall_clock_that_steps_changes_nothing(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """R10: only the observer's monotonic clock counts."""
    two(group)
    clock, generation = group.world.clock, group.state().members.generation
    real, stepped = type(clock).monotonic, [0]
    monkeypatch.setattr(type(clock), "monotonic", lambda self: real(self) - stepped[0])
    clock.advance(3_600_000)
    stepped[0] = 3600
    group.run()
    assert group.state().members.generation == generation


@pytest.mark.parametrize("first", ["a", "b"])
def test_who_slept_itself_takes_nobody_for_dead(group: Group, first: str) -> None:
    """All were stopped for an hour: the first that wakes sees files that did not change for an hour.

    It looks longer than anybody's jitter before the other one wakes, and shorter than what is left of its session.
    """
    two(group)
    generation = group.state().members.generation
    group.world.clock.advance(3_600_000)
    group.run(first, ms=120)
    group.run()
    assert group.state().members.generation == generation


def test_a_thread_keeps_a_member_alive_that_does_not_poll_but_not_for_ever(group: Group) -> None:
    b = group.join("b", max_poll_interval_ms=2_000)
    a = group.join("a")
    group.run()

    def beat(ms: int) -> None:
        for _ in range(ms // 10):
            group.world.clock.advance(10)
            b.member.heartbeat()
            a.poll()

    beat(1500)
    assert len(group.state().members.rows) == 2
    beat(1500)
    assert a.has() == "t0 t1 t2 t3"
    found = b.poll()
    assert found is not None
    assert (found.lost, len(found.revoked)) == (True, 2)
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"
    assert len(b.member.assignment) == 2


def test_a_thread_does_not_give_up_what_the_poll_has_not_told(group: Group) -> None:
    a = group.join("a")
    group.run()
    b = group.join("b")
    for _ in range(100):
        group.world.clock.advance(10)
        a.member.heartbeat()
        b.poll()
    assert (b.has(), a.member.generation) == ("", 1)
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"


def test_a_member_is_stable_when_its_group_is(group: Group) -> None:
    a = group.join("a")
    assert not a.member.is_stable
    group.run()
    assert a.member.is_stable
    b = group.join("b")
    for _ in range(100):
        group.world.clock.advance(10)
        a.member.heartbeat()
        b.poll()
    assert group.state().members.phase is Phase.PREPARING_REBALANCE  # until a gives up what it has
    assert (a.member.is_stable, b.member.is_stable) == (False, False)
    group.run()
    assert (a.member.is_stable, b.member.is_stable) == (True, True)


@pytest.mark.parametrize("error", [io_error(), StorageFullError("full")])
def test_trouble_with_the_storage_is_a_warning_and_tried_again(
    group: Group, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    broken = on_path(_JOURNAL, "put_if_absent", raising(error), times=7)
    a = group.join("a", hook=broken)
    group.run(ms=3000)
    assert a.has() == "t0 t1 t2 t3"
    assert "a heartbeat of member" in caplog.text
    assert group.state().members.generation == 1


def test_a_warning_is_not_repeated_and_not_remembered_for_ever(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    number = 0

    def fail() -> None:
        raise StorageError(f"trouble {number}")

    a = group.join("a", hook=on_path("members", "create", fail, times=10_000))
    for number in (*range(100), 99, 0):  # noqa: B007 fail tells it
        group.run(ms=BEAT_MS, step=BEAT_MS)
        a.member.heartbeat()
    assert caplog.text.count("trouble 99\n") == 1
    assert caplog.text.count("trouble 0\n") == 2


def test_a_member_that_sees_nothing_new_works_nothing_out(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out = 0

    def counting(*args: Any) -> bool:
        nonlocal worked_out
        worked_out += 1
        return is_due(*args)

    two(group)
    group.run(ms=LONG)
    monkeypatch.setattr("pyspark_commitlog.groups.membership.member.is_due", counting)
    group.run(ms=BEAT_MS * 20)
    assert worked_out == 0
    group.world.log().topic("t").add_partitions(6)
    group.run()
    assert worked_out > 0
    assert all_places(group) == "t0 t1 t2 t3 t4 t5"


# --- topics -----------------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_assigned(group: Group) -> None:
    two(group)
    group.world.log().topic("t").add_partitions(6)
    group.run()
    assert all_places(group) == "t0 t1 t2 t3 t4 t5"


def test_a_topic_that_is_deleted_goes_and_comes_back_as_another(group: Group) -> None:
    a, _ = two(group)
    group.world.log().topic("t").delete()
    with pytest.raises(TopicChangedError):
        a.commit(a.has(), 1)
    group.run()
    assert group.has() == {"a": "", "b": ""}
    append(group.world.create(2), batch_of([b"x"] * 4, partition=[0, 1] * 2))
    group.run()
    assert all_places(group) == "t0 t1"
    a.commit(a.has(), 2)
    assert 2 in group.offsets()


def test_a_topic_that_was_made_again_between_two_looks_is_lost_and_assigned(group: Group) -> None:
    a = group.join("a")
    group.run()
    former = a.log[-1].topic_ids
    group.world.log().topic("t").delete()
    group.world.create(4)
    group.run()
    last = a.log[-1]
    assert (told(last.revoked), told(last.assigned)) == ("t0 t1 t2 t3", "t0 t1 t2 t3")
    assert last.topic_ids != former


def test_members_may_want_different_topics_and_patterns(group: Group) -> None:
    group.world.create(2, name="u")
    group.join("a", ["t", "none"])
    group.join("b", pattern="[tu]")
    group.run()
    assert all_places(group) == "t0 t1 t2 t3 u0 u1"
    assert group.has()["b"].endswith("u0 u1")
    group.world.create(1, name="v")
    group.run()
    assert "v0" not in all_places(group)
    group.members["a"].member.subscribe(["v"])
    group.run()
    assert group.has() == {"a": "v0", "b": "t0 t1 t2 t3 u0 u1"}


def damage_newest_entry(group: Group, name: str) -> None:
    (path,) = group.world.path.glob(f"topics/{name}/journal/*{group.world.entries(name)[-1]}.json")
    path.write_bytes(b"{")


def test_a_topic_that_cannot_be_read_stays_as_the_group_knows_it(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """Else one damaged entry would stop the rebalances of all members, and nobody got what a dead one had."""
    group.world.create(2, name="u")
    for name in "ab":
        group.join(name, ["t", "u"])
        group.run()
    damage_newest_entry(group, "u")
    group.run("a")  # b is silent
    assert group.has()["a"] == "t0 t1 t2 t3 u0 u1"
    assert caplog.text.count("topic 'u' can't be read") == 1
    group.join("c", ["t", "u"])
    group.run("a", "c")
    group.members["a"].member.leave()
    group.run("c")
    assert group.has()["c"] == "t0 t1 t2 t3 u0 u1"


# --- static members ---------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_in_time_keeps_its_partitions_and_nobody_notices(group: Group) -> None:
    a = group.join("a", group_instance_id="one")
    b = group.join("b", group_instance_id="two")
    group.run()
    before, generation, told_b = a.has(), group.state().members.generation, len(b.log)
    a.member.leave()
    del group.members["a"]
    again = group.join("c", group_instance_id="one")
    group.run()
    assert (again.has(), again.member.generation) == (before, generation)
    assert len(b.log) == told_b
    again.commit(before, 3)


def test_a_static_member_that_comes_back_late_joins_anew(group: Group) -> None:
    a = group.join("a", group_instance_id="one")
    b = group.join("b", group_instance_id="two")
    group.run()
    a.member.leave()
    del group.members["a"]
    group.run(ms=LONG)
    assert b.has() == "t0 t1 t2 t3"
    group.join("c", group_instance_id="one")
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"


def test_of_two_with_one_instance_id_the_later_one_stays(group: Group) -> None:
    a = group.join("a", group_instance_id="one")
    group.run()
    group.join("b", group_instance_id="one")
    group.run("b")
    assert group.members["b"].has() == "t0 t1 t2 t3"
    with pytest.raises(FencedInstanceIdError, match=r"another process, member .* group_instance_id 'one': nothing"):
        a.commit("t0", 1)
    group.world.clock.advance(BEAT_MS)
    with pytest.raises(FencedInstanceIdError, match="give each process an id of its own"):
        a.poll()
    with pytest.raises(FencedInstanceIdError, match="give each process an id of its own"):
        a.poll()
    del group.members["a"]
    group.run()
    group.members["b"].commit("t0", 1)


def test_a_static_member_that_died_before_it_knew_does_not_fence_the_next(group: Group) -> None:
    """Its file still says that it wants to join."""
    group.join("a", group_instance_id="one")
    group.members["a"].poll()
    b = group.join("b")
    group.run("b", ms=150)
    assert len(group.state().members.rows) == 2
    del group.members["a"]
    c = group.join("c", group_instance_id="one")
    group.run()
    group.run()
    assert all_places(group) == "t0 t1 t2 t3"
    assert (len(b.member.assignment), len(c.member.assignment)) == (2, 2)


# --- what is refused --------------------------------------------------------------------------------------


def test_a_member_with_no_assignor_in_common_is_told_and_kept_out(group: Group) -> None:
    group.join("a")
    group.run()
    b = group.join("b", partition_assignment_strategy=COOPERATIVE)
    with pytest.raises(
        UsageError, match=r"\['cooperative-sticky'\].*none of these in common; one of theirs is 'range'"
    ):
        group.run("b")
    del group.members["b"]
    group.run()
    assert group.has() == {"a": "t0 t1 t2 t3"}
    assert b.member.generation == -1


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"topics": []}, "give a list of names, or a pattern"),
        ({"topics": ["t"], "pattern": "t"}, "give a list of names, or a pattern"),
        ({"topics": "t"}, "give a list of names, or a pattern"),
        ({"topics": ["a/b"]}, "topic name 'a/b' is not allowed"),
        ({"pattern": "("}, "no regular expression"),
        ({"partition_assignment_strategy": ["best"]}, "use some of range"),
    ],
)
def test_what_is_wrong_is_refused(group: Group, wrong: dict[str, object], match: str) -> None:
    from pyspark_commitlog.groups.membership.member import GroupMember

    with pytest.raises(UsageError, match=match):
        GroupMember(group.world.log().groups.open("g"), **{"topics": ["t"] * ("pattern" not in wrong), **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"session_timeout_ms": 99}, "session_timeout_ms=99: 100 to 1800000"),
        ({"session_timeout_ms": 1_800_001}, "session_timeout_ms=1800001: 100 to 1800000"),
        ({"heartbeat_interval_ms": 300}, "below session_timeout_ms=300"),
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms=0"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms must be above 0"),
        ({"initial_rebalance_delay_ms": -1}, "initial_rebalance_delay_ms not below 0"),
    ],
)
def test_times_that_cannot_work_are_refused(group: Group, wrong: dict[str, int], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        group.join("a", **wrong)


# --- size -------------------------------------------------------------------------------------------------


def test_many_members_lie_beside_the_entries_and_old_ones_go(group: Group) -> None:
    group.world.create(200, name="wide")
    for number in range(70):
        group.join(chr(0x4E00 + number), ["wide"], partition_assignment_strategy=COOPERATIVE)
    group.run(ms=300, step=50)
    assert sum(len(each.member.assignment) for each in group.members.values()) == 200
    (side,) = group.world.files("side/", root="groups")
    first = next(iter(group.members.values()))
    first.commit(first.has().split()[0], 0)
    entry = max(group.world.files("journal", root="groups"))
    assert (group.world.path / entry).stat().st_size < 4096, "a commit does not carry the members"
    group.world.log().topic("wide").add_partitions(201)
    group.run(ms=300, step=50)
    for place in first.member.assignment:
        group.world.log().groups.commit("g", {"wide": {place.partition: 0, 200: 0}})
    group.world.log().groups.commit("g", {"wide": {100: 0}})
    handle = group.world.log().groups.open("g")
    handle.collect(60_000)
    assert side in group.world.files("side/", root="groups")
    group.world.clock.advance(120_000)
    handle.collect(60_000)
    (left,) = group.world.files("side/", root="groups")
    assert left != side
    assert len(handle.newest().members.rows) == 70
    assert places("wide0") <= {p for row in handle.newest().members.rows.values() for p in row.owned}


# --- files that are no member's ---------------------------------------------------------------------------

STRANGER = "00000000-0000-4000-8000-0000000000ff"
BAD = {
    "a text for a number": {"sessionTimeoutMs": "45000"},
    "no session that ends": {"sessionTimeoutMs": 10**12},
    "a bool": {"sessionTimeoutMs": True},
    "topics that are one text": {"topics": "t"},
    "a number among the topics": {"topics": ["t", 1]},
    "a pattern that is none": {"pattern": ["x"]},
    "no list of assignors": {"assignors": None},
    "a generation below all": {"generation": -2},
    "a generation that is a text": {"generation": "1"},
}


def member_file(group: Group, member_id: str) -> Path:
    return group.world.path / "groups/g/members" / f"{member_id}.json"


def spoil(path: Path, change: dict[str, Any]) -> None:
    """Put a file in the place of a member's, as its process would."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    fresh.replace(path)


def test_a_member_leaves_though_the_newest_entry_of_its_group_is_damaged(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    a, _ = two(group)
    newest = max((group.world.path / "groups/g/journal").glob("*.json"))
    newest.write_bytes(b"{")
    a.member.leave()
    assert f"member {a.member.member_id} could not leave: its session will end" in caplog.text
    group.world.clock.advance(2 * BEAT_MS)
    a.member.heartbeat()
    assert not member_file(group, a.member.member_id).exists(), "nothing says that it lives"


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_joiner_whose_file_is_wrong_is_not_let_in_and_the_group_goes_on(
    group: Group, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    a = group.join("a")
    group.run()
    path = member_file(group, STRANGER)
    path.write_text(MemberFile(Profile("x", "h/1", ("t",)), -1).encode().decode())
    for _ in range(2 * SESSION_MS // BEAT_MS):  # it beats: its file is another one each time
        spoil(path, change)
        group.run(ms=BEAT_MS)
        if not path.exists():
            break
    assert not path.exists(), "silent for a session"
    assert a.has() == "t0 t1 t2 t3"
    assert list(group.state().members.rows) == [a.member.member_id]
    assert caplog.text.count("counts as gone") == 1
    assert STRANGER in caplog.text


def test_a_member_whose_file_turns_wrong_counts_as_gone_though_it_is_written(group: Group) -> None:
    """Else the others would wait for ever for what it gives up."""
    a, b = two(group)
    path = member_file(group, b.member.member_id)
    for _ in range(40 * SESSION_MS // BEAT_MS):
        group.run("a", ms=BEAT_MS)
        if list(group.state().members.rows) == [a.member.member_id]:
            break
        spoil(path, {"sessionTimeoutMs": "45000"})
    assert a.has() == "t0 t1 t2 t3"


# --- patterns ---------------------------------------------------------------------------------------------


def test_a_member_evaluates_its_own_pattern_alone(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can't be compiled, or that takes for ever, harms nobody else."""
    group.world.create(1, name="u")
    looked: list[str] = []
    real = topic_pattern.TopicPattern.matching_names
    monkeypatch.setattr(
        topic_pattern.TopicPattern,
        "matching_names",
        lambda self, names: looked.append(self._pattern.pattern) or real(self, names),
    )
    group.join("a", ["t"])
    b = group.join("b", pattern="u")
    group.run()
    assert set(looked) == {"u"}
    assert b.has() == "u0"
    looked.clear()
    path = member_file(group, STRANGER)
    path.write_text(MemberFile(Profile("x", "h/1", (), "(", ("range",)), -1).encode().decode())
    group.run("a")
    assert STRANGER in group.state().members.rows, "what it could not match, it does not get"
    assert looked == []


def test_what_a_pattern_found_is_said_by_name(group: Group) -> None:
    group.world.create(1, name="u")
    b = group.join("b", pattern="[tuv]")
    group.run()
    told = json.loads(member_file(group, b.member.member_id).read_bytes())
    assert (told["topics"], told["pattern"]) == (["t", "u"], "[tuv]")
    assert group.state().members.rows[b.member.member_id].profile.topics == ("t", "u")


def test_a_topic_that_comes_to_match_makes_one_generation_for_all_that_have_the_pattern(group: Group) -> None:
    for name in "abcdef":
        group.join(name, pattern="[tuv]", partition_assignment_strategy=COOPERATIVE)
    group.run(ms=1000)
    before = group.state().members
    group.world.create(6, name="v")
    group.run(ms=1000)
    after = group.state().members
    assert {row.profile.topics for row in after.rows.values()} == {("t", "v")}
    assert after.generation - before.generation <= 2, "one that revokes what moves, one that assigns it"
    assert " ".join(sorted(" ".join(group.has().values()).split())) == "t0 t1 t2 t3 v0 v1 v2 v3 v4 v5"


def test_a_name_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, seen = topic_pattern.TopicPattern("a.*"), list[str]()
    real = topic_pattern.TopicPattern._finds
    monkeypatch.setattr(topic_pattern.TopicPattern, "_finds", lambda self, name: seen.append(name) or real(self, name))
    assert pattern.matching_names(["b", "ab", "a"]) == ("a", "ab")
    assert pattern.matching_names(["b", "ab", "ac"]) == ("ab", "ac")
    assert seen == ["b", "ab", "a", "ac"]


@pytest.mark.parametrize("bad", ["(", "a{99999999999}", "(" * 500 + ")" * 500, "x" * 1025], ids=lambda text: text[:5])
def test_a_pattern_that_is_none_is_refused_where_it_is_given(group: Group, bad: str) -> None:
    a = group.join("a")
    with pytest.raises(UsageError, match="pattern"):
        a.member.subscribe(pattern=bad)
    group.run()
    assert a.has() == "t0 t1 t2 t3", "what it wanted before"

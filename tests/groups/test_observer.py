"""What a member reads of the others' files: a herd of N must not read N² of them with each look.

The interleavings that what is remembered has to survive:

1. A joiner's file is known, and its member is let in and taken out meanwhile: what it said before does not count.
2. A member that had something to give up dies: what the others have given up is handed on all the same.
3. A member was seen to be silent, and writes its file before that is entered: it stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.membership.observer import Observer
from pyspark_commitlog.groups.state.members import NEVER_IN, Member, MemberFile, Members, Phase, Profile
from pyspark_commitlog.model import TopicPartition
from tests.groups.conftest import BEAT_MS, COOPERATIVE, EAGER, SESSION_MS, Group
from tests.support.world import World

MANY = 40
_BEAT, _SESSION = BEAT_MS / 1000, SESSION_MS / 1000
_PROFILE = Profile("c", "h/1", ("t",), session_timeout_ms=SESSION_MS)
_PLACE = frozenset({TopicPartition("t", 0)})


def _id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


@dataclass
class Others:
    """The files of a group, and one member that looks at them; `done` counts what that takes."""

    world: World
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.files = MemberFiles(self.world.storage(), "g")
        self.observer = Observer(MemberFiles(self.world.storage(self._hook), "g"), 0.0, _BEAT)

    def _hook(self, operation: str, path: str, moment: str) -> None:
        if moment == "before" and "/members/" in path:
            self.done[operation] += 1

    def write(self, *numbers: int, generation: int = NEVER_IN) -> None:
        for number in numbers:
            self.files.write(_id(number), MemberFile(_PROFILE, generation))

    def look(self, now: float, rows: dict[int, Member] | None = None) -> tuple[set[str], set[str], dict[str, int]]:
        """Return who is joining, who is gone, and what was given up."""
        self.done.clear()
        members = Members(5, 9, Phase.PREPARING_REBALANCE, rows={_id(n): row for n, row in (rows or {}).items()})
        seen = self.observer.look(members, _id(0), _PROFILE, 0, now)
        return set(seen.joining) - {_id(0)}, set(seen.gone), dict(seen.given_up)


@pytest.fixture
def others(tmp_path: Path) -> Others:
    world = World(tmp_path / "root")
    world.create()
    return Others(world)


def _row(*, revokes: bool = False) -> Member:
    return Member(_PROFILE, 1, revoking=_PLACE, revoked_in=5) if revokes else Member(_PROFILE, 1)


def test_a_joiners_file_is_read_once_a_heartbeat(others: Others) -> None:
    everyone = range(1, MANY + 1)
    others.write(*everyone)
    ids = {_id(number) for number in everyone}
    assert others.look(0.0)[0] == ids
    assert others.done["read"] == MANY
    for number in range(1, 10):
        assert others.look(number * _BEAT / 10)[0] == ids
        assert others.done["read"] == 0
    assert others.look(_BEAT)[0] == ids
    assert others.done["read"] == MANY


def test_a_file_that_is_another_ones_by_now_is_read_again_where_its_member_was_in(others: Others) -> None:
    """Else one that was taken out would be let in again before it knows, by what it said before."""
    others.write(1)
    assert others.look(0.0)[0] == {_id(1)}
    others.write(1, generation=3)
    assert others.look(0.01, {1: _row()})[0] == set()
    assert others.look(0.02)[0] == set()


def test_what_is_given_up_is_read_until_it_is_and_of_the_others_one_is_enough(others: Others) -> None:
    rows = {number: _row(revokes=True) for number in range(1, MANY + 1)}
    others.write(*rows, generation=4)
    others.look(0.0, rows)
    assert others.look(0.01, rows)[2] == {_id(1): 4}
    assert others.done["read"] == 1
    others.write(*range(1, MANY), generation=5)
    assert others.look(0.02, rows)[2] == {_id(number): 5 if number < MANY else 4 for number in rows}
    assert others.done["read"] == MANY
    others.write(MANY, generation=5)
    assert others.look(0.03, rows)[2] == {_id(number): 5 for number in rows}
    assert others.done["read"] == 1


def test_one_that_dies_before_it_gives_up_holds_up_no_other(others: Others) -> None:
    rows = {number: _row(revokes=True) for number in (1, 2, 3)}
    others.write(1, generation=4)
    for number in range(100):
        others.write(2, 3, generation=5)
        _, gone, given_up = others.look(number * _BEAT, rows)
        if gone:
            break
    assert (gone, given_up) == ({_id(1)}, {_id(2): 5, _id(3): 5})


def test_who_is_silent_is_looked_at_once_a_heartbeat_and_again_before_it_is_gone(others: Others) -> None:
    rows = {number: _row() for number in range(1, MANY + 1)}
    others.write(*rows, generation=5)
    now = 0.0
    while not others.look(now, rows)[1]:
        assert others.done["info"] == MANY
        others.look(now + _BEAT / 2, rows)
        assert others.done["info"] == 0
        others.write(*range(2, MANY + 1), generation=5)
        now += _BEAT
        assert now < 3 * _SESSION
    assert others.look(now + 0.01, rows)[1] == {_id(1)}
    assert others.done["info"] == 1
    others.write(1, generation=5)
    assert others.look(now + 0.02, rows)[1] == set()


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE], ids=lambda each: each[0])
def test_a_herd_reads_each_file_a_few_times(group: Group, strategy: list[str]) -> None:
    """One is there before the others, so all is given up and handed on; a look each 5 ms."""
    group.world.create(MANY + 1, name="wide")
    done = Counter[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if moment == "before" and "/members/" in path:
            done[operation] += 1

    group.join("\u4e00", ["wide"], partition_assignment_strategy=strategy, hook=hook)
    group.run()
    done.clear()
    for number in range(1, MANY + 1):
        group.join(chr(0x4E00 + number), ["wide"], partition_assignment_strategy=strategy, hook=hook)
    while {len(each.member.assignment) for each in group.members.values()} != {1}:
        group.run(ms=5, step=5)
    assert done["read"] <= MANY**2
    assert done["info"] <= MANY**2


def test_who_is_first_after_another_ones_rebalance_does_not_wait_for_what_was_due_before(group: Group) -> None:
    """It joins, and would rebalance 120 ms later; `b` does before that, and all is given up soon after."""
    group.join("b")
    group.run()
    began = group.world.clock.now_ms()
    a = group.join("a", heartbeat_interval_ms=200)
    while not a.has():
        group.run(ms=5, step=5)
    assert group.world.clock.now_ms() - began < 120

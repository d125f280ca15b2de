"""The heartbeats of a process: one member's trouble, or one root's, is not the others'."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.groups.membership import heartbeats
from pyspark_commitlog.groups.membership.heartbeats import MAX_WORKERS, WORKERS_OF_A_ROOT, Heartbeats
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.testing.faults import Hook, on_path
from tests.support.world import World

BEAT_MS = 20
NEVER = 10**9
LIMIT = 20.0


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does; all of it takes a second or two."""
    until = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


class Beaten(GroupMember):
    """A member that counts its heartbeats as they begin."""

    beats = 0

    def heartbeat(self) -> None:
        self.beats += 1
        super().heartbeat()


def joined(root: Path, hook: Hook | None = None) -> Beaten:
    """Return a member of a group of a root, in another world than all others; its clock stands still."""
    world = World(root)
    with suppress(CommitLogError):
        world.create()
    return Beaten(
        world.log(hook).groups.open("g"),
        ["t"],
        config=MemberConfig(session_timeout_ms=300, heartbeat_interval_ms=BEAT_MS),
    )


@contextmanager
def beating(*members: GroupMember) -> Iterator[Heartbeats]:
    found = Heartbeats()
    try:
        for each in members:
            found.add(each)
        yield found
    finally:
        for each in list(found._members):
            found.remove(each)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "commitlog-heartbeat"]


def goes_on(member: Beaten) -> None:
    """Wait until a member was called again, and again."""
    before = member.beats
    wait_until(lambda: member.beats > before + 2)


class Stuck:
    """A storage operation that does not come back until the test ends."""

    def __init__(self) -> None:
        self.entered, self.free = threading.Event(), threading.Event()

    def hook(self, operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation == "create" and "/members/" in path:
            self.entered.set()
            assert self.free.wait(60)


@pytest.fixture
def stuck() -> Iterator[Callable[[], Stuck]]:
    made: list[Stuck] = []

    def make() -> Stuck:
        made.append(Stuck())
        return made[-1]

    yield make
    for each in made:
        each.free.set()
    for thread in workers():
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("error", [OSError(5, "injected"), RuntimeError("injected"), KeyError("injected")], ids=repr)
def test_a_member_whose_heartbeat_raises_is_told_of_and_called_again_and_the_others_live(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    ill = joined(tmp_path / "a", on_path("/members/", "create", fail, times=NEVER))
    well = joined(tmp_path / "b")
    with caplog.at_level(logging.WARNING), beating(ill, well):
        goes_on(ill)
        goes_on(well)
    told = [record for record in caplog.records if ill.member_id in record.getMessage()]
    assert len(told) == 1, "once, not at every heartbeat"
    assert "injected" in told[0].getMessage()
    assert told[0].exc_info is not None
    assert [path.name for path in (tmp_path / "b" / "groups" / "g" / "members").iterdir()] == [f"{well.member_id}.json"]


def test_a_member_that_failed_once_lives_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("injected")

    member = joined(tmp_path / "a", on_path("/members/", "create", fail))
    with caplog.at_level(logging.WARNING), beating(member):
        goes_on(member)
    assert "RuntimeError: injected" in caplog.text
    assert (tmp_path / "a" / "groups" / "g" / "members" / f"{member.member_id}.json").exists()


def test_a_root_that_hangs_holds_up_no_other(tmp_path: Path, stuck: Callable[[], Stuck]) -> None:
    hang = stuck()
    with beating(joined(tmp_path / "a", hang.hook)) as found:
        assert hang.entered.wait(30)
        other = joined(tmp_path / "b")
        found.add(other)
        goes_on(other)


def test_a_member_that_hangs_does_not_hold_up_the_others_of_its_root(
    tmp_path: Path, stuck: Callable[[], Stuck], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "HELD_UP_SECONDS", 0.05)
    hang = stuck()
    with beating(joined(tmp_path / "a", hang.hook)) as found:
        assert hang.entered.wait(30)
        other = joined(tmp_path / "a")
        found.add(other)
        goes_on(other)


def test_a_root_takes_two_threads_at_most_and_all_roots_so_many(
    tmp_path: Path, stuck: Callable[[], Stuck], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeats, "HELD_UP_SECONDS", 0.0)
    monkeypatch.setattr(heartbeats, "_WARN_SECONDS", 0.05)
    hangs = [stuck() for _ in range(4)]
    hanging = [joined(tmp_path / "a", hang.hook) for hang in hangs]
    with caplog.at_level(logging.WARNING), beating(*hanging) as found:
        wait_until(lambda: sum(hang.entered.is_set() for hang in hangs) == WORKERS_OF_A_ROOT)
        wait_until(lambda: caplog.text.count("has not come back") == WORKERS_OF_A_ROOT)
        assert str(tmp_path / "a") in caplog.text
        more = [joined(tmp_path / f"r{number}", stuck().hook) for number in range(2 * MAX_WORKERS)]
        for each in more:
            found.add(each)
        wait_until(lambda: len(workers()) == MAX_WORKERS)
        wait_until(lambda: caplog.text.count("has not come back") == MAX_WORKERS)
        assert len(workers()) == MAX_WORKERS
        assert sum(hang.entered.is_set() for hang in hangs) == WORKERS_OF_A_ROOT


def test_of_many_members_none_is_passed_over(tmp_path: Path) -> None:
    """A round that takes longer than the pause between two goes on where it is: the last ones have their turn."""
    members = [joined(tmp_path / f"r{number % 3}") for number in range(60)]
    with beating(*members):
        wait_until(lambda: all(each.beats >= 12 for each in members))
        most, least = max(each.beats for each in members), min(each.beats for each in members)
        assert most <= 2 * least
        assert len(workers()) <= MAX_WORKERS


def test_a_member_that_nobody_holds_any_more_falls_silent(tmp_path: Path) -> None:
    members = [joined(tmp_path / "a")]
    with beating() as found:
        found.add(members[0])
        goes_on(members[0])
        members.clear()
        wait_until(lambda: not found._members)


def test_where_no_thread_starts_for_the_calls_the_one_there_is_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(name: str, run: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heartbeats, "start_thread", no_thread)
    member = joined(tmp_path / "a")
    with beating(member):
        goes_on(member)
        assert workers() == []

"""Consumers that are members of a group: who reads what, what they are told, and whose commits count."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from unittest import mock

import pytest

from pyspark_commitlog import Consumer, ConsumerRebalanceListener, Record, TopicPartition
from pyspark_commitlog.errors import CommitFailedError, FencedInstanceIdError, StorageUnreadableError, UsageError
from pyspark_commitlog.groups.membership import heartbeats
from pyspark_commitlog.storage import process
from tests.support.consumers import SMALL, at, consumer, numbered, put, values
from tests.support.world import World

BEAT_MS = 100
SESSION_MS = 300
COOPERATIVE = ["cooperative-sticky"]

pytestmark = pytest.mark.usefixtures("numbered_records")


class Still(heartbeats.Heartbeats):
    """No thread: members live as long as they poll."""

    def add(self, member: object) -> None:
        pass


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time pass only where a test says so."""
    monkeypatch.setattr(heartbeats.process_heartbeats, "value", Still())


class Told(ConsumerRebalanceListener):
    """Writes down what it is told, and by whom, in order."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    def _tell(self, what: str, places: Collection[TopicPartition]) -> None:
        self.calls.append(f"{self.name} {what} {' '.join(str(place.partition) for place in sorted(places))}")

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._tell("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._tell("lost", lost)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._tell("assigned", assigned)


def member(world: World, name: str, calls: list[str], **settings: object) -> Consumer:
    times = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS}
    each = consumer(world, **{"group_id": "g", "client_id": name, **times, **settings})
    each.subscribe(["t"], listener=Told(name, calls))
    return each


def run(world: World, *members: Consumer, ms: int = 1000) -> list[Record]:
    """Let time pass in which these poll; return all that they got."""
    found: list[Record] = []
    for _ in range(ms // 10):
        world.clock.advance(10)
        for each in members:
            found += each.poll()
    return found


def has(each: Consumer) -> list[int]:
    return sorted(place.partition for place in each.assignment())


def test_two_share_the_partitions_and_one_that_closes_hands_on_what_it_committed(world: World) -> None:
    calls: list[str] = []
    a = member(world, "a", calls)
    first = run(world, a, ms=100)
    assert sorted(values(first)) == numbered(0, 20) + numbered(50, 70)
    b = member(world, "b", calls)
    assert run(world, a, b) == []
    assert sorted(has(a) + has(b)) == [0, 1]
    assert calls[:2] == ["a assigned 0 1", "a revoked 0 1"]
    assert sorted(each[2:] for each in calls[2:]) == ["assigned 0", "assigned 1"]
    put(world, numbered(20, 25))
    put(world, numbered(70, 75), 1)
    assert sorted(values(run(world, a, b, ms=50))) == numbered(20, 25) + numbered(70, 75)
    a.close()
    assert run(world, b) == []
    assert has(b) == [0, 1]
    b.close()
    assert world.group_offsets() == [25, 25]


def test_a_cooperative_rebalance_takes_only_what_moves(world: World) -> None:
    calls: list[str] = []
    a = member(world, "a", calls, partition_assignment_strategy=COOPERATIVE)
    run(world, a, ms=100)
    b = member(world, "b", calls, partition_assignment_strategy=COOPERATIVE)
    assert run(world, a, b) == []
    [kept], [moved] = has(a), has(b)
    assert calls == ["a assigned 0 1", f"a revoked {moved}", f"b assigned {moved}"]
    assert kept != moved


def test_what_is_revoked_is_committed_before_the_listener_is_told(world: World) -> None:
    seen: list[list[int | None]] = []
    a = member(world, "a", [])

    class Looking(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            seen.append(world.group_offsets())

    a.subscribe(["t"], listener=Looking())
    run(world, a, ms=100)
    run(world, a, member(world, "b", []))
    assert seen[0] == [20, 20]


def test_a_listener_that_fails_gives_up_its_partitions_all_the_same(world: World) -> None:
    a = member(world, "a", [])

    class Failing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            raise ZeroDivisionError

    a.subscribe(["t"], listener=Failing())
    run(world, a, ms=100)
    b = member(world, "b", [])
    with pytest.raises(ZeroDivisionError):
        run(world, a, b)
    assert has(a) == []
    run(world, a, b)
    assert sorted(has(a) + has(b)) == [0, 1]


def test_a_consumer_whose_member_fails_to_leave_lets_go_of_it(world: World) -> None:
    """Else the threads of the process would say for ever that it lives."""
    a = member(world, "a", [])
    run(world, a, ms=100)
    former = a._coordinator._membership
    beats = heartbeats.process_heartbeats.value
    with (
        mock.patch.object(former, "leave", side_effect=ZeroDivisionError),
        mock.patch.object(beats, "remove") as remove,
        pytest.raises(ZeroDivisionError),
    ):
        a.close()
    remove.assert_called_once_with(former)
    assert a.assignment() == set()


def test_who_was_silent_loses_all_and_its_commits_are_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    a = member(world, "a", calls)
    assert len(run(world, a, ms=100)) == 40
    b = member(world, "b", calls)
    again = run(world, b, ms=2000)
    assert len(again) == 40, "nothing was committed: they come again"
    assert has(b) == [0, 1]
    with pytest.raises(CommitFailedError, match="is not a member any more: nothing was committed"):
        a.commit({at(0): 7})
    before = world.group_offsets()
    put(world, numbered(20, 21))
    with caplog.at_level(logging.WARNING, "pyspark_commitlog.consumer"):
        assert a.poll() == []
    assert calls[-1] == "a lost 0 1"
    assert world.group_offsets() == before
    got = run(world, a, b)
    assert values(got) == numbered(20, 21)
    assert sorted(has(a) + has(b)) == [0, 1]


def test_a_lost_partition_is_told_as_revoked_where_nobody_says_otherwise(world: World) -> None:
    told: list[set[TopicPartition]] = []

    class Short(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            told.append(set(revoked))

    a = member(world, "a", [])
    a.subscribe(["t"], listener=Short())
    run(world, a, ms=100)
    run(world, member(world, "b", []), ms=2000)
    world.clock.advance(BEAT_MS)
    a.poll()
    assert told == [{at(0), at(1)}]


def test_close_commits_though_the_group_has_moved_on_since(world: World) -> None:
    """A joiner begins another generation: the last commit takes another look."""
    a = member(world, "a", [], partition_assignment_strategy=COOPERATIVE, heartbeat_interval_ms=200)
    run(world, a, ms=100)
    world.log().topic("t").add_partitions(3)
    put(world, numbered(20, 22))
    b = member(world, "b", [], partition_assignment_strategy=COOPERATIVE, heartbeat_interval_ms=20)
    generation = world.log().groups.describe("g").generation_id
    assert len(a.poll()) == 2
    for _ in range(20):
        world.clock.advance(5)
        b.poll()
    assert world.log().groups.describe("g").generation_id > generation
    a.close()
    assert world.group_offsets()[:2] == [22, 20]


def test_of_two_with_one_instance_id_the_former_reads_no_more(world: World) -> None:
    calls: list[str] = []
    a = member(world, "a", calls, group_instance_id="one")
    run(world, a, ms=100)
    b = member(world, "b", calls, group_instance_id="one")
    run(world, b, ms=100)
    world.clock.advance(BEAT_MS)
    put(world, numbered(20, 21))
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError, match="another process"):
            a.poll()
    assert has(a) == []
    assert "a lost 0 1" in calls
    assert values(run(world, b, ms=50))[-1:] == numbered(20, 21)
    a.close()
    assert has(b) == [0, 1]


def test_a_topic_made_again_is_read_from_its_start_by_whoever_gets_it(world: World) -> None:
    a = member(world, "a", [], auto_offset_reset="latest")
    assert run(world, a, ms=100) == []
    world.log().topic("t").delete()
    run(world, a)
    world.create(2, SMALL)
    put(world, numbered(80, 85))
    assert values(run(world, a)) == numbered(80, 85)


def test_every_group_gets_all(world: World) -> None:
    a, b = member(world, "a", []), member(world, "b", [], group_id="h")
    assert len(run(world, a, b, ms=100)) == 80


def test_assign_joins_nothing_and_commits_beside_members(world: World) -> None:
    a = member(world, "a", [], enable_auto_commit=False)
    run(world, a, ms=100)
    by_hand = consumer(world, group_id="g")
    by_hand.assign([at(0)])
    by_hand.commit({at(0): 3})
    assert world.group_offsets() == [3, None]
    assert len(world.log().groups.describe("g").members) == 1


def test_flags_of_a_pattern_must_be_in_its_text(world: World) -> None:
    each = consumer(world, group_id="g")
    with pytest.raises(UsageError, match="write flags into it"):
        each.subscribe(pattern=re.compile("T", re.IGNORECASE))
    each.subscribe(pattern="(?i)T")
    assert len(each.poll()) == 40


def test_a_topic_that_only_another_member_may_read_ends_no_poll(world: World) -> None:
    """Who may read it rebalances; and both have their own."""
    world.create(1, SMALL, name="u")

    def hidden(operation: str, path: str, moment: str) -> None:
        if path.startswith("topics/u/"):
            raise StorageUnreadableError("injected: hidden")

    times = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS}
    a = consumer(world, "t", group_id="g", client_id="a", hook=hidden, **times)
    assert len(run(world, a)) == 40
    b = consumer(world, "u", group_id="g", client_id="b", **times)
    run(world, a, b)
    assert a.assignment() == {at(0), at(1)}
    assert b.assignment() == {at(0, "u")}


# --- the thread that tells ---------------------------------------------------------------------------------


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[heartbeats.Heartbeats]:
    """The heartbeats of a process of its own."""
    found = heartbeats.Heartbeats()
    monkeypatch.setattr(heartbeats.process_heartbeats, "value", found)
    yield found
    for each in list(found._members):
        found.remove(each)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "commitlog-heartbeats"]


def rows(world: World) -> Collection[str]:
    return world.log().groups.open("g").newest().members.rows


def test_one_thread_beats_for_all_and_ends_with_the_last(tmp_path: Path, beating: heartbeats.Heartbeats) -> None:
    world = World(tmp_path / "other")
    world.create(2, SMALL)
    before = len(threads())
    members = [member(world, name, [], heartbeat_interval_ms=20) for name in "abc"]
    assert len(threads()) == before  # the first poll joins
    for each in members:
        each.poll()
    assert len(threads()) == before + 1
    [thread] = [each for each in threads() if each.is_alive()][-1:]
    for each in members:
        each.close()
    thread.join(30)
    assert len(threads()) == before


def test_a_thread_that_could_not_start_is_started_by_the_next_poll(
    world: World, beating: heartbeats.Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object, **__: object) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    before = len(threads())
    with monkeypatch.context() as patched:
        patched.setattr(process, "Thread", no_thread)
        a = member(world, "a", [], heartbeat_interval_ms=20)
        with pytest.raises(RuntimeError):
            a.poll()
    a.poll()
    assert len(threads()) == before + 1
    a.close()


def test_who_does_not_poll_stays_until_max_poll_interval(world: World, beating: heartbeats.Heartbeats) -> None:
    a = member(world, "a", [], heartbeat_interval_ms=20, max_poll_interval_ms=1000)
    run(world, a, ms=100)
    here = threading.Event()
    file = next(iter(world.files("members/", root="groups")))
    before = (world.path / file).stat().st_ino
    world.clock.advance(500)
    while (world.path / file).stat().st_ino == before:
        here.wait(0.01)
    assert len(rows(world)) == 1
    world.clock.advance(501)
    while rows(world):
        here.wait(0.01)
    with pytest.raises(CommitFailedError):
        a.commit()


def test_a_forked_child_beats_for_nobody(world: World, beating: heartbeats.Heartbeats) -> None:
    member(world, "a", [], heartbeat_interval_ms=20).poll()
    child = os.fork()
    if child == 0:
        fresh = heartbeats.process_heartbeats.value
        os._exit(0 if fresh is not beating and not fresh._members and not threads() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

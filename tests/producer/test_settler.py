"""When a producer's settler looks: soon after a commit, once for those that follow each other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_commitlog.producer import settler as settling
from pyspark_commitlog.producer.settler import LOOK_BYTES, LOOK_SECONDS, Settler
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.budget import Budget, SettleThrottle
from pyspark_commitlog.topic.settle.settle_load import SettleLoad
from tests.support.records import append, batch_of
from tests.support.world import World


class Asked:
    """A pool that does nothing of itself."""

    def __init__(self) -> None:
        self.seconds, self.wanted = list[float](), False

    def schedule(self, job: object, seconds: float = 0.0) -> None:
        self.seconds.append(seconds)

    def is_wanted(self, job: object) -> bool:
        return self.wanted

    def wait(self, job: object, seconds: float) -> bool:
        return True


@pytest.fixture
def settler(tmp_path: Path) -> tuple[Settler, Asked]:
    made, asked = Settler(LocalStorage(tmp_path), "t"), Asked()
    made._pool = asked  # type: ignore[assignment]
    return made, asked


def test_small_commits_are_looked_at_together(settler: tuple[Settler, Asked]) -> None:
    made, asked = settler
    for _ in range(3):
        made.committed("id", 100)
    assert asked.seconds == [LOOK_SECONDS] * 3


def test_much_is_looked_at_at_once(settler: tuple[Settler, Asked]) -> None:
    made, asked = settler
    for _ in range(2):
        made.committed("id", LOOK_BYTES // 2)
    assert asked.seconds == [LOOK_SECONDS, 0.0]


def test_it_is_looked_before_the_producer_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at together with later commits waits for none."""
    monkeypatch.setattr(settling, "LOOK_SECONDS", 3600.0)
    made, looked = Settler(LocalStorage(tmp_path), "t"), list[str]()
    monkeypatch.setattr(settling, "settle_after_commit", lambda topic, topic_id, hurries: looked.append(topic_id))
    made.committed("id", 1)
    assert made.join(20)
    assert looked == ["id"]


def test_what_was_to_be_looked_at_is_looked_at_where_the_leader_is_now(
    settler: tuple[Settler, Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = settler
    asked, looked, places = Asked(), list[str](), [LocalStorage(tmp_path / name) for name in "bc"]
    monkeypatch.setattr(settling, "process_pools", SimpleNamespace(value=SimpleNamespace(settlers=asked)))
    monkeypatch.setattr(settling, "settle_after_commit", lambda topic, topic_id, _: looked.append(topic.storage.url))
    at_c = made.moved(places[0]).moved(places[1])
    assert asked.seconds == [], "nothing was committed"
    made.committed("id", 1)
    at_b = made.moved(places[0])
    assert asked.seconds == [LOOK_SECONDS]
    for each in (made, at_b, at_c):
        each.run()
    assert looked == [places[0].url]


def test_a_run_rests_beside_commits_for_half_the_time_in_which_they_came() -> None:
    assert SettleLoad(bytes=1, entries=64, age_ms=128).rest() == pytest.approx(0.001)
    assert SettleLoad(bytes=1, entries=64, age_ms=100_000).rest() == pytest.approx(0.003)
    assert SettleLoad(bytes=1, entries=64, age_ms=0).rest() == 0
    assert SettleLoad(bytes=0, entries=0, age_ms=0).rest() == 0


def test_what_a_run_rests_is_none_of_its_time() -> None:
    clock = ManualClock()
    began = clock.monotonic()
    budget = Budget(clock, 0.1, SettleThrottle(0.05, 1.0, hurries=lambda: False))
    for _ in range(5):
        budget.rest()
        assert not budget.spent()
    assert clock.monotonic() - began == pytest.approx(0.25)
    clock.advance(100)
    assert budget.spent()


def test_a_run_that_is_waited_for_does_not_rest() -> None:
    clock, waited = ManualClock(), list[bool]()
    began = clock.monotonic()
    budget = Budget(clock, 0.1, SettleThrottle(0.05, 1.0, hurries=lambda: bool(waited)))
    budget.rest()
    assert clock.monotonic() - began == pytest.approx(0.05)
    waited.append(True)
    budget.rest()
    assert clock.monotonic() - began == pytest.approx(0.05)


def test_a_run_rests_no_longer_than_it_may_in_all() -> None:
    """It holds the settlers' lock meanwhile."""
    clock = ManualClock()
    began = clock.monotonic()
    budget = Budget(clock, None, SettleThrottle(0.05, 0.2, hurries=lambda: False))
    for _ in range(100):
        budget.rest()
    assert 0.14 < clock.monotonic() - began < 0.21


def test_a_run_rests_before_each_entry_whatever_it_holds(tmp_path: Path) -> None:
    """Frames and partitions are steps, too: with a rest before each of them a run would take seconds."""
    world = World(tmp_path)
    topic = world.create(20, {"settle.entries": 4})
    for _ in range(4):
        world.clock.advance(100)
        append(topic, batch_of([b"1"] * 20, partition=list(range(20))))
    made, topic_id = Settler(world.storage(), "t"), topic.newest()[1].topic_id
    made._topic_id = topic_id
    began = world.clock.monotonic()
    made.run()
    assert topic.settled(topic_id)[1].oldest_unsettled > 4, "else nothing is shown"
    assert world.clock.monotonic() - began == pytest.approx(3 * 0.003, abs=0.0001)


def test_a_producers_run_is_waited_for_when_it_closes_or_others_want_its_thread_or_much_came(
    settler: tuple[Settler, Asked],
) -> None:
    made, asked = settler
    assert not made._hurries()
    asked.wanted = True
    assert made._hurries()
    asked.wanted = False
    made.committed("id", LOOK_BYTES)
    assert made._hurries()
    made._bytes = 0
    assert not made._hurries()
    made.join(1)
    assert made._hurries()


@pytest.mark.parametrize("joined", [False, True])
def test_a_producers_settler_rests_before_each_entry_unless_it_is_joined(tmp_path: Path, joined: bool) -> None:
    world = World(tmp_path)
    topic = world.create(1, {"settle.entries": 4})
    for number in range(4):
        world.clock.advance(100)
        append(topic, batch_of([b"%d" % number]))
    made, topic_id = Settler(world.storage(), "t"), topic.newest()[1].topic_id
    if joined:
        made.join(1)
    made._topic_id = topic_id
    began = world.clock.monotonic()
    made.run()
    assert topic.settled(topic_id)[1].oldest_unsettled > 4, "else nothing is shown"
    rested = world.clock.monotonic() - began
    assert rested == pytest.approx(0 if joined else 3 * 0.003, abs=0.0001)

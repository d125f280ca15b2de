"""A root that lags far: it learns for a while of each topic in turn, so that none waits for another; the rest is later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyspark_commitlog.cli.app import _Round
from pyspark_commitlog.replicas import replicating
from pyspark_commitlog.replicas.replicating import take_turn
from tests.support.replicas import Replicated

#: Seconds that an entry takes to learn here: so many are learned in a turn, and so many later.
_SECONDS, _TURN, _LATE = 1, 10, 60


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    monkeypatch.setattr(replicating, "AT_ONCE", 1)
    return Replicated(tmp_path)


def behind(roots: Replicated, **entries: int) -> list[str]:
    """Have ``c`` lag so many entries of each topic, and be slow; return the topics of the entries that it learns."""
    for name in entries:
        roots.create(name=name)
    roots.take_away("c")
    for name, many in entries.items():
        for _ in range(many // 2):  # a write is two entries: the other one says what readers see
            roots.write(b"1", topic=roots.topic(name=name))
    roots.give_back("c")
    learned = list[str]()

    def slow(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "/journal/" in path:
            roots.clock.advance(1_000 * _SECONDS)
            learned.append(path.split("/")[1])

    roots.hooks["c"] = slow
    return learned


def in_sync(roots: Replicated, name: str) -> str:
    return roots.named(*roots.state(name).isr)


def run_all(roots: Replicated, by: str) -> None:
    if by == "the command":
        _Round(roots.log("a"), threading.Event(), as_json=True).run(None)
    else:
        getattr(roots.log("a"), by)()


@pytest.mark.parametrize("by", ["maintain", "replicate", "the command"])
def test_a_topic_of_which_little_is_lacking_waits_for_no_other(roots: Replicated, by: str) -> None:
    learned = behind(roots, t=_TURN + _LATE, u=2)
    run_all(roots, by)
    assert learned[: learned.index("u")] == ["t"] * _TURN
    assert learned.count("t") >= _TURN + _LATE, "when u had its turn"
    assert in_sync(roots, "t") == in_sync(roots, "u") == "abc"


@pytest.mark.parametrize("by", ["maintain", "replicate", "the command"])
def test_no_topic_is_late_for_longer_than_a_minute(roots: Replicated, by: str) -> None:
    learned = behind(roots, t=170, u=170)
    for round_ in (1, 2):
        run_all(roots, by)
        assert learned.count("t") == learned.count("u") == round_ * (_TURN + _LATE), f"round {round_}"
    assert in_sync(roots, "t") == in_sync(roots, "u") == "ab"


def test_one_topic_alone_is_given_all_the_time_it_needs(roots: Replicated) -> None:
    behind(roots, t=100)
    assert roots.log().replicate("t").failed == {}
    assert in_sync(roots, "t") == "abc"


def test_what_was_done_in_both_is_told(roots: Replicated) -> None:
    behind(roots, t=_TURN + _LATE)
    roots.take_away("a")
    (done,) = roots.log("b").replicate()
    assert (done.joined, done.leader, done.elected) == ((roots.id_of("c"),), roots.id_of("b"), roots.id_of("b"))
    assert list(done.failed) == [roots.id_of("a")]


def test_a_root_that_lags_says_how_far_and_what_to_do(roots: Replicated) -> None:
    behind(roots, t=40)
    done = take_turn(roots.order())
    assert done.lagging == [roots.id_of("c")]
    assert "lags 31 entries after 10 s" in done.failed[roots.id_of("c")]
    assert "`commitlog replicate` of this topic" in done.failed[roots.id_of("c")]


def test_a_root_that_needs_long_for_an_entry_does_not_join_for_it(roots: Replicated) -> None:
    """It learned all that was asked of it in time: the one entry that there was time for."""
    behind(roots, t=40)
    done = replicating.replicate(roots.order(), seconds=1.0)
    assert (done.joined, done.lagging) == ([], [roots.id_of("c")])


def test_a_command_that_is_stopped_catches_up_with_no_other_topic(roots: Replicated) -> None:
    learned, stop = behind(roots, t=_TURN + _LATE, u=_TURN + _LATE), threading.Event()
    slow = roots.hooks["c"]

    def stopping(operation: str, path: str, moment: str) -> None:
        slow(operation, path, moment)
        if len(learned) > 2 * _TURN:
            stop.set()

    roots.hooks["c"] = stopping
    _Round(roots.log("a"), stop, as_json=True).run(None)
    assert (in_sync(roots, "t"), in_sync(roots, "u")) == ("abc", "ab")

"""A root that lags far: it learns for a while of each topic in turn, so that none waits for another; the rest is later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.cli.maintain import _MaintainRound
from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.admin import replicating
from pyspark_commitlog.replication.admin.replicating import is_nearer, take_turn
from tests.support.replicas import Replicated, no_device

#: Seconds that an entry takes to learn here; so many are learned in a turn, and so many in what is a minute elsewhere.
_SECONDS, _TURN, _LATE = 1, 5, 20


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    for name, value in {"AT_ONCE": 1, "_TURN_SECONDS": _TURN, "_LATE_SECONDS": _LATE}.items():
        monkeypatch.setattr(replicating, name, value)
    return Replicated(tmp_path)


def behind(roots: Replicated, **entries: int) -> list[str]:
    """Have `c` lag so many entries of each topic, and be slow; return the topics of the entries that it learns."""
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
        _MaintainRound(Maintenance(roots.log("a").root), threading.Event(), as_json=True).run(None).catch_up()
    else:
        log = roots.log("a")
        (log.maintain if by == "maintain" else log.replicas.sync)()


@pytest.mark.parametrize("by", ["maintain", "replicate", "the command"])
def test_a_topic_of_which_little_is_lacking_waits_for_no_other(roots: Replicated, by: str) -> None:
    learned = behind(roots, t=_TURN + _LATE, u=2)
    run_all(roots, by)
    assert learned[: learned.index("u")] == ["t"] * _TURN
    assert learned.count("t") >= _TURN + _LATE, "when u had its turn"
    assert in_sync(roots, "t") == in_sync(roots, "u") == "abc"


@pytest.mark.parametrize("by", ["maintain", "replicate", "the command"])
def test_those_that_lag_take_turns_of_a_minute_until_none_does(roots: Replicated, by: str) -> None:
    """However far: what keeps up with those that write joins."""
    learned = behind(roots, t=3 * _LATE, u=3 * _LATE)
    run_all(roots, by)
    assert in_sync(roots, "t") == in_sync(roots, "u") == "abc"
    assert learned[: 2 * (_TURN + _LATE)] == [*"t" * _TURN, *"u" * _TURN, *"t" * _LATE, *"u" * _LATE]


@pytest.mark.parametrize("by", ["maintain", "replicate", "the command"])
def test_where_others_write_as_fast_the_run_ends(roots: Replicated, by: str) -> None:
    learned = behind(roots, t=2 * _LATE)
    slow = roots.hooks["c"]

    def others_write(operation: str, path: str, moment: str) -> None:
        slow(operation, path, moment)
        if (operation, moment) == ("put_if_absent", "before") and len(learned) % 2 and len(learned) < 4 * _LATE:
            roots.write(b"2")  # two entries

    roots.hooks["c"] = others_write
    run_all(roots, by)
    assert in_sync(roots, "t") == "ab"
    assert len(learned) <= _TURN + 2 * _LATE + 3, "it is no nearer after the second minute"


def test_a_topic_that_was_given_up_is_not_late_again_in_that_run() -> None:
    """Else two of which now one, now the other comes nearer keep it going for ever."""
    assert is_nearer({"c": 5}, {"c": 6})
    assert not is_nearer({"c": 6}, {"c": 6})
    assert not is_nearer({"c": 5}, {})


def test_replicate_gives_all_others_a_turn_each_minute(roots: Replicated) -> None:
    learned = behind(roots, t=3 * _LATE, u=2)
    slow = roots.hooks["c"]

    def more(operation: str, path: str, moment: str) -> None:
        slow(operation, path, moment)
        if learned.count("t") == _TURN + 2:  # it has its minute
            roots.hooks["c"] = no_device
            roots.write(b"2", topic=roots.topic(name="u"), acks_all=False)
            roots.hooks["c"] = slow

    roots.hooks["c"] = more
    roots.log("a").replicas.sync()
    assert in_sync(roots, "t") == in_sync(roots, "u") == "abc"
    assert roots.at("c", "u").newest()[1].log_end == (2,)
    assert "u" in learned[_TURN + 4 : _TURN + _LATE + 5], "when that minute is over"


def test_a_turn_beside_what_catches_up_learns_one_entry(roots: Replicated) -> None:
    """Another thread learns: each entry is copied once."""
    learned, maintenance = behind(roots, t=2 * _LATE), Maintenance(roots.log("a").root)
    sync = maintenance.replicas
    sync._catching.add("t")
    sync.take_turn("t")
    assert len(learned) == 1
    maintenance.maintain("t", silent)
    assert len(learned) == 2
    sync._catching.discard("t")
    sync.take_turn("t")
    assert len(learned) == 2 + _TURN


def test_maintain_of_one_topic_waits_for_what_lags_there(roots: Replicated) -> None:
    behind(roots, t=2 * _LATE)
    roots.log("a").topic("t").maintain()
    assert in_sync(roots, "t") == "abc"


def test_who_ends_maintain_does_not_wait(roots: Replicated) -> None:
    learned = behind(roots, t=2 * _LATE)

    def end(what: str, done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        roots.log("a").topic("t").maintain(progress=end)
    assert len(learned) == _TURN


def test_what_fails_while_it_catches_up_is_logged_and_the_round_goes_on(
    roots: Replicated, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    behind(roots, t=2 * _LATE)
    ends = _MaintainRound(Maintenance(roots.log("a").root), threading.Event(), as_json=True).run(None)
    roots.hooks["m"] = no_device
    ends.catch_up()
    assert "topics/t/journal: not replicated" in caplog.text

    def broken(operation: str, path: str, moment: str) -> None:
        raise ZeroDivisionError("injected")

    roots.hooks["m"] = broken
    ends = _MaintainRound(Maintenance(roots.log("a").root), threading.Event(), as_json=True)
    ends._maintenance.replicas.set_lagging("t", {"c": 1})
    ends.catch_up()
    assert "injected" in capsys.readouterr().err
    assert ends.code == 1


def test_one_topic_alone_is_given_all_the_time_it_needs(roots: Replicated) -> None:
    behind(roots, t=2 * _LATE)
    assert roots.log().replicas.sync("t").failed == {}
    assert in_sync(roots, "t") == "abc"


def test_what_was_done_in_both_is_told(roots: Replicated) -> None:
    behind(roots, t=_TURN + _LATE)
    roots.take_away("a")
    (done,) = roots.log("b").replicas.sync()
    assert (done.joined, done.leader, done.elected) == ((roots.id_of("c"),), roots.id_of("b"), roots.id_of("b"))
    assert list(done.failed) == [roots.id_of("a")]


def test_a_root_that_lags_says_how_far_and_what_to_do(roots: Replicated) -> None:
    behind(roots, t=40)
    done = take_turn(roots.decided_log())
    assert done.lagging == {roots.id_of("c"): 36}
    assert "still lags 36 entries" in done.failed[roots.id_of("c")]
    assert "`commitlog replicas sync` of this topic alone" in done.failed[roots.id_of("c")]


def test_a_root_that_needs_long_for_an_entry_does_not_join_for_it(roots: Replicated) -> None:
    """It learned all that was asked of it in time: the one entry that there was time for."""
    behind(roots, t=40)
    done = replicating.replicate(roots.decided_log(), seconds=1.0)
    assert (done.joined, list(done.lagging)) == ([], [roots.id_of("c")])


def test_a_command_that_is_stopped_learns_no_other_entry(roots: Replicated) -> None:
    learned, stop = behind(roots, t=2 * _LATE, u=2 * _LATE), threading.Event()
    slow = roots.hooks["c"]

    def stopping(operation: str, path: str, moment: str) -> None:
        slow(operation, path, moment)
        if len(learned) > 2 * _TURN:
            stop.set()

    roots.hooks["c"] = stopping
    _MaintainRound(Maintenance(roots.log("a").root), stop, as_json=True).run(None).catch_up()
    assert len(learned) == 2 * _TURN + 1


def test_a_command_that_is_stopped_replicates_no_other_group(roots: Replicated) -> None:
    roots.create()
    for name in ("g1", "g2"):
        roots.log().groups.commit(name, {"t": {0: 0}})
    stop, asked = threading.Event(), list[str]()

    def stopping(operation: str, path: str, moment: str) -> None:
        if path.startswith("groups/g"):
            asked.append(path.split("/")[1])
            stop.set()

    roots.hooks["c"] = stopping
    _MaintainRound(Maintenance(roots.log("a").root), stop, as_json=True).run(None)
    assert set(asked) == {"g1"}

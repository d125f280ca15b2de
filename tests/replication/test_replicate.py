"""What nobody who writes waits for: learning, taking back, elections by whoever looks; leaders that hand over."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import NotLeaderError, ReplicaNotAvailableError, UnknownTopicError, UsageError
from tests.support.replicas import LAG_MS, Replicated


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def no_device(operation: str, path: str, moment: str) -> None:
    raise OSError(errno.EIO, "injected: the device is gone")


def entries(roots: Replicated, root: str = "m") -> int:
    return len(list((roots.path / root / "topics/t/journal").iterdir()))


def test_a_root_that_answers_again_learns_and_readers_see_all(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.hooks["c"] = no_device
    roots.write(b"2", acks_all=False)
    done = roots.log().replicas.sync("t")
    assert list(done.failed) == [roots.id_of("c")]
    assert not done.hw_raised
    del roots.hooks["c"]
    done = roots.log().replicas.sync("t")
    assert (done.failed, done.joined, done.hw_raised) == ({}, (), True)
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3


def test_where_all_is_done_nothing_is_put(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    before = entries(roots)
    for _ in range(3):
        assert not roots.log().replicas.sync("t").hw_raised
    assert entries(roots) == before


def test_a_root_that_is_out_of_sync_is_taken_back(roots: Replicated) -> None:
    roots.create()
    roots.take_away("c")
    roots.write(b"1")  # takes c out
    assert roots.isr() == "ab"
    assert list(roots.log().replicas.sync("t").failed) == [roots.id_of("c")]
    roots.give_back("c")
    assert roots.log("b").replicas.sync("t").joined == (roots.id_of("c"),)
    assert roots.isr() == "abc"
    assert roots.values("c") == [b"1"]


def far_behind(roots: Replicated, meanwhile: int) -> None:
    """Have a root be out of sync that learns an entry a second; others write so often meanwhile, as fast."""
    roots.create()
    roots.take_away("c")
    for _ in range(10):
        roots.write(b"1")
    roots.give_back("c")
    left = iter(range(2 * meanwhile))

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "t/journal/" in path:
            roots.clock.advance(1_000)
            if next(left, 0) % 2:  # a write is two entries: the other one says what readers see
                roots.write(b"2")

    roots.hooks["c"] = hook


def test_a_root_that_is_slow_joins_when_little_is_left_to_learn(roots: Replicated) -> None:
    """From the entry on that says so whoever writes waits for it."""
    far_behind(roots, 20)
    lags = []

    def look(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "after") and roots.state().joining:
            lags.append(entries(roots) - entries(roots, "c"))

    roots.hooks["m"] = look
    assert roots.log().replicas.sync("t").joined == (roots.id_of("c"),)
    assert 0 < lags[0] <= 20, lags


def test_a_root_that_learns_slower_than_others_write_holds_up_none(roots: Replicated) -> None:
    far_behind(roots, 200)
    done = roots.log().replicas.sync("t")
    assert "others write as fast as it learns" in done.failed[roots.id_of("c")]
    assert roots.state().joining == ()


def test_a_root_that_can_not_learn_is_not_made_to_join(roots: Replicated) -> None:
    """Writers push to those that join: one that never can would hold up each of them."""
    roots.create()
    roots.take_away("c")
    roots.write(b"1")
    roots.give_back("c")

    def full(operation: str, path: str, moment: str) -> None:
        if operation in ("create", "put_if_absent"):
            raise OSError(errno.ENOSPC, "injected: no space left")

    roots.hooks["c"] = full
    assert list(roots.log().replicas.sync("t").failed) == [roots.id_of("c")]
    assert (roots.isr(), roots.state().joining) == ("ab", ())


def test_a_leader_that_is_gone_is_replaced(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.take_away("a")
    done = roots.log("b").replicas.sync("t")
    assert (done.elected, done.leader, roots.leader(), roots.isr()) == (roots.id_of("b"), roots.id_of("b"), "b", "bc")


def test_a_root_that_does_not_answer_for_the_lag_is_taken_out(roots: Replicated) -> None:
    roots.create()
    roots.hooks["c"] = no_device
    assert roots.log().replicas.sync("t").shrunk == ()
    roots.clock.advance(LAG_MS)
    assert roots.log().replicas.sync("t").shrunk == (roots.id_of("c"),)
    assert roots.isr() == "ab"


def test_settings_are_copied_to_a_root_that_was_away(roots: Replicated) -> None:
    roots.create()
    roots.take_away("c")
    roots.log().config.alter({"log.retention.hours": 7})
    roots.give_back("c")
    assert roots.log("c").config.get() == {}
    roots.log("b").replicas.sync()
    assert roots.log("c").config.get() == {"log.retention.hours": "7"}


def test_all_topics_and_deleted_ones_too(roots: Replicated) -> None:
    roots.create()
    roots.create(name="u")
    roots.hooks["c"] = no_device
    roots.write(b"1", acks_all=False)
    roots.log().topic("u").delete()
    del roots.hooks["c"]
    (roots.path / "m/topics/nobody-s").mkdir()
    assert [done.topic for done in roots.log().replicas.sync()] == ["t", "u"]
    assert roots.values("c") == [b"1"]
    with pytest.raises(UnknownTopicError):
        roots.at("c", "u").newest()


def test_maintain_replicates_first(roots: Replicated) -> None:
    roots.create()
    roots.take_away("c")
    roots.write(b"1")
    roots.give_back("c")
    assert roots.log("a").topic("t").maintain().settled_records == 1
    assert roots.isr() == "abc"
    roots.take_away("c")
    roots.write(b"2")
    roots.give_back("c")
    roots.log("b").maintain()
    assert roots.isr() == "abc"


def test_maintain_settles_without_the_metadata_and_says_what_it_could_not_do(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    roots.create()
    roots.write(b"1")
    roots.take_away("m")
    with pytest.raises(ReplicaNotAvailableError):
        roots.log().replicas.sync("t")
    with pytest.raises(ReplicaNotAvailableError):
        roots.log("a").topic("t").maintain()
    assert "not replicated" in caplog.text
    assert roots.log("a").topic("t").describe().partitions[0].unsettled == 0


def test_a_lead_is_handed_over_without_loss(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(b"2", acks_all=False)  # on the leader alone
    roots.hooks.clear()
    assert roots.log("c").replicas.elect("t", roots.id_of("b")) == roots.id_of("b")
    assert (roots.leader(), roots.isr(), roots.state().why) == ("b", "abc", "it was asked for")
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3
    roots.write(b"3")
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2", b"3"]] * 3


def test_a_root_is_named_by_its_id_or_its_place(roots: Replicated) -> None:
    roots.create()
    log = roots.log()
    assert log.replicas.elect("t", str(roots.path / "c")) == roots.id_of("c")
    epoch = roots.state().leader_epoch
    assert log.replicas.elect("t", f"{roots.path}/c/") == roots.id_of("c"), "it leads already"
    assert roots.state().leader_epoch == epoch
    assert log.replicas.elect("t") in (roots.id_of("a"), roots.id_of("b"))
    with pytest.raises(UsageError, match="none of the roots"):
        log.replicas.elect("t", str(roots.path / "m"))
    with pytest.raises(UnknownTopicError):
        log.replicas.elect("nobody")
    log.topic("t").delete()
    with pytest.raises(UnknownTopicError):
        log.replicas.elect("t")


def test_only_who_is_in_sync_can_lead(roots: Replicated) -> None:
    roots.create()
    roots.take_away("c")
    roots.write(b"1")
    roots.give_back("c")
    with pytest.raises(NotLeaderError, match="not in sync"):
        roots.log().replicas.elect("t", roots.id_of("c"))
    assert roots.leader() == "a"


def test_a_root_that_stands_alone_has_nothing_to_replicate(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t")
    for act in (log.replicas.sync, lambda: log.replicas.sync("t"), lambda: log.replicas.elect("t")):
        with pytest.raises(UsageError, match="stands alone"):
            act()


def test_nothing_is_decided_at_a_metadata_root_that_is_no_more_what_it_was(roots: Replicated) -> None:
    """A process that runs on sees an empty mount point where the root was."""
    roots.create()
    roots.write(b"1")
    log, topic = roots.log(), roots.topic()
    log.replicas.sync("t")
    roots.write(b"2", topic=topic)
    roots.take_away("m")
    (roots.path / "m").mkdir()
    for act in (
        lambda: log.create_topic("u"),
        lambda: log.create_topic("t"),
        lambda: log.replicas.elect("t"),
        lambda: log.replicas.sync("t"),
        lambda: roots.write(b"3", topic=topic),
    ):
        with pytest.raises(ReplicaNotAvailableError):
            act()
    assert list((roots.path / "m").iterdir()) == []
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3


@pytest.mark.parametrize("what", ["join", "elect", "high watermark"])
def test_a_metadata_root_that_goes_between_two_looks_is_named(roots: Replicated, what: str) -> None:
    """It was read a moment ago; its mount point is empty when an entry is to be put on what was read."""
    roots.create()
    roots.write(b"1", hw_later=True)
    decided_log = roots.decided_log()
    head = decided_log.places.newest()
    pushed = decided_log.pusher.push()
    assert not pushed.failed
    decided_log.pusher.learned = dict.fromkeys(decided_log.pusher.learned, head.sequence + 1)
    decided_log.places.newest = lambda: head  # type: ignore[method-assign]
    decided_log.pusher.push = lambda: pushed  # type: ignore[method-assign]
    roots.take_away("m")
    (roots.path / "m").mkdir()
    act: dict[str, Callable[[], object]] = {
        "join": lambda: decided_log.pusher.change("joining", lambda state, base: state),
        "elect": lambda: decided_log.elections.elect(why="asked"),
        "high watermark": lambda: decided_log.pusher.raise_hw(head),
    }
    with pytest.raises(ReplicaNotAvailableError, match="metadata root was away"):
        act[what]()

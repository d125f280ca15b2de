"""A topic on three roots: what is acknowledged is on all that are in sync, and readers of each see the same."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyspark_commitlog.errors import NotEnoughReplicasError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.replicas import CONFIG, LAG_MS, Replicated


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def no_device(operation: str, path: str, moment: str) -> None:
    raise OSError(errno.EIO, "injected: the device is gone")


def test_what_is_acknowledged_is_read_at_every_root(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1", b"2")
    roots.write(b"3")
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2", b"3"]] * 3
    assert roots.isr() == "abc"


def test_every_journal_is_the_same_bytes(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    journals = [
        {path.name: path.read_bytes() for path in (roots.path / root / "topics/t/journal").iterdir()} for root in "abcm"
    ]
    assert len(journals[0]) >= 3
    assert all(journal == journals[0] for journal in journals)


def test_a_root_shows_what_it_has_learned_up_to_the_high_watermark(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.hooks["c"] = no_device
    roots.write(b"2", acks_all=False)
    assert roots.values("a") == [b"1"], "c is in sync, and has not learned it: it may still be lost"
    head, shown = roots.at("a").journal.head(), roots.at("a").journal.newest()
    assert head is not None
    assert shown is not None
    assert (head.entry.body["state"]["logEnd"], shown.entry.body["state"]["logEnd"]) == ([2], [1]), "LEO 2, HW 1"
    del roots.hooks["c"]
    roots.write(b"3")
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2", b"3"]] * 3


def test_acks_all_takes_a_root_out_that_does_not_answer_for_the_lag(roots: Replicated) -> None:
    roots.create()
    roots.hooks["c"] = no_device
    began = roots.clock.monotonic()
    roots.write(b"1")
    assert roots.clock.monotonic() - began >= LAG_MS / 1000
    assert roots.isr() == "ab"
    assert [roots.values(root) for root in "ab"] == [[b"1"]] * 2


def test_acks_1_does_not_wait_for_it(roots: Replicated) -> None:
    roots.create()
    roots.hooks["c"] = no_device
    began = roots.clock.monotonic()
    roots.write(b"1", acks_all=False)
    assert roots.clock.monotonic() - began < 1
    assert roots.isr() == "abc"


def test_too_few_in_sync_refuses_acks_all_and_writes_nothing(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "min.insync.replicas": 3})
    roots.write(b"1")
    roots.hooks["c"] = no_device
    for _ in range(2):  # the first one takes c out
        with pytest.raises(NotEnoughReplicasError, match=r"NOT_ENOUGH_REPLICAS.*2 of 3 .*min.insync.replicas=3"):
            roots.write(b"2")
    assert roots.isr() == "ab"
    assert roots.values("a") == [b"1"]
    roots.write(b"3", acks_all=False)
    assert roots.values("a") == [b"1", b"3"]


def test_a_leader_that_is_gone_is_replaced_and_nothing_acknowledged_is_lost(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    assert roots.leader() == "a"
    roots.take_away("a")
    roots.write(b"2", topic=roots.topic("b"))
    assert (roots.leader(), roots.isr(), roots.state().leader_epoch) == ("b", "bc", 1)
    assert [roots.values(root) for root in "bc"] == [[b"1", b"2"]] * 2


def test_what_an_election_loses_is_a_gap_and_its_writer_appends_it_again(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    writer = Transaction("txn:app", 1, False)
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(b"lost", writer=writer, acks_all=False)
    roots.hooks.clear()
    roots.take_away("a")
    roots.write(b"2", topic=roots.topic("b"))
    assert not roots.write(b"lost", writer=writer, topic=roots.topic("b")).skipped
    assert [roots.values(root) for root in "bc"] == [[b"1", b"2", b"lost"]] * 2
    ends = {offset for root in "bc" for offset in roots.at(root).newest()[1].log_end}
    assert ends == {4}, "offset 1 is used by nobody else"


def test_a_root_that_comes_back_joins_when_it_has_learned_all(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    roots.take_away("a")
    roots.write(b"2", topic=roots.topic("b"))
    roots.give_back("a")
    assert roots.values("a") == [b"1"]
    assert roots.decided_log().pusher.join(roots.id_of("a"))
    assert roots.isr() == "abc"
    assert roots.values("a") == [b"1", b"2"]


def test_an_emptied_root_is_not_the_replica_that_it_was(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"1")
    roots.take_away("c")
    from pyspark_commitlog.api.commit_log import CommitLog

    CommitLog(str(roots.path / "c")).create_topic("other")
    with pytest.raises(ReplicaNotAvailableError, match="another root now"):
        topic.journal.decided_log().pusher.join(roots.id_of("c"))


def test_each_root_settles_for_itself(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    for root in "abc":
        assert roots.log(root).topic("t").maintain().settled_records == 1
    roots.write(b"2")
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3


def test_one_root_under_two_names_is_refused(roots: Replicated, tmp_path: Path) -> None:
    from pyspark_commitlog.api.commit_log import CommitLog

    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="one directory"):
        CommitLog.create([str(tmp_path / "a"), str(tmp_path / "link")])
    assert not (tmp_path / "a" / "commitlog.json").exists()

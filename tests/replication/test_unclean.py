"""Unclean elections: a root leads that was not in sync, and what it lacks is gone.

The interleavings that it has to survive:

1. What was read below HW is void: the offsets stay a gap on every root that learns it, and are never used again.
2. The root that leads has learned the entry that states HW, not yet its own election: readers and settlers that miss
   a chunk wait there, and nothing is published as damaged.
3. A retry of a batch that is void is appended; one of a batch that lives is not.
4. The old leader comes back: it learns the election, and joins.
5. The root has learned nothing yet, or lags beyond what is kept: it could never learn its own election.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.errors import NotLeaderError, ReplicaNotAvailableError
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write.writers import Transaction
from tests.replication.lagging import expected, lagging
from tests.support.replicas import CONFIG, Replicated, no_device

LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def leave_behind(roots: Replicated, *lost: bytes, writer: Transaction | None = None) -> None:
    """Write `0`, take b and c out of the ISR, write the rest on a alone, and take a away."""
    roots.write(b"0", writer=Transaction("txn:app", 1, False))
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    for value in lost:
        roots.write(value, writer=writer)
    assert roots.values("a") == [b"0", *lost]
    roots.take_away("a")


def unclean(roots: Replicated, root: str = "b") -> None:
    roots.log(root).replicas.elect("t", unclean=True)


def test_only_when_asked_a_root_leads_that_is_not_in_sync_and_what_it_lacks_is_a_gap(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    roots.create()
    leave_behind(roots, LARGE)
    with pytest.raises(NotLeaderError):
        roots.log("b").replicas.elect("t")
    with pytest.raises(NotLeaderError):
        roots.log("b").replicas.elect("t", str(roots.path / "b"))
    assert "UNCLEAN" not in caplog.text
    roots.log("b").replicas.elect("t", str(roots.path / "b"), unclean=True)
    assert "UNCLEAN" in caplog.text
    assert (roots.leader(), roots.isr(), roots.state().why) == ("b", "b", "unclean: it was asked for")
    roots.write(b"2", topic=roots.topic("b"))
    topic = roots.at("b")
    assert topic.newest()[1].log_end == (3,), "offset 1 is not used again"
    assert roots.values("b") == [b"0", b"2"]
    roots.log("b").replicas.sync("t")
    assert roots.values("c") == [b"0", b"2"]


def test_the_old_leader_comes_back_and_joins(roots: Replicated) -> None:
    roots.create()
    leave_behind(roots, LARGE)
    unclean(roots)
    roots.give_back("a")
    roots.log("b").replicas.sync("t")
    roots.write(b"2", topic=roots.topic("b"))
    assert roots.isr() == "abc"
    assert [roots.values(root) for root in "abc"] == [[b"0", b"2"]] * 3


def test_the_config_has_whoever_finds_the_leader_gone_elect(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "unclean.leader.election.enable": "true"})
    leave_behind(roots, LARGE)
    roots.write(b"2", topic=roots.topic("c"))
    assert roots.state().why.startswith("unclean: ")
    assert roots.values(roots.leader()) == [b"0", b"2"]


def test_what_is_lost_is_shown_as_a_gap_at_once(roots: Replicated) -> None:
    roots.create()
    leave_behind(roots, LARGE)
    unclean(roots)
    assert roots.at("b").newest()[1].voids, "no reader has to find a chunk missing first"


def test_records_in_entries_live(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "inline.max.bytes": 4096})
    leave_behind(roots, b"1", LARGE, b"3")
    unclean(roots)
    assert roots.values("b") == [b"0", b"1", b"3"]


def test_a_leader_that_answers_is_not_replaced_uncleanly(roots: Replicated) -> None:
    roots.create()
    leave_behind(roots, LARGE)
    roots.give_back("a")
    with pytest.raises(NotLeaderError, match="leads and answers"):
        unclean(roots)


def test_a_retry_of_what_is_void_is_appended_and_one_of_what_lives_is_not(roots: Replicated) -> None:
    roots.create()
    leave_behind(roots, LARGE, writer=Transaction("txn:app", 2, False))
    unclean(roots)
    assert roots.write(b"0", writer=Transaction("txn:app", 1, False), topic=roots.topic("b")).skipped
    assert not roots.write(LARGE, writer=Transaction("txn:app", 2, False), topic=roots.topic("b")).skipped
    assert roots.values("b") == [b"0", LARGE]


def between(roots: Replicated) -> None:
    """Elect b uncleanly; it has learned what states HW above what it lacks, and not its own election."""
    roots.create()
    leave_behind(roots, LARGE)
    last = f"{roots.decided_log().places.newest().sequence + 1:020d}.json"

    def no_election(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and path.endswith(last):
            no_device(operation, path, moment)

    roots.hooks["b"] = no_election
    unclean(roots)
    assert roots.state().why.startswith("unclean: ")
    assert roots.at("b").newest()[1].log_end == (2,), "what it lacks is below its HW"


def test_a_reader_waits_where_an_election_it_has_not_learned_makes_void_what_it_misses(roots: Replicated) -> None:
    between(roots)
    with pytest.raises(ReplicaNotAvailableError, match="does not show yet"):
        roots.values("b")
    roots.hooks.clear()
    assert roots.values("b") == [b"0"], "it has its root learn it"


def test_a_reader_waits_until_the_entry_at_hw_has_the_election(roots: Replicated) -> None:
    between(roots)
    roots.hooks.clear()
    roots.decided_log().pusher.push()  # killed before it could state HW
    assert roots.values("b") == [b"0"]


def test_a_settler_waits_there_and_publishes_no_damage(roots: Replicated) -> None:
    between(roots)
    topic = roots.at("b")
    with pytest.raises(ReplicaNotAvailableError, match="does not show yet"):
        settle(topic, topic.newest()[1].topic_id)
    assert not topic.damaged(topic.newest()[1].topic_id)
    roots.hooks.clear()
    roots.log("b").replicas.sync("t")
    topic = roots.at("b")
    assert settle(topic, topic.newest()[1].topic_id).complete
    assert roots.values("b") == [b"0"]


@pytest.mark.parametrize(("wiped", "why"), [(True, "has learned nothing, and can't"), (False, "lags too far")])
def test_a_root_that_can_never_learn_does_not_lead(tmp_path: Path, wiped: bool, why: str) -> None:
    """What it lacks is collected: it would lead with nothing, or with a gap that nothing mends."""
    roots = lagging(tmp_path, wiped=wiped)
    epoch = roots.state().leader_epoch
    for gone in "ab":
        roots.take_away(gone)
    with pytest.raises(NotLeaderError, match=why):
        roots.log("c").replicas.elect("t", unclean=True)
    assert roots.state().leader_epoch == epoch
    for back in "ab":
        roots.give_back(back)
    roots.write(b"more")
    assert roots.values("a") == [*expected(), b"more"]

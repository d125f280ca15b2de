"""A topic of several roots is deleted and made again, and not all roots have what it had before.

The interleavings:

1. Chunks of the former topic are on the leader alone, which is lost: its offsets are none of the new topic's, and no root
   waits for what nobody needs any more.
2. An unclean election, or `recover`, goes back over both: a writer's row is that of the new topic or none.
3. A root that was away learns all of it, whatever is left of the former topic's files.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.topic_state import Void
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.replicas import CONFIG, Replicated, elect, no_device

LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def make_again(roots: Replicated) -> None:
    roots.log("a").topic("t").delete()
    roots.log("a").create_topic("t", 1, CONFIG)


def out_of_sync(roots: Replicated, *names: str) -> None:
    for root in names:
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")


def leave_on_a_alone(roots: Replicated) -> None:
    """Have a alone know that the topic had more, was deleted, and was made again."""
    roots.create()
    roots.write(b"former")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    for _ in range(3):
        roots.write(LARGE, acks_all=False)
    make_again(roots)
    roots.hooks = {"a": no_device}


def test_an_election_makes_nothing_of_the_new_topic_void_that_the_former_one_lost(roots: Replicated) -> None:
    leave_on_a_alone(roots)
    elect(roots, "b")
    state = roots.at("b").newest()[1]
    assert (state.log_end, state.voids, roots.state().on) == ((0,), (), {})
    for value in (b"0", b"1", b"2", b"3", b"4"):
        roots.write(value, topic=roots.topic("b"))
    assert roots.isr() == "bc"
    assert roots.log("b").topic("t").repair().left == (), "nor does repair look for it"
    for root in "bc":
        settle(roots.at(root), state.topic_id)
        assert roots.values(root) == [b"0", b"1", b"2", b"3", b"4"], f"{root} has learned what nobody has chunks of"
    roots.hooks.clear()
    roots.log("b").replicas.sync("t")
    assert (roots.isr(), roots.values("a")) == ("abc", [b"0", b"1", b"2", b"3", b"4"])


def test_what_an_election_lost_before_the_topic_was_made_again_is_learned_after(roots: Replicated) -> None:
    """The newest entry says no more which of the former topic's appends are void."""
    roots.create()
    roots.write(b"former")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE, acks_all=False)
    roots.hooks = {"a": no_device, "c": no_device}
    elect(roots, "b")
    roots.log("b").topic("t").delete()
    roots.log("b").create_topic("t", 1, CONFIG)
    roots.hooks = {"a": no_device}
    roots.decided_log().state_hw()
    roots.write(b"0", topic=roots.topic("b"))
    assert (roots.isr(), roots.values("c")) == ("bc", [b"0"])


def test_it_is_written_at_once_while_roots_in_sync_are_away(roots: Replicated) -> None:
    leave_on_a_alone(roots)
    roots.hooks = {"b": no_device, "c": no_device}
    assert not roots.write(b"0", acks_all=False).skipped
    roots.write(LARGE, acks_all=False)
    roots.hooks = {"a": no_device}
    elect(roots, "b")
    assert roots.at("b").newest()[1].log_end == (2,)
    assert roots.values("b") == [], "both were on a alone"


WRITERS = {
    "transaction": (Transaction("txn:x", 1), Transaction("txn:x", 1)),
    "producer": (ProducerBatch("transient:p", 0, 0, 0, since=0), ProducerBatch("transient:p", 0, 0, 0, since=0)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_retry_is_no_success_because_the_former_topic_had_its_batch(roots: Replicated, name: str) -> None:
    former, retried = WRITERS[name]
    roots.create()
    roots.write(LARGE, writer=former)
    out_of_sync(roots, "b", "c")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    make_again(roots)
    roots.write(LARGE, writer=retried)
    roots.hooks = {"a": no_device}
    roots.log("b").replicas.elect("t", unclean=True)
    (lost,) = roots.at("b").newest()[1].lost
    assert lost.ranges == (Void(0, 0, 1),), "failOnDataLoss is told of this topic's offsets"
    assert not roots.write(LARGE, writer=retried, topic=roots.topic("b")).skipped
    assert roots.values("b") == [LARGE]


def test_an_unclean_election_counts_nothing_lost_of_the_former_topic(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    roots.create()
    roots.write(b"former")
    out_of_sync(roots, "b")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE, acks_all=False)
    make_again(roots)
    roots.hooks = {"a": no_device, "c": no_device}
    roots.log("b").replicas.elect("t", unclean=True)
    assert "0 appends that it lacks are lost" in caplog.text
    state = roots.at("b").newest()[1]
    assert (state.lost, state.voids, state.log_end) == ((), (), (0,))
    roots.write(b"0", topic=roots.topic("b"))
    assert roots.values("b") == [b"0"]


def test_recover_gives_up_nothing_of_the_former_topic(roots: Replicated) -> None:
    roots.create()
    roots.write(b"former")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE, acks_all=False)
    make_again(roots)
    for chunk in (roots.path / "a").glob("topics/t/*/staged/*"):
        chunk.unlink()
    roots.hooks.clear()
    roots.hooks["c"] = no_device
    roots.decided_log().pusher.push()  # b learns it so, and c has not learned it
    roots.hooks.clear()
    roots.take_away("m")
    (found,) = roots.log("a").replicas.recover(str(roots.path / "n"), [str(roots.path / "m")], execute=True)
    assert (found.fault, found.gone, dict(found.failed)) == (None, (), {})
    roots.log("a").replicas.sync("t")
    topic = roots.topic("b")
    assert (topic.newest()[1].log_end, topic.newest()[1].voids) == ((0,), ())
    roots.write(b"0", topic=topic)
    assert [roots.values(root) for root in "abc"] == [[b"0"]] * 3


def test_a_root_that_leaves_learns_that_for_some_seconds_only(tmp_path: Path) -> None:
    """It lacks much: who takes it out does not wait until it has all."""
    roots = Replicated(tmp_path)
    roots.create()
    (out, *_) = set("abc") - {roots.leader()}
    roots.hooks[out] = no_device
    for number in range(4):
        roots.write(b"%d" % number, acks_all=False)
    before = len(list((roots.path / out).glob("topics/t/journal/*.json")))

    def slow(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "after") and "t/journal" in path:
            roots.clock.advance(6_000)

    roots.hooks[out] = slow
    roots.decided_log().pusher.tell(roots.id_of(out))
    assert len(list((roots.path / out).glob("topics/t/journal/*.json"))) == before + 2

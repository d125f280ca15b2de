"""Replicas: processes that stop, roots that go and come back, between any two steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.errors import (
    CommitLogError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
)
from pyspark_commitlog.journal import Unchanged
from pyspark_commitlog.root.root_marker import make_root
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.producers import init_producer
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, LAG_MS, BoundedClock, Replicated, elect, no_device, once_at, takes_no_entry


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path, clock=BoundedClock())


# --- elections -----------------------------------------------------------------------------------------------


def test_a_second_election_does_not_bring_the_row_of_an_append_back_that_the_first_made_void(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "inline.max.bytes": 4096})
    roots.write(b"0")
    large, writer = Random(1).randbytes(20_000), Transaction("txn:app", 1, False)
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(large, writer=writer, acks_all=False)  # on a alone
    roots.write(b"1", acks_all=False)  # inline, so it lives: its table has the writer
    roots.hooks = {"a": no_device, "c": no_device}
    elect(roots, "b")
    roots.write(large, writer=writer, acks_all=False, topic=roots.topic("b"))  # on b alone
    roots.hooks = {"b": no_device}
    elect(roots, "c")
    roots.write(large, writer=writer, topic=roots.topic("c"))
    assert roots.values("c") == [b"0", b"1", large]


def test_an_election_leaves_a_producer_its_newest_epoch_and_forgets_batches_that_two_elections_made_void(
    roots: Replicated,
) -> None:
    roots.create(config={**CONFIG, "inline.max.bytes": 4096})
    topic = roots.topic()
    name = "producer:p"
    epoch = init_producer(topic, name)[1].epoch
    large = Random(1).randbytes(20_000)
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(large, writer=ProducerBatch(name, epoch, 0, 0), acks_all=False)  # on a alone
    roots.write(b"1", writer=ProducerBatch(name, epoch, 1, 1), acks_all=False)  # inline, so it lives
    roots.hooks = {"a": no_device, "c": no_device}
    elect(roots, "b")
    roots.write(large, writer=ProducerBatch(name, epoch, 2, 2), acks_all=False, topic=roots.topic("b"))  # on b alone
    assert init_producer(roots.topic("b"), name)[1].epoch == epoch + 1
    roots.hooks = {"b": no_device}
    elect(roots, "c")
    roots.hooks.clear()
    topic = roots.topic("c")
    row = topic.writer(topic.newest()[1], name)
    assert row is not None
    assert (row.epoch, row.last) == (epoch + 1, 2), "the producer went on by what it was answered"
    assert row.ranges == ((1, 1),)


def test_a_producers_row_from_before_an_election_lacks_the_batches_that_one_made_void(roots: Replicated) -> None:
    """A row from before the first election has what that made void, too."""
    roots.create(config={**CONFIG, "inline.max.bytes": 4096})
    name = "producer:p"
    epoch = init_producer(roots.topic(), name)[1].epoch
    large = Random(1).randbytes(20_000)
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    roots.hooks["b"] = no_device
    roots.write(large, writer=ProducerBatch(name, epoch, 0, 0), acks_all=False)  # on a alone
    roots.write(b"1", writer=ProducerBatch(name, epoch, 1, 1), acks_all=False)  # inline, so it lives
    del roots.hooks["b"]
    roots.hooks["m"] = once_at("put_if_absent", "journal", _killed, "after")  # before b learns the first
    with pytest.raises(KeyboardInterrupt):
        roots.write(large, writer=ProducerBatch(name, epoch, 2, 2))  # on a and b
    roots.take_away("a")
    elect(roots, "b")  # the first is void, and the row that of the third
    roots.take_away("b")
    roots.log("c").replicas.elect("t", unclean=True)  # the third is void, and the row that of the second
    topic = roots.topic("c")
    row = topic.writer(topic.newest()[1], name)
    assert row is not None
    assert row.ranges == ((1, 1),)


def _killed() -> None:
    raise KeyboardInterrupt


def test_a_leader_that_hands_over_loses_nothing(roots: Replicated) -> None:
    roots.create()
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(b"0", acks_all=False)
    roots.hooks.clear()
    elect(roots, "b")
    assert (roots.leader(), roots.isr()) == ("b", "abc")
    assert [roots.values(root) for root in "abc"] == [[b"0"]] * 3


def test_two_that_find_the_leader_gone_elect_once(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.take_away("a")
    late = roots.decided_log("b").elections
    state = roots.state()

    def other_elects() -> None:
        assert roots.decided_log("c").elections.elect(gone=state.leader, why="test") == roots.id_of("b")

    roots.hooks["m"] = once_at("put_if_absent", "journal", other_elects)
    assert late.leader().url.endswith("/b")
    assert (roots.state().leader_epoch, roots.isr()) == (1, "bc")


def test_the_second_that_finds_the_leader_gone_goes_on_with_the_last_root_in_sync(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, "ab")
    roots.create()
    roots.take_away("a")
    roots.hooks["m"] = once_at("put_if_absent", "journal", lambda: roots.decided_log("b").elections.leader())
    assert roots.decided_log("b").elections.leader().url.endswith("/b")
    assert (roots.state().leader_epoch, roots.isr()) == (1, "b")


def test_a_root_that_was_restored_from_a_copy_is_not_elected_while_another_can_lead(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.decided_log().pusher.shrink(roots.id_of("b"), "test")
    roots.hooks["c"] = no_device
    roots.write(b"1", acks_all=False)
    gone = roots.write(b"2", acks_all=False).sequence or 0
    assert roots.decided_log().pusher.join(roots.id_of("b"))
    del roots.hooks["c"]
    topic = roots.path / "b" / "topics" / "t"
    max(topic.glob("*/staged/*")).unlink()
    for path in topic.glob("journal/*.json"):
        if int(path.stem) >= gone:
            path.unlink()
    roots.take_away("a")
    roots.topic("c")  # which learns what b has yet, and not more
    assert roots.leader() == "c"


# --- a leader, a follower or the deciding root goes between two steps --------------------------------------------


def test_acks_all_elects_where_the_leader_goes_between_the_decision_and_its_learning(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks["m"] = once_at("put_if_absent", "journal", lambda: roots.take_away("a"), "after")
    began = roots.clock.monotonic()
    roots.write(b"1", topic=roots.topic("b"))
    assert roots.clock.monotonic() - began < 1, "one that does not answer has no lag to be waited for"
    assert (roots.leader(), roots.isr()) == ("b", "bc")
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2


def test_an_empty_directory_in_the_place_of_a_root_is_not_filled(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"0", topic=topic)
    roots.take_away("c")
    roots.write(b"1", acks_all=False, topic=topic)
    assert roots.values("b") == [b"0"]
    assert not list((roots.path / "c").rglob("*.json")), "a disk that is not mounted"


def another_root(roots: Replicated, root: str) -> None:
    """Have another root in the place of one; or a bucket was emptied, where nothing refuses a put."""
    roots.take_away(root)
    (roots.path / root).mkdir()
    make_root(roots.log(root).root)


def test_another_root_in_the_place_of_one_is_not_filled(roots: Replicated) -> None:
    """No entry says yet that it has learned anything: it does not show as one that was restored from a copy."""
    topic = roots.create()
    topic.journal.decided_log().pusher.push()  # it was asked before
    another_root(roots, "c")
    roots.write(b"0", acks_all=False, topic=topic)
    assert not (roots.path / "c" / "topics").exists()


def test_acks_all_does_not_put_chunks_where_another_root_is_mounted(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"0", topic=topic)
    staged = stage(topic, batch_of([b"1"]))
    another_root(roots, "c")
    assert commit(topic, staged.topic_id, [staged]).sequence
    assert roots.isr() == "ab", "after the lag"
    assert not (roots.path / "c" / "topics").exists()


def test_acks_all_does_not_put_chunks_where_a_disk_is_not_mounted(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"0", topic=topic)
    staged = stage(topic, batch_of([b"1"]))
    roots.take_away("c")
    assert commit(topic, staged.topic_id, [staged]).sequence
    assert roots.isr() == "ab", "after the lag"
    assert not (roots.path / "c").exists()


def test_acks_all_hands_over_from_a_leader_that_takes_nothing_for_the_lag(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks["a"] = takes_no_entry
    began = roots.clock.monotonic()
    roots.write(b"1")
    assert roots.clock.monotonic() - began >= LAG_MS / 1000
    assert (roots.leader(), roots.isr()) == ("b", "bc")
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2


def behind(roots: Replicated, root: str) -> None:
    """Have an entry decided that a root has not learned, and takes no more."""
    roots.create()
    roots.write(b"0")
    roots.hooks[root] = takes_no_entry
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)


def test_a_writer_hands_over_from_a_leader_that_has_not_learned_the_base_and_takes_nothing(roots: Replicated) -> None:
    """Others have written meanwhile: what this one writes is not even decided."""
    behind(roots, "a")
    began = roots.clock.monotonic()
    with pytest.raises(NotLeaderError, match="Run the write again, at the leader"):
        roots.write(b"1", topic=roots.topic("a"))
    assert roots.clock.monotonic() - began >= LAG_MS / 1000
    assert roots.leader() == "b"
    roots.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2


def test_a_writer_hands_over_from_a_leader_that_was_set_back(roots: Replicated) -> None:
    _copied_before(roots, "a")
    roots.write(b"2")
    roots.write(b"3")
    _set_back(roots, "a")
    with pytest.raises(NotLeaderError, match=r"restored from a copy.*at the leader"):
        roots.write(b"4", topic=roots.topic("a"))
    assert roots.leader() == "b"
    roots.write(b"4", topic=roots.topic("b"))
    assert [roots.values(root)[-1] for root in "bc"] == [b"4", b"4"]


def test_a_writer_waits_for_a_leader_that_soon_takes_something(roots: Replicated) -> None:
    behind(roots, "a")
    began = roots.clock.monotonic()
    tries = iter(range(12))  # a put is tried five times

    def soon(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and next(tries, None) is not None:
            takes_no_entry(operation, path, moment)

    roots.hooks["a"] = soon
    roots.write(b"1", topic=roots.topic("a"))
    assert (roots.leader(), roots.isr()) == ("a", "abc")
    assert roots.clock.monotonic() - began < LAG_MS / 1000


def test_a_root_that_no_longer_leads_and_takes_nothing_keeps_no_writer_waiting(roots: Replicated) -> None:
    roots.create()
    running = roots.topic("a")
    elect(roots, "b")
    roots.hooks["a"] = takes_no_entry
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    began = roots.clock.monotonic()
    with pytest.raises(NotLeaderError, match="does not lead"):
        running.journal.append(lambda base, slot: Unchanged(None))
    assert roots.clock.monotonic() == began


def test_a_leader_that_is_gone_keeps_no_writer_waiting(roots: Replicated) -> None:
    roots.create()
    running = roots.topic("a")
    running.journal.append(lambda base, slot: Unchanged(None))
    roots.hooks["a"] = takes_no_entry
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    roots.hooks["a"] = once_at("put_if_absent", "/journal/", lambda: roots.take_away("a"))
    began = roots.clock.monotonic()
    with pytest.raises((CommitLogError, OSError)):
        running.journal.append(lambda base, slot: Unchanged(None))
    assert roots.clock.monotonic() == began


def test_acks_1_takes_a_follower_out_that_lags_so_readers_see_what_is_written(roots: Replicated) -> None:
    roots.create()
    roots.hooks["c"] = no_device
    roots.write(b"0", acks_all=False)
    roots.clock.advance(LAG_MS)
    roots.write(b"1", acks_all=False)
    roots.write(b"2", acks_all=False)
    assert roots.isr() == "ab"
    assert roots.values("a")[:2] == [b"0", b"1"]


def test_nothing_is_stated_where_nothing_was_written(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    before = roots.decided_log().places.newest().sequence
    for _ in range(3):
        pusher = roots.decided_log().pusher
        pusher.push()
        pusher.raise_hw(roots.decided_log().places.newest())
    assert roots.decided_log().places.newest().sequence == before
    writer = Transaction("txn:app", 1, False)
    roots.write(b"1", writer=writer)
    assert roots.write(b"1", writer=writer).skipped


def test_what_is_learned_is_safe_from_power_loss_where_it_was_decided(roots: Replicated) -> None:
    roots.create()
    roots.hooks["b"] = roots.hooks["c"] = roots.hooks["a"] = no_device
    roots.decided_log().pusher.push()
    roots.hooks.clear()
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(b"0", acks_all=False)
    steps: list[str] = []

    def of(root: str) -> Hook:
        def hook(operation: str, path: str, moment: str) -> None:
            if "t/journal" in path and operation in ("sync_directory", "put_if_absent") and moment == "before":
                steps.append(f"{root} {operation}")

        return hook

    roots.hooks = {root: of(root) for root in "mb"}
    roots.decided_log().pusher.push()
    assert "b put_if_absent" in steps
    assert steps[0] == "m sync_directory", "its writer may have been killed before it could"


def test_a_chunk_that_is_damaged_at_the_leader_takes_nobody_out(roots: Replicated) -> None:
    topic = roots.create()
    staged = stage(topic, batch_of([b"0"]))
    (chunk,) = (roots.path / "a").glob("topics/t/*/staged/*")
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    with pytest.raises(NotEnoughReplicasError, match="nothing was written"):
        commit(topic, staged.topic_id, [staged])
    assert roots.isr() == "abc"


def test_a_follower_that_was_restored_from_a_copy_counts_for_nothing_until_it_is_out(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.write(b"1")
    for path in sorted((roots.path / "c" / "topics" / "t" / "journal").glob("*.json"))[-2:]:
        path.unlink()
    roots.write(b"2")
    assert roots.isr() == "ab", "after the lag"
    assert roots.decided_log().pusher.join(roots.id_of("c"))
    assert roots.values("c") == [b"0", b"1", b"2"]


def _set_back(roots: Replicated, root: str) -> None:
    shutil.rmtree(roots.path / root)
    shutil.copytree(roots.path / f"copy-{root}", roots.path / root)


def _copied_before(roots: Replicated, root: str) -> None:
    roots.create()
    roots.write(b"0")
    shutil.copytree(roots.path / root, roots.path / f"copy-{root}")
    roots.write(b"1")


def test_a_root_that_is_set_back_while_it_learns_has_not_learned(roots: Replicated) -> None:
    """The entry is put above what was there before: the root ends where it should, and lacks what is below."""
    _copied_before(roots, "c")
    roots.hooks["c"] = once_at("put_if_absent", "/journal/", lambda: _set_back(roots, "c"))
    roots.write(b"2")
    assert roots.isr() == "ab", "after the lag"
    roots.log("c").topic("t").repair()
    assert roots.decided_log().pusher.join(roots.id_of("c"))
    assert roots.values("c") == [b"0", b"1", b"2"]


def test_what_stands_above_a_gap_is_not_learned(roots: Replicated) -> None:
    """As it is left by a process that put it there and was killed; it does not lead, and counts for no high watermark."""
    _copied_before(roots, "c")
    journal = roots.path / "c" / "topics" / "t" / "journal"
    newest = max(journal.glob("*.json"))
    data = newest.read_bytes()
    _set_back(roots, "c")
    newest.write_bytes(data)
    with pytest.raises(NotLeaderError, match="is missing"):
        elect(roots, "c")
    roots.write(b"2")
    assert roots.isr() == "ab", "after the lag"


def test_a_gap_in_what_is_settled_is_none(roots: Replicated) -> None:
    """A process that copied segments, and put the entry where they end, was killed before it let go of older ones."""
    _copied_before(roots, "c")
    settle(roots.at("c"), roots.at("c").newest()[1].topic_id)
    through = roots.at("c").settled(roots.at("c").newest()[1].topic_id)[1].through[0]
    (roots.path / "c" / "topics" / "t" / "journal" / f"{through - 1:020d}.json").unlink()
    roots.write(b"2")
    assert roots.isr() == "abc"


def test_a_metadata_root_that_was_restored_from_a_copy_acknowledges_nothing(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.write(b"1")
    for path in sorted((roots.path / "m" / "topics" / "t" / "journal").glob("*.json"))[-3:]:
        path.unlink()
    with pytest.raises((OutcomeUnknownError, ReplicaNotAvailableError), match="restored"):
        roots.write(b"2")
    assert [roots.values(root) for root in "abc"] == [[b"0", b"1"]] * 3


def test_acks_1_is_not_answered_before_the_leader_has_learned_it(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    writer = Transaction("txn:app", 1, False)
    roots.hooks["m"] = once_at("put_if_absent", "journal", lambda: roots.take_away("a"), "after")
    with pytest.raises(ReplicaNotAvailableError):  # its chunk went with the leader, the handle is of that root
        roots.write(b"1", acks_all=False, writer=writer)
    assert (roots.leader(), roots.isr()) == ("b", "bc")
    assert not roots.write(b"1", acks_all=False, writer=writer, topic=roots.topic("b")).skipped
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2

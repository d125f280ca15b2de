"""What roots delete: never what a reader of theirs, or another root, may still need."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.collect.collect_metadata import collect_decided
from pyspark_commitlog.topic.maintain.maintain import maintain_topic
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import batch_of, stage
from tests.support.replicas import Replicated
from tests.support.world import DELAY_MS, RETENTION_MS


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def no_device(operation: str, path: str, moment: str) -> None:
    raise OSError(errno.EIO, "injected: the device is gone")


def maintained(roots: Replicated, names: str = "abc") -> None:
    """Settle and collect at roots all that may go."""
    for _ in range(3):
        for name in names:
            maintain_topic(roots.at(name), silent)  # without `replicate` before it, which would take roots out, or back
        roots.clock.advance(DELAY_MS)


def collected(roots: Replicated, names: str) -> None:
    """Settle and collect at roots all that may go, without an entry that would change the ISR."""
    for name in names:
        topic = roots.at(name)
        settle_on(topic, topic.newest()[1].topic_id)
        settle_on(topic, topic.newest()[1].topic_id)
    roots.clock.advance(DELAY_MS)
    for name in names:
        topic = roots.at(name)
        collect(topic, topic.newest()[1].topic_id)


def entries(roots: Replicated, root: str) -> list[int]:
    return roots.at(root).journal.sequences()


def chunks(roots: Replicated, root: str) -> int:
    return len(list((roots.path / root).glob("topics/t/*/staged/*")))


def test_what_a_root_that_is_out_of_sync_lacks_stays_for_a_while(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.take_away("c")
    roots.write(b"1")
    roots.write(b"2")
    assert roots.isr() == "ab"
    maintained(roots, "ab")
    roots.give_back("c")
    assert roots.decided_log().pusher.join(roots.id_of("c"))
    assert roots.values("c") == [b"0", b"1", b"2"]
    maintained(roots)
    assert [chunks(roots, root) for root in "abc"] == [0, 0, 0]
    roots.take_away("c")
    roots.write(b"3")
    roots.clock.advance(RETENTION_MS)
    maintained(roots, "ab")
    assert [chunks(roots, root) for root in "ab"] == [0, 0], "it is not waited for any longer"


def test_what_a_root_that_joins_lacks_stays(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    roots.hooks["c"] = no_device
    roots.decided_log().pusher.change("joining", lambda state, base: rules.joining(state, roots.id_of("c")))
    roots.write(b"1")
    collected(roots, "ab")
    assert [entries(roots, root)[0] for root in "ab"] == [1, 1]
    roots.hooks.clear()
    assert roots.decided_log().pusher.join(roots.id_of("c"))
    assert roots.values("c") == [b"0", b"1"]


@pytest.mark.parametrize("what", ["altered", "made again"])
@pytest.mark.parametrize("metadata", ["m", "mno"])
def test_what_a_root_in_sync_lacks_stays_where_the_high_watermark_went_along_unseen(
    tmp_path: Path, what: str, metadata: str
) -> None:
    """Entries that append nothing raise it without a look; a root in sync was away."""
    roots = Replicated(tmp_path, metadata=metadata)
    roots.create()
    if what == "made again":
        roots.write(b"0")
    before = entries(roots, "c")[-1]
    roots.take_away("c")
    if what == "made again":
        roots.log().topic("t").delete()
        roots.log().create_topic("t", 1)
    for number in range(6):
        roots.log().topic("t").alter({"retention.ms": 10**9 + number})
    assert (roots.isr(), roots.state().hw) == ("abc", entries(roots, "m")[-1]), "else nothing is shown"
    roots.clock.advance(DELAY_MS)
    collect_decided(roots.topic())
    assert [entries(roots, root)[0] <= before + 1 for root in metadata] == [True] * len(metadata)
    roots.give_back("c")
    roots.write(b"9")
    assert roots.isr() == "abc"
    assert roots.values("c") == [b"9"]
    roots.clock.advance(DELAY_MS)
    assert collect_decided(roots.topic()) > 0


def test_what_the_leader_of_an_unclean_election_lacks_stays(tmp_path: Path) -> None:
    """The high watermark stays where it was; it is killed before it has learned of its election."""
    roots = Replicated(tmp_path, names="ab")
    roots.create()
    roots.write(b"0")
    lead = roots.leader()
    other = "b" if lead == "a" else "a"
    roots.take_away(other)
    roots.decided_log().pusher.shrink(roots.id_of(other), "test")
    for number in range(5):
        roots.write(b"%d" % number)
    roots.take_away(lead)
    roots.give_back(other)
    learned = entries(roots, other)[-1]

    def killed(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "topics/t/journal" in path:
            raise KeyboardInterrupt

    roots.hooks[other] = killed
    with pytest.raises(KeyboardInterrupt):
        roots.log(other).replicas.elect("t", other, unclean=True)
    assert roots.leader() == other
    assert entries(roots, other)[-1] == learned < roots.state().hw, "else nothing is shown"
    roots.hooks.clear()
    roots.take_away(other)
    roots.give_back(lead)
    roots.clock.advance(DELAY_MS)
    topic = roots.at(lead)
    topic.newest()
    collect_decided(topic)
    assert entries(roots, "m")[0] <= learned + 1
    roots.give_back(other)
    roots.write(b"9", topic=roots.topic(other))
    assert roots.values(other)[-1] == b"9"


def test_the_metadata_root_does_not_grow(roots: Replicated) -> None:
    roots.create()
    for number in range(5):
        roots.write(b"%d" % number)
    roots.log().topic("t").delete()
    roots.clock.advance(DELAY_MS)
    roots.log().create_topic("t", 1)
    for number in range(5):
        roots.write(b"%d" % number)
    before = entries(roots, "m")
    maintained(roots)
    assert len(entries(roots, "m")) < 5 < len(before)
    roots.write(b"5")
    assert [len(roots.values(root)) for root in "abc"] == [6] * 3
    assert len(list((roots.path / "m" / "topics" / "t").iterdir())) <= 2, "no former lives"


def test_a_chunk_that_an_election_made_void_stays_for_the_retry_that_names_it_again(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    writer, topic = Transaction("txn:app", 1, False), roots.topic()
    staged = stage(topic, batch_of([Random(1).randbytes(20_000)]))
    roots.hooks["b"] = roots.hooks["c"] = no_device
    commit(topic, staged.topic_id, [staged], writer, acks_all=False)
    roots.hooks = {"a": no_device}
    roots.decided_log().elections.elect(roots.id_of("b"), why="test")
    roots.hooks.clear()
    assert roots.decided_log().pusher.join(roots.id_of("a"))
    roots.write(b"1", topic=roots.topic("b"))
    maintained(roots)
    assert chunks(roots, "a") == chunks(roots, "b") + 1
    assert not commit(roots.topic("b"), staged.topic_id, [staged], writer).skipped
    assert [len(roots.values(root)) for root in "abc"] == [3] * 3
    roots.write(b"2", topic=roots.topic("b"))
    maintained(roots)
    assert [chunks(roots, root) for root in "abc"] == [1] * 3, "that of the newest append"

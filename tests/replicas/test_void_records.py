"""Records that a root has settled, and that an unclean election made void: nobody sees, copies or counts them.

Interleavings:

1. It is settled, the election is learned later: readers pass over it at once, maintenance drops it.
2. Compaction has seen it, and dropped what it superseded, which lives: that is fetched from another root.
3. No other root answers: nothing is compacted until one does.
4. The other root has the same fault: nothing is taken from there.
5. A root that lags, or is damaged, takes frames of one that has such records still: they come without them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.log.maintain.catch_up import TopicSegments
from pyspark_commitlog.log.maintain.compact import compact
from pyspark_commitlog.log.repair.void_records import void_records
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.log.write.commit import commit
from pyspark_commitlog.storage.local import LocalStorage
from tests.crash.conftest import fast_path as fast_path
from tests.support.damage import zero
from tests.support.records import batch_of, stage
from tests.support.replicas import COMPACTED, CONFIG, Replicated, elect, faults, segment, settle_at


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def lost_uncleanly(
    roots: Replicated, *, config: dict[str, object] | None = None, key: bytes | None = None, partitions: int = 1
) -> None:
    """Have ``a`` settle records, at offsets 1 and 2, that an unclean election makes void, and come back.

    The first supersedes the one before it where there is a key, and the topic is compacted.
    """
    roots.create(partitions, {**CONFIG, "replica.lag.time.max.ms": 1000, **(config or {})})
    write_key(roots, b"0", key)
    for root in "bc":
        roots.order().pusher.shrink(roots.id_of(root), "test")
    for value, same in ((b"void", key), (b"void, too", b"last")):
        write_key(roots, value, same)
        settle_at(roots, "a")
        roots.clock.advance(DAY_MS)
    here = roots.at("a")
    compact(here, here.newest()[1].topic_id)
    roots.take_away("a")
    roots.log("b").elect("t", unclean=True)
    write_key(roots, b"2", b"other", "b", partitions - 1)
    roots.give_back("a")
    if partitions > 1:
        return
    roots.log("b").replicate("t")
    roots.log("c").replicate("t")
    assert roots.values("b") == [b"0", b"2"]


def write_key(roots: Replicated, value: bytes, key: bytes | None, at: str = "a", partition: int = 0) -> None:
    topic = roots.topic(at)
    staged = stage(topic, batch_of([value], key=[key], partition=[partition]), everywhere=True)
    commit(topic, staged.topic_id, [staged])


def test_a_reader_passes_over_what_became_void_after_it_was_settled(roots: Replicated) -> None:
    lost_uncleanly(roots)
    settle_at(roots, "a")
    assert roots.values("a") == [b"0", b"2"]


@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_became_void_after_it_was_settled_is_dropped(fast_path: Path, unknown: str) -> None:
    roots = Replicated(fast_path, unknown=unknown)
    lost_uncleanly(roots)
    settle_at(roots, "a")
    assert void_here(roots, "a") == {0}
    roots.take_away("b")
    roots.take_away("c")
    roots.log("a").maintain("t")
    assert void_here(roots, "a") == set(), "its own frames have the rest"
    assert roots.values("a") == [b"0", b"2"]
    assert not faults(roots, "a")


def void_here(roots: Replicated, root: str) -> set[int]:
    """Return the partitions of which a root has settled records at void offsets."""
    topic = roots.at(root)
    state = topic.newest()[1]
    return set(void_records(topic, state, topic.settled(state.topic_id)[1]))


@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_a_void_record_superseded_is_fetched(fast_path: Path, unknown: str) -> None:
    """Compaction at ``a`` dropped the record before it, which lives."""
    roots = Replicated(fast_path, unknown=unknown)
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    settle_at(roots, "a")
    assert roots.values("a") == [b"2"], "it is not there yet"
    roots.log("a").maintain("t")
    assert roots.values("a") == roots.values("b") == [b"0", b"2"]
    assert void_here(roots, "a") == set()
    assert not faults(roots, "a")


def test_nothing_is_compacted_by_a_void_record(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    settle_at(roots, "a")
    roots.clock.advance(DAY_MS)
    for root in "bc":
        roots.take_away(root)
    roots.log("a").maintain("t")
    topic = roots.at("a")
    cleaned = topic.settled(topic.newest()[1].topic_id)[1].partition(0).cleaned
    assert "is not compacted there" in caplog.text
    assert cleaned < 3
    for root in "bc":
        roots.give_back(root)


def test_nothing_is_taken_from_a_root_that_lacks_what_a_void_record_superseded(roots: Replicated) -> None:
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    elect(roots, "a")
    for root in "abc":
        settle_at(roots, root)
    roots.take_away("c")
    zero(segment(roots, "b"), Random(1))
    done = roots.log("b").repair("t")
    assert "run `commitlog maintain` there first" in " ".join(done.left)
    roots.give_back("c")
    roots.log("a").maintain("t")
    assert roots.log("b").repair("t").left == ()
    assert roots.values("b") == [b"0", b"2"]


def test_what_is_void_is_not_copied(roots: Replicated) -> None:
    lost_uncleanly(roots)
    settle_at(roots, "a")
    (roots.path / "d" / "topics").mkdir(parents=True)
    segments, into = TopicSegments("t"), LocalStorage(roots.path / "d", clock=roots.clock)
    segments.copy(roots.storage("a"), into, segments.settled(roots.storage("a")))
    there, state = TopicLog(into, "t"), roots.at("a").newest()[1]
    settled = there.settled(state.topic_id)[1]
    assert settled.partition(0).end_offset == 4
    assert void_records(there, state, settled) == {}


def test_a_partition_is_copied_again_where_what_it_has_became_void(roots: Replicated) -> None:
    """Though it ends where the other one does."""
    lost_uncleanly(roots, partitions=2)
    segments = TopicSegments("t")
    there = segments.settled(roots.storage("b"))
    settled = roots.at("a").settled(there.state.topic_id)[1]
    assert settled.partition(0).end_offset == there.state.log_end[0] == 3
    segments.copy(roots.storage("b"), roots.storage("a"), there)
    here = roots.at("a")
    assert void_records(here, there.state, here.settled(there.state.topic_id)[1]) == {}


def test_what_is_void_is_not_fetched(roots: Replicated) -> None:
    lost_uncleanly(roots)
    elect(roots, "a")
    for root in "abc":
        settle_at(roots, root)
    roots.take_away("c")
    zero(segment(roots, "b"), Random(1))
    roots.log("b").repair("t")
    assert roots.values("b") == [b"0", b"2"]
    assert void_here(roots, "b") == set()
    assert not faults(roots, "b")

"""The leader epoch of a frame is that of the entry that committed it: the same at every root, and kept.

Interleavings:

1. One root settles before an election, another after two: neither stamps what it knows by then.
2. Frames of two epochs are small neighbours: they are not joined, when they are settled nor when objects merge.
3. Compaction writes what is left of them again; what it leaves of two epochs is not joined either.
4. What an election made void has no record, but an epoch: they do not go down there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.topic.damage.salvage import segments_of
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, Replicated, elect, no_device

COMPACT = {
    "cleanup.policy": "compact",
    "delete.retention.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "segment.ms": 1000,
}


@pytest.fixture(params=["", "abc"], ids=["appended", "objects"])
def roots(fast_path: Path, request: pytest.FixtureRequest) -> Replicated:
    return Replicated(fast_path, unknown=request.param)


def settle_at(roots: Replicated, root: str) -> None:
    topic = roots.at(root)
    settle(topic, topic.newest()[1].topic_id)


def epochs(roots: Replicated, root: str) -> list[int]:
    """Return the leader epoch of each settled offset at a root."""
    topic = roots.at(root)
    topic_id = topic.newest()[1].topic_id
    found: list[int] = []
    for segment, _ in segments_of(topic, topic.settled(topic_id)[1], 0):
        for located in walk(topic.storage, segment_span(topic.paths(topic_id), 0, segment)):
            found += [located.frame.leader_epoch] * (located.frame.last_offset_delta + 1)
    return found


def write_over_elections(roots: Replicated) -> None:
    """Write an offset in epoch 0, two in epoch 1 and one in epoch 2; only root `a` settles between."""
    roots.write(b"0", everywhere=True)
    settle_at(roots, "a")
    elect(roots, "b")
    roots.write(b"1", everywhere=True)
    roots.write(b"2", everywhere=True)
    settle_at(roots, "a")
    elect(roots, "c")
    roots.write(b"3", everywhere=True)


def test_each_root_stamps_the_epoch_of_the_entry(roots: Replicated) -> None:
    roots.create()
    write_over_elections(roots)
    for root in "abc":
        settle_at(roots, root)
        assert epochs(roots, root) == [0, 1, 1, 2]


def test_maintenance_keeps_epochs(roots: Replicated) -> None:
    """Objects are merged, segments rolled; frames of two epochs stay two."""
    roots.create(config={**CONFIG, "segment.ms": 1000})
    write_over_elections(roots)
    for root in "abc":
        settle_at(roots, root)
        roots.clock.advance(DAY_MS)
        roots.log(root).topic("t").maintain()
        assert epochs(roots, root) == [0, 1, 1, 2]


def write_keys(roots: Replicated, *rows: tuple[bytes, bytes]) -> None:
    topic = roots.topic()
    staged = stage(topic, batch_of([value for _, value in rows], key=[key for key, _ in rows]), everywhere=True)
    commit(topic, staged.topic_id, [staged], acks_all=True)


def test_compaction_keeps_epochs(roots: Replicated) -> None:
    roots.create(config={**CONFIG, **COMPACT})
    write_keys(roots, (b"a", b"0"), (b"b", b"1"))
    elect(roots, "b")
    write_keys(roots, (b"a", b"2"), (b"c", b"3"))
    elect(roots, "c")
    write_keys(roots, (b"c", b"4"))
    settle_at(roots, "b")
    roots.clock.advance(DAY_MS)
    write_keys(roots, (b"last", b"last"))  # its segment is not compacted
    roots.log("b").topic("t").maintain()
    roots.clock.advance(DAY_MS)
    roots.log("b").topic("t").maintain()
    assert roots.values("b") == [b"1", b"2", b"4", b"last"], "compacted"
    assert epochs(roots, "b") == [0, 0, 1, 1, 2, 2]


def test_a_gap_has_the_epoch_of_the_entry_that_is_void(roots: Replicated) -> None:
    roots.create()
    elect(roots, "b")
    roots.write(b"0")
    roots.hooks["a"] = roots.hooks["c"] = no_device
    roots.write(b"lost", topic=roots.topic("b"), acks_all=False)
    roots.hooks.clear()
    roots.take_away("b")
    roots.write(b"2", topic=roots.topic("c"))
    settle_at(roots, "c")
    assert roots.values("c") == [b"0", b"2"]
    assert epochs(roots, "c") == [1, 1, 2]

"""acks=0 on a topic of several roots: its chunks are staged without fsync, and no settler voids them.

The interleavings:

1. A writer's chunk is on the leader, and not synced. Whoever commits it syncs it there before the entry is decided, and
   the others learn the entry when they hold a whole chunk, synced. So power loss takes nothing that is decided.
2. The chunk rots, or vanishes, at one root: its settler says so, and nothing is void for the others. Repair fetches it.
3. It was written while the topic was on one root, and some roots have learned it since; power loss takes it at the
   first, or it rots at another: as above.
4. Power loss took it before another root had learned it: no root has it. Readers and settlers say so, and those that
   learn; `void` asks all roots, and gives it up: then they go on.
5. A settler that read an entry of before the topic had replicas finds the damage, and the topic has them by now: it
   voids nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.errors import CorruptionError, KafkaStorageError
from pyspark_commitlog.topic.damage.void import void_unsynced
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.support.damage import cut, flip, remove, zero
from tests.support.growing import add, alone
from tests.support.records import batch_of, stage
from tests.support.replicas import Replicated, no_device

LARGE = Random(1).randbytes(20_000)
DAMAGES = pytest.mark.parametrize("damage", [flip, cut, zero, remove])


def quick(topic: TopicLog, value: bytes) -> None:
    """Write with acks=0 as another process does."""
    staged = stage(topic, batch_of([value]), durable=False)
    commit(topic, staged.topic_id, [staged], durable=False)


def chunk(roots: Replicated, root: str) -> Path:
    """Return the chunk of `LARGE` at a root."""
    chunks = (roots.path / root).glob("topics/t/*/staged/*.chunk")
    return max(chunks, key=lambda path: path.stat().st_size)


def settle_at(roots: Replicated, root: str) -> None:
    topic = roots.at(root)
    settle(topic, topic.newest()[1].topic_id)


def grown(path: Path) -> Replicated:
    """Return roots that learned with the topic what was written with acks=0 while it was on `a` alone."""
    roots = alone(path)
    quick(roots.at("a"), LARGE)
    assert roots.at("a").newest()[1].unsynced_from is not None
    add(roots)
    roots.log("a").topic("t").set_replication_factor(3)
    assert roots.isr() == "abc"
    return roots


def test_its_chunk_is_synced_at_the_leader_before_its_entry_is_decided(tmp_path: Path) -> None:
    roots = Replicated(tmp_path)
    roots.create()
    done = []

    def at_leader(operation: str, path: str, moment: str) -> None:
        if moment == "after" and (operation, ".chunk" in path) in (("create", True), ("sync_file", True)):
            done.append(operation)

    def at_metadata(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation == "put_if_absent":
            done.append(operation)

    roots.hooks = {"a": at_leader, "m": at_metadata}
    quick(roots.topic(), LARGE)
    assert done[:3] == ["create", "sync_file", "put_if_absent"]
    _, state = roots.at("b").newest()
    assert state.unsynced_from is None, "no settler has anything to void"
    assert "unsynced" not in roots.at("b").journal.read(state.created + 1).entry.body


def test_acks_0_does_not_wait_for_all_in_sync(tmp_path: Path) -> None:
    roots = Replicated(tmp_path)
    roots.create()
    roots.hooks["b"] = roots.hooks["c"] = no_device
    quick(roots.topic(), LARGE)
    assert roots.at("a").journal.head().entry.kind == "append"


@DAMAGES
@pytest.mark.parametrize("root", ["a", "b"])
def test_what_rots_at_one_root_is_fetched_from_another(
    fast_path: Path, root: str, damage: Callable[[Path, Random], None]
) -> None:
    roots = grown(fast_path)
    damage(chunk(roots, root), Random(1))
    with pytest.raises(CorruptionError):
        settle_at(roots, root)
    for other in "abc".replace(root, ""):
        settle_at(roots, other)
        assert roots.values(other) == [b"0", b"1", LARGE]
    roots.log(root).topic("t").maintain()
    assert roots.values(root) == [b"0", b"1", LARGE]
    assert roots.at(root).newest()[1].voids == ()
    roots.write(b"2")
    assert [roots.values(each) for each in "abc"] == [[b"0", b"1", LARGE, b"2"]] * 3


def test_what_no_root_has_is_said_and_can_be_given_up(fast_path: Path) -> None:
    roots = alone(fast_path)
    quick(roots.at("a"), LARGE)
    add(roots)
    zero(chunk(roots, "a"), Random(1))
    done = roots.log("a").topic("t").set_replication_factor(3)
    assert len(done.failed) == 2
    assert all("partition 0 is damaged, so nothing is copied from there" in why for why in done.failed.values())
    assert all("`commitlog replicas repair " in why for why in done.failed.values())
    with pytest.raises(CorruptionError, match=f"commitlog replicas repair {fast_path / 'a'}"):
        roots.values("a")
    with pytest.raises(CorruptionError):
        settle_at(roots, "a")
    with pytest.raises(KafkaStorageError, match="commitlog void"):
        roots.write(b"2")
    assert roots.log("a").topic("t").repair().left
    (given_up,) = roots.log("a").topic("t").void()
    assert (given_up.start, given_up.end) == (2, 3)
    assert not roots.log("a").replicas.sync("t").failed
    roots.write(b"3")
    for root in "abc":
        settle_at(roots, root)
        assert roots.values(root) == [b"0", b"1", b"3"]
    roots.write(b"4")
    assert (roots.isr(), roots.at("a").newest()[1].unsynced_from) == ("abc", None)


def test_a_settler_voids_nothing_of_a_topic_that_has_replicas_by_now(fast_path: Path) -> None:
    roots = alone(fast_path)
    quick(roots.at("a"), LARGE)
    add(roots)
    zero(chunk(roots, "a"), Random(1))
    topic = roots.at("a")
    topic_id = topic.newest()[1].topic_id
    roots.log("a").topic("t").set_replication_factor(3)
    assert not void_unsynced(topic, topic_id)
    assert roots.at("a").newest()[1].voids == ()

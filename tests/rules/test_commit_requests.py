"""What a commit to a topic, and one of a group's offsets, asks of storage where each look is a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError, TopicChangedError, UsageError
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from pyspark_commitlog.topic.collect.collect import collect, sweep
from pyspark_commitlog.topic.state.topic_state import Mark, plan_floor, with_mark
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.counted import CountedStorage
from tests.support.records import append, batch_of, stage
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, World

#: Nothing is settled: what that costs is counted where it is done.
_QUIET = {"settle.entries": 1_000_000, "settle.bytes": 2**40, "settle.ms": 2**40}


class CountedWorld(World):
    """A world on a bucket; `door` is the one of the process that is counted."""

    def storage(self, hook: Hook | None = None) -> CountedStorage | FaultyStorage:  # type: ignore[override]
        local = CountedStorage(self.path, clock=self.clock)
        return local if hook is None else FaultyStorage(local, hook)  # type: ignore[abstract]


@pytest.fixture
def bucket(tmp_path: Path) -> CountedWorld:
    return CountedWorld(tmp_path / "root")


def counted(bucket: CountedWorld) -> tuple[CountedStorage, TopicLog]:
    """Return a door and a writer's handle."""
    door = CountedStorage(bucket.path, clock=bucket.clock)
    return door, TopicLog(door, "t")


@pytest.mark.parametrize("apart_ms", [1000, 20_000])
@pytest.mark.parametrize("partitions", [1, 100])
def test_a_small_commit_is_one_put_and_at_most_one_look(bucket: CountedWorld, partitions: int, apart_ms: int) -> None:
    """Goal: 1 PUT and at most 1 HEAD, whatever the number of partitions."""
    bucket.create(partitions, {**CHUNKS, **_QUIET, "inline.max.bytes": 100_000})
    door, topic = counted(bucket)
    topic_id = topic.newest()[1].topic_id
    for number in range(3):
        commit(topic, topic_id, [stage(topic, batch_of([b"warm"]))], Transaction("w", number))
    for number in range(3, 12):
        staged = stage(topic, batch_of([b"v%d" % number]))
        bucket.clock.advance(apart_ms)
        door.spent()
        commit(topic, topic_id, [staged], Transaction("w", number))
        spent = door.spent()
        assert spent.pop("PUT") == 1
        assert spent.pop("HEAD", 0) <= 1
        assert spent == {}
    assert len(bucket.values()) == 12


def test_a_commit_of_many_tasks_is_a_put_for_each_and_one(bucket: CountedWorld) -> None:
    """Goal: t tasks, t + 1 puts; the first commit of a writer looks whether it sees the same store."""
    bucket.create(1, {**CHUNKS, **_QUIET})
    door, topic = counted(bucket)
    topic_id = topic.newest()[1].topic_id
    for number in range(4):
        bucket.clock.advance(1000)
        door.spent()
        staged = [stage(topic, batch_of([b"a"])) for _ in range(5)]
        tasks = door.spent()
        commit(topic, topic_id, staged, Transaction("w", number))
        spent = door.spent()
    assert tasks["PUT"] == 5
    assert spent == {"PUT": 1}


def test_a_first_commit_misses_a_chunk_that_is_in_another_store(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    _, topic = counted(bucket)
    staged = stage(topic, batch_of([b"a"]))
    for path in bucket.files(".chunk"):
        (bucket.path / path).unlink()
    with pytest.raises(CorruptionError, match="same directory"):
        commit(topic, staged.topic_id, [staged], Transaction("w", 1))


def test_defaults_and_damage_are_asked_for_after_a_while(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    door, topic = counted(bucket)
    append(topic, batch_of([b"a"]))
    bucket.log().config.alter({"log.cleanup.policy": "compact"})
    state = topic.newest()[1]
    topic.forget_defaults(kept=True)
    assert not topic.config(state).has_policy("compact")
    bucket.clock.advance(300_000)
    topic.forget_defaults(kept=True)
    assert topic.config(state).has_policy("compact")
    topic.forget_defaults()
    door.spent()
    topic.config(state)
    assert sum(door.spent().values()) > 0, "what deletes by them asks for them"


# --- times that are not known yet -------------------------------------------------------------------------


def test_a_mark_is_made_of_an_entry_whose_time_is_known(bucket: CountedWorld) -> None:
    """R1, R10: an entry known by its put's reply has no time yet; a mark without one would let the sweep take all."""
    bucket.create(1, {**CHUNKS, **_QUIET})
    _, topic = counted(bucket)
    start_ms = bucket.clock.now_ms()
    for number in range(40):
        staged = stage(bucket.handle(), batch_of([b"%d" % number]))
        bucket.clock.advance(RETENTION_MS // 24 // 4)
        commit(topic, staged.topic_id, [staged])
    marks = topic.newest()[1].marks
    assert len(marks) >= 8
    assert list(marks) == sorted(marks, key=lambda mark: (mark.sequence, mark.at_ms))
    times = {s: topic.journal.read(s).info.modified_ms for s in bucket.entries()}
    assert all(times[mark.sequence] == mark.at_ms >= start_ms // 1000 * 1000 for mark in marks)


def test_the_sweep_takes_nothing_by_a_time_that_is_not_known(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    _, topic = counted(bucket)
    for _ in range(3):
        append(topic, batch_of([b"a"]))
    running = stage(topic, batch_of([b"running"]))
    assert sweep(topic, running.topic_id) == 0
    assert topic.newest()[1].staged_floor == 0
    commit(topic, running.topic_id, [running])
    assert plan_floor([Mark(3, -1)], 10**15, 1000) == 0


def test_no_mark_is_made_without_a_time(bucket: CountedWorld) -> None:
    state = bucket.create().newest()[1]
    assert with_mark(state, 3, -1, 1000).marks == ()
    marked = with_mark(state, 3, 5000, 1000)
    assert with_mark(marked, 3, 9000, 1000) is with_mark(marked, 2, 9000, 1000) is marked


def test_a_topic_that_is_made_again_at_once_keeps_the_directories_of_the_former_one(bucket: CountedWorld) -> None:
    """R14: the time of the entry that ended it is looked at; -1 would be long ago."""
    bucket.create(1, {**CHUNKS, **_QUIET})
    former = bucket.handle().newest()[1].topic_id
    log = bucket.log()
    log.topic("t").delete()
    log.create_topic("t", 1, CHUNKS)
    (ended,) = bucket.handle().newest()[1].former_ids
    assert ended[0] == former
    assert ended[1] >= bucket.clock.now_ms() // 1000 * 1000
    bucket.maintain()
    assert any(former in path for path in bucket.files())


# --- what looks are spared by -----------------------------------------------------------------------------


def test_an_entry_stays_until_the_one_after_it_is_old(bucket: CountedWorld) -> None:
    """Anchor rule: the last settled entry may be what a writer's put is about to be checked by."""
    topic = bucket.create(1, {**CHUNKS, **_QUIET})
    topic_id = topic.newest()[1].topic_id
    append(topic, batch_of([b"settled"]))
    bucket.maintain()
    bucket.clock.advance(DELAY_MS + 2000)
    for value in (b"new", b"newer"):
        append(topic, batch_of([value]))
    collect(bucket.handle(), topic_id)
    assert bucket.entries() == [2, 3, 4]
    bucket.clock.advance(DELAY_MS + 2000)
    collect(bucket.handle(), topic_id)
    assert bucket.entries() == [3, 4]
    assert bucket.values() == [b"settled", b"new", b"newer"]


# --- groups -----------------------------------------------------------------------------------------------


def test_a_commit_of_a_groups_offsets_is_one_put_and_at_most_one_look(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    topic = bucket.handle()
    for _ in range(60):
        append(topic, batch_of([b"a"]))
    topic_id = topic.newest()[1].topic_id
    door = CountedStorage(bucket.path, clock=bucket.clock)
    group = GroupLog(door, "g")
    for offset in range(3):
        group.advance([Position("t", topic_id, 0, offset)])
    looks = 0
    for offset in range(3, 48):
        bucket.clock.advance(1000)
        door.spent()
        group.advance([Position("t", topic_id, 0, offset)])
        spent = door.spent()
        assert spent.pop("PUT") == 1
        looks += spent.get("HEAD", 0) + spent.get("GET", 0)
        if (offset + 1) % 16:  # else old entries are collected
            assert set(spent) <= {"HEAD"}
            assert spent.get("HEAD", 0) <= 1
        else:
            assert spent["LIST"] <= 4
    assert looks <= 45
    assert bucket.group_offsets() == [47]


def test_offsets_beyond_what_is_remembered_are_checked_by_the_newest(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"a"]))
    topic_id = bucket.handle().newest()[1].topic_id
    group = GroupLog(bucket.storage(), "g")
    group.advance([Position("t", topic_id, 0, 1)])
    append(bucket.handle(), batch_of([b"b"]))
    group.advance([Position("t", topic_id, 0, 2)])
    assert bucket.group_offsets() == [2]
    with pytest.raises(UsageError):
        group.advance([Position("t", topic_id, 7, 0)])
    bucket.log().topic("t").delete()
    bucket.clock.advance(60_000)
    with pytest.raises(TopicChangedError):
        group.advance([Position("t", topic_id, 0, 1)])


def test_offsets_of_a_topic_that_is_gone_take_none_of_the_new_one_away(bucket: CountedWorld) -> None:
    bucket.create(1, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"a"] * 3))
    gone = bucket.handle().newest()[1].topic_id
    one, other = GroupLog(bucket.storage(), "g"), GroupLog(bucket.storage(), "g")
    one.advance([Position("t", gone, 0, 1)])
    bucket.log().topic("t").delete()
    bucket.create(1, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"b"] * 3))
    other.advance([Position("t", bucket.handle().newest()[1].topic_id, 0, 3)])
    with pytest.raises(TopicChangedError):
        one.advance([Position("t", gone, 0, 2)])
    assert bucket.group_offsets() == [3]


@pytest.mark.parametrize("first", ["gone", "new"])
def test_a_position_of_a_topic_that_is_gone_beside_one_of_the_new_one_is_refused(
    bucket: CountedWorld, first: str
) -> None:
    """As of a consumer that sought in the new topic one partition of two, before it read the other."""
    bucket.create(2, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"a"] * 4, partition=[0, 0, 1, 1]))
    group = GroupLog(bucket.storage(), "g")
    gone = bucket.handle().newest()[1].topic_id
    if first == "gone":
        group.topic("t").newest()  # remembered
    bucket.log().topic("t").delete()
    bucket.create(2, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"b"] * 4, partition=[0, 0, 1, 1]))
    new = bucket.handle().newest()[1].topic_id
    if first == "new":
        GroupLog(bucket.storage(), "g").advance([Position("t", new, 0, 1), Position("t", new, 1, 1)])
    positions = [Position("t", new, 0, 1), Position("t", gone, 1, 2)]
    with pytest.raises(TopicChangedError):
        group.advance(positions if first == "new" else positions[::-1])
    assert bucket.group_offsets() == ([1, 1] if first == "new" else [])


@pytest.mark.parametrize("by", ["position", "group"])
def test_a_topic_that_is_remembered_from_before_an_offset_was_read_is_looked_at_again(
    bucket: CountedWorld, by: str
) -> None:
    """What is older has not the entries that offsets were read under: it looks like another history, restored."""
    bucket.create(2, {**CHUNKS, **_QUIET})
    append(bucket.handle(), batch_of([b"a"] * 4, partition=[0] * 4))
    one, other = GroupLog(bucket.storage(), "g"), GroupLog(bucket.storage(), "g")

    def at(partition: int, offset: int) -> Position:
        state = bucket.handle().newest()[1]
        return Position("t", state.topic_id, partition, offset, state.lineage)

    seen = at(0, 2)
    one.advance([at(0, 1)])
    for _ in range(40):  # more than a lineage has marks of one after the other
        append(bucket.handle(), batch_of([b"b"], partition=[1]))
    if by == "group":
        other.advance([at(1, 40)])
    else:
        seen = at(0, 4)
    one.advance([seen])
    assert bucket.group_offsets() == ([2, 40] if by == "group" else [4, None])
    mark, newest = one.newest().lineage(seen.topic_id), bucket.handle().newest()[1].lineage
    assert mark is not None
    assert mark.sequence == newest.sequence, "offsets are never marked as of before they were read"

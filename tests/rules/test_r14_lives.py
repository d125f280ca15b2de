"""R14: a topic made again is another topic: nothing of the old life counts, and its directories go on every run."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import TopicChangedError, UnknownTopicError
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.write import writers
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of
from tests.support.syscalls import recording
from tests.support.world import DELAY_MS, World, many


def remake(world: World) -> None:
    world.log().topic("t").delete()
    world.create()


def test_the_home_is_durable_before_the_name_points_to_it(world: World) -> None:
    """R14, R5: a name in the journal whose directory power loss can take would be a topic that nobody can write to."""
    with recording() as calls:
        world.create()
    named = next(i for i, (call, path) in enumerate(calls) if call == "link" and "/journal/" in path)
    topic_id = world.handle().newest()[1].topic_id
    for made in (topic_id, f"{topic_id}/settle", f"{topic_id}/staged", f"{topic_id}/side", f"{topic_id}/manifests"):
        at = next(i for i, (call, path) in enumerate(calls) if call == "mkdir" and path.endswith(made))
        parent = made.rpartition("/")[0] or "topics/t"
        assert any(call == "fsync" and path.endswith(parent) for call, path in calls[at:named]), made
    assert any(call == "link" and "/settle/" in path for call, path in calls[:named])


def test_the_writers_table_starts_empty(world: World) -> None:
    """R14, R6: a query that begins anew on the new topic counts from 0: it must not be skipped or refused."""
    topic = world.create()
    append(topic, batch_of([b"old"]), writer=Transaction("query", 5))
    remake(world)
    assert not append(world.handle(), batch_of([b"new"]), writer=Transaction("query", 0)).skipped
    assert world.values() == [b"new"]


@pytest.mark.parametrize("again", [True, False])
def test_running_readers_are_told(world: World, again: bool) -> None:
    """R14, I2: a task in the middle of a range: offset 30 of the new topic is another record."""
    topic = world.create()
    for number in range(3):
        append(topic, batch_of(many(10, b"%d" % number)))
    rows = PartitionReader(topic, topic.newest()[1].topic_id, 0).read(0, 30)
    assert next(rows).count == 10
    world.log().topic("t").delete()
    if again:
        world.create()
        append(world.handle(), batch_of(many(30, b"new")))
    world.clock.advance(DELAY_MS)
    assert world.maintain().removed_lives == 1
    with pytest.raises(TopicChangedError, match=r"deleted|made again"):
        list(rows)


def test_running_writers_are_told_and_their_zombies_are_cleaned_up_again_and_again(world: World) -> None:
    """R14: a task that still has the old id writes its chunk there, makes the directory anew: it goes on every run."""
    topic = world.create()
    old_id, stored = topic.newest()[1].topic_id, topic.newest()[0]
    old_state = topic.newest()[1]
    remake(world)
    world.clock.advance(DELAY_MS)
    for _ in range(3):
        world.maintain()
        assert not (world.path / topic.paths(old_id).home).exists()
        zombie = stage_for(world, old_state, stored.sequence)
        assert (world.path / topic.paths(old_id).home).exists()
        with pytest.raises(TopicChangedError):
            commit(world.handle(), old_id, [zombie])  # type: ignore[list-item]
    assert world.maintain().removed_lives == 1
    assert world.values() == []


def stage_for(world: World, state: object, sequence: int) -> object:
    """Stage as a task that read the old life."""
    from pyspark_commitlog.topic.state.topic_state import TopicState
    from pyspark_commitlog.topic.write.partitioner import Partitioner
    from pyspark_commitlog.topic.write.staging import Stager

    assert isinstance(state, TopicState)
    topic = world.handle()
    paths, choose = topic.paths(state.topic_id), Partitioner(1, "sticky", 2**20)
    stager = Stager(topic.storage, paths, state, sequence, choose, topic.config(state))
    stager.add(batch_of([b"zombie"]))
    return stager.finish()


def test_the_delay_counts_from_the_deletion(world: World) -> None:
    """R14, R13: the topic was idle for a year before: readers still get their minute after the deletion."""
    topic = world.create()
    append(topic, batch_of(many(10)))
    home = world.path / topic.paths(topic.newest()[1].topic_id).home
    world.clock.advance(365 * 86_400_000)
    remake(world)
    world.clock.advance(DELAY_MS - 1)
    assert world.maintain().removed_lives == 0
    assert home.exists()
    world.clock.advance(1)
    assert world.maintain().removed_lives == 1
    assert not home.exists()


def test_a_deleted_topic_frees_its_disk(world: World) -> None:
    """R14: deleted and not made again: maintenance removes it after the delay, and the name is free."""
    topic = world.create()
    append(topic, batch_of(many(10)))
    home = world.path / topic.paths(topic.newest()[1].topic_id).home
    world.log().topic("t").delete()
    assert world.maintain().removed_lives == 0
    assert home.exists()
    world.clock.advance(DELAY_MS)
    assert world.maintain().removed_lives == 1
    assert not home.exists()
    with pytest.raises(UnknownTopicError):
        world.log().topic("never").maintain()
    world.create()
    assert world.values() == []


def test_collecting_goes_on_over_lives(world: World) -> None:
    """R14, R13: entries of the old life are collected; the new one is read all the same."""
    topic = world.create()
    for value in (b"a", b"b"):
        append(topic, batch_of([value]))
    remake(world)
    new = world.handle()
    for value in (b"c", b"d", b"e"):
        append(new, batch_of([value]))
    world.collect_all()
    assert world.entries() == [7, 8]
    world.clock.advance(DELAY_MS)
    world.maintain()
    assert world.values() == [b"c", b"d", b"e"]


def test_hundreds_of_lives_keep_the_entry_small(world: World) -> None:
    """R14, section 3: a job that makes its topic anew every hour must not end in an entry that can't be read."""
    from dataclasses import replace

    from pyspark_commitlog.format.entry import MAX_LINE_BYTES
    from pyspark_commitlog.topic.collect.collect import former_incarnations

    topic = world.create()
    stored, state = topic.newest()
    for _ in range(3000):
        state = replace(state, deleted=True, former_ids=former_incarnations(stored, replace(state, deleted=True)))
    assert len(str(state.to_json())) < MAX_LINE_BYTES


def test_a_running_query_does_not_go_on_in_the_next_life(world: World) -> None:
    """R14: batches 0 and 1 went to the old topic; it is made again; batch 2 must not start it."""
    topic = world.create()
    for batch in (0, 1):
        append(topic, batch_of([b"old"]), writer=Transaction("spark:q", batch))
    append(topic, batch_of([b"old"]), writer=Transaction("txn:daily", 7))
    world.log().topic("t").delete()
    world.clock.advance(DELAY_MS)
    world.maintain()
    topic = world.create()
    with pytest.raises(TopicChangedError, match="new checkpoint"):
        append(topic, batch_of([b"late"]), writer=Transaction("spark:q", 2))
    assert world.values() == []
    append(topic, batch_of([b"new"]), writer=Transaction("spark:other", 0))
    append(topic, batch_of([b"job"]), writer=Transaction("txn:daily", 8))
    assert world.values() == [b"new", b"job"]


def test_queries_of_all_earlier_lives_are_remembered_within_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: three lives; the table is in a snapshot; the oldest query goes first when there are too many."""
    monkeypatch.setattr(writers, "WRITER_ROWS", 2)
    monkeypatch.setattr(writers, "FORMER_QUERIES", 5)
    for life in range(3):
        topic = world.create()
        for number in range(3):
            append(topic, batch_of([b"x"]), writer=Transaction(f"spark:{life}-{number}", 0))
            world.clock.advance(1)
        world.log().topic("t").delete()
    _, state = world.create().newest()
    assert state.former_queries == ("spark:1-1", "spark:1-2", "spark:2-0", "spark:2-1", "spark:2-2")

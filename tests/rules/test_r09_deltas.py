"""R9: an operation is a delta with preconditions that are checked again on every attempt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import TopicChangedError, TopicExistsError, UsageError
from pyspark_commitlog.testing.faults import Hook, on_path
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.world import World, once


def meanwhile(act: Callable[[], object]) -> Hook:
    """Return a hook that acts between the last check of an operation and its put."""
    return on_path("/t/journal/", "put_if_absent", once(act))


def remade(log: CommitLog) -> None:
    log.topic("t").delete()
    log.create_topic("t", 1)


def test_partitions_added_between_two_attempts_stay(world: World) -> None:
    """R9, I2: a commit planned over two partitions loses a race with add_partitions: it commits on top of four."""
    topic = world.create(2)
    staged = stage(topic, batch_of([b"a", b"b"], partition=[0, 1]))
    commit(world.handle(meanwhile(lambda: world.log().topic("t").add_partitions(4))), staged.topic_id, [staged])
    assert topic.newest()[1].log_end == (1, 1, 0, 0)
    assert world.values() == [b"a", b"b"]


def test_offsets_are_given_by_the_attempt_that_lands(world: World) -> None:
    """R9, I2, I3: two commits race: the loser gets the offsets behind the winner's, and says so."""
    topic = world.create()
    staged = stage(topic, batch_of([b"second"]))
    slow = world.handle(meanwhile(lambda: append(world.handle(), batch_of([b"first"] * 3))))
    assert commit(slow, staged.topic_id, [staged]).ranges == {0: (3, 4)}
    assert [(r.offset, r.value) for r in read_partition(topic, 0)] == [
        *((offset, b"first") for offset in range(3)),
        (3, b"second"),
    ]


@pytest.mark.parametrize("remake", [False, True])
def test_a_topic_deleted_between_two_attempts_takes_nothing(world: World, remake: bool) -> None:
    """R9, R14: the topic is deleted (and made again) before the put: the writer is told, the new life stays empty."""
    topic = world.create()
    staged = stage(topic, batch_of([b"for the old life"]))
    act = (lambda: remade(world.log())) if remake else (lambda: world.log().topic("t").delete())
    with pytest.raises(TopicChangedError):
        commit(world.handle(meanwhile(act)), staged.topic_id, [staged])
    if remake:
        assert world.values() == []


def test_a_delete_hits_the_life_it_was_meant_for(world: World) -> None:
    """R9: A deletes; B is faster and makes the topic again, with records in it: A must not delete B's."""
    world.create()

    def faster() -> None:
        remade(world.log())
        append(world.handle(), batch_of([b"new life"]))

    with pytest.raises(TopicChangedError):
        world.log(meanwhile(faster)).topic("t").delete()
    assert world.values() == [b"new life"]


@pytest.mark.parametrize("alter", [True, False])
def test_an_alter_hits_the_life_it_was_meant_for(world: World, alter: bool) -> None:
    """R9: the same for configs and partitions."""
    world.create()
    slow = world.log(meanwhile(lambda: remade(world.log())))
    with pytest.raises(TopicChangedError):
        slow.topic("t").alter({"segment.bytes": 9999}) if alter else slow.topic("t").add_partitions(7)
    state = world.handle().newest()[1]
    assert (state.partitions, dict(state.config)) == (1, {})


def test_alters_and_commits_do_not_undo_each_other(world: World) -> None:
    """R9: each is a delta on the newest state, so both stay."""
    topic = world.create(1)
    act = meanwhile(lambda: append(world.handle(), batch_of([b"a"])))
    world.log(act).topic("t").alter({"segment.bytes": 9999})
    staged = stage(topic, batch_of([b"b"]))
    slow = world.handle(meanwhile(lambda: world.log().topic("t").alter({"retention.ms": 5})))
    commit(slow, staged.topic_id, [staged])
    config = topic.newest()[1].config
    assert (config["segment.bytes"], config["retention.ms"]) == ("9999", "5")
    assert world.values() == [b"a", b"b"]


def test_preconditions_of_an_alter_are_checked_on_the_newest_state(world: World) -> None:
    """R9: two operators add partitions at once: the second would take some away."""
    world.create(1)
    with pytest.raises(UsageError, match="has 6 partitions; 4 would not add"):
        world.log(meanwhile(lambda: world.log().topic("t").add_partitions(6))).topic("t").add_partitions(4)
    assert world.handle().newest()[1].partitions == 6


def test_of_two_creators_one_wins(world: World) -> None:
    """R9: the loser of the race for entry 1 is told, and the winner's topic is whole."""
    world.create(name="other")

    def faster() -> None:
        world.log().create_topic("t", 3)
        append(world.handle(), batch_of([b"a"], partition=[2]))

    with pytest.raises(TopicExistsError):
        world.log(meanwhile(faster)).create_topic("t", 1)
    assert world.handle().newest()[1].partitions == 3
    assert world.values() == [b"a"]


def test_log_start_and_settled_only_rise(world: World) -> None:
    """R9: whatever runs, in whatever order."""
    topic = world.create(2)
    topic_id = topic.newest()[1].topic_id
    settled, start = (0, 0), (0, 0)
    for number in range(8):
        append(topic, batch_of([b"x"], partition=[number % 2]))
        if number % 3 == 0:
            settle(topic, topic_id)
        if number == 5:
            world.log().topic("t").add_partitions(3)
        rows = topic.settled(topic_id)[1]
        now = tuple(rows.partition(p).end_offset for p in range(2))
        assert all(a <= b for a, b in zip(settled, now, strict=True))
        assert all(a <= b for a, b in zip(start, topic.newest()[1].log_start, strict=False))
        settled = (now[0], now[1])

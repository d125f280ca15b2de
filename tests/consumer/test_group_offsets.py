"""A consumer and its group: where it starts, what it commits and when, and what a reset does to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest

from pyspark_commitlog import ConsumerRebalanceListener, TopicPartition
from pyspark_commitlog.consumer.poller import Poller
from pyspark_commitlog.errors import (
    CorruptionError,
    GroupResetError,
    OffsetOutOfRangeError,
    StorageError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.testing.faults import on_path
from tests.support.consumers import SMALL, at, consumer, damage_frame, drain, numbered, put, values
from tests.support.world import World, raising

INTERVAL_MS = 5000

pytestmark = pytest.mark.usefixtures("numbered_records")


def test_a_consumer_starts_where_its_group_is_and_by_its_policy_elsewhere(world: World) -> None:
    world.log().groups.commit("g", {"t": {0: 17}})
    each = consumer(world, "t", group_id="g", auto_offset_reset="latest")
    assert values(drain(each)) == numbered(17, 20)
    each.close(commit=False)
    strict = consumer(world, "t", group_id="g", auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRangeError, match=r"'t' partition 1: group 'g' has committed nothing"):
        strict.poll()


def test_what_is_committed_automatically_was_returned_by_earlier_polls(world: World) -> None:
    each = consumer(world, "t", group_id="g", max_poll_records=5)
    each.poll()
    assert world.group_offsets() == [None, None]
    world.clock.advance(INTERVAL_MS)
    each.poll()
    assert world.group_offsets() == [5, 0]
    each.poll()
    assert world.group_offsets() == [5, 0]
    world.clock.advance(INTERVAL_MS)
    before = {place: each.position(place) for place in each.assignment()}
    each.poll()
    assert world.group_offsets() == [before[at(0)], before[at(1)]]
    assert sum(before.values()) == 15


def test_however_often_it_commits_what_a_poll_returns_waits_for_the_next(world: World) -> None:
    each = consumer(world, "t", group_id="g", max_poll_records=5, auto_commit_interval_ms=0)
    handed_out = 0
    for _ in range(4):
        taken = each.poll()
        assert sum(offset or 0 for offset in world.group_offsets()) == handed_out
        handed_out += len(taken)


def test_a_poll_before_the_interval_is_over_commits_nothing(world: World) -> None:
    each = consumer(world, "t", group_id="g", max_poll_records=5)
    each.poll()
    world.clock.advance(INTERVAL_MS - 1)
    each.poll()
    assert world.group_offsets() == [None, None]


def test_close_commits_what_was_returned_and_an_error_does_not(world: World) -> None:
    with consumer(world, "t", group_id="g", max_poll_records=5) as each:
        each.poll()
    assert world.group_offsets() == [5, 0]
    each = consumer(world, "t", group_id="g", max_poll_records=5)
    assert len(each.poll()) == 5
    each.__exit__(ZeroDivisionError)
    assert world.group_offsets() == [5, 0]


def test_without_auto_commit_only_commit_commits(world: World) -> None:
    with consumer(world, "t", group_id="g", enable_auto_commit=False) as each:
        drain(each)
        world.clock.advance(INTERVAL_MS)
        each.poll()
        assert world.group_offsets() == [None, None]
        each.commit({at(0): 7}, "why")
        assert world.group_offsets() == [7, None]
        assert (each.committed(at(0)), each.committed(at(1))) == (7, None)
        each.commit()
        assert world.group_offsets() == [20, 20]
        with pytest.raises(OffsetOutOfRangeError, match="offset 21 can't be committed"):
            each.commit({at(0): 21})
    assert world.log().groups.describe("g").metadata == {}


def test_an_offset_of_a_topic_that_was_made_again_since_is_not_committed_to_it(world: World) -> None:
    each = consumer(world, group_id="g", enable_auto_commit=False)
    each.assign([at(0)])
    last = each.poll()[-1]
    world.log().topic("t").delete()
    world.create(2, SMALL)
    put(world, numbered(50, 90))
    with pytest.raises(TopicChangedError):
        each.commit({at(0): last.offset + 1})
    assert world.group_offsets() == []
    assert values(drain(each)) == numbered(50, 90)


def test_what_to_arrow_has_read_is_committed_once_it_is_returned(world: World) -> None:
    """It polls many times, and what fails after some of them has handed out nothing."""
    world.maintain()
    (segment,) = world.path.glob("topics/t/*/0/*.log")
    whole = segment.read_bytes()
    damage_frame(segment, 1)
    each = consumer(world, group_id="g", fetch_max_bytes=1000, auto_commit_interval_ms=0)
    each.assign([at(0)])
    assert len(each.poll(max_records=5)) == 5
    with pytest.raises(CorruptionError):
        each.to_arrow()
    assert world.group_offsets() == [5, None]
    segment.write_bytes(whole)
    assert each.to_arrow().num_rows == 15
    assert world.group_offsets() == [5, None]
    each.poll()
    assert world.group_offsets() == [20, None]


def test_a_reset_within_to_arrow_stands_though_it_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had read before the reset is no place to go back to."""
    put(world, numbered(20, 120))
    each = consumer(world, group_id="g", fetch_max_bytes=1000)
    each.assign([at(0)])
    assert len(each.poll(max_records=10)) == 10
    each.commit()
    poll, polls = Poller.poll, list[int]()

    def polled(*args: Any) -> Any:
        polls.append(1)
        if len(polls) > 1:
            world.log().groups.reset("g", to={"t": {0: 3}}, dry_run=False)
            with pytest.raises(GroupResetError):
                each.commit()
            raise CorruptionError("damaged")
        return poll(*args)

    monkeypatch.setattr(Poller, "poll", polled)
    with pytest.raises(CorruptionError):
        each.to_arrow()
    assert (len(polls), each.position(at(0))) == (2, 3)


def test_what_iteration_has_not_handed_over_is_not_committed(world: World) -> None:
    each = consumer(world, "t", group_id="g")
    taken = [next(each) for _ in range(7)]
    assert values(taken) == numbered(0, 7)
    each.commit()
    assert world.group_offsets() == [7, 0]
    assert each.position(at(0)) == 7
    each.close()
    again = consumer(world, "t", group_id="g")
    assert values(r for r in drain(again) if r.partition == 0) == numbered(7, 20)


def test_iteration_goes_on_behind_seeks_pauses_and_polls(world: World) -> None:
    each = consumer(world, consumer_timeout_ms=0)
    each.assign([at(0), at(1)])
    each.pause(at(1))
    assert values([next(each), next(each)]) == numbered(0, 2)
    each.seek(at(0), 5)
    assert next(each).offset == 5
    each.resume(at(1))
    each.pause(at(0))
    assert [(r.partition, r.offset) for r in each] == [(1, n) for n in range(20)]
    each.resume(at(0))
    assert next(each).offset == 6
    assert [r.offset for r in each.poll()] == list(range(7, 20))
    assert list(each) == []


def test_a_commit_that_fails_is_told_and_done_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    hook = on_path("groups", "put_if_absent", raising(StorageError("injected")), times=5)
    each = consumer(world, group_id="g", hook=hook)
    each.assign([at(0), at(1)])
    drain(each)
    with caplog.at_level(logging.WARNING, "pyspark_commitlog.consumer"):
        for _ in range(3):
            world.clock.advance(INTERVAL_MS)
            assert each.poll() == []
    assert "a commit of offsets failed, and is tried again" in caplog.text
    assert world.group_offsets() == [20, 20]


def test_a_seek_beyond_the_log_is_not_committed_and_hinders_no_other(world: World) -> None:
    each = consumer(world, "t", group_id="g", auto_offset_reset="latest")
    each.poll()
    each.seek(at(0), 99)
    world.clock.advance(INTERVAL_MS)
    each.poll()
    assert world.group_offsets() == [None, 20]


def test_a_reset_is_followed_and_not_undone(world: World) -> None:
    each = consumer(world, group_id="g")
    each.assign([at(0), at(1)])
    drain(each)
    world.clock.advance(INTERVAL_MS)
    each.poll()
    world.log().groups.reset("g", to={"t": {0: 15}}, dry_run=False)
    put(world, numbered(20, 21))
    each.poll()
    world.clock.advance(INTERVAL_MS)
    assert values(drain(each)) == numbered(15, 21)
    world.clock.advance(INTERVAL_MS)
    each.poll()
    assert world.group_offsets() == [21, 20]


def test_a_commit_behind_a_reset_is_an_error_and_the_next_poll_follows_it(world: World) -> None:
    each = consumer(world, group_id="g", enable_auto_commit=False)
    each.assign([at(0), at(1)])
    drain(each)
    each.commit()
    world.log().groups.reset("g", to={"t": {0: 15}}, dry_run=False)
    with pytest.raises(GroupResetError, match="'g': t partition 0 was reset"):
        each.commit()
    assert world.group_offsets() == [15, 20]
    assert values(drain(each)) == numbered(15, 20)
    each.commit()
    assert world.group_offsets() == [20, 20]


def test_iteration_goes_on_where_a_reset_that_a_commit_found_moved_it(world: World) -> None:
    """What it had polled before is left out: the records behind it would put the position back."""
    each = consumer(world, group_id="g", enable_auto_commit=False)
    each.assign([at(0)])
    assert values(next(each) for _ in range(10)) == numbered(0, 10)
    each.commit()
    world.log().groups.reset("g", to={"t": {0: 3}}, dry_run=False)
    assert next(each).offset == 10
    with pytest.raises(GroupResetError):
        each.commit()
    assert each.position(at(0)) == 3
    assert (next(each).offset, each.position(at(0))) == (3, 4)


def test_a_commit_before_the_first_poll_follows_the_resets_there_were(world: World) -> None:
    groups = world.log().groups
    groups.commit("g", {"t": {0: 5}})
    groups.reset("g", "t", to="earliest", dry_run=False)
    each = consumer(world, group_id="g")
    each.assign([at(0)])
    each.commit({at(0): 7})
    assert world.group_offsets() == [7, 0]
    groups.reset("g", "t", to="earliest", dry_run=False)
    with pytest.raises(GroupResetError):
        each.commit({at(0): 8})


def test_a_group_that_was_deleted_is_begun_again_where_the_consumer_is(world: World) -> None:
    each = consumer(world, group_id="g", auto_offset_reset="latest")
    each.assign([at(0), at(1)])
    each.seek_to_beginning()
    drain(each)
    world.clock.advance(INTERVAL_MS)
    each.poll()
    world.log().groups.delete("g")
    put(world, numbered(20, 22))
    assert values(each.poll()) == numbered(20, 22)
    for _ in range(2):
        world.clock.advance(INTERVAL_MS)
        assert each.poll() == []
    assert world.group_offsets() == [22, 20]


def test_offsets_of_numpy_count_as_whole_numbers(world: World) -> None:
    each, groups = consumer(world, group_id="g", enable_auto_commit=False), world.log().groups
    each.assign([at(0)])
    each.seek(at(0), np.int64(3))
    assert each.position(at(0)) == 3
    each.commit({at(0): np.int64(5)})
    assert world.group_offsets() == [5, None]
    groups.commit("g", {"t": {np.int64(1): np.int64(6)}})
    assert world.group_offsets() == [5, 6]
    groups.reset("g", "t", offset=np.int64(2), dry_run=False)
    assert world.group_offsets() == [2, 2]
    groups.reset("g", to={"t": {np.int64(0): np.int64(4)}}, dry_run=False)
    assert world.group_offsets() == [4, 2]
    groups.reset("g", "t", shift=np.int64(-1), dry_run=False)
    assert world.group_offsets() == [3, 1]


@pytest.mark.parametrize("bad", ["6", 7.0, True, None], ids=repr)
def test_an_offset_that_is_no_whole_number_is_refused(world: World, bad: Any) -> None:
    each, groups = consumer(world, group_id="g", enable_auto_commit=False), world.log().groups
    each.assign([at(0)])
    calls: list[Callable[[], object]] = [
        lambda: each.seek(at(0), bad),
        lambda: each.commit({at(0): bad}),
        lambda: groups.commit("g", {"t": {0: bad}}),
        lambda: groups.reset("g", to={"t": {0: bad}}, dry_run=False),
    ]
    if bad is not None:
        calls += [lambda: groups.reset("g", "t", offset=bad), lambda: groups.reset("g", "t", shift=bad)]
    for call in calls:
        with pytest.raises(UsageError, match=re.escape(f"={bad!r} is not allowed: it takes a whole number")):
            call()
    assert world.group_offsets() == []


class Told(ConsumerRebalanceListener):
    """Writes down what it is told, with the positions at that time."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


def test_a_listener_is_told_of_partitions_that_come_and_go(world: World) -> None:
    told = Told()
    each = consumer(world)
    each.subscribe("t", listener=told)
    assert told.calls == []
    each.poll()
    world.log().topic("t").add_partitions(3)
    each.poll()
    each.subscribe("t", listener=told)
    each.close()
    three = {at(0), at(1), at(2)}
    assert told.calls == [("assigned", {at(0), at(1)}), ("assigned", {at(2)}), ("revoked", three)]


def test_a_listener_may_commit_what_goes_and_seek_in_what_comes(world: World) -> None:
    each = consumer(world, group_id="g", enable_auto_commit=False)

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            each.commit({place: each.position(place) for place in revoked})

        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            each.seek(at(0), 18)

    each.subscribe("t", listener=Seeking())
    assert values(r for r in drain(each) if r.partition == 0) == numbered(18, 20)
    each.unsubscribe()
    assert world.group_offsets() == [20, 20]


def test_a_topic_deleted_before_a_listener_asks_for_its_position_is_told(world: World) -> None:
    each = consumer(world, group_id="g")
    told: list[str] = []

    class Late(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            world.log().topic("t").delete()
            with pytest.raises(TopicChangedError, match=r"'t' partition 0 has no position: the topic .* was deleted"):
                each.position(at(0))
            told.append("asked")

    each.subscribe("t", listener=Late())
    each.poll()
    assert told == ["asked"]


def test_a_topic_that_leaves_a_pattern_is_revoked_with_its_positions(world: World) -> None:
    world.create(1, SMALL, "t2")
    put(world, numbered(0, 3), name="t2")
    each = consumer(world, metadata_max_age_ms=0)
    told: list[tuple[TopicPartition, int]] = []

    class Asking(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            told.extend((place, each.position(place)) for place in revoked)

    each.subscribe(pattern="t.*", listener=Asking())
    drain(each)
    world.log().topic("t2").delete()
    assert each.poll() == []
    assert told == [(at(0, "t2"), 3)]
    assert each.assignment() == {at(0), at(1)}


def test_who_becomes_a_member_begins_where_its_group_is(world: World) -> None:
    each = consumer(world, group_id="g", enable_auto_commit=False)
    each.assign([at(0)])
    assert values(each.poll(max_records=10)) == numbered(0, 10)
    each.commit({at(0): 3})
    each.subscribe("t")
    assert values(r for r in drain(each) if r.partition == 0) == numbered(3, 20)


def test_a_former_subscription_is_committed_and_left(world: World) -> None:
    world.create(1, SMALL, "u")
    put(world, numbered(0, 3), name="u")
    each = consumer(world, "t", group_id="g")
    drain(each)
    each.subscribe("u")
    assert world.group_offsets()[:2] == [20, 20]  # behind them, where it has joined again already, the new topic
    assert values(drain(each)) == numbered(0, 3)
    assert each.assignment() == {at(0, "u")}

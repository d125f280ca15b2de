"""Settled records without a lock, and processes that die at a put to the settle journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_commitlog.testing.faults import Hook, on_path
from pyspark_commitlog.topic.collect.collect import Collected, collect
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import LATER_MS, ObjectWorld, topic_id
from tests.support.records import append, batch_of
from tests.support.world import once, several


class KilledError(BaseException):
    """The process is gone."""


def die() -> None:
    """End the process here."""
    raise KilledError


def cleaned(unlocked: ObjectWorld, *, thorough: bool = True) -> Collected:
    """Collect as another process."""
    topic = unlocked.handle()
    return collect(topic, topic_id(topic), thorough=thorough)


def ghost(unlocked: ObjectWorld, act: Callable[[TopicLog], object], number: int) -> TopicLog:
    """Have a process put what it drafted at a number that was collected meanwhile, and die."""
    topic = unlocked.handle()
    assert unlocked.numbers(topic)[-1] == number - 1

    def others() -> None:
        unlocked.idle(topic, 3)
        unlocked.clock.advance(LATER_MS)
        cleaned(unlocked, thorough=False)
        assert unlocked.numbers(topic) == [number + 1, number + 2]

    late = several(
        on_path("/settle/", "put_if_absent", once(others)), on_path("/settle/", "put_if_absent", die, when="after")
    )
    with pytest.raises(KilledError):
        act(unlocked.handle(late))
    assert unlocked.numbers(topic) == [number, number + 1, number + 2]
    return topic


def settled(unlocked: ObjectWorld, rounds: int, partitions: int = 1) -> TopicLog:
    """Return a topic of that many settled commits, one record per partition in each."""
    topic = unlocked.create(partitions)
    for number in range(rounds):
        append(topic, batch_of([b"%d" % number] * partitions, partition=list(range(partitions))))
        settle(topic, topic_id(topic))
    return topic


def waiting_for_collector(unlocked: ObjectWorld, commits: int, settles: int = 1) -> TopicLog:
    """Return a topic of so many commits, settled in so many runs, all of them old."""
    topic = unlocked.create(1)
    for _ in range(settles):
        for _ in range(commits // settles):
            append(topic, batch_of([b"v"]))
        settle(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    return topic


def slow(unlocked: ObjectWorld, *operations: str) -> Hook:
    """Return a hook by which each of some operations takes 50 ms."""

    def takes(operation: str, path: str, moment: str) -> None:
        if operation in operations and moment == "after":
            unlocked.clock.advance(50)

    return takes

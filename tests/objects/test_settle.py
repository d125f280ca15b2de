"""Settling without a lock: one object and one entry a run, and the first of several settlers wins (O1, O2)."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.log.maintain.settle import settle
from pyspark_commitlog.log.topic import TopicLog
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, once


def run(topic: TopicLog) -> int:
    return settle(topic, topic_id(topic)).records


def test_a_run_puts_one_object_for_all_partitions_and_one_entry(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(3)
    for value in (b"a", b"b"):
        append(topic, batch_of([value] * 3, partition=[0, 1, 2]))
    assert run(topic) == 6
    (shared,) = unlocked.settled().tail
    assert unlocked.objects() == [shared.name]
    assert unlocked.values() == [b"a", b"b"] * 3
    assert unlocked.handle().settle_journal(topic_id(topic)).sequences() == [1, 2]
    verify(unlocked.handle())


def test_a_second_run_goes_on_where_the_first_ended(unlocked: ObjectWorld) -> None:
    topic = unlocked.create()
    for value in (b"a", b"b", b"c"):
        append(topic, batch_of([value]))
        assert run(topic) == 1
    assert len(unlocked.settled().tail) == 3
    assert unlocked.values() == [b"a", b"b", b"c"]
    assert run(topic) == 0, "nothing is due"
    assert len(unlocked.settled().tail) == 3
    verify(unlocked.handle())


def test_of_two_settlers_of_the_same_offsets_the_first_wins(unlocked: ObjectWorld) -> None:
    """O2: `settled` is exactly what the run began with. Else offsets would be doubled."""
    topic = unlocked.create()
    append(topic, batch_of([b"a"]))
    other = once(lambda: run(unlocked.handle()))

    def first(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "/settle/" in path:
            other()

    assert run(unlocked.handle(first)) == 0
    assert len(unlocked.settled().tail) == 1
    assert len(unlocked.objects()) == 2, "the loser's object is the sweep's"
    assert unlocked.values() == [b"a"]
    verify(unlocked.handle())


def test_what_another_settled_meanwhile_is_not_even_put(unlocked: ObjectWorld) -> None:
    """O13: the newest entry is read again before the object is put."""
    topic = unlocked.create(1, CHUNKS)
    append(topic, batch_of([b"a"]))
    other = once(lambda: run(unlocked.handle()))

    def first(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("map", "after") and path.endswith(".chunk"):
            other()

    assert run(unlocked.handle(first)) == 0
    assert len(unlocked.objects()) == 1
    assert unlocked.values() == [b"a"]


def test_an_object_that_could_not_be_written_is_named_by_nobody(unlocked: ObjectWorld) -> None:
    topic = unlocked.create()
    append(topic, batch_of([b"a"]))

    def fails(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("create", "before") and path.endswith(".segment"):
            raise StorageError("injected")

    with pytest.raises(StorageError):
        run(unlocked.handle(fails))
    assert unlocked.settled().tail == ()
    assert run(unlocked.handle()) == 1
    assert unlocked.values() == [b"a"]

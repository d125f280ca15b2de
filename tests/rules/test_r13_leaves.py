"""O10, R13: the leaves of a long manifest stay as long as a retained settle entry needs them, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.topic import topic_tables as topics
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import leaves as module
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, World


@pytest.fixture
def topic(world: World, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    """A topic whose leaves have two segments; each append makes a segment."""
    monkeypatch.setattr(module, "LEAF_SEGMENTS", 2)
    monkeypatch.setattr(topics, "LEAF_SEGMENTS", 2)
    topic = world.create(1, {**CHUNKS, "segment.bytes": 1024})
    for number in range(9):
        append(topic, batch_of([b"%d" % number * 900]))
        settle(topic, topic_id(topic))
    return topic


def files(world: World) -> int:
    return len(list((world.path / Path(world.files("/manifests/")[0]).parent).iterdir()))


def test_leaves_that_are_named_stay_and_others_go(world: World, topic: TopicLog) -> None:
    for _ in range(3):
        world.clock.advance(DELAY_MS + 1)
        append(world.handle(), batch_of([b"more"]))
        world.maintain()
    leaves = topic.leaves(topic_id(topic), topic.settled(topic_id(topic))[1].partition(0).manifest)
    assert len(leaves) == 5
    assert files(world) <= len(leaves) + 2, "the manifests of the newest two entries, and the leaves"
    assert len(world.values()) == 12
    verify(world.handle())
    assert world.log().topic("t").verify().unnamed == ()


def test_retention_writes_the_leaves_again_that_it_cuts(world: World, topic: TopicLog) -> None:
    world.log().topic("t").delete_records({0: 3})
    world.maintain()
    assert len(world.values()) == 6
    verify(world.handle())
    assert topic.sealed(topic.settled(topic_id(topic))[1], 0)[0].base_offset == 3


def test_a_damaged_leaf_is_an_error_that_names_it(world: World, topic: TopicLog) -> None:
    leaf = topic.leaves(topic_id(topic), topic.settled(topic_id(topic))[1].partition(0).manifest)[1]
    path = next(path for path in world.files("/manifests/") if leaf.name in path)
    (world.path / path).write_bytes((world.path / path).read_bytes().replace(b"900", b"901") + b" ")
    assert any(leaf.name in fault for fault in world.log().topic("t").verify().faults)

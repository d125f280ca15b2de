"""`CommitLog` and what it hands out: the whole root at once, and parts that hold no state of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import StorageError, TopicExistsError, UnknownTopicError, UsageError
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.testing.faults import on_path
from tests.support.records import append, batch_of
from tests.support.world import World, raising


def filled(world: World, *names: str) -> None:
    for name in names:
        append(world.create(name=name), batch_of([b"1", b"2"]))


def test_a_created_topic_is_returned_and_one_that_exists_too(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "root"))
    created = log.create_topic("t", partitions=2)
    assert (created.name, len(created.describe().partitions)) == ("t", 2)
    assert len(log.create_topic("t", partitions=5, if_not_exists=True).describe().partitions) == 2
    with pytest.raises(TopicExistsError):
        log.create_topic("t", partitions=5)


def test_a_topic_is_looked_for_when_it_is_used(world: World) -> None:
    topic = world.log().topic("t")
    filled(world, "other")
    with pytest.raises(UnknownTopicError):
        topic.describe()
    filled(world, "t")
    assert [record.value for record in topic.read(0, 0, 10)] == [b"1", b"2"]
    world.log().topic("t").delete()
    with pytest.raises(UnknownTopicError):
        topic.read(0, 0)


@pytest.mark.parametrize("use", ["describe", "maintain", "verify", "void", "delete", "repair"])
def test_a_name_that_no_topic_can_have_is_refused_when_it_is_used(world: World, use: str) -> None:
    filled(world, "t")
    with pytest.raises(UsageError, match=r"a/b|stands alone"):
        getattr(world.log().topic("a/b"), use)()


def test_the_root_is_verified_with_each_topic(world: World) -> None:
    filled(world, "whole", "damaged")
    (world.path / "stray").write_text("")
    chunk = next(path for path in (world.path / "topics" / "damaged").rglob("*.chunk"))
    chunk.write_bytes(bytes(chunk.stat().st_size))
    report = world.log().verify()
    assert (report.faults, report.unnamed) == ((), ("stray",))
    assert {topic.topic: bool(topic.faults) for topic in report.topics} == {"whole": False, "damaged": True}


def test_a_topic_that_can_not_be_looked_at_stops_the_check_of_no_other(world: World) -> None:
    filled(world, "a", "b")
    world.log().maintain()
    looked = list[str]()
    away = on_path("topics/a/journal", "names", raising(StorageError("injected")), times=99)
    with pytest.raises(ExceptionGroup, match="1 topic could not be verified"):
        world.log(away).verify(progress=lambda what, done, total: looked.append(what))
    assert looked, "the other one was"


def test_a_root_whose_marker_is_damaged_is_reported_without_its_topics(world: World) -> None:
    filled(world, "t")
    (world.path / ROOT_MARKER).write_bytes(b"{}")
    report = world.log().verify()
    assert len(report.faults) == 1
    assert report.topics == ()


def test_progress_that_raises_ends_the_check(world: World) -> None:
    filled(world, "a", "b")
    world.log().maintain()
    asked = list[str]()

    def stop(what: str, done: int, total: int) -> None:
        asked.append(what)
        raise KeyError("injected")

    with pytest.raises(KeyError):
        world.log().verify(progress=stop)
    assert len(asked) == 1


def test_topics_are_copied_to_a_directory_and_compared_with_it(tmp_path: Path) -> None:
    source = World(tmp_path / "source")
    filled(source, "t", "u")
    copied = source.log().copy_to(str(tmp_path / "there"), ["t"])
    assert [topic.topic for topic in copied.topics] == ["t"]
    there = CommitLog(str(tmp_path / "there"))
    assert there.topics() == ["t"]
    assert [each.faults for each in source.log().compare_with(there, ["t"])] == [()]

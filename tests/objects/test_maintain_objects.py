"""Maintenance without a lock: cut off or doubled at any of its requests, it loses nothing and leaves nothing (S1, S9)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_commitlog.errors import OutcomeUnknownError, StorageError
from pyspark_commitlog.format.paths import object_name
from pyspark_commitlog.testing.faults import ALL, MUTATING, at_call, lose_reply
from pyspark_commitlog.topic.maintain.settle import settle
from tests.support.ghosts import KilledError, die
from tests.support.objects import LATER_MS, ObjectWorld, split, topic_id
from tests.support.records import append, batch_of, stage
from tests.support.verify import verify
from tests.support.world import RETENTION_MS, failing

ORPHAN = "22222222-2222-4222-8222-222222222222"
#: What is left of what `due` wrote.
EXPECTED = [b"2", b"3", b"end", b"1", b"2", b"3", b"end"]


def due(path: Path) -> ObjectWorld:
    """Return a root of which something is to be settled, let go of, collected and swept."""
    world = ObjectWorld(path)
    topic = world.create(2)
    for number in range(4):
        append(topic, batch_of([b"%d" % number] * 2, partition=[0, 1]))
        world.clock.advance(RETENTION_MS // 4)
        settle(topic, topic_id(topic))
    for _ in range(2):
        split(topic, 1)
    home = topic.paths(topic_id(topic)).home
    world.storage().write_once(f"{home}/objects/{object_name(2, ORPHAN)}", b"an attempt's")
    stage(topic, batch_of([b"orphan"]))
    append(topic, batch_of([b"end"] * 2, partition=[0, 1]))
    world.log().topic("t").delete_records({0: 2, 1: 1})
    world.clock.advance(RETENTION_MS)
    return world


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> ObjectWorld:
    """The root of `due`, for copies."""
    return due(tmp_path_factory.mktemp("before") / "root")


def copies(before: ObjectWorld, path: Path) -> Iterator[ObjectWorld]:
    """Yield copies without end."""
    number = 0
    while True:
        number += 1
        world = ObjectWorld(path / str(number))
        shutil.copytree(before.path, world.path)
        world.clock.advance(before.clock.now_ms() - world.clock.now_ms())
        yield world
        shutil.rmtree(world.path)


def ends_well(world: ObjectWorld) -> None:
    """Check that all is there now, and that what nobody names goes."""
    assert world.missing() == set()
    assert world.values() == EXPECTED
    for later in (LATER_MS, RETENTION_MS, LATER_MS, RETENTION_MS, LATER_MS, LATER_MS):
        world.maintain()
        world.clock.advance(later)
    world.maintain()
    assert world.missing() == set()
    assert world.not_named() == set()
    assert len(world.files("/settle/0")) == 2
    assert len(world.files(".chunk")) <= 2
    assert not world.files(ORPHAN)
    assert verify(world.handle()) == len(EXPECTED)
    assert world.values() == EXPECTED


def test_one_run_says_what_it_did(before: ObjectWorld, tmp_path: Path) -> None:
    world = next(copies(before, tmp_path))
    done = world.maintain()
    assert (done.settled_records, done.retained.segments, done.swept_chunks, done.swept_files) == (2, 3, 1, 1)
    assert dict(done.retained.log_start) == {}, "an operator raised them"
    assert done.collected.segments == 2, "what the tail's first two were before they were split"
    world.clock.advance(LATER_MS)
    assert world.maintain().collected.segments == 3
    ends_well(world)


@pytest.mark.slow
@pytest.mark.parametrize("act", [die, failing("injected"), lose_reply], ids=["killed", "failing", "lost"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_cut_off_anywhere(before: ObjectWorld, tmp_path: Path, act: Callable[[], None], when: str) -> None:
    """I1–I6, S9: each changing request is the last of its process, or fails, landed or not."""
    number, ended = 0, False
    for world in copies(before, tmp_path):
        if ended:
            break
        number, ended = number + 1, True

        def once(act: Callable[[], None] = act) -> None:
            nonlocal ended
            ended = False
            act()

        try:
            world.log(at_call(number, once, when=when, only=MUTATING)).topic("t").maintain()
        except (KilledError, StorageError, OutcomeUnknownError):
            assert not ended
        except OSError:  # the faulty storage's own error
            assert act is lose_reply
        ends_well(world)
    assert number > 20


@pytest.mark.slow
def test_a_second_run_at_every_request_of_the_first(before: ObjectWorld, tmp_path: Path) -> None:
    """They waste work, never harm: neither fails, and readers find all that any entry names."""
    number, ended = 0, False
    for world in copies(before, tmp_path):
        if ended:
            break
        number, ended = number + 3, True

        def other(world: ObjectWorld = world) -> None:
            nonlocal ended
            ended = False
            world.clock.advance(LATER_MS)
            world.maintain()
            assert world.missing() == set()

        world.log(at_call(number, other, only=ALL)).topic("t").maintain()
        ends_well(world)
    assert number > 50


def test_a_deleted_topics_objects_go_after_the_delay(before: ObjectWorld, tmp_path: Path) -> None:
    world = next(copies(before, tmp_path))
    world.log().topic("t").delete()
    assert world.maintain().removed_lives == 0
    assert world.objects()
    world.clock.advance(LATER_MS)
    assert world.maintain().removed_lives == 1
    assert world.objects() == world.files("/manifests/") == world.files("/side/") == []
    assert world.maintain().removed_lives == 0
    append(world.create(1), batch_of([b"anew"]))
    world.collect_all()
    assert world.values() == [b"anew"]
    verify(world.handle())

"""SIGKILL before the changing system calls of a commit to a typed topic and of its settling (I4, I5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write.writers import Transaction
from tests.crash.conftest import fast_path as fast_path
from tests.crash.processes import start
from tests.support.objects import topic_id
from tests.support.syscalls import killed_before
from tests.support.typed import DECLARED, read_rows, row, rows, write
from tests.support.verify import verify
from tests.support.world import CHUNKS, World

BEFORE, WRITTEN = rows(0, 4, 500), rows(4, 9, 700)
_AT_ONCE = 8

pytestmark = pytest.mark.slow


def prepared(path: Path) -> World:
    """Return a root with a settled commit and one that is due."""
    world = World(path)
    topic = world.create(config={**CHUNKS, "segment.bytes": 2048, "compression.type": "none"}, **DECLARED)
    write(topic, *BEFORE[:2])
    world.maintain()
    write(topic, *BEFORE[2:])
    return world


def write_again(world: World) -> None:
    """Commit as one writer, once."""
    write(world.handle(), *WRITTEN, writer=Transaction("w", 7))


def settle_all(world: World) -> None:
    """Settle."""
    settle(world.handle(), topic_id(world.handle()))


def act_and_die(act: Callable[[World], None], world: World, number: int) -> None:
    """Be killed before the `number`-th changing call."""
    with killed_before(number):
        act(world)


@pytest.mark.parametrize("act", [write_again, settle_all])
def test_killed_anywhere(fast_path: Path, act: Callable[[World], None]) -> None:
    template, number, ended = prepared(fast_path / "template"), 1, False
    while not ended:
        worlds = [World(fast_path / str(each), template.clock) for each in range(number, number + _AT_ONCE)]
        for world in worlds:
            shutil.copytree(template.path, world.path)
        running = [start(act_and_die, act, world, number + at) for at, world in enumerate(worlds)]
        for process, world in zip(running, worlds, strict=True):
            process.join()
            assert process.exitcode in (0, -9)
            ended = ended or process.exitcode == 0
            assert read_rows(world.handle()) in (BEFORE, [*BEFORE, *WRITTEN])
            write_again(world)
            settle_all(world)
            write(world.handle(), row(9))
            world.collect_all()
            assert read_rows(world.handle()) == [*BEFORE, *WRITTEN, row(9)]
            assert verify(world.handle()) == 10
            shutil.rmtree(world.path)
        number += _AT_ONCE
    assert number > _AT_ONCE

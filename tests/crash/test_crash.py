"""SIGKILL before every changing system call of an operation: a fresh process finds a legal state (I4, I5)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.processes import act_and_die, start
from tests.crash.scenes import SCENES
from tests.support.steps import every_step, first_step
from tests.support.world import World

pytestmark = pytest.mark.slow

_AT_ONCE = 8


@pytest.mark.parametrize("name", SCENES)
@every_step
def test_killed_anywhere(name: str, every: int, fast_path: Path) -> None:
    """I1–I6: whatever was done by then, all that was committed is there, once, and the operation can be run again."""
    scene, before = SCENES[name], World(fast_path / "before")
    scene.prepare(before)
    number, ended = first_step(every, name), False
    while not ended:
        numbers = range(number, number + _AT_ONCE * every, every)
        worlds = [copied(before, fast_path / f"{each}") for each in numbers]
        running = [start(act_and_die, scene, world, each) for each, world in zip(numbers, worlds, strict=True)]
        for process, world in zip(running, worlds, strict=True):
            process.join()
            assert process.exitcode in (0, -9), f"killed before call {number}"
            ended = ended or process.exitcode == 0
            scene.check(world)
            shutil.rmtree(world.path)
        number = numbers.stop
    assert number > _AT_ONCE


def copied(world: World, path: Path) -> World:
    """Return a copy of a world, times included."""
    shutil.copytree(world.path, path)
    copy = World(path)
    copy.clock.advance(world.clock.now_ms() - copy.clock.now_ms())
    return copy

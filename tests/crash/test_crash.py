"""SIGKILL before every changing system call of an operation: a fresh process finds a legal state (I4, I5)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.processes import act_and_die, start
from tests.crash.scenes import SCENES
from tests.support.world import World

pytestmark = pytest.mark.slow

_AT_ONCE = 8


@pytest.mark.parametrize("name", SCENES)
def test_killed_anywhere(name: str, fast_path: Path) -> None:
    """I1–I6: whatever was done by then, all that was committed is there, once, and the operation can be run again."""
    scene, before = SCENES[name], World(fast_path / "before")
    scene.prepare(before)
    number, ended = 1, False
    while not ended:
        worlds = [copied(before, fast_path / f"{number + step}") for step in range(_AT_ONCE)]
        running = [start(act_and_die, scene, world, number + step) for step, world in enumerate(worlds)]
        for process, world in zip(running, worlds, strict=True):
            process.join()
            assert process.exitcode in (0, -9), f"killed before call {number}"
            ended = ended or process.exitcode == 0
            scene.check(world)
            shutil.rmtree(world.path)
        number += _AT_ONCE
    assert number > _AT_ONCE


def copied(world: World, path: Path) -> World:
    """Return a copy of a world, times included."""
    shutil.copytree(world.path, path)
    copy = World(path)
    copy.clock.advance(world.clock.now_ms() - copy.clock.now_ms())
    return copy

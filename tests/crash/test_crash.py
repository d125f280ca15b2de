"""SIGKILL before every changing system call of an operation: a fresh process finds a legal state (I4, I5)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.processes import act_and_die, start
from tests.crash.scenes import SCENES, Prepared
from tests.support.steps import every_step, first_step

pytestmark = pytest.mark.slow

_AT_ONCE = 8


@pytest.mark.parametrize("name", SCENES)
@every_step
def test_killed_anywhere(name: str, every: int, fast_path: Path) -> None:
    """I1–I6: whatever was done by then, all that was committed is there, once, and the operation can be run again."""
    prepared = Prepared(name, fast_path)
    number, ended = first_step(every, name), False
    while not ended:
        numbers = range(number, number + _AT_ONCE * every, every)
        copies = [prepared.copy() for _ in numbers]
        running = [start(act_and_die, *copy, each) for each, copy in zip(numbers, copies, strict=True)]
        for process, (scene, world) in zip(running, copies, strict=True):
            process.join()
            assert process.exitcode in (0, -9), f"killed before call {number}"
            ended = ended or process.exitcode == 0
            scene.check(world)
            shutil.rmtree(world.path)
        number = numbers.stop
    assert number > _AT_ONCE

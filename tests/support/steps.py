"""Which steps and cases of a test `make test` plays: every thirteenth step; of slow tests the cases whose turn it is.

A test of `tests/seconds.txt` that takes n half seconds, with all its cases, plays each n-th of them, each twelfth at least.
Turns go on by one with each commit: twelve commits have played all cases. Thirteen has a factor in common with no n: a case
begins at another step each time that it is played. `make test-long` plays all steps, and the cases that `make test` leaves out.
"""

from __future__ import annotations

import subprocess
from functools import cache
from math import ceil
from pathlib import Path
from zlib import crc32

import pytest

#: Distance of the steps that `make test` plays.
STEPS = 13
#: Gives a test `every`: the distance of the steps that it plays.
every_step = pytest.mark.parametrize("every", [STEPS, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "each"])

#: Seconds by test, of those that take more than one: a run of all on two idle cores, written by `tests.slowest --write`.
SECONDS = Path(__file__).parents[1] / "seconds.txt"
#: Number of commits within which all cases are played, and how long a test may take at each, in seconds.
TURNS, _SECONDS_EACH = 12, 0.5


def first_step(every: int, *scene: object) -> int:
    """Return the first step to play, from 1 on; scenes that look alike begin at other ones."""
    return 1 + (crc32(repr(scene).encode()) + _commits()) % every


def is_in_turn(test: str, case: int, *, every: int) -> bool:
    """Whether a test's case, by its number among them, is played at this commit."""
    return (case - first_step(every, test)) % every == 0


@cache
def turns() -> dict[str, int]:
    """Return in how many commits each slow test's cases are played, by the test's node id without a case."""
    entries = (line.split() for line in SECONDS.read_text().splitlines())
    return {test: min(ceil(float(seconds) / _SECONDS_EACH), TURNS) for seconds, test in entries}


@cache
def _commits() -> int:
    """Return the number of commits; 0 without git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return 0

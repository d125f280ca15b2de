"""At which steps of an operation a test cuts it off: at each in `make test-long`, at every twelfth in `make test`.

Which twelfth goes on by one with each commit, so that twelve commits have played them all.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

#: Gives a test `every`: the distance of the steps that it plays.
every_step = pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "each"])


def first_step(every: int, *scene: object) -> int:
    """Return the first step to play, from 1 on; scenes that look alike begin at other ones."""
    return 1 + (crc32(repr(scene).encode()) + _commits()) % every


@cache
def _commits() -> int:
    """Return the number of commits; 0 without git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return 0

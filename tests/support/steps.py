"""At which steps of an operation a test cuts it off: at each in `make test-long`, at every twelfth in `make test`."""

from __future__ import annotations

from zlib import crc32

import pytest

#: Gives a test ``every``: the distance of the steps that it plays.
every_step = pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.long)], ids=["some", "each"])


def first_step(every: int, *scene: object) -> int:
    """Return the first step to play, from 1 on; scenes that look alike begin at other ones."""
    return 1 + crc32(repr(scene).encode()) % every

"""What tests of consumers read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.consumers import SMALL, numbered, put
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A topic of two partitions with 20 records each, under a clock that stands still."""
    world = World(tmp_path / "root")
    world.create(2, SMALL)
    put(world, numbered(0, 20))
    put(world, numbered(50, 70), 1)
    return world

"""What tests of consumers read from."""

from __future__ import annotations

import pytest

from tests.support.consumers import SMALL, numbered, put
from tests.support.world import World


@pytest.fixture
def numbered_records(world: World) -> None:
    """A topic of two partitions with 20 records each."""
    world.create(2, SMALL)
    put(world, numbered(0, 20))
    put(world, numbered(50, 70), 1)

"""What the producer's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty root under a clock that stands still."""
    return World(tmp_path / "root")

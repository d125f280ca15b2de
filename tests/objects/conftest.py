"""Fixtures: a root on storage without append."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.objects import ObjectWorld


@pytest.fixture
def unlocked(tmp_path: Path) -> ObjectWorld:
    """An empty root on storage without append, under a clock that stands still."""
    return ObjectWorld(tmp_path / "root")

"""Fixtures: roots on which a typed topic is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.storage import deadline_storage
from tests.support.objects import ObjectWorld
from tests.support.replicas import Replicated
from tests.support.typed import typed_topic
from tests.support.world import World


@pytest.fixture
def unlocked(tmp_path: Path) -> ObjectWorld:
    """An empty root on storage without append, under a clock that stands still."""
    return ObjectWorld(tmp_path / "root")


@pytest.fixture(params=["local", "object"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty root, on a local disk or on storage without append."""
    return World(tmp_path / "root") if request.param == "local" else ObjectWorld(tmp_path / "root")


@pytest.fixture
def typed(world: World) -> World:
    """A root with the topic of `tests.support.typed`, of two partitions."""
    typed_topic(world)
    return world


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    """Three roots with data, and one that decides."""
    return Replicated(tmp_path)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no call of a root be given up soon, however busy the machine is."""
    for name in ("LOOK_SECONDS", "PUT_SECONDS", "DATA_SECONDS"):
        monkeypatch.setattr(deadline_storage, name, 120.0)

"""What all tests share: how long they may take, an empty root, and a bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import Bucket
    from tests.support.world import World

pytest.register_assert_rewrite(
    "tests.support", "tests.model.cases", "tests.spark.killed_job", "pyspark_commitlog.testing"
)

#: `make test` tries a third of the examples of property tests; `make test-long` and the mutants try all.
settings.register_profile("short", max_examples=33)
settings.register_profile("long", max_examples=100)
settings.load_profile("short")

#: Seconds of tests that are marked so; others have `timeout` of pyproject.toml.
_LONG = {"nightly": 7200, "external": 1800}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that plays what is another commit's turn, too."""
    parser.addoption("--each-turn", action="store_true", help="play all cases of slow tests, not those of this commit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that are another commit's turn, and give tests more time that take minutes."""
    from tests.support.steps import is_in_turn, turns

    every, seen = {} if config.getoption("--each-turn") else turns(), Counter[str]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not (is_in_turn(name, seen[name], every=every.get(name, 1)) or item.get_closest_marker("each_commit")):
            item.add_marker(pytest.mark.nightly)
        seen[name] += 1
    for item in items:
        for name, seconds in _LONG.items():
            if item.get_closest_marker(name) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty root under a clock that stands still: the one meaning of this name."""
    from tests.support.world import World  # behind what rewrites its asserts; not for runs without such tests

    return World(tmp_path / "root")


@pytest.fixture(scope="session")
def moto_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A bucket in a server that lives as long as the run; a test's root is below the name of its `tmp_path`."""
    from tests.support.buckets import bucket_in_moto

    with bucket_in_moto(tmp_path_factory.mktemp("moto")) as bucket:
        yield bucket

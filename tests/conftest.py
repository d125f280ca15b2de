"""What all tests share: how long they may take."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.support")

#: Seconds of tests that are marked so; others have ``timeout`` of pyproject.toml.
_LONG = {"long": 7200, "kafka": 1800, "connect": 1800, "upserts": 1800}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests more time that take minutes."""
    for item in items:
        for name, seconds in _LONG.items():
            if item.get_closest_marker(name) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))

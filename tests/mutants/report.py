"""A pytest plugin: one line of JSON per test that did not pass, and one at the end with how many passed.

`-p tests.mutants.report` with the file's path in `MUTANTS_REPORT`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_found: list[dict[str, Any]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Write down how a phase of a test ended, with the type of what it raised."""
    report = yield
    error = call.excinfo
    _found.append(
        {
            "test": item.nodeid,
            "phase": call.when,
            "outcome": report.outcome,
            "raised": [] if error is None else [each.__name__ for each in error.type.__mro__],
            "message": "" if error is None else str(error.value)[:300],
        }
    )
    return report


def pytest_sessionfinish() -> None:
    """Write the file."""
    Path(os.environ["MUTANTS_REPORT"]).write_text(json.dumps(_found))

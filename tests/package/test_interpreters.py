"""Other Pythons: the tests of single modules run with what pip installs there. `make package PYTHONS="…"` runs these.

They import the repository's modules, which are the wheel's byte for byte (test_distributions.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import environment

pytestmark = pytest.mark.external

REPOSITORY = Path(__file__).resolve().parents[2]
MARKS = "not external and not nightly"


@pytest.mark.parametrize("python", os.environ.get("PYTHONS", "").split())
@pytest.mark.timeout(7200)
def test_the_tests_of_modules_pass(python: str, distributions: Any) -> None:
    with environment(REPOSITORY / "build" / "package" / "tests", python) as made:
        made.install(f"{distributions.wheel}[dev]")
        command = (
            str(made.python),
            "-m",
            "pytest",
            "tests/unit",
            "tests/property",
            "-q",
            "-m",
            MARKS,
            "-p",
            "no:cacheprovider",
        )
        done = made.run(*command, cwd=REPOSITORY)
        print(f"{python}: {done.splitlines()[-1]}")  # pytest -s shows it

"""The wheel and the sdist under test: those of `make package` in dist/, else built here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.environments import Environment
from tests.support.scripts import script_module

SMOKES = Path(__file__).parent / "smokes"


@pytest.fixture(scope="session")
def build_package() -> ModuleType:
    """The script as a module."""
    return script_module("build_package")


@pytest.fixture(scope="session")
def distributions(build_package: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A wheel and an sdist: `build_package.Distributions`."""
    made = os.environ.get("COMMITLOG_DIST")
    if made:
        return build_package.built(Path(made))
    return build_package.build(tmp_path_factory.mktemp("dist"), isolated=False)


@pytest.fixture
def smoke(tmp_path: Path) -> Callable[..., None]:
    """A function that runs a program of `smokes/` in an environment, in an empty directory, to its end."""

    def run(made: Environment, name: str, *arguments: str) -> None:
        program = SMOKES / f"smoke_{name}.py"
        assert made.run(str(made.python), str(program), *arguments, cwd=tmp_path).splitlines()[-1] == name

    return run

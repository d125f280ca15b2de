"""The wheel and the sdist: what is in them, and that what is installed from them works with these packages."""

from __future__ import annotations

import email
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyspark_commitlog
from tests.package.conftest import SMOKES
from tests.support.environments import Environment, environment, own_packages

#: Extras without a smoke of their own: of `dev` this environment is made; the clients of stores share two programs.
OTHERWISE = {"dev", "s3", "gcs", "azure", "hdfs"}


@pytest.fixture(scope="module")
def installed(distributions: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel in a new environment, next to the packages of this one."""
    with environment(tmp_path_factory.mktemp("installed") / "venv") as made:
        made.install("--no-deps", "--no-index", str(distributions.wheel))
        made.add_packages(*own_packages())
        yield made


@pytest.mark.slow
def test_they_have_the_repository_s_files_and_no_others(build_package: ModuleType, distributions: Any) -> None:
    assert build_package.faults(distributions) == []


@pytest.fixture(scope="module")
def metadata(distributions: Any) -> Message:
    """The wheel's."""
    with zipfile.ZipFile(distributions.wheel) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(wheel.read(name))


@pytest.mark.slow
def test_the_version_is_the_package_s(metadata: Message) -> None:
    assert metadata["Version"] == pyspark_commitlog.__version__


@pytest.mark.slow
def test_each_extra_has_a_smoke(metadata: Message) -> None:
    extras = set(metadata.get_all("Provides-Extra", []))
    smokes = {path.stem.removeprefix("smoke_") for path in SMOKES.glob("smoke_*.py")}
    assert extras == smokes - {"core", "spark", "bucket", "unreachable"} | OTHERWISE


@pytest.mark.slow
def test_the_command_is_installed(installed: Environment, smoke: Callable[..., None]) -> None:
    smoke(installed, "cli")


@pytest.mark.slow
def test_the_page_is_installed(installed: Environment, smoke: Callable[..., None]) -> None:
    smoke(installed, "ui")


@pytest.mark.spark
def test_spark_finds_the_data_source(installed: Environment, smoke: Callable[..., None]) -> None:
    smoke(installed, "spark")


def test_a_missing_file_and_one_too_many_are_named(build_package: ModuleType) -> None:
    sources = [
        "LICENSE",
        "README.md",
        "Makefile",
        "pyproject.toml",
        "setup.cfg",
        "pyspark_commitlog/a.py",
        "tests/b.py",
    ]
    wheel = build_package.wheel_files(sources, "p-1.dist-info")
    assert {name for name in wheel if "dist-info" not in name} == {"pyspark_commitlog/a.py"}
    sdist = build_package.sdist_files(sources)
    assert sdist >= {"LICENSE", "PKG-INFO", "setup.cfg", "pyspark_commitlog/a.py"}
    assert not sdist & {"Makefile", "tests/b.py"}
    found = sdist - {"pyspark_commitlog/a.py"} | {"pyspark_commitlog/c.pyc"}
    assert build_package.differences(sdist, found) == [
        "missing: pyspark_commitlog/a.py", "should not be there: pyspark_commitlog/c.pyc",
    ]  # fmt: skip


def test_a_directory_of_two_wheels_is_refused(build_package: ModuleType, tmp_path: Path) -> None:
    for name in ("p-1.whl", "p-2.whl", "p-1.tar.gz"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match="2 wheels and 1 sdists"):
        build_package.built(tmp_path)

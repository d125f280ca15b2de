"""One Spark session for all tests in this directory; every test has a root of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.spark.session.configure import quick_python
from tests.support import classes

REPOSITORY = Path(__file__).resolve().parents[2]
#: Timestamps reach a writer in the session's time zone: not UTC, so that a test notices.
TIME_ZONE = "America/New_York"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def workers() -> None:
    """Prepare the environment of all Spark sessions here, also of those in processes of their own."""
    _start_sooner(os.environ.get("PYSPARK_PYTHON", sys.executable))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JDK_JAVA_OPTIONS", classes.JAVA_OPTIONS)
    if classes.archive().is_file():
        os.environ.setdefault("SPARK_SUBMIT_OPTS", classes.options())
    found = os.environ.get("PYTHONPATH")  # Spark's Python processes import tests/, which is not installed
    os.environ["PYTHONPATH"] = f"{REPOSITORY}{os.pathsep}{found}" if found else str(REPOSITORY)


def _start_sooner(python: str) -> None:
    """Have Spark's Python processes import PySpark from where it is compiled, as `configure_spark` does."""
    quick = quick_python()
    if "QUICK_PYTHON" not in os.environ and quick is not None:
        os.environ["QUICK_PYTHON"], python = python, quick
    os.environ["PYSPARK_PYTHON"] = python


@pytest.fixture(scope="session")
def spark(workers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the session."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", TIME_ZONE)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a path where a test makes its root."""
    return str(tmp_path / "log")


@pytest.fixture
def log(root: str) -> CommitLog:
    """Return the log at `root`, without a topic yet."""
    return CommitLog(root)

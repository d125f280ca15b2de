"""Postgres and Delta have requirements of their own: these tests run by `make test-upserts` only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka.toolchain import ToolMissingError, jars
from tests.spark.conftest import workers as workers
from tests.support.upserts import example

#: Delta's jars, in the version that the benchmarks compare with.
JARS = Path(__file__).parents[2] / "benchmarks" / "jars" / "pom.xml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.external)


@pytest.fixture(scope="session")
def spark(workers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session that knows Delta."""
    try:
        delta = jars(JARS)
    except ToolMissingError as missing:
        pytest.fail(str(missing), pytrace=False)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("upserts")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.extraClassPath", f"{delta}/*")
        .config("spark.databricks.delta.snapshotPartitions", "2")
    )
    for name, value in example("upsert_delta").SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

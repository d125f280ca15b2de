"""Fixtures for tests of jobs, in every pytest of an environment with the extra `testing`.

Imported by each run of pytest there: it imports pytest alone, and the rest in the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_commitlog import CommitLog, Topic
    from pyspark_commitlog.testing.jobs import RowLike
    from pyspark_commitlog.testing.named_faults import Faults
    from pyspark_commitlog.testing.shifted_clock import ShiftedClock


@pytest.fixture
def commitlog_clock() -> Iterator[ShiftedClock]:
    """Yield the clock of the local roots that the test's process opens: the system's, until the test advances it."""
    from pyspark_commitlog.testing.shifted_clock import ShiftedClock, clock_of_local_roots

    clock = ShiftedClock()
    with clock_of_local_roots(clock):
        yield clock


@pytest.fixture
def commitlog(tmp_path: Path, commitlog_clock: ShiftedClock) -> CommitLog:
    """Return an empty log, in a directory of the test."""
    from pyspark_commitlog import CommitLog

    return CommitLog(str(tmp_path / "commitlog"))


@pytest.fixture
def commitlog_topic(commitlog: CommitLog) -> Callable[..., Topic]:
    """Return a function that creates a topic of the test's log, filled from rows.

    It takes the topic's name, `rows` as `testing.jobs.fill_topic` does, and the arguments of `CommitLog.create_topic`.
    """
    from pyspark_commitlog.testing.jobs import fill_topic

    def create(name: str, rows: Iterable[RowLike] = (), **arguments: Any) -> Topic:
        topic = commitlog.create_topic(name, **arguments)
        fill_topic(commitlog, name, rows)
        return topic

    return create


@pytest.fixture
def commitlog_faults(commitlog: CommitLog) -> Faults:
    """Return what makes the test's root fail by name, in a `with` block."""
    from pyspark_commitlog.testing.named_faults import Faults

    return Faults(commitlog.url)


@pytest.fixture(scope="session")
def commitlog_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a local Spark session for all tests of the run, configured; if one is active already, that one."""
    from pyspark.sql import SparkSession

    from pyspark_commitlog import configure_spark

    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    home = tmp_path_factory.mktemp("commitlog-spark")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure_spark(builder).getOrCreate()
    yield session
    session.stop()

"""The Spark sessions that rows are measured in: local[2], the peers' jars if they are there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from floors import FloorSink, FloorSource
from machine import PEERS_POM, peers_are_there
from pyspark.sql import SparkSession

from pyspark_commitlog import configure_spark
from tests.kafka.toolchain import jars

HERE = Path(__file__).resolve().parent
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
#: For ours and the floors alike; why they are not in spark-defaults.conf is said there.
_FAST = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
    # For all streams: by default each trigger of any of them waits for processes that rename checkpoint files.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Statistics per column, which an append-only log would not use: without them Delta's sink is faster.
    "spark.databricks.delta.stats.collect": "false",
}


#: The sessions that rows are measured in: `as it comes` sets nothing that makes anything faster, `configure` what
#: `pyspark_commitlog.configure_spark` sets, `configured` all that spark-conf names for reading and writing fast.
AS_IT_COMES, CONFIGURE, CONFIGURED = SESSIONS = ("as it comes", "configure", "configured")


def session(
    said: Path, how: str = CONFIGURED, more: Mapping[str, str] | None = None, *, peers: bool = True
) -> SparkSession:
    """Return a new session, one of `SESSIONS`, whose Java and Python workers write what they log to `said`.

    `more`: settings, beside those. `peers`: with the peers' jars, which are for one PySpark.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    settings = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if how != CONFIGURED:
        os.environ.pop("SPARK_CONF_DIR", None)
    else:
        os.environ["QUICK_PYTHON"] = os.environ["PYSPARK_PYTHON"]
        os.environ["PYSPARK_PYTHON"] = str(HERE.parent / "pyspark_commitlog" / "spark" / "session" / "quick-python")
        settings = {**_recommended(), **_FAST, **settings}
    if peers and peers_are_there():
        settings |= {"spark.driver.extraClassPath": f"{jars(PEERS_POM)}/*", **_DELTA}
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {**settings, **(more or {})}.items():
        builder = builder.config(name, value)
    if how == CONFIGURE:
        builder = configure_spark(builder)
    with _stderr_to(said):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FloorSource)
    spark.dataSource.register(FloorSink)
    return spark


@contextmanager
def _stderr_to(said: Path) -> Iterator[None]:
    """Let the processes that start in this block write their stderr to a file."""
    ours = os.dup(2)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _recommended() -> dict[str, str]:
    found = {}
    for line in (HERE.parent / "spark-conf" / "spark-defaults.conf").read_text().splitlines():
        name, _, value = line.partition("#")[0].strip().partition(" ")
        if value:
            found[name] = value.strip()
    return found

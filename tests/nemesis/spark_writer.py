"""A streaming query of Spark that writes numbered rows: `python -m tests.nemesis.spark_writer HOME NAME ROOT`.

Batch n has the rows from n * `ROWS` on, whoever runs it and how often. Its checkpoint is on a sound disk. A query that
ends is started again, in the same application; the application ends when the file `stop` is there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.nemesis.history import Batches, Failed, Recorder, path_of
from tests.nemesis.stage import TOPIC, Stage

ROWS = 6
_LOOK_SECONDS = 0.5


def command(home: Path, name: str, root: str) -> list[str]:
    """Return what starts it; its process leads a session."""
    return [sys.executable, "-m", "tests.nemesis.spark_writer", str(home), name, root]


def committed(home: Path, name: str) -> Batches:
    """Return how many batches the checkpoint of a query says are committed."""
    found = [int(path.name) for path in _checkpoint(home, name).glob("commits/*") if path.name.isdigit()]
    return Batches(name, ROWS, max(found, default=-1) + 1)


def writers(home: Path) -> Iterator[str]:
    """Yield the names of the queries that were started."""
    for path in sorted((home / "checkpoints").glob("*")):
        yield path.name


def _checkpoint(home: Path, name: str) -> Path:
    return home / "checkpoints" / name


def main(home: Path, name: str, root: str) -> None:
    """Write until it is told to stop."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stage, recorder = Stage.of(home), Recorder(path_of(home, TOPIC, name))
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    sink = (
        rows.selectExpr(f"concat('{name}-', value) AS value")
        .writeStream.format("commitlog")
        .options(**{f"storage.{key}": value for key, value in stage.options.items()})
        .option("path", stage.urls(root))
        .option("topic", TOPIC)
        .option("acks", "all")
        .option("checkpointLocation", str(_checkpoint(home, name)))
        .trigger(processingTime="2 seconds")
    )
    while not (home / "stop").exists():
        query = sink.start()
        while query.isActive and not (home / "stop").exists():
            time.sleep(_LOOK_SECONDS)
        if query.isActive:
            query.stop()
        elif (error := query.exception()) is not None:
            recorder.add(Failed(f"query {name}", _cause(str(error))))
    with suppress(Exception):
        spark.stop()
    os._exit(0)  # a worker that is at work does not keep it


def _cause(said: str) -> str:
    """Return the line of an error that names what was raised here."""
    lines = [line.strip() for line in said.splitlines() if "pyspark_commitlog.errors." in line or "Error:" in line]
    return (lines[-1] if lines else said)[:500].removeprefix("pyspark_commitlog.errors.")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

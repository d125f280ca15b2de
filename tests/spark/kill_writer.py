"""A streaming job that a test kills: Parquet pieces -> a topic. It leads a process group of its own.

    python -m tests.spark.kill_writer <home> <format>

`<home>` has `incoming/` (Parquet files: key, value), `log/` (a root with topic `records`; or `root.json`, which says
where it is) and gets `checkpoint/`. Exit code 0: all that was there is written.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.faulty_source import FaultySource

TOPIC = "records"


def session(home: Path) -> SparkSession:
    """Start Spark, and tell which processes to kill."""
    (home / "group").write_text(f"{os.getpgrp()}")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FaultySource)
    return spark


def root_of(home: Path) -> tuple[str, dict[str, str]]:
    """Return the root's URL and its options: as `root.json` says, or a directory beside it."""
    told = home / "root.json"
    if not told.exists():
        return str(home / "log"), {}
    found = json.loads(told.read_text())
    return found["url"], {f"storage.{name}": value for name, value in found["options"].items()}


def main(home: Path, format_: str) -> None:
    """Write what is there, one file per micro-batch."""
    spark = session(home)
    root, options = root_of(home)
    pieces = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
    query = (
        pieces.parquet(str(home / "incoming"))
        .repartition(2)  # two write tasks per micro-batch
        .writeStream.format(format_)
        .options(**options)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(root)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

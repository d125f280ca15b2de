"""A streaming job that a test kills: Parquet pieces -> a topic. It leads a process group of its own.

    python -m tests.spark.kill_writer <home> <format>

``<home>`` has ``incoming/`` (Parquet files: key, value), ``log/`` (a root with topic ``records``) and gets
``checkpoint/``. Exit code 0: all that was there is written.
"""

from __future__ import annotations

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


def main(home: Path, format_: str) -> None:
    """Write what is there, one file per micro-batch."""
    spark = session(home)
    pieces = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
    query = (
        pieces.parquet(str(home / "incoming"))
        .repartition(2)  # two write tasks per micro-batch
        .writeStream.format(format_)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "log"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

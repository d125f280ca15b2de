"""Reads a topic on a Sail server of its own, once for every line of its input, and answers `done`.

.venv-sail/bin/python benchmarks/sail_job.py ROOT TOPIC
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

SUMS = (
    "count(*)", "sum(length(key))", "sum(length(value))", "max(topic)", "max(partition)", "max(offset)",
    "max(timestamp)", "max(timestampType)",
)  # fmt: skip


def aggregated(frame: DataFrame) -> Any:
    """Return one row that every column has its part in."""
    return frame.selectExpr(*SUMS).collect()[0]


def main() -> None:
    """Read whenever a line says so."""
    root, topic = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    from pyspark_commitlog import DefaultSource

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.dataSource.register(DefaultSource)
    for _ in sys.stdin:
        aggregated(spark.read.format("commitlog").option("subscribe", topic).load(root))
        print("done", flush=True)
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main()

"""A job that a cluster test runs: writes topic `a`, streams it to topic `b`, reads `b`; its tasks may be slow.

    python -m tests.spark.cluster_job <home>

`<home>` has `log/` with both topics and `steps/`, where each step leaves word when it is done, and gets
`checkpoint/` and `read.json`, all values of `b`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.slow_source import PATIENCE_SECONDS, SlowSource

TASKS = 4
RECORDS = 2000
FORMAT = SlowSource.name()
#: As Spark counts them: one on each worker, and the driver.
EXECUTORS = 3


def main(home: Path) -> None:
    """Do the steps, each on both workers."""
    root = str(home / "log")
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(SlowSource)

    def done(step: str) -> None:
        (home / "steps" / f"{step}-done").touch()
        wait_for_executors(spark)

    wait_for_executors(spark)
    numbers = spark.range(0, RECORDS, 1, TASKS).selectExpr("CAST(id % 97 AS STRING) AS key", "CAST(id AS STRING) value")
    numbers.write.format(FORMAT).mode("append").option("topic", "a").save(root)
    done("write")
    copied = spark.readStream.format("commitlog").option("subscribe", "a").option("startingOffsets", "earliest")
    copied = copied.option("maxOffsetsPerTrigger", RECORDS // 2).load(root).select("key", "value")
    query = copied.writeStream.format(FORMAT).options(topic="b", checkpointLocation=str(home / "checkpoint"))
    assert query.trigger(availableNow=True).start(root).awaitTermination(PATIENCE_SECONDS)
    done("stream")
    found = spark.read.format(FORMAT).option("subscribe", "b").load(root).selectExpr("CAST(value AS STRING) AS value")
    (home / "read.json").write_text(json.dumps([row.value for row in found.collect()]))
    done("read")
    spark.stop()


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until there is one on each worker; one that was lost comes back with its worker."""
    end = time.monotonic() + PATIENCE_SECONDS
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < EXECUTORS:
        assert time.monotonic() < end, "executors did not come"
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

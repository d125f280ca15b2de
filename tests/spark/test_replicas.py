"""A running query goes on when the root goes away that it reads from and writes to: no restart, each record once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from tests.spark.jobs import read, stream, values, write

RECORDS = 20_000
_SECONDS = 120


def test_a_running_query_goes_on_when_the_leaders_root_goes_away(spark: SparkSession, tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create_root(places, [str(tmp_path / "metadata")])
    for name in ("t", "copy"):
        log.create_topic(name, 2, {"replica.lag.time.max.ms": 1000})
    path = ",".join(places)
    rows = spark.sql(f"SELECT CAST(id AS STRING) AS key, CAST(id AS STRING) AS value FROM range({RECORDS})")
    write(rows, path, "t")
    source = stream(spark, path, "t", maxOffsetsPerTrigger=RECORDS // 20).select("key", "value")
    query = source.writeStream.format("commitlog").option("path", path).option("topic", "copy")
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        _until(lambda: _copied(log) > 0)
        assert _copied(log) < RECORDS, "it is at work"
        os.rename(places[0], tmp_path / "away")
        log = CommitLog(places[1])
        _until(lambda: not running.isActive or _copied(log) >= RECORDS)
        assert running.isActive, running.exception()
    finally:
        running.stop()
    assert sorted(values(read(spark, path, "copy")), key=int) == [str(n) for n in range(RECORDS)]
    assert CommitLog(places[2]).describe("copy").partitions == log.describe("copy").partitions


def _copied(log: CommitLog) -> int:
    return sum(partition.high_watermark for partition in log.describe("copy").partitions)


def _until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not reached():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)

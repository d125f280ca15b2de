"""Queries of a topic with replicas: they go on when a root goes away, and say what an unclean election lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from tests.spark.jobs import Seen, read, stream, values, write
from tests.support.replicas import CONFIG, Replicated

RECORDS = 20_000
_SECONDS = 120


def test_a_running_query_goes_on_when_the_leaders_root_goes_away(spark: SparkSession, tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create(places, [str(tmp_path / "metadata")])
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
    assert _ends(CommitLog(places[2])) == _ends(log)


@pytest.mark.nightly
def test_a_query_and_a_batch_say_what_an_unclean_election_lost(spark: SparkSession, tmp_path: Path) -> None:
    roots = Replicated(tmp_path)
    roots.create(config={**CONFIG, "inline.max.bytes": 4096})
    path, seen = ",".join(str(tmp_path / name) for name in "abc"), Seen(tmp_path / "checkpoint")
    roots.write(b"0")
    assert seen.run(stream(spark, path, "t")) == [["0"]]
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    roots.write(*[Random(1).randbytes(20_000)] * 2)
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    roots.write(b"3", topic=roots.topic("b"))
    lost = "t partition 0: offsets 1 to 2, 2 of them, were lost by the unclean election of root"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=f"LogTruncationError.*{lost}.*'failOnDataLoss'"):
            seen.run(stream(spark, path, "t"))
    with pytest.raises(Exception, match=f"LogTruncationError.*{lost}.*'failOnDataLoss'"):
        values(read(spark, path, "t", startingOffsets='{"t": {"0": 0}}'))
    assert values(read(spark, path, "t")) == ["0", "3"]
    assert seen.run(stream(spark, path, "t", failOnDataLoss="false")) == [["3"]]
    assert seen.run(stream(spark, path, "t")) == []


def _copied(log: CommitLog) -> int:
    return sum(partition.high_watermark for partition in log.topic("copy").describe().partitions)


def _ends(log: CommitLog) -> list[tuple[int, int]]:
    return [(each.high_watermark, each.log_end_offset) for each in log.topic("copy").describe().partitions]


def _until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not reached():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)

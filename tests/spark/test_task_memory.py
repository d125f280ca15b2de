"""A write task and a read task stay below 300 MB, whatever the data: each runs alone in a process that tells its peak."""

from __future__ import annotations

import pytest

from pyspark_commitlog import CommitLog
from tests.spark.tasks import MB, TOPIC, TOPICS, peak_mb

BOUND_MB = 300


@pytest.mark.parametrize("partitions", [1, 1000])
@pytest.mark.parametrize("megabytes", [400, pytest.param(2000, marks=pytest.mark.nightly)])
def test_a_write_task_stays_small(root: str, log: CommitLog, partitions: int, megabytes: int) -> None:
    log.create_topic(TOPIC, partitions)
    peak, records = peak_mb("write", root, megabytes)
    assert records * 1000 > megabytes * 0.95 * MB
    assert sum(p.high_watermark for p in log.topic(TOPIC).describe().partitions) == records
    assert peak < BOUND_MB


@pytest.mark.parametrize("megabytes", [800, pytest.param(2000, marks=pytest.mark.nightly)])
def test_a_write_task_stays_small_however_many_topics_it_writes_to(root: str, log: CommitLog, megabytes: int) -> None:
    peak, records = peak_mb("write_topics", root, megabytes)
    assert records * 1000 > megabytes * 0.95 * MB
    assert sum(log.topic(f"{TOPIC}-{n}").describe().partitions[0].high_watermark for n in range(TOPICS)) == records
    assert peak < BOUND_MB


@pytest.mark.parametrize(("compression", "settled"), [("lz4", True), ("none", False)])
@pytest.mark.parametrize("megabytes", [400, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_read_task_stays_small(root: str, log: CommitLog, compression: str, settled: bool, megabytes: int) -> None:
    log.create_topic(TOPIC, 1, {"compression.type": compression})
    _, written = peak_mb("write", root, megabytes)
    if settled:
        log.topic(TOPIC).maintain()
    peak, records = peak_mb("read", root, 0)
    assert records == written
    assert peak < BOUND_MB


def test_a_read_task_counts_what_records_decode_to(root: str, log: CommitLog) -> None:
    """Joined until they were 4,096, these were one batch for Spark, of 1.5 GB and once more while it was made."""
    log.create_topic(TOPIC, 1, {"compression.type": "zstd", "retention.ms": -1})
    peak_mb("write_zeros", root, 1500)
    for _ in range(2):
        peak, records = peak_mb("read", root, 0)
        assert records == 1500
        assert peak < BOUND_MB
        log.topic(TOPIC).maintain()

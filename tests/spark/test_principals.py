"""Access rules as a Spark job meets them: by the option `principal`, before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from tests.spark.jobs import read, run, stream, values, write


@pytest.fixture
def ruled(log: CommitLog, root: str) -> CommitLog:
    """Topics `orders` and `secret`; web may read orders, etl write them, and ops do all."""
    for name in ("orders", "secret"):
        log.create_topic(name)
    log.access.allow("ops", "admin")
    ops = log.acting_as("ops")
    ops.access.allow("web", "read", "orders")
    ops.access.allow("etl", "write", "orders")
    return ops


def test_a_job_may_do_what_the_rules_allow(spark: SparkSession, root: str, ruled: CommitLog, tmp_path: Path) -> None:
    one = spark.sql("SELECT 'v' AS value")
    with pytest.raises(PySparkException, match="principal 'web' may not write topic 'orders'"):
        write(one, root, "orders", principal="web")
    assert ruled.topic("orders").describe().partitions[0].high_watermark == 0
    write(one, root, "orders", principal="etl")
    write(one, root, "secret", principal="ops")
    with pytest.raises(PySparkException, match="principal 'etl' may not read topic 'orders'"):
        read(spark, root, "orders", principal="etl").collect()
    with pytest.raises(PySparkException, match=r"no principal is set \(option 'principal'"):
        read(spark, root, "orders").collect()
    assert values(read(spark, root, "orders", principal="web")) == ["v"]
    everything = spark.read.format("commitlog").options(subscribePattern=".*", principal="web").load(root)
    assert [row.topic for row in everything.collect()] == ["orders"]
    ruled.create_topic("copy")
    run(
        stream(spark, root, "orders", principal="web").select("value"),
        root,
        "copy",
        tmp_path / "checkpoint",
        principal="ops",
    )
    assert values(read(spark, root, "copy", principal="ops")) == ["v"]

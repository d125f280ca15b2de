"""Spark's own socket is found in its Python workers, as Spark comes: over TCP."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession


def callbacks(rows: Iterator[int]) -> Iterator[int]:
    """Yield how many of ours Python calls back after a collection, in a task that has begun as ours do."""
    import gc

    from pyspark_commitlog.spark.common.worker import enter_task
    from pyspark_commitlog.storage.shared.sockets import _QuickAck

    for _ in rows:
        enter_task()
        yield sum(isinstance(each, _QuickAck) for each in gc.callbacks)


def test_each_worker_acknowledges_at_once_between_its_tasks(spark: SparkSession) -> None:
    for _ in range(3):
        assert spark.sparkContext.parallelize(range(4), 4).mapPartitions(callbacks).collect() == [1, 1, 1, 1]

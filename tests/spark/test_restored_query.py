"""A real query whose root is restored from an older copy between its runs; the matrix is in tests/restore."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from tests.spark.jobs import Seen, put, stream
from tests.support.restores import Copy

TOPIC = "orders"


@pytest.mark.nightly
def test_a_query_stops_at_a_restored_root_and_goes_on_where_the_histories_parted(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic(TOPIC, partitions=1)
    seen = Seen(tmp_path / "checkpoint")
    put(spark, root, TOPIC, ["a", "b"])
    copy = Copy(Path(root), tmp_path / "aside")
    put(spark, root, TOPIC, ["gone"])
    assert seen.run(stream(spark, root, TOPIC)) == [["a", "b", "gone"]]
    copy.copied()
    put(spark, root, TOPIC, ["new"])
    put(spark, root, TOPIC, ["newer"])
    with pytest.raises(StreamingQueryException, match=r"LogTruncationError.*restored from an older copy"):
        seen.run(stream(spark, root, TOPIC))
    assert seen.run(stream(spark, root, TOPIC, failOnDataLoss="false")) == [["new", "newer"]]
    assert seen.run(stream(spark, root, TOPIC)) == []


def test_a_running_query_notices_too(spark: SparkSession, root: str, log: CommitLog, tmp_path: Path) -> None:
    log.create_topic(TOPIC, partitions=1)
    seen = Seen(tmp_path / "checkpoint")
    put(spark, root, TOPIC, ["a", "b"])
    copy = Copy(Path(root), tmp_path / "aside")
    put(spark, root, TOPIC, ["gone"])
    query = seen.start(stream(spark, root, TOPIC), now=False)
    try:
        query.processAllAvailable()
        copy.rolled_back()
        put(spark, root, TOPIC, ["new"])
        with pytest.raises(StreamingQueryException, match="LogTruncationError"):
            query.awaitTermination(120)
    finally:
        query.stop()

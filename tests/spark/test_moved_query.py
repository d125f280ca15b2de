"""A running pipeline moves to another root: copy, catch up, switch. Its queries keep their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from tests.object_stores.servers import Bucket
from tests.spark.jobs import forget_commit, put
from tests.support.records import append, batch_of

IN, OUT = "in", "out"


def options(bucket: Bucket) -> dict[str, str]:
    """Return the options of a job that uses the bucket."""
    given = {name: value for name, value in bucket.options.items() if isinstance(value, str)}
    return {**{f"storage.{name}": value for name, value in given.items()}, "storage.region_name": "us-east-1"}


def pipeline(spark: SparkSession, root: str, checkpoint: Path, given: dict[str, str]) -> Callable[[], None]:
    """Return what runs a query from topic to topic until it has done all that is there."""

    def run() -> None:
        source: DataFrame = (
            spark.readStream.format("commitlog").options(startingOffsets="earliest", **given).load(root, subscribe=IN)
        )
        sink = source.selectExpr("key", "upper(string(value)) AS value").writeStream.format("commitlog")
        sink.options(**given).option("checkpointLocation", str(checkpoint)).option("topic", OUT).trigger(
            availableNow=True
        ).start(root).awaitTermination()

    return run


def values(log: CommitLog, topic: str) -> list[bytes]:
    return sorted(log.topic(topic).to_arrow().column("value").to_pylist())


def test_a_pipeline_moves_to_a_bucket_and_its_checkpoint_goes_on(
    spark: SparkSession, root: str, log: CommitLog, moto_bucket: Bucket, tmp_path: Path
) -> None:
    """docs/how-to/move-to-a-bucket.md: no record is left out or doubled, on either side of the query."""
    for topic in (IN, OUT):
        log.create_topic(topic, partitions=2)
    url, checkpoint = f"{moto_bucket.url}/log", tmp_path / "checkpoint"
    there = CommitLog(url, moto_bucket.options)
    here = pipeline(spark, root, checkpoint, {})
    put(spark, root, IN, ["a", "b"])
    here()
    log.copy_to(there, groups=True)
    put(spark, root, IN, ["c"])
    here()
    put(spark, root, IN, ["left"])
    log.copy_to(there, groups=True)
    assert not any(compared.faults for compared in log.compare_with(there))

    moved = pipeline(spark, url, checkpoint, options(moto_bucket))
    moved()
    assert values(there, OUT) == [b"A", b"B", b"C", b"LEFT"]
    append(there.root.topic(IN), batch_of([b"d"]))
    moved()
    assert values(there, OUT) == [b"A", b"B", b"C", b"D", b"LEFT"]
    assert values(log, OUT) == [b"A", b"B", b"C"]


def test_a_batch_that_was_committed_at_the_source_is_not_written_again(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    """The query ended after its commit to the topic, and before that to its checkpoint: Spark repeats the batch."""
    for topic in (IN, OUT):
        log.create_topic(topic, partitions=1)
    checkpoint, other = tmp_path / "checkpoint", str(tmp_path / "other")
    put(spark, root, IN, ["a"])
    pipeline(spark, root, checkpoint, {})()
    forget_commit(checkpoint, 0)
    log.copy_to(other)
    put(spark, other, IN, ["b"])
    pipeline(spark, other, checkpoint, {})()
    assert values(CommitLog(other), OUT) == [b"A", b"B"]

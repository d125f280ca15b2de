"""Spark on an object store: the log next to Spark's own S3A with Parquet, the same records on the same server, warm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench import STORED, TOPIC, noop
from compare import HEAD, Contender, Table, just, nothing
from data import prepare
from pyspark.sql import DataFrame, SparkSession
from session import CONFIGURED, session

from pyspark_commitlog import CommitLog
from tests.cluster_bucket.s3a import POM, credentials, spark_conf
from tests.kafka.toolchain import fetched, jars
from tests.object_stores.servers import Bucket

PARTITIONS, FILES = 4, 8
_CLOUD = "org.apache.spark.internal.io.cloud"
#: S3A's fastest committer that is safe: uploads are completed by the job's commit, nothing is renamed.
_MAGIC = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
}
MISSING = "Spark's own S3A with Parquet is not measured: its jars are not there, `make bench-peers` fetches them."


def measure(bucket: Bucket, data: Path, work: Path, records: int, runs: int) -> None:
    """Print a table of ours and Parquet's records a second.

    Args:
        bucket: `s3://bench`.
        data: the directory where the server keeps that bucket's objects; what runs wrote is removed there.
        work: a directory for the records that are written, and for Spark's messages.
        records: how many.
        runs: measured runs of each, in turn, each after one that does not count.
    """
    if not fetched(POM):
        print(MISSING)
        return
    os.environ |= credentials(bucket)
    events = prepare(work, records, -(-records // FILES))
    spark = session(work / "spark.log", CONFIGURED, {**spark_conf(jars(POM), bucket), **_MAGIC}, peers=False)
    try:
        rows = Rows(spark, bucket, data / "spark", events)
        table = Table(runs, nothing, rows.clean, warm_up=2)
        print(HEAD)
        rows.write(table, records)
        rows.read(table, records)
    finally:
        spark.stop()


class Rows:
    """What is compared. Parquet is as Spark writes it by default: snappy; a topic, too, has its default: lz4."""

    def __init__(self, spark: SparkSession, bucket: Bucket, data: Path, events: Path) -> None:
        self._spark, self._events, self._data = spark, events, data
        self._log, self._bucket = f"{bucket.url}/spark", f"s3a://{bucket.url.partition('//')[2]}/spark"
        self._number = 0

    def clean(self) -> None:
        """Remove what a write left."""
        for path in self._data.glob("passing-*"):
            shutil.rmtree(path)

    def write(self, table: Table, records: int) -> None:
        """All records, from local Parquet files."""
        ours = Contender(self._to_topic, self._topic)
        peers = {"S3A, Parquet, magic committer": just(lambda: self._to_parquet(self._place("passing")))}
        table.rates("batch write to a bucket", records, ours, peers)

    def read(self, table: Table, records: int) -> None:
        """All columns, and the value alone, to nowhere."""
        root = self._topic("kept")
        self._to_topic(root)
        CommitLog(root).topic(TOPIC).maintain()
        parquet = self._place("kept")
        self._to_parquet(parquet)
        for what, schema in (("all columns", STORED), ("value only", "value binary")):
            peers = {"S3A, Parquet": just(lambda schema=schema: noop(self._parquet(parquet, schema)))}  # type: ignore[misc]
            topic = just(lambda schema=schema: noop(self._from_topic(root, schema)))  # type: ignore[misc]
            table.rates(f"batch read from a bucket, {what}", records, topic, peers)

    def _place(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    def _topic(self, kind: str = "passing") -> str:
        root = f"{self._log}/{self._place(kind)}"
        CommitLog(root).create_topic(TOPIC, PARTITIONS, {"retention.ms": -1})
        return root

    def _input(self) -> DataFrame:
        return self._spark.read.parquet(str(self._events))

    def _to_topic(self, root: str) -> None:
        self._input().write.format("commitlog").mode("append").option("topic", TOPIC).save(root)

    def _to_parquet(self, place: str) -> None:
        self._input().write.parquet(f"{self._bucket}/{place}")

    def _from_topic(self, root: str, schema: str) -> DataFrame:
        return self._spark.read.format("commitlog").option("subscribe", TOPIC).schema(schema).load(root)

    def _parquet(self, place: str, schema: str) -> DataFrame:
        return self._spark.read.schema(schema).parquet(f"{self._bucket}/{place}")

"""What a stream gives, whole DataFrames compared with a model of the topic: every column, under every way to read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession, functions as sf

from pyspark_commitlog import CommitLog
from tests.spark.jobs import COLUMNS, ended, frame, stored_frame, stream, write
from tests.spark.model import AUTUMN, Topic, mixed

TOPIC = "orders"
PARTITIONS = 3
#: Records per (micro-batch, task).
Sizes = Counter[tuple[int, int]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a root of its own for this module: its topic is only read."""
    return str(tmp_path_factory.mktemp("stream-model") / "log")


@pytest.fixture(scope="module")
def model(spark: SparkSession, root: str) -> Topic:
    """Fill the topic and its model: two writes are settled in small segments and frames, one is not."""
    log, model = CommitLog(root), Topic(PARTITIONS)
    log.create_topic(TOPIC, PARTITIONS, {"segment.bytes": 2048, "batch.size": 1024, "retention.ms": -1})
    for number, tasks in enumerate(([mixed(40, 0), mixed(25, 1), []], [mixed(30, 2)], [mixed(20, 3), mixed(15, 4)])):
        write(frame(spark, tasks), root, TOPIC)
        model.write(tasks)
        if number < 2:
            log.topic(TOPIC).maintain()
    return model


def streamed(df: DataFrame, directory: Path) -> tuple[DataFrame, Sizes]:
    """Run a query over what is available; return its rows in order of partition and offset, and how they came."""

    def take(batch: DataFrame, number: int) -> None:
        placed = batch.withColumns({"_batch": sf.lit(number), "_task": sf.spark_partition_id()})
        placed.write.mode("append").parquet(str(directory / "rows"))

    writer = df.writeStream.option("checkpointLocation", str(directory / "checkpoint")).foreachBatch(take)
    ended(writer.trigger(availableNow=True).start())
    rows = df.sparkSession.read.parquet(str(directory / "rows"))
    sizes = Counter((row["_batch"], row["_task"]) for row in rows.select("_batch", "_task").collect())
    return rows.orderBy("partition", "offset").drop("_batch", "_task"), sizes


def later(records: int) -> datetime:
    """Return a time between those of two records of a task."""
    return AUTUMN + timedelta(minutes=7 * records + 3)


def ms(at: datetime) -> int:
    """Return milliseconds since 1970."""
    return int(at.timestamp() * 1000)


STARTS = [later(3), later(12), later(21)]
BY_PARTITION = {TOPIC: {f"{partition}": ms(at) for partition, at in enumerate(STARTS)}}


#: One limit or one time alone: `limits` and `times` have them too.
nightly = partial(pytest.param, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("options", "starts", "holds"),
    [
        ({}, None, lambda sizes: len(sizes) == PARTITIONS),
        ({"includeHeaders": "true"}, None, lambda sizes: len(sizes) == PARTITIONS),
        nightly(
            {"maxOffsetsPerTrigger": "20", "includeHeaders": "true"},
            None,
            lambda sizes: len({batch for batch, _ in sizes}) == 7,  # 130 records
        ),
        nightly({"minPartitions": "8", "includeHeaders": "true"}, None, lambda sizes: len(sizes) >= 8),
        nightly(
            {"maxRecordsPerPartition": "7", "includeHeaders": "true"}, None, lambda sizes: max(sizes.values()) <= 7
        ),
        (
            {"maxOffsetsPerTrigger": "50", "maxRecordsPerPartition": "7", "minPartitions": "5"},
            None,
            lambda sizes: max(sizes.values()) <= 7 and len({batch for batch, _ in sizes}) == 3,
        ),
        nightly({"startingTimestamp": f"{ms(later(10))}", "includeHeaders": "true"}, [later(10)] * PARTITIONS, len),
        ({"startingOffsetsByTimestamp": json.dumps(BY_PARTITION), "maxOffsetsPerTrigger": "30"}, STARTS, len),
        ({"columns": "offset,headers,value,partition,timestamp", "minPartitions": "8"}, None, len),
    ],
    ids=["plain", "headers", "max-offsets", "min-partitions", "max-records", "limits", "time", "times", "columns"],
)
def test_a_stream_gives_the_records_of_the_model(
    spark: SparkSession, root: str, model: Topic, tmp_path: Path, options: dict[str, str],
    starts: list[datetime] | None, holds: Callable[[Sizes], bool],
) -> None:  # fmt: skip
    df = stream(spark, root, TOPIC, **options)

    found, sizes = streamed(df, tmp_path)

    records = model.in_order() if starts is None else model.since(starts)
    wanted = stored_frame(spark, records, TOPIC)
    if "columns" in options:
        wanted = wanted.select(*options["columns"].split(","))
    elif "includeHeaders" not in options:
        wanted = wanted.drop("headers")
        assert df.schema == spark.createDataFrame([], COLUMNS).schema
    assert starts is None or 0 < len(records) < len(model.records)
    assert_df_equality(found, wanted, ignore_nullable=True)
    assert holds(sizes), sizes

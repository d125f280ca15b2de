"""The Python client beside Spark: both write one topic at the same time, both read it at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, Consumer, Producer
from tests.spark.jobs import Seen, read, stream, write

_ROUNDS = 5
_EACH = 200
_PARTITIONS = 3


def told(value: str) -> tuple[str, int]:
    who, number = value.split("-")
    return who, int(number)


def test_client_and_spark_write_and_read_one_topic_at_once(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic("t", partitions=_PARTITIONS)
    seen = Seen(tmp_path / "checkpoint")
    query = seen.start(stream(spark, root, "t"), now=False)
    with Producer(root) as producer, Consumer(root, "t", group_id="g", auto_offset_reset="earliest") as consumer:
        by_client = consumer.poll(0.1)
        try:
            for number in range(_ROUNDS):
                first = number * _EACH
                sent = [
                    producer.send("t", f"client-{n}", partition=n % _PARTITIONS) for n in range(first, first + _EACH)
                ]
                numbers = spark.range(first, first + _EACH, numPartitions=1)
                write(numbers.selectExpr("concat('spark-', id) value", f"cast(id % {_PARTITIONS} as int) partition"),
                      root, "t")  # fmt: skip
                by_client += consumer.poll(0.1)
                for future in sent:
                    future.result(60)
            query.processAllAvailable()
        finally:
            query.stop()
        total = 2 * _ROUNDS * _EACH
        while len(by_client) < total:
            came = consumer.poll(30)
            assert came
            by_client += came
    rows = {(row.partition, row.offset): row.value.decode() for row in read(spark, root, "t").collect()}
    ends = [each.high_watermark for each in log.topic("t").describe().partitions]
    assert sorted(rows) == [(p, offset) for p, end in enumerate(ends) for offset in range(end)]
    assert sum(ends) == total
    assert {(r.partition, r.offset): (r.value or b"").decode() for r in by_client} == rows
    assert len(by_client) == total
    assert sorted(seen.all()) == sorted(rows.values())
    for partition in range(_PARTITIONS):
        values = [told(rows[partition, offset]) for offset in range(ends[partition])]
        for who in ("client", "spark"):
            assert [n for name, n in values if name == who] == list(range(partition, _ROUNDS * _EACH, _PARTITIONS))


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (
            Producer,
            r"UsageError: Producer\('.*'\) can't be pickled .*Make a Producer in the function that Spark .* calls",
        ),
        (
            Consumer,
            r"UsageError: Consumer\('.*'\) can't be pickled .*Make a Consumer in the function that Spark .* calls",
        ),
    ],
)
def test_a_client_that_a_closure_refers_to_is_refused_with_what_to_do(
    spark: SparkSession, root: str, log: CommitLog, make: Callable[[str], Any], advice: str
) -> None:
    log.create_topic("t")
    with make(root) as client, pytest.raises(PicklingError, match=advice):
        spark.range(2).rdd.foreach(lambda row: client.topics())

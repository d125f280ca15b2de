"""``CommitLogListener`` beside a real query."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, CommitLogListener
from pyspark_commitlog.spark.lag import QueryLag
from tests.support.records import append, batch_of

TOPIC = "orders"


def test_the_lag_behind_every_micro_batch(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=2, config={"retention.ms": -1})
    hour_ago = (int(time.time()) - 3600) * 1_000_000
    append(log.topic(TOPIC), batch_of([b"x"] * 6, partition=[0, 0, 0, 0, 1, 1], timestamp=[hour_ago] * 6))
    told: list[QueryLag] = []
    listener = CommitLogListener(root, tell=told.append)
    spark.streams.addListener(listener)
    try:
        df = spark.readStream.format("commitlog").option("subscribe", TOPIC).option("startingOffsets", "earliest")
        query = (
            df.option("maxOffsetsPerTrigger", "3").load(root).writeStream.format("noop").queryName("reports")
            .option("checkpointLocation", f"{root}-checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        until = time.monotonic() + 30
        while len(told) < 2 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.lag for lag in told[:2]] == [3, 0]
    assert {lag.query for lag in told} == {"reports"}
    assert [sum(each.offset for each in lag.partitions) for lag in told[:2]] == [3, 6]
    waits = [each for each in told[0].partitions if each.lag]
    assert waits
    for each in waits:
        assert each.behind_bytes is not None
        assert each.behind_bytes > 0
        assert each.behind_ms is not None
        assert 3_600_000 <= each.behind_ms < 4_000_000
    assert all(each.behind_ms == 0 for each in told[1].partitions)


def test_a_table_and_text_of_what_was_taken(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    listener = CommitLogListener()
    offset = '{"orders": {"0": 1}, "__topic_ids": {"orders": "id"}}'
    listener.take(
        {"id": "1", "name": "<reports>", "batchId": 0, "timestamp": "", "sources": [
            {"endOffset": offset, "latestOffset": offset.replace("1}", "1234}"), "numInputRows": 1}]}
    )  # fmt: skip
    assert listener.to_dict()["<reports>"]["lag"] == 1233
    assert 'commitlog_query_lag{query="<reports>",topic="orders",partition="0"} 1233' in listener.prometheus()
    shown = listener._repr_html_()
    assert "&lt;reports&gt;" in shown
    assert "<td>1,233</td>" in shown

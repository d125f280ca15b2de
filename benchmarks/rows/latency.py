"""From a record's creation to its row in an executor: 1,000 records a second, trigger 0.

Ours is fed by a process that commits what has come since its last commit; Kafka by its own performance tool, with the
producer's defaults. Both stamp each record with the time it came at; the executor reads the clock once per row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from bench import TOPIC, Bench
from compare import MILLISECONDS
from kafka_peer import KafkaPeer
from pyspark.sql import DataFrame

from tests.kafka.toolchain import die_with_parent

RECORDS_PER_SECOND = 1_000
SECONDS = 20
#: Records of the first seconds do not count: a query's first micro-batches are slow.
WARM_UP_SECONDS = 5
_FEED = Path(__file__).resolve().parents[1] / "feed.py"
_NOW = "reflect('java.lang.System', 'currentTimeMillis')"
Quantiles = tuple[float, float]


def latency(bench: Bench) -> None:
    """p50 and p99 of ours, next to Kafka's."""
    found: dict[str, list[Quantiles]] = {"": []}
    if bench.kafka is not None:
        found["Kafka source"] = []
    for _ in range(bench.table.runs):
        found[""].append(_ours(bench))
        if bench.kafka is not None:
            found["Kafka source"].append(_theirs(bench, bench.kafka))
        bench.clean()
    for at, percentile in enumerate(("p50", "p99")):
        work = f"tail latency, {RECORDS_PER_SECOND:,} records/s, {percentile}"
        bench.table.compare(work, MILLISECONDS, {name: [run[at] for run in runs] for name, runs in found.items()})


def _ours(bench: Bench) -> Quantiles:
    root = bench.root()
    command = [sys.executable, str(_FEED), root, TOPIC, str(RECORDS_PER_SECOND), str(SECONDS + WARM_UP_SECONDS)]
    return _measured(bench, bench.stream(root), command)


def _theirs(bench: Bench, kafka: KafkaPeer) -> Quantiles:
    topic, count = kafka.topic(), RECORDS_PER_SECOND * (SECONDS + WARM_UP_SECONDS)
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", "200"]
    arguments += ["--throughput", str(RECORDS_PER_SECOND)]
    arguments += ["--producer-props", f"bootstrap.servers={kafka.bootstrap}"]
    command = kafka.tools.command("org.apache.kafka.tools.ProducerPerformance", arguments)
    return _measured(bench, kafka.stream(topic, {}), command)


def _measured(bench: Bench, stream: DataFrame, feed: list[str]) -> Quantiles:
    """Run the query and what feeds it; return the median and the 99th percentile in milliseconds."""
    name = "seen"
    rows = stream.selectExpr("CAST(CAST(timestamp AS DOUBLE) * 1000 AS LONG) AS came", f"{_NOW} AS seen")
    writer = rows.writeStream.format("memory").queryName(name).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", bench.directory()).start()
    try:
        done = subprocess.run(feed, check=False, capture_output=True, text=True, preexec_fn=die_with_parent())
        if done.returncode != 0:
            raise RuntimeError(f"{feed[:3]} ended with code {done.returncode}: {done.stderr[-2000:]}")
        query.processAllAvailable()
    finally:
        query.stop()
    found = bench.spark.table(name).selectExpr("came", "CAST(seen AS LONG) - came AS late").collect()
    bench.spark.catalog.dropTempView(name)
    assert len(found) == RECORDS_PER_SECOND * (SECONDS + WARM_UP_SECONDS), f"{len(found)} records were seen"
    first = min(row.came for row in found) + WARM_UP_SECONDS * 1000
    late = [row.late for row in found if row.came >= first]
    return float(np.percentile(late, 50)), float(np.percentile(late, 99))

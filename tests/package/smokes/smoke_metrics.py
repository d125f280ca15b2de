"""The counters in a registry of prometheus_client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.metrics import register

if __name__ == "__main__":
    registry = CollectorRegistry()
    register(registry)
    CommitLog("metrics-log").create_topic("clicks")
    with Producer("metrics-log") as producer:
        producer.send("clicks", b"value").result()
    assert b"commitlog_" in generate_latest(registry)
    print("metrics")

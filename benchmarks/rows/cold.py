"""Whole jobs in fresh processes, as spark-submit runs them: what Java and Python have to load is part of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import TOPIC, Bench
from data import make_small_topic
from machine import environment_without_session

JOB = Path(__file__).resolve().parents[1] / "cold_job.py"
FEW = 5
SECONDS = "s"


def cold(bench: Bench) -> None:
    """Five records, all of them in a batch, all of them as a stream; after ``getOrCreate()``."""
    few, many = bench.directory(keep=True), bench.settled
    make_small_topic(few, TOPIC, FEW, 4)
    places = {"": ("commitlog", few, many)}
    topics = {"": (TOPIC, TOPIC)}
    if (kafka := bench.kafka) is not None:
        small = kafka.topic(passing=False)
        records = bench.spark.range(FEW).selectExpr("CAST(id AS STRING) AS value")
        kafka.write(records, small, {})
        places["Kafka source, tuned"] = ("kafka", kafka.bootstrap, kafka.bootstrap)
        topics["Kafka source, tuned"] = (small, bench.kafka_topic)
    jobs = {"five records": ("batch", 0), f"{bench.records:,} in a batch": ("batch", 1), "AvailableNow": ("stream", 1)}
    for label, (kind, which) in jobs.items():
        runs: dict[str, list[float]] = {name: [] for name in places}
        for _ in range(bench.table.runs):
            for name, (source, *where) in places.items():
                runs[name].append(_run(source, kind, topics[name][which], where[which], bench.directory()))
        bench.clean()
        bench.table.compare(f"cold job: {label}", SECONDS, runs)


def _run(source: str, kind: str, topic: str, place: str, checkpoint: str) -> float:
    command = [sys.executable, str(JOB), source, kind, topic, place, checkpoint]
    done = subprocess.run(command, env=environment_without_session(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return float(done.stdout.split("seconds")[-1].split()[0])

"""The same read on Sail, a Spark Connect server without a JVM, next to Spark's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench import TOPIC, Bench
from compare import just
from machine import environment_without_session
from sail_job import aggregated

JOB = Path(__file__).resolve().parents[1] / "sail_job.py"
PYTHON = JOB.parents[1] / ".venv-sail" / "bin" / "python"


def sail(bench: Bench) -> None:
    """All columns of all records, aggregated, so that every column is handed over."""
    if not PYTHON.exists():
        print("Sail is left out: `make bench-peers` fetches it.")
        return
    root = bench.settled
    spark = just(lambda: aggregated(bench.spark.read.format("commitlog").option("subscribe", TOPIC).load(root)))
    command = [str(PYTHON), str(JOB), root, TOPIC]
    with subprocess.Popen(command, env=environment_without_session(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as job:  # fmt: skip

        def ask() -> None:
            assert job.stdin is not None
            assert job.stdout is not None
            job.stdin.write("read\n")
            job.stdin.flush()
            if job.stdout.readline() != "done\n":
                raise RuntimeError(f"{' '.join(command)} ended early")

        bench.table.rates("batch read on Sail, all columns aggregated", bench.records, just(ask), {"Spark": spark})
        job.communicate()

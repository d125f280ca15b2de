"""How long a Python program waits until it can begin, and a session until the first row of a small topic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import TOPIC, Bench
from compare import MILLISECONDS, just
from data import make_small_topic

FEW = 5
#: What each program does between two looks at the clock.
PROGRAMS = {
    "import pyspark_commitlog": "import pyspark_commitlog",
    "import, open a CommitLog": "from pyspark_commitlog import CommitLog; CommitLog(sys.argv[1]).topics()",
    "import, open a Producer": "from pyspark_commitlog import Producer; client = Producer(sys.argv[1])",
    "import, open a Consumer": "from pyspark_commitlog import Consumer; client = Consumer(*sys.argv[1:])",
    "commitlog --help, the whole process": "import subprocess as s; s.check_output([sys.argv[0], '--help'])",
}


def startup(bench: Bench) -> None:
    """Programs in fresh processes, then the first row in a session that is there, next to Parquet's."""
    root = bench.directory(keep=True)
    make_small_topic(root, TOPIC, FEW, 1)
    for label, code in PROGRAMS.items():
        runs = [1000 * _seconds(code, root) for _ in range(bench.table.runs + 1)][1:]
        bench.table.compare(label, MILLISECONDS, {"": runs})
    files = bench.directory(keep=True)
    bench.spark.range(FEW).selectExpr("CAST(id AS STRING) AS value").coalesce(1).write.parquet(files)
    ours = bench.spark.read.format("commitlog").options(path=root, subscribe=TOPIC)
    first = just(lambda: ours.load().select("value").first())
    parquet = just(lambda: bench.spark.read.parquet(files).first())
    bench.table.times("first row of a small batch read", first, {"Parquet": parquet})


def _seconds(code: str, root: str) -> float:
    """Return what a program in a process of its own says that it took."""
    program = f"import sys, time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
    program = program.replace("sys.argv[0]", repr(str(Path(sys.executable).with_name("commitlog"))))
    command = [sys.executable, "-c", program, root, TOPIC]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

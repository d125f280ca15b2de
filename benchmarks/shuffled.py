"""What reads of a wide shuffle's commit take before it is settled: `python benchmarks/shuffled.py`.

A write of T tasks to P partitions leaves T times P extents, of a few records each, and a batch may be read before the
next commit settles it. Prints processor seconds (Python's and the kernel's, of this process) of a read of all
partitions, unsettled and settled; `--each` opens each partition by a handle of its own, as Spark's tasks do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from history import TOPIC, unsynced

from pyspark_commitlog import CommitLog
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import batch_of, stage

#: Tasks and partitions of a write.
SHUFFLES = ((50, 125), (100, 250), (200, 500))
ROWS = 2


def wide_commit(root: Path, tasks: int, partitions: int) -> CommitLog:
    """Make a topic with one commit of so many tasks, each with `ROWS` records for every partition."""
    log = CommitLog(root)
    with unsynced():
        log.create_topic(TOPIC, partitions, {"retention.ms": -1})
        topic = log.root.topic(TOPIC)
        numbers = list(range(partitions)) * ROWS
        staged = [stage(topic, batch_of([b"v" * 100] * len(numbers), partition=numbers)) for _ in range(tasks)]
        commit(topic, staged[0].topic_id, staged)
    return log


def read_all(root: Path, *, each: bool) -> int:
    """Read every partition, by one handle or each by its own; return the number of records."""
    topic = TopicLog(CommitLog(root).root.topic(TOPIC).storage, TOPIC)
    _, state = topic.newest()
    count = 0
    for partition, end in enumerate(state.log_end):
        own = TopicLog(topic.storage, TOPIC) if each else topic
        wanted = OffsetRange(TOPIC, state.topic_id, partition, 0, end)
        count += sum(rows.count for rows in read_range(own, wanted))
    return count


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return the processor seconds that a call takes."""
    began = time.process_time()
    act()
    return time.process_time() - began


def row(root: Path, tasks: int, partitions: int, *, each: bool) -> str:
    """Return the figures of one shuffle as a row of a table."""
    log = wide_commit(root, tasks, partitions)
    topic = log.root.topic(TOPIC)

    def read() -> None:
        assert read_all(root, each=each) == tasks * partitions * ROWS

    read()  # imports, and what a process does once
    taken = [cpu_seconds(act) for act in (read, lambda: settle(topic, topic.newest()[1].topic_id), read)]
    figures = " | ".join(f"{seconds:.2f}" for seconds in taken)
    return f"| {tasks} x {partitions} | {tasks * partitions:,} | {figures} |"


def by_spark(root: Path, tasks: int, partitions: int) -> str:
    """Return the same of reads by Spark, in a session of `configure_spark`; the first of each kind in brackets."""
    from pyspark.sql import SparkSession

    from pyspark_commitlog import configure_spark

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure_spark(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()

    def read(where: Path) -> float:
        began = time.perf_counter()
        source = spark.read.format("commitlog").option("subscribe", TOPIC).load(str(where))
        source.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    wide_commit(root / "warm-up", 2, 8)
    for _ in range(3):
        read(root / "warm-up")
    log, times = wide_commit(root / "log", tasks, partitions), list[list[float]]()
    times.append([read(root / "log") for _ in range(4)])
    settling = cpu_seconds(lambda: settle(log.root.topic(TOPIC), log.root.topic(TOPIC).newest()[1].topic_id))
    times.append([read(root / "log") for _ in range(4)])
    unsettled, settled = (f"{min(each):.2f} ({each[0]:.2f})" for each in times)
    return f"| {tasks} x {partitions} | {tasks * partitions:,} | {unsettled} | {settling:.2f} | {settled} |"


def main() -> None:
    """Print a row for each shuffle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", action="store_true", help="a handle for each partition, as Spark's tasks have")
    parser.add_argument("--spark", action="store_true", help="wall seconds of Spark's reads instead")
    parser.add_argument("--most", type=int, default=25_000, help="extents of the largest shuffle")
    given = parser.parse_args()
    measured = by_spark if given.spark else partial(row, each=given.each)
    print("| tasks x partitions | extents | unsettled, s | settling, s | settled, s |\n|---|---:|---:|---:|---:|")
    for tasks, partitions in SHUFFLES:
        if tasks * partitions <= given.most:
            with tempfile.TemporaryDirectory() as directory:
                print(measured(Path(directory), tasks, partitions), flush=True)


if __name__ == "__main__":
    main()

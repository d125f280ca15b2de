"""A write task and a read task stay below 300 MB, whatever the data: each runs alone in a process that tells its peak."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.storage.process import keep_freed_memory
from tests.spark.conftest import REPOSITORY

TOPIC = "orders"
BOUND_MB = 300
MB = 2**20
ROWS = 10_000  # as Spark hands them over


def batches(megabytes: int) -> Iterator[pa.RecordBatch]:
    """Yield records of about 1 KiB, every batch in memory of its own; half of each value can be compressed."""
    chance = np.random.default_rng(0)
    sent = 0
    while sent < megabytes * MB:
        noise = chance.integers(0, 256, (ROWS, 1000), np.uint8)
        noise[:, 500:] = 7
        key = chance.integers(0, 10**9, ROWS).astype("S10")
        batch = pa.RecordBatch.from_pydict(
            {"key": pa.array(key.tolist(), pa.binary()), "value": pa.array(noise.view("V1000")[:, 0].tolist(), pa.binary())}
        )  # fmt: skip
        sent += batch.nbytes
        yield batch


def write_task(root: str, megabytes: int) -> int:
    """Do what one Spark task does in a write, and the driver's commit; return the records written."""
    from pyspark.sql.types import BinaryType, StructType

    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    writer = DefaultSource({"path": root, "topic": TOPIC}).writer(schema, overwrite=False)
    message = writer.write(batches(megabytes))
    writer.commit([message])
    return sum(staged.rows for staged in message.staged)


def write_zeros(root: str, megabytes: int) -> int:
    """Write records of a megabyte, each compressed to next to nothing; return how many."""
    from tests.support.records import append, batch_of
    from tests.support.world import World

    topic = World(Path(root)).handle(name=TOPIC)
    for _ in range(megabytes):
        append(topic, batch_of([bytes(MB)]))
    return megabytes


def read_task(root: str, _: int) -> int:
    """Do what one Spark task does in a read; return the records read."""
    source = DefaultSource({"path": root, "subscribe": TOPIC, "includeHeaders": "true"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    return sum(batch.num_rows for batch in reader.read(partition))


def peak_mb(task: str, root: str, megabytes: int) -> tuple[float, int]:
    """Run a task in a process of its own; return (peak resident memory in MB, records)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.test_memory", task, root, f"{megabytes}"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak_kb, records = json.loads(done.stdout)
    return peak_kb / 1024, records


@pytest.mark.parametrize("partitions", [1, 1000])
@pytest.mark.parametrize("megabytes", [400, pytest.param(2000, marks=pytest.mark.long)])
def test_a_write_task_stays_small(root: str, log: CommitLog, partitions: int, megabytes: int) -> None:
    log.create_topic(TOPIC, partitions)
    peak, records = peak_mb("write", root, megabytes)
    assert records * 1000 > megabytes * 0.95 * MB
    assert sum(p.high_watermark for p in log.describe(TOPIC).partitions) == records
    assert peak < BOUND_MB


@pytest.mark.parametrize(("compression", "settled"), [("lz4", True), ("none", False)])
@pytest.mark.parametrize("megabytes", [400, pytest.param(1000, marks=pytest.mark.long)])
def test_a_read_task_stays_small(root: str, log: CommitLog, compression: str, settled: bool, megabytes: int) -> None:
    log.create_topic(TOPIC, 1, {"compression.type": compression})
    _, written = peak_mb("write", root, megabytes)
    if settled:
        log.maintain(TOPIC)
    peak, records = peak_mb("read", root, 0)
    assert records == written
    assert peak < BOUND_MB


def test_a_read_task_counts_what_records_decode_to(root: str, log: CommitLog) -> None:
    """Joined until they were 4,096, these were one batch for Spark, of 1.5 GB and once more while it was made."""
    log.create_topic(TOPIC, 1, {"compression.type": "zstd", "retention.ms": -1})
    peak_mb("write_zeros", root, 1500)
    for _ in range(2):
        peak, records = peak_mb("read", root, 0)
        assert records == 1500
        assert peak < BOUND_MB
        log.maintain(TOPIC)


def measured(task: Callable[[str, int], int], root: str, megabytes: int) -> tuple[int, int]:
    """Run a task here, with memory kept as in Spark's workers; return (peak of this process in kB, what it returned)."""
    keep_freed_memory()
    result = task(root, megabytes)
    # not getrusage: its peak is inherited from the process that forked this one, pytest with all it has imported
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]), result


if __name__ == "__main__":
    tasks = {"write": write_task, "write_zeros": write_zeros, "read": read_task}
    print(json.dumps(measured(tasks[sys.argv[1]], sys.argv[2], int(sys.argv[3]))))

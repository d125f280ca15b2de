"""Spark's tasks, each alone in a process that tells its peak of memory."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.storage.process import keep_freed_memory
from tests.support.peak import run_alone

TOPIC = "orders"
TOPICS = 60
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
        batch = pa.RecordBatch.from_pydict({"key": pa.array(key.tolist(), pa.binary()), "value": _column(noise)})
        sent += batch.nbytes
        yield batch


def _column(rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.Array:
    """Return a column with a value for each row of bytes, which it shares: what makes the input is not the task's memory."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def write_task(root: str, megabytes: int) -> int:
    """Do what one Spark task does in a write, and the driver's commit; return the records written."""
    from pyspark.sql.types import BinaryType, StructType

    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    writer = DefaultSource({"path": root, "topic": TOPIC}).writer(schema, overwrite=False)
    message = writer.write(batches(megabytes))
    writer.commit([message])
    return sum(staged.rows for staged in message.staged)


def write_topics(root: str, megabytes: int) -> int:
    """Do the same for many topics, record by record in turn; return the records written."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    schema = StructType().add("key", BinaryType()).add("value", BinaryType()).add("topic", StringType())
    writer = DefaultSource({"path": root, "createTopic": "true"}).writer(schema, overwrite=False)
    topic = pa.array([f"{TOPIC}-{row % TOPICS}" for row in range(ROWS)])
    message = writer.write(batch.append_column("topic", topic) for batch in batches(megabytes))
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
    peak_kb, records = json.loads(run_alone("tests.spark.tasks", task, root, megabytes))
    return peak_kb / 1024, records


def measured(task: Callable[[str, int], int], root: str, megabytes: int) -> tuple[int, int]:
    """Run a task here, with memory kept as in Spark's workers; return (peak of this process in kB, what it returned)."""
    keep_freed_memory()
    result = task(root, megabytes)
    # not getrusage: its peak is inherited from the process that forked this one, pytest with all it has imported
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]), result


if __name__ == "__main__":
    tasks = {"write": write_task, "write_topics": write_topics, "write_zeros": write_zeros, "read": read_task}
    print(json.dumps(measured(tasks[sys.argv[1]], sys.argv[2], int(sys.argv[3]))))

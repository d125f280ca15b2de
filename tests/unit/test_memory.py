"""Peak resident memory of a write task and a read task, each in a process of its own, whatever the amount of data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_MB = 300
ROOT = Path(__file__).parents[2]
PRELUDE = """
import resource, sys
import numpy as np, pyarrow as pa
from pyspark_commitlog import CommitLog
root, partitions, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(1)
def batch(rows=10_000):
    letters = pa.py_buffer(rng.integers(97, 113, rows * 200, dtype=np.uint8).tobytes())
    offsets = pa.py_buffer(np.arange(0, rows * 200 + 1, 200, dtype=np.int32))
    value = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, letters])
    key = pa.array(rng.integers(0, 100_000, rows)).cast(pa.string()).cast(pa.binary())
    return pa.record_batch({"key": key, "value": value})
def peak():
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
WRITE = (
    PRELUDE
    + """
log = CommitLog(root); log.create_topic("t", partitions)
from pyspark_commitlog.log.commit import commit
topic = log.topic("t")
from pyspark_commitlog.log.partitioner import Partitioner
from pyspark_commitlog.log.staging import Stager
stored, state = topic.newest()
stager = Stager(topic.storage, topic.paths(state.topic_id), state, stored.sequence, Partitioner(partitions, "sticky", 2**20))
for _ in range(batches):
    stager.add(batch())
done = stager.finish()
assert done.rows == batches * 10_000
commit(topic, done.topic_id, [done])
peak()
"""
)
READ = (
    PRELUDE
    + """
from pyspark_commitlog.log.reader import PartitionReader
log = CommitLog(root); topic = log.topic("t"); _, state = topic.newest()
count = 0
for partition, end in enumerate(state.log_end):
    if end:
        count += sum(rows.count for rows in PartitionReader(topic, state.topic_id, partition).read(0, end))
assert count == batches * 10_000
peak()
"""
)
SETTLE = PRELUDE + "CommitLog(root).maintain('t'); peak()"


def peak_mb(code: str, root: Path, partitions: int, batches: int) -> int:
    """Run code in a fresh interpreter; return its peak resident memory, MB."""
    command = [sys.executable, "-c", code, str(root), str(partitions), str(batches)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("partitions", "batches"),
    [(1, 250), (1000, 250), pytest.param(4, 1000, marks=pytest.mark.long), pytest.param(1000, 1000, marks=pytest.mark.long)],
)  # fmt: skip
def test_tasks_stay_below_the_bound(tmp_path: Path, partitions: int, batches: int) -> None:
    """250 batches are half a gigabyte of records, 1,000 are two."""
    assert peak_mb(WRITE, tmp_path, partitions, batches) < LIMIT_MB
    assert peak_mb(READ, tmp_path, partitions, batches) < LIMIT_MB
    assert peak_mb(SETTLE, tmp_path, partitions, batches) < LIMIT_MB
    assert peak_mb(READ, tmp_path, partitions, batches) < LIMIT_MB

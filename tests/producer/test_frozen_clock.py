"""Programs whose tests stop the clocks of `time`, as freezegun does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]

_STOP = """
import threading, time  # threading keeps the functions that it imported, and freezegun leaves it alone
def stop():
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, lambda: 1893456000.0)
        setattr(time, f"{name}_ns", lambda: 1893456000 * 10**9)
"""
_IMPORT = "from pyspark_commitlog import CommitLog, Consumer, Producer, TopicPartition"
_USE = """
log = CommitLog(root)
log.create_topic("t", 2, {"settle.entries": 2})
with Producer(root) as producer:
    for n in range(20):
        sent = producer.send("t", str(n), partition=n % 2)
        assert n % 2 or sent.result().timestamp == 1893456000 * 1000
    producer.flush()
    producer.send("t", "last", partition=0)
consumers = [Consumer(root, "t", group_id="g", auto_offset_reset="earliest") for _ in range(2)]
values = []
while len(values) < 21:
    for consumer in consumers:
        values += [record.value for record in consumer.poll(0.05)]
for consumer in consumers:
    assert consumer.poll(0.05) == []
    consumer.close()
log.topic("t").maintain()
print(sorted(values) == sorted([*(b"%d" % n for n in range(20)), b"last"]))
print(sum(row.offset for row in log.groups.describe("g").partitions))
"""


@pytest.mark.parametrize(
    "begin", [f"stop()\n{_IMPORT}", f"{_IMPORT}\nstop()"], ids=["imported later", "imported before"]
)
def test_clients_end_though_clocks_stand_still(tmp_path: Path, begin: str) -> None:
    """What is due by the clock, or waits for it, would never come."""
    code = f"root = {str(tmp_path / 'root')!r}\n{_STOP}\n{begin}\n{_USE}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n21\n"), done.stderr

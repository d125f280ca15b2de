"""The example that counts in SQLite: its processes are killed and stopped again and again, every record counts once."""

from __future__ import annotations

import importlib.util
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer, TopicPartition
from tests.support.records import append, batch_of

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once_sqlite.py"
_PROCESSES = 3
_PARTITIONS = 4
_STEPS = 60
_SESSION_MS = 600


def begin(tmp_path: Path) -> subprocess.Popen[str]:
    """Start one of the processes."""
    command = [sys.executable, str(EXAMPLE), "--root", str(tmp_path / "root"), "--topic", "t", "--idle", "600"]
    command += ["--database", str(tmp_path / "counts.db"), "--session-timeout-ms", str(_SESSION_MS)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, and wait for it."""
    process.kill()
    process.communicate()


def counted(tmp_path: Path) -> dict[bytes, int]:
    database = sqlite3.connect(tmp_path / "counts.db", timeout=60)
    try:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counts'").fetchone():
            return {}
        return dict(database.execute("SELECT value, count FROM counts"))
    finally:
        database.close()


def test_every_record_counts_once_however_often_processes_are_killed(tmp_path: Path) -> None:
    log, chance = CommitLog(str(tmp_path / "root")), random.Random(7)
    log.create_topic("t", _PARTITIONS)
    processes, written = [begin(tmp_path) for _ in range(_PROCESSES)], 0
    try:
        append(log.root.topic("t"), batch_of([b"first"]))
        while not counted(tmp_path):
            time.sleep(0.1)
        for _ in range(_STEPS):
            append(log.root.topic("t"), batch_of([b"%d" % n for n in range(written, written + 200)]))
            written, number = written + 200, chance.randrange(_PROCESSES)
            match chance.randrange(20):
                case 0 | 1:
                    end(processes[number])
                    processes[number] = begin(tmp_path)
                case 2:  # its session ends, and it does not know
                    processes[number].send_signal(signal.SIGSTOP)
                    time.sleep(_SESSION_MS / 1000 * 2)
                    processes[number].send_signal(signal.SIGCONT)
            time.sleep(0.1)
        expected, deadline = {b"first": 1} | {b"%d" % n: 1 for n in range(written)}, time.monotonic() + 60
        while counted(tmp_path).keys() != expected.keys():
            assert [process.poll() for process in processes] == [None] * _PROCESSES
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for process in processes:
            end(process)
    assert counted(tmp_path) == expected


def test_who_does_not_know_that_it_lost_a_partition_counts_nothing_and_goes_on_behind(tmp_path: Path) -> None:
    log, place = CommitLog(str(tmp_path / "root")), TopicPartition("t", 0)
    log.create_topic("t")
    append(log.root.topic("t"), batch_of([b"%d" % n for n in range(10)]))
    spec = importlib.util.spec_from_file_location("exactly_once_sqlite", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    consumers = [Consumer(str(tmp_path / "root"), auto_offset_reset="none") for _ in range(2)]
    for consumer in consumers:
        consumer.assign([place])
    both = [example.Counts(str(tmp_path / "counts.db"), consumer) for consumer in consumers]
    for counts in both:
        counts.on_partitions_assigned([place])
    owner, zombie = [consumer.poll(max_records=size) for consumer, size in zip(consumers, (8, 5), strict=True)]
    both[0].add(place, owner)
    both[1].add(place, zombie)
    assert counted(tmp_path) == {b"%d" % n: 1 for n in range(8)}
    assert consumers[1].position(place) == 8

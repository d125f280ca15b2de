"""The example that counts in SQLite: its processes are killed and stopped again and again, every record counts once."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from pyspark_commitlog import CommitLog
from tests.support.records import append, batch_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once_sqlite.py"
_PROCESSES = 3
_PARTITIONS = 4
_SECONDS = 8.0
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
    database = sqlite3.connect(tmp_path / "counts.db")
    try:
        return dict(database.execute("SELECT value, count FROM counts"))
    finally:
        database.close()


def test_every_record_counts_once_however_often_processes_are_killed(tmp_path: Path) -> None:
    log, chance = CommitLog(str(tmp_path / "root")), random.Random(5)
    log.create_topic("t", _PARTITIONS)
    processes, kills, written = [begin(tmp_path) for _ in range(_PROCESSES)], 0, 0
    try:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            append(log.topic("t"), batch_of([b"%d" % n for n in range(written, written + 200)]))
            written, number = written + 200, chance.randrange(_PROCESSES)
            match chance.randrange(10):
                case 0 | 1:
                    end(processes[number])
                    processes[number], kills = begin(tmp_path), kills + 1
                case 2:  # its session ends, and it does not know
                    processes[number].send_signal(signal.SIGSTOP)
                    time.sleep(_SESSION_MS / 1000 * 2)
                    processes[number].send_signal(signal.SIGCONT)
            time.sleep(0.1)
        expected, deadline = {b"%d" % n: 1 for n in range(written)}, time.monotonic() + 60
        while counted(tmp_path).keys() != expected.keys():
            assert [process.poll() for process in processes] == [None] * _PROCESSES
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for process in processes:
            end(process)
    assert kills > 2
    assert counted(tmp_path) == expected

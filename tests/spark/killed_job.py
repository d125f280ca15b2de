"""A streaming job that is killed, with every process it has, and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_commitlog import CommitLog
from tests.spark.conftest import REPOSITORY
from tests.spark.faulty_source import DIRECTORY
from tests.spark.kill_writer import TOPIC
from tests.support.records import read_topic
from tests.support.sessions import session_of, wait_until

PARTITIONS = 3
#: Small enough for chunks, entries, settling, rolling and collecting to happen in a few micro-batches.
CONFIG = {"inline.max.bytes": 0, "settle.entries": 3, "settle.ms": 0, "segment.bytes": 20_000, "retention.ms": -1}


class KilledJob:
    """The job of `kill_writer.py` and its directory."""

    module = "tests.spark.kill_writer"

    def __init__(self, home: Path, batches: int, rows: int = 200) -> None:
        self.home = home
        self.log = self.opened()
        self.log.create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG)
        self.wanted: list[bytes] = []
        self._batches = 0
        self.add(batches, rows)

    def opened(self) -> CommitLog:
        """Return the log that it writes to."""
        return CommitLog(str(self.home / "log"))

    def add(self, batches: int, rows: int) -> None:
        """Lay out more Parquet files: one is one micro-batch."""
        (self.home / "incoming").mkdir(exist_ok=True)
        for number in range(self._batches, self._batches + batches):
            values = [f"record {number}.{row}" for row in range(rows)]
            table = pa.table({"key": [f"key {row % 23}" for row in range(rows)], "value": values})
            path = self.home / "incoming" / f"{number:04}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest first
            self.wanted += [value.encode() for value in values]
        self._batches += batches

    def start(self, format_: str = "commitlog") -> subprocess.Popen[bytes]:
        """Start it in a process group of its own."""
        command = [sys.executable, "-m", self.module, str(self.home), format_]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY), DIRECTORY: str(self.home)}
        with (self.home / "output").open("ab") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=output, env=env, cwd=self.home, start_new_session=True
            )

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it has ended well."""
        code = process.wait(timeout=240)
        assert code == 0, (self.home / "output").read_text()[-3000:]

    def visible(self) -> int:
        """Return how many records readers see."""
        return sum(partition.high_watermark for partition in self.log.topic(TOPIC).describe().partitions)

    def check_unfinished(self) -> None:
        """Whole micro-batches only."""
        assert self.visible() % 200 == 0

    def check(self) -> None:
        """Every record once, at dense offsets; and again after settling.

        A kill between Spark's log of files and its log of offsets puts two files into one micro-batch, so their order is
        Spark's.
        """
        self._check_records()
        self.log.topic(TOPIC).maintain()
        self._check_records()

    def _check_records(self) -> None:
        records = read_topic(self.log.root.topic(TOPIC))
        found = Counter(record.value for record in records)
        wanted = Counter(self.wanted)
        assert (wanted - found, found - wanted) == (Counter(), Counter()), "lost, doubled"
        for partition in range(PARTITIONS):
            offsets = [record.offset for record in records if record.partition == partition]
            assert offsets == list(range(len(offsets)))


def kill_job(process: subprocess.Popen[bytes], *, workers: bool) -> None:
    """SIGKILL the job's process group: driver and JVM.

    Spark's Python workers lead a group of their own. Left alive, one may finish the commit that it is at, while the
    job runs again already. `workers`: kill them, too.
    """
    left = session_of(process.pid) if workers else set()
    os.killpg(process.pid, signal.SIGKILL)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def kill_at_random(job: KilledJob, kills: int, seed: int) -> None:
    """Kill the job that often, each time a random moment after it has made some progress; then let it finish."""
    chance = random.Random(seed)
    for number in range(kills):
        process = job.start()
        goal = job.visible() + 200 * chance.randint(1, 2)
        assert wait_until(lambda goal=goal: job.visible() >= goal, process)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.6))  # a micro-batch takes about so long
        kill_job(process, workers=number % 2 == 0)
        job.check_unfinished()
    job.finish(job.start())
    job.check()


def batches_for(kills: int) -> int:
    """Return as many micro-batches as that many kills may take, and some."""
    return 2 + 3 * kills

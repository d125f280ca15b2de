"""A streaming job is killed, with every process it has, and started again: every record is there exactly once.

At random moments, and at each step of a commit: before and after every file it makes, and between the commit and
Spark's own commit file (invariants I1, I4 and I5).
"""

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
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.log.maintain.settle import settle_after_commit
from tests.spark.conftest import REPOSITORY
from tests.spark.faulty_source import DIRECTORY, traced, write_plan
from tests.spark.kill_copier import SOURCE
from tests.spark.kill_writer import TOPIC
from tests.spark.processes import session_of, wait_until
from tests.support.records import append, batch_of, read_partition, read_topic

PARTITIONS = 3
#: Small enough for chunks, entries, settling, rolling and collecting to happen in a few micro-batches.
CONFIG = {"inline.max.bytes": 0, "settle.entries": 3, "settle.ms": 0, "segment.bytes": 20_000, "retention.ms": -1}


class KilledJob:
    """The job of ``kill_writer.py`` and its directory."""

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
        return sum(partition.high_watermark for partition in self.log.describe(TOPIC).partitions)

    def check_unfinished(self) -> None:
        """Whole micro-batches only."""
        assert self.visible() % 200 == 0

    def check(self) -> None:
        """Every record once, at dense offsets; and again after settling.

        A kill between Spark's log of files and its log of offsets puts two files into one micro-batch, so their order is
        Spark's.
        """
        self._check_records()
        self.log.maintain(TOPIC)
        self._check_records()

    def _check_records(self) -> None:
        records = read_topic(self.log.topic(TOPIC))
        found = Counter(record.value for record in records)
        wanted = Counter(self.wanted)
        assert (wanted - found, found - wanted) == (Counter(), Counter()), "lost, doubled"
        for partition in range(PARTITIONS):
            offsets = [record.offset for record in records if record.partition == partition]
            assert offsets == list(range(len(offsets)))


class CopyJob(KilledJob):
    """The job of ``kill_copier.py``: from a topic to ``TOPIC``, which must become equal to it."""

    module = "tests.spark.kill_copier"

    def add(self, batches: int, rows: int) -> None:
        """Append so many micro-batches to the source, which settles and rolls, too."""
        if not self._batches:
            self.log.create_topic(SOURCE, partitions=PARTITIONS, config=CONFIG)
        for number in range(self._batches, self._batches + batches):
            values = [f"record {number}.{row}".encode() for row in range(rows)]
            append(self.log.topic(SOURCE), batch_of(values, key=[f"key {row % 23}".encode() for row in range(rows)]))
            settle_after_commit(self.log.topic(SOURCE), self.log.describe(SOURCE).topic_id)
        self._batches += batches

    def check_unfinished(self) -> None:
        """What is there of each partition is equal."""
        for partition in range(PARTITIONS):
            copied = read_partition(self.log.topic(TOPIC), partition)
            assert copied == read_partition(self.log.topic(SOURCE), partition)[: len(copied)]

    def _check_records(self) -> None:
        assert read_topic(self.log.topic(TOPIC)) == read_topic(self.log.topic(SOURCE))


def kill_job(process: subprocess.Popen[bytes], *, workers: bool) -> None:
    """SIGKILL the job's process group: driver and JVM.

    Spark's Python workers lead a group of their own. Left alive, one may finish the commit that it is at, while the
    job runs again already. ``workers``: kill them, too.
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


def test_a_job_that_is_killed_twice_writes_every_record_once(tmp_path: Path) -> None:
    """Once with its Python workers, once without: the long tests kill it twenty times."""
    kill_at_random(KilledJob(tmp_path, batches_for(2)), 2, seed=20131103)


@pytest.mark.long
def test_a_job_that_is_killed_twenty_times_writes_every_record_once(tmp_path: Path) -> None:
    kill_at_random(KilledJob(tmp_path, batches_for(20)), 20, seed=int(time.time()))


def test_a_copy_from_topic_to_topic_that_is_killed_twice_is_equal(tmp_path: Path) -> None:
    """Partitions, offsets, keys and timestamps included: the source's offsets and the sink's batches go together."""
    kill_at_random(CopyJob(tmp_path, batches_for(2)), 2, seed=20131103)


@pytest.mark.long
def test_a_copy_from_topic_to_topic_that_is_killed_twenty_times_is_equal(tmp_path: Path) -> None:
    kill_at_random(CopyJob(tmp_path, batches_for(20)), 20, seed=int(time.time()))


def batches_for(kills: int) -> int:
    """Return as many micro-batches as that many kills may take, and some."""
    return 2 + 3 * kills


# --- at each step of a commit -----------------------------------------------------------------------------

#: The batch that is killed: its commit puts an entry and settles the entries before it.
BATCH = 3
BATCHES = BATCH + 2


def kill_at(job: KilledJob, step: int, moment: str) -> bool:
    """Run the job with a kill in its next batch ``BATCH``; return whether it was killed there."""
    write_plan(job.home, BATCH, step, moment)
    process = job.start("commitlog-faulty")
    code = process.wait(timeout=240)
    if code == 0:
        return False
    assert code == -signal.SIGKILL, (job.home / "output").read_text()[-3000:]
    return True


def test_killed_between_its_entry_and_sparks_commit_file_a_batch_is_not_written_again(tmp_path: Path) -> None:
    """The step right after the one commit point, before anything else can be done."""
    job = KilledJob(tmp_path, BATCHES)
    put = 1  # a commit's first mutating operation is the put
    assert kill_at(job, put, "after")
    assert traced(tmp_path, BATCH)[-1][1:3] == ("after", "put_if_absent")
    assert "/journal/" in traced(tmp_path, BATCH)[-1][3]
    assert job.visible() == 200 * (BATCH + 1)
    assert not (tmp_path / "checkpoint" / "commits" / f"{BATCH}").exists()
    job.finish(job.start("commitlog-faulty"))
    job.check()


@pytest.mark.long
def test_killed_at_any_step_of_its_commit_a_batch_is_written_once(tmp_path: Path) -> None:
    step, moments = 0, 0
    while True:
        step += 1
        for moment in ("before", "after"):
            home = tmp_path / f"{step}-{moment}"
            home.mkdir()
            job = KilledJob(home, BATCHES)
            if not kill_at(job, step, moment):
                assert moments > 6, "the commit of this batch should put an entry and settle"
                return
            moments += 1
            assert job.visible() in (200 * BATCH, 200 * (BATCH + 1))
            job.finish(job.start("commitlog-faulty"))
            job.check()

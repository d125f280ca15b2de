"""A streaming job is killed, with every process it has, and started again: every record is there exactly once.

At random moments, and at each step of a commit: before and after every file it makes, and between the commit and
Spark's own commit file (invariants I1, I4 and I5).
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from tests.spark.faulty_source import traced, write_plan
from tests.spark.kill_copier import SOURCE
from tests.spark.kill_writer import TOPIC
from tests.spark.killed_job import CONFIG, PARTITIONS, KilledJob, batches_for, kill_at_random
from tests.support.records import append, batch_of, read_partition, read_topic


class CopyJob(KilledJob):
    """The job of `kill_copier.py`: from a topic to `TOPIC`, which must become equal to it."""

    module = "tests.spark.kill_copier"

    def add(self, batches: int, rows: int) -> None:
        """Append so many micro-batches to the source, which settles and rolls, too."""
        if not self._batches:
            self.log.create_topic(SOURCE, partitions=PARTITIONS, config=CONFIG)
        for number in range(self._batches, self._batches + batches):
            values = [f"record {number}.{row}".encode() for row in range(rows)]
            append(
                self.log.root.topic(SOURCE), batch_of(values, key=[f"key {row % 23}".encode() for row in range(rows)])
            )
            settle_after_commit(self.log.root.topic(SOURCE), self.log.topic(SOURCE).describe().topic_id)
        self._batches += batches

    def check_unfinished(self) -> None:
        """What is there of each partition is equal."""
        for partition in range(PARTITIONS):
            copied = read_partition(self.log.root.topic(TOPIC), partition)
            assert copied == read_partition(self.log.root.topic(SOURCE), partition)[: len(copied)]

    def _check_records(self) -> None:
        assert read_topic(self.log.root.topic(TOPIC)) == read_topic(self.log.root.topic(SOURCE))


def test_a_job_that_is_killed_twice_writes_every_record_once(tmp_path: Path) -> None:
    """Once with its Python workers, once without: the long tests kill it twenty times."""
    kill_at_random(KilledJob(tmp_path, batches_for(2)), 2, seed=20131103)


@pytest.mark.nightly
def test_a_job_that_is_killed_twenty_times_writes_every_record_once(tmp_path: Path) -> None:
    kill_at_random(KilledJob(tmp_path, batches_for(20)), 20, seed=int(time.time()))


@pytest.mark.nightly
def test_a_copy_from_topic_to_topic_that_is_killed_twenty_times_is_equal(tmp_path: Path) -> None:
    """Partitions, offsets, keys and timestamps included: the source's offsets and the sink's batches go together."""
    kill_at_random(CopyJob(tmp_path, batches_for(20)), 20, seed=int(time.time()))


# --- at each step of a commit -----------------------------------------------------------------------------

#: The batch that is killed: its commit puts an entry and settles the entries before it.
BATCH = 3
BATCHES = BATCH + 2


def kill_at(job: KilledJob, step: int, moment: str) -> bool:
    """Run the job with a kill in its next batch `BATCH`; return whether it was killed there."""
    write_plan(job.home, BATCH, step, moment)
    process = job.start("commitlog-faulty")
    code = process.wait(timeout=240)
    if code == 0:
        return False
    assert code == -signal.SIGKILL, (job.home / "output").read_text()[-3000:]
    return True


@pytest.mark.nightly
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


@pytest.mark.nightly
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

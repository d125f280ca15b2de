"""A real cluster, two workers on two hosts: every record exactly once, whatever happens to tasks and workers."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.spark.cluster import CORES, HOSTS, Cluster, ended_tasks, finish, wait_for
from tests.spark.cluster_job import RECORDS, TASKS
from tests.support.records import read_topic
from tests.support.sessions import kill_session

#: Chunks, not entries, hold the records; entries are settled and segments roll on the way.
CONFIG = {"inline.max.bytes": 0, "settle.entries": 2, "segment.bytes": 4096, "retention.ms": -1}
#: Small enough for tasks of a second.
SPECULATION = {
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
}
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def cluster(workers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster for the tests of this module."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Yield what starts a job in the test's directory, with empty topics; the job is over with the test."""
    jobs = []

    def start(until: str, **conf: str) -> subprocess.Popen[bytes]:
        (tmp_path / "steps").mkdir()
        log = CommitLog(str(tmp_path / "log"))
        for topic in ("a", "b"):
            log.create_topic(topic, partitions=TASKS, config=CONFIG)
        jobs.append(cluster.job(tmp_path, until, **conf))
        return jobs[-1]

    yield start
    for job in jobs:
        kill_session(job)


def check(home: Path) -> None:
    """Both topics, and what the job read, have every record once; offsets are dense (invariants I3 and I5)."""
    wanted = Counter(f"{number}" for number in range(RECORDS))
    log = CommitLog(str(home / "log"))
    for topic in ("a", "b"):
        records = read_topic(log.root.topic(topic))
        assert Counter((record.value or b"").decode() for record in records) == wanted, topic
        for partition in range(TASKS):
            offsets = [record.offset for record in records if record.partition == partition]
            assert offsets == list(range(len(offsets)))
    assert Counter(json.loads((home / "read.json").read_text())) == wanted


@pytest.mark.nightly
def test_a_worker_that_is_killed_in_a_write_a_stream_and_a_read_loses_and_doubles_nothing(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    job = start("killed")
    for step in ("write", "stream", "read"):
        # its tasks wait: one has half its input; one has staged all of it, and nobody will ever name that chunk
        wait_for(job, tmp_path, f"{step}-*-begun", CORES)
        cluster.kill("two")
        wait_for(job, tmp_path, f"{step}-done")
        cluster.restart("two")
    finish(job, tmp_path)
    check(tmp_path)
    lost = [task for task in ended_tasks(tmp_path) if task["Failed"] and task["Host"] == HOSTS["two"]]
    assert len(lost) >= 3 * CORES
    assert len(list((tmp_path / "log" / "topics" / "a").glob("*/staged/*.chunk"))) > TASKS


@pytest.mark.nightly
def test_speculative_attempts_add_nothing(start: Start, tmp_path: Path) -> None:
    """Two attempts of a task stage the same records at the same time; the commit names one of them."""
    finish(start("speculative", **SPECULATION), tmp_path)
    check(tmp_path)
    tasks = ended_tasks(tmp_path)
    assert {task["Host"] for task in tasks} == set(HOSTS.values())
    # the tasks on the other host waited for these; on a busy machine Spark tries some of this host's there, too
    assert HOSTS["one"] in {task["Host"] for task in tasks if task["Speculative"]}

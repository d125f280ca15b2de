"""Several processes at once on one topic, one of them stopped at the worst moment."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.crash.processes import maintain_until, read_while, settle_until_done, start, write_many
from tests.support.records import append, batch_of, read_partition, read_topic
from tests.support.verify import verify
from tests.support.world import many

pytestmark = pytest.mark.slow

_CONFIG = {"inline.max.bytes": 0, "segment.bytes": 4096, "segment.index.bytes": 960, "index.interval.bytes": 300,
           "compression.type": "none", "batch.size": 2048, "file.delete.delay.ms": 0}  # fmt: skip


def joined(processes: list[BaseProcess]) -> None:
    try:
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("stops_at", [1, 9, 22, 40])
def test_four_settlers_one_of_them_stopped(tmp_path: Path, stops_at: int) -> None:
    """R3, I2: one is stopped in the middle of its work, with or without the lock, and continued much later."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t", 2, _CONFIG)
    topic = log.root.topic("t")
    for number in range(60):
        append(topic, batch_of(many(6, b"%d-" % number), partition=[0, 1] * 3))
    expected = read_topic(topic)
    root = tmp_path / "root"
    stopped = start(settle_until_done, root, 360, stops_at, 20.0)
    try:
        wait_until_stopped(stopped)
        others = [start(settle_until_done, root, 360, 0, 0.4) for _ in range(3)]
        append(topic, batch_of([b"later"] * 2, partition=[0, 1]))
        joined(others)
        assert stopped.pid is not None
        os.kill(stopped.pid, signal.SIGCONT)
    except BaseException:
        stopped.kill()
        raise
    joined([stopped])
    log.topic("t").maintain()
    assert verify(log.root.topic("t")) == 362
    found = [record for record in read_topic(log.root.topic("t")) if record.value != b"later"]
    assert found == expected
    log.topic("t").maintain()
    assert len([r for r in read_topic(log.root.topic("t")) if r.value == b"later"]) == 2


def wait_until_stopped(process: BaseProcess) -> None:
    """Wait until the kernel says that a process is stopped."""
    for _ in range(2000):
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.005)
    raise AssertionError("it did not stop")


def test_two_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    """I2, I3, I5: offsets are dense, each writer's records keep their order, each is there once."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t", 2, {"settle.entries": 10**6})
    joined([start(write_many, tmp_path / "root", name, 60, 2) for name in ("a", "b")])
    for partition in (0, 1):
        found = read_partition(log.root.topic("t"), partition)
        assert [record.offset for record in found] == list(range(120))
        for name in ("a", "b"):
            own = [record.value for record in found if record.value and record.value.startswith(name.encode())]
            assert own == [f"{name}-{number}".encode() for number in range(60)]


def test_a_reader_never_sees_a_part_of_a_commit(tmp_path: Path) -> None:
    """I1, I2, R8, R12: two writers, a maintainer that deletes without any delay, and a reader that plans and reads."""
    root, done, report = tmp_path / "root", tmp_path / "done", tmp_path / "report"
    CommitLog(str(root)).create_topic("t", 3, _CONFIG)
    watchers = [start(read_while, root, done, report), start(maintain_until, root, done)]
    writers = [start(write_many, root, name, 60, 3) for name in ("a", "b")]
    joined(writers)
    done.touch()
    joined(watchers)
    assert report.read_text().startswith("ok")
    log = CommitLog(str(root))
    log.topic("t").maintain()
    assert verify(log.root.topic("t")) == 360
    assert len({record.value for record in read_topic(log.root.topic("t"))}) == 120

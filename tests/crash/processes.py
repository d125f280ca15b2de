"""Functions that run in processes of their own, and what starts them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import UnknownTopicError
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.write.writers import Transaction
from tests.crash.scenes import SCENES, Scene
from tests.support.records import append, batch_of
from tests.support.syscalls import killed_before, telling
from tests.support.world import World

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.crash.processes"])


def start(target: Callable[..., None], *args: Any) -> BaseProcess:
    """Start a function in a fresh process."""
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def act_and_die(scene: Scene, world: World, number: int) -> None:
    """Run a scene and be killed before its `number`-th changing system call."""
    with killed_before(number):
        scene.act(world)


def write_many(root: Path, name: str, commits: int, partitions: int) -> None:
    """Commit, again and again, one marker into every partition."""
    topic = CommitLog(str(root)).root.topic("t")
    for number in range(commits):
        values = [f"{name}-{number}".encode()] * partitions
        append(topic, batch_of(values, partition=range(partitions)), writer=Transaction(name, number))


def maintain_until(root: Path, done: Path) -> None:
    """Maintain until a file appears."""
    log = CommitLog(str(root))
    while not done.exists():
        log.topic("t").maintain()


def settle_until_done(root: Path, records: int, stops_at: int, seconds: float) -> None:
    """Settle in small steps until all is settled or the time is up; stop itself before the n-th changing call."""
    left = stops_at

    def tell(name: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)

    topic = CommitLog(str(root)).root.topic("t")
    topic_id = topic.newest()[1].topic_id
    until = time.monotonic() + seconds
    with telling(tell):
        while time.monotonic() < until:
            settle(topic, topic_id, budget_seconds=0.002)
            if sum(row.end_offset for row in topic.settled(topic_id)[1].partitions) >= records:
                return


def read_while(root: Path, done: Path, report: Path) -> None:
    """Plan and read all partitions again and again; write down what was wrong, and how often it read."""
    topic = CommitLog(str(root)).root.topic("t")
    rounds, wrong = 0, ""
    last: tuple[int, ...] = ()
    while not wrong:
        finished = done.exists()
        try:
            _, state = topic.newest()
        except UnknownTopicError:
            continue
        sets = [set(read_values(topic, state.topic_id, p, end)) for p, end in enumerate(state.log_end)]
        if any(each != sets[0] for each in sets):
            wrong = f"a part of a commit is visible: {sets[0] ^ sets[1]}"
        elif [len(each) for each in sets] != list(state.log_end):
            wrong = f"{[len(each) for each in sets]} records to {state.log_end}"
        elif any(a > b for a, b in zip(last, state.log_end, strict=False)):
            wrong = f"the high watermark went back from {last} to {state.log_end}"
        rounds, last = rounds + 1, state.log_end
        if finished:
            break
    report.write_text(wrong or f"ok {rounds}")


def read_values(topic: Any, topic_id: str, partition: int, end: int) -> list[bytes]:
    """Return the values of a partition below `end`."""
    if end == 0:
        return []
    rows = PartitionReader(topic, topic_id, partition, ["value"]).read(0, end)
    return [value for each in rows if each.batch for value in each.batch.column(0).to_pylist()]


__all__ = ["SCENES", "act_and_die", "maintain_until", "read_while", "settle_until_done", "start", "write_many"]

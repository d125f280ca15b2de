"""Functions that run in processes of their own on a root in a bucket, and what starts them."""

from __future__ import annotations

import copy
import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, StorageError
from pyspark_commitlog.log.write.writers import Transaction
from tests.crash.scenes import Scene
from tests.object_stores.servers import Bucket
from tests.object_stores.world import ObjectWorld
from tests.support.records import append, batch_of, read_partition

#: How often a writer runs a commit again whose outcome it does not know, or that storage did not take.
MOST_TRIES = 20

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.object_stores.processes"])


def start(target: Any, *args: Any) -> BaseProcess:
    """Start a function in a fresh process, which has not used an object store's client."""
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def joined(processes: list[BaseProcess], seconds: float) -> None:
    """Wait until all have ended well; kill those that have not."""
    until = time.monotonic() + seconds
    try:
        for process in processes:
            process.join(max(0.1, until - time.monotonic()))
            assert process.exitcode == 0, f"{process.name} ended with {process.exitcode}"
    finally:
        for process in processes:
            process.kill()


def open_log(bucket: Bucket, prefix: str) -> CommitLog:
    """Return a log in a bucket."""
    return CommitLog(f"{bucket.url}/{prefix}", bucket.options)


def act(scene: Scene, world: ObjectWorld, line: Connection) -> None:
    """Play a scene once the test says so; end with 1 where storage fails."""
    line.recv()
    try:
        copy.copy(scene).act(world)
    except (StorageError, OutcomeUnknownError) as error:
        raise SystemExit(1) from error


def starting(target: Any, *args: Any) -> tuple[BaseProcess, Connection]:
    """Start a process that waits for a word on the connection."""
    ours, theirs = _CONTEXT.Pipe()
    process = start(target, *args, theirs)
    return process, ours


def write_many(bucket: Bucket, prefix: str, name: str, commits: int, partitions: int, report: Path) -> None:
    """Commit, again and again, one marker into every partition, each under a number of its own, till it is sure."""
    topic = open_log(bucket, prefix).topic("t")
    tries = 0
    for number in range(commits):
        values = [f"{name}-{number}".encode()] * partitions
        for attempt in range(MOST_TRIES):
            tries += 1
            try:
                append(topic, batch_of(values, partition=range(partitions)), writer=Transaction(name, number))
                break
            except (OutcomeUnknownError, StorageError):
                if attempt == MOST_TRIES - 1:
                    raise
    report.write_text(f"{tries}")


def maintain_until(bucket: Bucket, prefix: str, done: Path, report: Path) -> None:
    """Maintain until a file appears; what storage does not answer is left to the next run."""
    log = open_log(bucket, prefix)
    ran, failed = 0, 0
    while not done.exists():
        try:
            log.maintain("t")
        except (OutcomeUnknownError, StorageError):
            failed += 1
        ran += 1
        time.sleep(0.05)
    report.write_text(f"{ran} {failed}")


def read_while(bucket: Bucket, prefix: str, done: Path, report: Path) -> None:
    """Read all partitions again and again; write down what was wrong, and how often it read."""
    log = open_log(bucket, prefix)
    rounds, wrong, last = 0, "", (0,)
    while not wrong:
        finished = done.exists()
        try:
            topic = log.topic("t")
            _, state = topic.newest()
            wrong = wrong_in(topic, state.log_end)
            if any(a > b for a, b in zip(last, state.log_end, strict=False)):
                wrong = f"the high watermark went back from {last} to {state.log_end}"
            last = state.log_end
        except StorageError:
            pass
        except CommitLogError as error:
            wrong = f"{type(error).__name__}: {error}"
        rounds += 1
        if finished:
            break
    report.write_text(wrong or f"ok {rounds}")


def wrong_in(topic: Any, log_end: tuple[int, ...]) -> str:
    """Return what is wrong with a topic whose commits have one record of each partition."""
    sets = []
    for partition, end in enumerate(log_end):
        found = read_partition(topic, partition, 0, end)
        if [record.offset for record in found] != list(range(end)):
            return f"partition {partition}: offsets are not dense up to {end}"
        sets.append({record.value for record in found})
        if len(sets[-1]) != end:
            return f"partition {partition}: {len(sets[-1])} different records up to {end}"
    return "" if all(each == sets[0] for each in sets) else "a part of a commit is visible"

"""Functions that run in processes of their own on a root in a bucket, and what starts them."""

from __future__ import annotations

import copy
import multiprocessing
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, StorageError
from pyspark_commitlog.topic.compaction.compact import CompactionJob, compact, work_here
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.writers import Transaction
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

    def batch(number: int) -> pa.RecordBatch:
        return batch_of([f"{name}-{number}".encode()] * partitions, partition=range(partitions))

    _write(bucket, prefix, name, map(batch, range(commits)), report)


def _write(bucket: Bucket, prefix: str, name: str, batches: Iterable[pa.RecordBatch], report: Path) -> None:
    """Commit each, again until it is sure; write down how many tries that took."""
    topic = open_log(bucket, prefix).root.topic("t")
    tries = 0
    for number, batch in enumerate(batches):
        for attempt in range(MOST_TRIES):
            tries += 1
            try:
                append(topic, batch, writer=Transaction(name, number))
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
            log.topic("t").maintain()
        except (OutcomeUnknownError, StorageError):
            failed += 1
        ran += 1
        time.sleep(0.05)
    report.write_text(f"{ran} {failed}")


def read_while(bucket: Bucket, prefix: str, done: Path, report: Path) -> None:
    """Read all partitions again and again; write down what was wrong, and how often it read."""
    last: tuple[int, ...] = (0,)

    def wrong(topic: TopicLog) -> str:
        nonlocal last
        _, state = topic.newest()
        before, found = last, wrong_in(topic, state.log_end)
        last = state.log_end
        if any(a > b for a, b in zip(before, last, strict=False)):
            return f"the high watermark went back from {before} to {last}"
        return found

    _read_while(bucket, prefix, done, report, wrong)


def _read_while(bucket: Bucket, prefix: str, done: Path, report: Path, wrong_with: Callable[[TopicLog], str]) -> None:
    """Look again and again, and once more when the file is there; what storage does not answer is looked at again."""
    log = open_log(bucket, prefix)
    rounds, wrong = 0, ""
    while not wrong:
        finished = done.exists()
        try:
            wrong = wrong_with(log.root.topic("t"))
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


# --- with keys --------------------------------------------------------------------------------------------

#: Keys of a writer that come again and again: what compaction leaves one record of.
KEYS = 4


def key_of(name: str, number: int) -> bytes:
    """Return the key of a writer's n-th record: every second one has a key of its own, which compaction keeps."""
    return f"own-{name}-{number}".encode() if number % 2 else f"again-{name}-{number // 2 % KEYS}".encode()


def must_be_there(name: str, last: int) -> set[int]:
    """Return which of a writer's records no compaction drops, once it has written up to `last`."""
    return {number for number in range(last + 1) if number % 2 or number + 2 * KEYS > last}


def write_keys(bucket: Bucket, prefix: str, name: str, commits: int, partitions: int, report: Path) -> None:
    """Commit records with keys, one of each partition a commit, each under a number of its own, till it is sure."""

    def batch(number: int) -> pa.RecordBatch:
        values, keys = [f"{name}-{number}".encode()] * partitions, [key_of(name, number)] * partitions
        return batch_of(values, key=keys, partition=range(partitions))

    _write(bucket, prefix, name, map(batch, range(commits)), report)


def write_until(bucket: Bucket, prefix: str, done: Path) -> None:
    """Commit a few records of writer `while` each second until a file appears."""
    topic = open_log(bucket, prefix).root.topic("t")
    number = 0
    while not done.exists():
        append(topic, batch_of([f"while-{number}".encode()] * 2, key=[key_of("while", number)] * 2, partition=[0, 1]))
        number += 1
        time.sleep(0.25)


def settle_until(bucket: Bucket, prefix: str, done: Path, pause: float, report: Path) -> None:
    """Settle again and again until a file appears; write down how many entries were put."""
    topic = open_log(bucket, prefix).root.topic("t")
    topic_id = topic.newest()[1].topic_id
    published = 0
    while not done.exists():
        with suppress(OutcomeUnknownError, StorageError):
            published += settle(topic, topic_id, budget_seconds=0.5).sequence is not None
        time.sleep(pause)
    report.write_text(f"{published}")


def compact_slowly(bucket: Bucket, prefix: str, seconds: float, report: Path) -> None:
    """Compact once, with a worker that takes so long; write down what was published."""

    def worker(job: CompactionJob) -> Any:
        time.sleep(seconds)
        return work_here(job)

    topic = open_log(bucket, prefix).root.topic("t")
    done = compact(topic, topic.newest()[1].topic_id, worker)
    report.write_text(" ".join(str(each.segments) for each in done))


def read_keys_while(bucket: Bucket, prefix: str, done: Path, report: Path) -> None:
    """Read all partitions again and again; write down what was wrong, and how often it read."""
    _read_while(bucket, prefix, done, report, wrong_with_keys)


def wrong_with_keys(topic: Any) -> str:
    """Return what is wrong with a topic that `write_keys` writes to."""
    _, state = topic.newest()
    for partition, end in enumerate(state.log_end):
        found = read_partition(topic, partition, 0, end)
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)) or (end and offsets[-1] != end - 1):
            return f"partition {partition}: offsets {offsets[:3]}…{offsets[-3:]} up to {end}"
        numbers: dict[str, list[int]] = {}
        for record in found:
            name, _, number = (record.value or b"").decode().rpartition("-")
            numbers.setdefault(name, []).append(int(number))
            if record.key != key_of(name, int(number)):
                return (
                    f"partition {partition}: offset {record.offset} has key {record.key!r} and value {record.value!r}"
                )
        for name, seen in numbers.items():
            lost = must_be_there(name, seen[-1]) - set(seen)
            if seen != sorted(set(seen)) or lost:
                return f"partition {partition}: of {name}: lost {sorted(lost)[:9]}, or doubled: {seen[-9:]}"
    return ""

"""Topics with a history, made cheaply: real commits through the real code, but nobody waits for the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of

TOPIC = "events"
SECOND = 1000


@contextmanager
def unsynced() -> Iterator[None]:
    """Wait for no disk: what is made here is thrown away."""
    with mock.patch("os.fsync"):
        yield


def commit_and_settle(topic: TopicLog, *batches: pa.RecordBatch) -> None:
    """Commit batches, and settle and collect as the sink does after a commit."""
    append(topic, *batches)
    settle_after_commit(topic, topic.newest()[1].topic_id)


def one_each(partitions: int) -> pa.RecordBatch:
    """Return one record for each partition."""
    return batch_of([b"v" * 200] * partitions, partition=list(range(partitions)), timestamp=[10**15] * partitions)


def commits(root: Path, count: int, partitions: int = 4) -> CommitLog:
    """Make a topic in which so many commits, the last one now, put a record into each partition; return its log.

    A commit a second, by a clock that only says so: what is no longer needed gets collected as in a long life.
    """
    clock = ManualClock(time.time_ns() // 1_000_000 - count * SECOND)
    log = CommitLog.on(LocalStorage(root, clock=clock))
    with unsynced():
        log.create_topic(TOPIC, partitions, {"retention.ms": -1})
        topic, batch = log.root.topic(TOPIC), one_each(partitions)
        for _ in range(count):
            clock.advance(SECOND)
            commit_and_settle(topic, batch)
    return log

"""Small commits on an object store: objects that are named at the end, and bytes written for each that is committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.storage.base import FileInfo, OutputFile
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.settle.settle_load import is_look_due
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_topic
from tests.support.verify import verify


class Counted(ObjectStorage):
    """A store in memory that counts the bytes put: those of commits, and all."""

    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4()}")
        self.committed = self.written = 0

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        self.written += len(data)
        self.committed += len(data) if "/journal/" in path else 0
        return super().put_if_absent(path, data)

    def write_once(self, path: str, data: bytes) -> None:
        self.written += len(data)
        super().write_once(path, data)

    def create(self, path: str) -> OutputFile:
        output = super().create(path)
        write = output.write

        def counted(*pieces: bytes | memoryview | pa.Buffer) -> None:
            self.written += sum(len(memoryview(piece).cast("B")) for piece in pieces)
            write(*pieces)

        output.write = counted  # type: ignore[method-assign]
        return output


def batches(partitions: int, commits: int) -> Iterator[pa.RecordBatch]:
    for number in range(commits):
        values = [b"%06d %d of a value of a few words" % (number, row) for row in range(10)]
        yield batch_of(values, partition=[(number * 10 + row) % partitions for row in range(10)])


def run(partitions: int, commits: int, *, maintain_every: int | None) -> tuple[Counted, TopicLog, int]:
    """Commit, settle and merge as a writer does; return also how many objects were named at most."""
    storage, most = Counted(), 0
    CommitLog.on(storage).create_topic("t", partitions, {"retention.ms": -1})
    topic = TopicLog(storage, "t")
    topic_id = topic.newest()[1].topic_id
    for number, batch in enumerate(batches(partitions, commits)):
        staged: Any = append(topic, batch)
        assert staged.rows == 10
        if is_look_due(storage, topic_id, 5000):
            settle_after_commit(topic, topic_id)
            _, settled = topic.settled(topic_id)
            own = sum(row.manifest.segments for row in settled.partitions if row.manifest is not None)
            most = max(most, len(settled.tail) + own)
        if maintain_every and number % maintain_every == maintain_every - 1:
            CommitLog.on(storage).topic("t").maintain()
    return storage, topic, most


def check(partitions: int, commits: int, maintain_every: int | None) -> None:
    storage, topic, most = run(partitions, commits, maintain_every=maintain_every)
    print(partitions, commits, most, storage.written / storage.committed, dict(storage.requests))
    assert most <= 20
    assert storage.written <= 4 * storage.committed
    assert len(read_topic(topic)) == 10 * commits
    verify(TopicLog(storage, "t"))


@pytest.mark.parametrize("partitions", [1, 10])
def test_small_commits_leave_few_objects_and_write_little(partitions: int) -> None:
    check(partitions, 600, None)


@pytest.mark.nightly
@pytest.mark.parametrize("maintain_every", [None, 500])
@pytest.mark.parametrize("partitions", [1, 10, 100])
def test_five_thousand_small_commits(partitions: int, maintain_every: int | None) -> None:
    check(partitions, 5_000, maintain_every)


@pytest.mark.nightly
def test_a_hundred_thousand_commits_without_maintenance_stay_readable() -> None:
    storage, topic, _ = run(1, 100_000, maintain_every=None)
    assert len(topic.settled(topic.newest()[1].topic_id)[1].tail) <= 31 * 5
    assert len(read_topic(topic)) == 1_000_000
    CommitLog.on(storage).topic("t").maintain()
    assert len(read_topic(TopicLog(storage, "t"))) == 1_000_000

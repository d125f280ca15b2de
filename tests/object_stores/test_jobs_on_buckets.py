"""The jobs that users submit to copy and to compact large topics, with a root in a bucket."""

from __future__ import annotations

import pytest

from pyspark_commitlog import CommitLog
from tests.object_stores.conftest import on
from tests.object_stores.servers import Bucket, Versitygw
from tests.spark.conftest import workers as workers
from tests.spark.submitted import submit
from tests.support.records import Record, append, batch_of, read_topic
from tests.support.verify import verify

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("workers", "credentials"), on(Versitygw)]

PARTITIONS = 3
CONFIG = {"segment.bytes": 20_000, "batch.size": 4096, "min.cleanable.dirty.ratio": 0.1, "delete.retention.ms": 0}


@pytest.fixture
def credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the server and its credentials in the environment, where the job's driver and tasks find them."""
    names = {"endpoint_url": "AWS_ENDPOINT_URL", "key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY"}
    for name, variable in {**names, "region_name": "AWS_REGION"}.items():
        monkeypatch.setenv(variable, bucket.options[name])


def add(log: CommitLog, topic: str, first: int, rounds: int) -> None:
    """Write users, each a few times, some deleted, some records without a key; new users come, and others come no more."""
    for n in range(first, first + rounds):
        keys = [None if i % 97 == 5 else b"user-%d" % ((n * 31 + i * 7) % 150 + 20 * n) for i in range(300)]
        values = [None if (n + i) % 11 == 0 else b"%d/%d" % (n, i) + b"." * 60 for i in range(300)]
        partition = [0 if key is None else int(key[5:]) % PARTITIONS for key in keys]
        append(log.root.topic(topic), batch_of(values, key=keys, partition=partition))


def test_topics_are_copied_to_a_bucket_by_tasks_and_again_as_far_as_they_have_grown(
    bucket: Bucket, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, url = str(tmp_path_factory.mktemp("copied") / "log"), f"{bucket.url}/log"
    log = CommitLog(root)
    for topic in ("users", "few"):
        log.create_topic(topic, PARTITIONS, CONFIG)
    add(log, "users", 0, 8)
    add(log, "few", 0, 1)
    ask = ("copy_topics.py", "--source", root, "--destination", url, "--topics", "users", "few", "--groups")
    assert "users: 2,400 offsets copied" in submit(*ask)
    # a task stages a partition, where the driver alone would put all of them into one chunk
    there = CommitLog(url, bucket.options).root.topic("users")
    staged = there.paths(there.newest()[1].topic_id).staged
    assert len(there.storage.names(staged)) == PARTITIONS
    add(log, "users", 8, 2)
    again = submit(*ask)
    assert "users: 600 offsets copied" in again
    assert "few: 0 offsets copied" in again
    assert not any(topic.faults for topic in log.compare_with(CommitLog(url, bucket.options)))


def latest(records: list[Record]) -> dict[bytes, Record]:
    """Return the last record of each key, without deletions."""
    found = {record.key: record for record in sorted(records, key=lambda record: record.offset) if record.key}
    return {key: record for key, record in found.items() if record.value is not None}


def test_a_topic_in_a_bucket_is_compacted_by_tasks(bucket: Bucket) -> None:
    url = f"{bucket.url}/log"
    log = CommitLog(url, bucket.options)
    log.create_topic("users", PARTITIONS, CONFIG)
    add(log, "users", 0, 16)
    log.topic("users").maintain()
    log.topic("users").alter({"cleanup.policy": "compact"})
    before = read_topic(log.root.topic("users"))
    ask = ("compact.py", "--root", url, "--topic", "users")
    assert "partition 1: " in submit(*ask)
    verify(log.root.topic("users"))
    after = read_topic(log.root.topic("users"))
    assert latest(after) == latest(before)
    assert len(after) < len(before) / 2
    assert {record.offset for record in after} <= {record.offset for record in before}
    assert "nothing is due" in submit(*ask)

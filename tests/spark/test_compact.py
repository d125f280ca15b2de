"""Compaction as a Spark job gives what the same plan gives in one process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import AccessDeniedError
from pyspark_commitlog.spark.write.compaction_job import compact
from pyspark_commitlog.topic.compaction import compact as engine
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.spark.submitted import submit
from tests.support import replicas as replicated
from tests.support.records import Record, append, batch_of, read_topic, stage
from tests.support.verify import verify

TOPIC = "users"
CONFIG = {
    "cleanup.policy": "delete",
    "segment.bytes": 20_000,
    "batch.size": 4096,
    "min.cleanable.dirty.ratio": 0.1,
    "delete.retention.ms": 0,
}


def fill(log: CommitLog, first: int, rounds: int) -> None:
    """Write and settle users of two partitions, each a few times, some deleted, some records without a key."""
    topic = log.root.topic(TOPIC)
    for n in range(first, first + rounds):
        keys = [None if i % 97 == 5 else b"user-%d" % ((n * 31 + i * 7) % 150) for i in range(200)]
        values = [None if (n + i) % 11 == 0 else b"%d/%d" % (n, i) + b"." * 40 for i in range(200)]
        append(topic, batch_of(values, key=keys, partition=[i % 2 for i in range(200)]))
        settle(topic, topic.newest()[1].topic_id)


def compacted(log: CommitLog) -> list[Record]:
    """Return all records, of a topic without a fault."""
    verify(log.root.topic(TOPIC))
    return read_topic(log.root.topic(TOPIC))


@pytest.fixture
def twins(root: str, tmp_path: Path) -> tuple[CommitLog, CommitLog]:
    """Return two roots with the same bytes: some segments compacted before, more behind them."""
    log = CommitLog(root)
    log.create_topic(TOPIC, 2, CONFIG)
    fill(log, 0, 12)
    log.topic(TOPIC).alter({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.1})
    topic = log.root.topic(TOPIC)
    assert engine.compact(topic, topic.newest()[1].topic_id)
    log.topic(TOPIC).alter({"cleanup.policy": "delete"})
    fill(log, 12, 12)
    log.topic(TOPIC).alter({"cleanup.policy": "compact"})
    shutil.copytree(root, tmp_path / "twin")
    return log, CommitLog(str(tmp_path / "twin"))


def test_spark_and_one_process_keep_the_same_records(
    spark: SparkSession, root: str, twins: tuple[CommitLog, CommitLog]
) -> None:
    log, twin = twins
    before = read_topic(log.root.topic(TOPIC))
    log.access.allow("ops", "admin")
    with pytest.raises(AccessDeniedError, match="may admin topic"):
        compact(spark, root, TOPIC)
    done = compact(spark, root, TOPIC, "ops")
    log.acting_as("ops").access.clear()
    topic = twin.root.topic(TOPIC)
    told = engine.compact(topic, topic.newest()[1].topic_id)
    assert [(one.partition, one.keyless) for one in done] == [(one.partition, one.keyless) for one in told]
    assert all(one.keyless for one in done)
    assert compacted(log) == compacted(twin)
    assert len(compacted(log)) < len(before) / 2
    assert compact(spark, root, TOPIC) == [], "nothing is due any more"


def test_a_task_that_fails_swaps_nothing_of_its_partition_and_the_others_are_compacted(
    spark: SparkSession, root: str, twins: tuple[CommitLog, CommitLog]
) -> None:
    log, _ = twins
    topic = log.root.topic(TOPIC)
    topic_id = topic.newest()[1].topic_id
    row, other = topic.settled(topic_id)[1].partitions
    last = topic.sealed(topic.settled(topic_id)[1], 0)[-1]
    path = Path(root) / topic.paths(topic_id).segment_file(0, last.stem, "log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match="restore the file from a copy"):
        compact(spark, root, TOPIC)
    first, second = log.root.topic(TOPIC).settled(topic_id)[1].partitions
    assert first == row
    assert second.cleaned > other.cleaned


def test_what_an_unclean_election_lost_keeps_no_round(spark: SparkSession, tmp_path: Path) -> None:
    """A record that is gone supersedes none; one process passes over it, too."""
    roots = replicated.Replicated(tmp_path)
    roots.create(config={**replicated.CONFIG, **CONFIG, "cleanup.policy": "compact", "inline.max.bytes": 4096})
    written(roots.topic(), 0)
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "a test")
    written(roots.topic(), 1)
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    for number in range(2, 10):
        written(roots.topic("b"), number)
    topic = roots.at("b")
    settle(topic, topic.newest()[1].topic_id)
    assert topic.newest()[1].lost, "the scene"
    (done,) = compact(spark, str(tmp_path / "b"), "t")
    assert done.size_bytes[0] > done.size_bytes[1]


def written(topic: TopicLog, number: int) -> None:
    """Write 200 records of 50 keys, more than an entry holds."""
    values = [b"%d/%d" % (number, row) + b"." * 60 for row in range(200)]
    staged = stage(topic, batch_of(values, key=[b"k%d" % (row % 50) for row in range(200)]))
    commit(topic, staged.topic_id, [staged], acks_all=True)


@pytest.mark.nightly
def test_the_example_runs_with_spark_submit(root: str, twins: tuple[CommitLog, CommitLog]) -> None:
    log, twin = twins
    assert "partition 1: " in submit("compact.py", "--root", root, "--topic", TOPIC)
    twin.topic(TOPIC).maintain()
    assert compacted(log) == compacted(twin)
    assert "nothing is due" in submit("compact.py", "--root", root, "--topic", TOPIC)

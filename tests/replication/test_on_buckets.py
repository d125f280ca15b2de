"""Replicas in a bucket and on disks: one log, whatever each root lies on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage import open_storage
from tests.object_stores.servers import Bucket

CONFIG = {"replica.lag.time.max.ms": 500}


@pytest.fixture
def roots(tmp_path: Path, moto_bucket: Bucket) -> list[str]:
    """Roots of a log with one topic: two directories, a prefix between them."""
    places = [str(tmp_path / "a"), f"{moto_bucket.url}/{tmp_path.name}/b", str(tmp_path / "c")]
    log = CommitLog.create(places, [str(tmp_path / "metadata")], moto_bucket.options)
    log.create_topic("t", 2, CONFIG)
    return places


def values(root: str, bucket: Bucket) -> list[bytes | None]:
    log = CommitLog(root, storage_options=bucket.options)
    return [record.value for partition in range(2) for record in log.topic("t").read(partition, 0, 1000)]


def send(roots: list[str], bucket: Bucket, numbers: range) -> None:
    with Producer(",".join(roots), storage_options=bucket.options) as producer:
        for sent in [producer.send("t", b"%d" % n, partition=n % 2) for n in numbers]:
            sent.result(30)


def test_the_bucket_leads_when_the_disk_goes_away_and_the_disk_catches_up(
    roots: list[str], tmp_path: Path, moto_bucket: Bucket
) -> None:
    send(roots, moto_bucket, range(20))
    assert [sorted(values(root, moto_bucket)) == sorted(b"%d" % n for n in range(20)) for root in roots] == [True] * 3
    (tmp_path / "a").rename(tmp_path / "away")
    send(roots, moto_bucket, range(20, 40))
    described = CommitLog(roots[1], storage_options=moto_bucket.options).topic("t").describe()
    assert f"Leader: {roots[1]}" in str(described)
    (tmp_path / "away").rename(tmp_path / "a")
    for root in roots:
        CommitLog(root, storage_options=moto_bucket.options).maintain()
    for root in roots:
        assert sorted(values(root, moto_bucket)) == sorted(b"%d" % n for n in range(40)), root
    described = CommitLog(roots[0], storage_options=moto_bucket.options).topic("t").describe()
    assert f"Isr: {','.join(roots)}" in str(described)


def test_a_consumer_of_a_group_goes_on_in_the_bucket(roots: list[str], tmp_path: Path, moto_bucket: Bucket) -> None:
    send(roots, moto_bucket, range(10))
    options = {"group_id": "g", "auto_offset_reset": "earliest", "storage_options": moto_bucket.options}
    with Consumer(",".join(roots), "t", **options) as consumer:  # type: ignore[arg-type]
        found = consumer.poll(5)
        while len(found) < 10:
            found += consumer.poll(5)
        (tmp_path / "a").rename(tmp_path / "away")
        send(roots, moto_bucket, range(10, 20))
        while len(found) < 20:
            found += consumer.poll(5)
    assert sorted(record.value or b"" for record in found) == sorted(b"%d" % n for n in range(20))


def test_what_is_sent_to_another_process_knows_the_other_roots(roots: list[str], moto_bucket: Bucket) -> None:
    """Tasks of Spark get their root so."""
    opened = open_storage(",".join(roots), moto_bucket.options)
    for storage in (opened, opened.peer(roots[1])):
        there = pickle.loads(pickle.dumps(storage))
        for root in roots:
            assert there.peer(root).exists("commitlog.json"), root


def test_a_path_without_replicas_takes_no_options(tmp_path: Path, moto_bucket: Bucket) -> None:
    CommitLog(str(tmp_path / "alone")).create_topic("t", 1)
    with pytest.raises(UsageError, match="are for the filesystem of a URL"):
        CommitLog(str(tmp_path / "alone"), storage_options=moto_bucket.options)

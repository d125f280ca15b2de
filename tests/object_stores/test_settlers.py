"""Settlers and compactors at once on one topic, without a lock, while readers read and requests are spoiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.topic.maintain.settle import settle
from tests.object_stores.conftest import on
from tests.object_stores.processes import (
    compact_slowly,
    joined,
    maintain_until,
    open_log,
    read_keys_while,
    settle_until,
    start,
    write_keys,
    write_until,
    wrong_with_keys,
)
from tests.object_stores.proxy import Proxy
from tests.object_stores.servers import Bucket, Moto, Server, Versitygw
from tests.support.records import read_partition

PARTITIONS = 2
CONFIG: dict[str, object] = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "file.delete.delay.ms": 10_000, "segment.bytes": 16_384,
    "segment.index.bytes": 4800, "inline.max.bytes": 4096, "settle.entries": 20, "compression.type": "none",
}  # fmt: skip
FAULTS = 0.02
LONG_SECONDS = 60


@pytest.mark.slow
@on(Moto)
def test_settlers_and_compactors_at_once(server: Server, bucket_name: str, proxy: Proxy, tmp_path: Path) -> None:
    race(server, bucket_name, proxy, tmp_path, settlers=2, compactors=1, commits=30, seconds=200)


@on(Versitygw)
@pytest.mark.timeout(1800)
def test_four_settlers_and_two_compactors_at_once(
    server: Server, bucket_name: str, proxy: Proxy, tmp_path: Path
) -> None:
    race(server, bucket_name, proxy, tmp_path, settlers=4, compactors=2, commits=300, seconds=900)


def race(
    server: Server, name: str, proxy: Proxy, home: Path, *, settlers: int, compactors: int, commits: int, seconds: float
) -> None:
    """Let them loose with two writers and a reader: no record is lost that compaction keeps, none is doubled."""
    direct, root, done = server.bucket(name), "root", home / "done"
    open_log(direct, root).create_topic("t", PARTITIONS, CONFIG)
    spoiled = server.bucket(name, proxy.endpoint)
    proxy.chance(FAULTS, seed=7)
    writers = [start(write_keys, spoiled, root, each, commits, PARTITIONS, home / each) for each in ("a", "b")]
    others = [
        *[start(settle_until, spoiled, root, done, 0.05, home / f"settler{n}") for n in range(settlers)],
        *[start(maintain_until, spoiled, root, done, home / f"compactor{n}") for n in range(compactors)],
        start(read_keys_while, direct, root, done, home / "reader"),
    ]
    try:
        joined(writers, seconds)
        done.touch()
        joined(others, 180)
    finally:
        for process in (*writers, *others):
            process.kill()
    report = {each.name: each.read_text() for each in sorted(home.iterdir()) if each.is_file()}
    print(f"{server.name}: {report}, spoiled: {proxy.spoiled()}")
    assert report["reader"].startswith("ok")
    check(direct, root, 2 * commits)
    # A merge may have put all into the newest object, which is not compacted before there is a newer one.
    write_keys(direct, root, "last", 1, PARTITIONS, home / "last")
    check(direct, root, 2 * commits + 1)
    assert len(read_partition(open_log(direct, root).root.topic("t"), 0)) < 2 * commits, "nothing was compacted"


def check(bucket: Bucket, root: str, end: int) -> None:
    """All is there that compaction keeps, up to this end; and again after maintenance, which compacts."""
    log = open_log(bucket, root)
    for _ in range(3):
        topic = log.root.topic("t")
        assert wrong_with_keys(topic) == ""
        assert topic.newest()[1].log_end == (end,) * PARTITIONS
        assert log.topic("t").verify().faults == ()
        log.topic("t").maintain()


@on(Versitygw)
@pytest.mark.timeout(900)
def test_a_long_compaction_lands_against_a_settle_each_second(server: Server, bucket_name: str, tmp_path: Path) -> None:
    """O3: it publishes on top of whatever was settled meanwhile."""
    bucket, root, done = server.bucket(bucket_name), "root", tmp_path / "done"
    log = open_log(bucket, root)
    log.create_topic("t", PARTITIONS, CONFIG)
    topic = log.root.topic("t")
    for part in range(4):
        write_keys(bucket, root, f"before{part}", 50, PARTITIONS, tmp_path / "before")
        settle(topic, topic.newest()[1].topic_id)
    others = [
        start(settle_until, bucket, root, done, 1.0, tmp_path / "settler"),
        start(write_until, bucket, root, done),
    ]
    compactor = start(compact_slowly, bucket, root, LONG_SECONDS, tmp_path / "compacted")
    try:
        joined([compactor], 600)
        done.touch()
        joined(others, 60)
    finally:
        for process in (compactor, *others):
            process.kill()
    print((tmp_path / "compacted").read_text(), "settled", (tmp_path / "settler").read_text())
    assert (tmp_path / "compacted").read_text(), "it never landed"
    assert int((tmp_path / "settler").read_text()) > LONG_SECONDS / 2
    assert wrong_with_keys(log.root.topic("t")) == ""
    assert log.topic("t").verify().faults == ()

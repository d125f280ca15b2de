"""Three disks, each with a root that holds data and a small one that decides: any one disk may be lost.

Each of `d1`, `d2`, `d3` has both; a disk is taken away, as one that is pulled out.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import poll

DISKS = ("d1", "d2", "d3")
CONFIG = {"replica.lag.time.max.ms": 300, "min.insync.replicas": 2}


def made(path: Path) -> str:
    """Make the roots, and a topic; return how clients name the log."""
    data = [str(path / disk / "log") for disk in DISKS]
    for disk in DISKS:
        (path / disk).mkdir()
    CommitLog.create(data, metadata=[str(path / disk / "meta") for disk in DISKS])
    CommitLog(data[0]).create_topic("t", 1, CONFIG)
    return ",".join(data)


def values(first: int, many: int = 5) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + many)]


def send(producer: Producer, records: list[bytes]) -> None:
    for value in records:
        producer.send("t", value).result(60)


@pytest.mark.parametrize("disk", DISKS)
def test_any_disk_may_be_lost(fast_path: Path, disk: str) -> None:
    """Clients that run, and those that begin then: topics, groups, settings."""
    log, left = made(fast_path), [each for each in DISKS if each != disk]
    with Producer(log) as producer, Consumer(log, "t", group_id="g", auto_offset_reset="earliest") as consumer:
        send(producer, values(0))
        assert poll(consumer, 5) == values(0)
        consumer.commit()
        os.rename(fast_path / disk, fast_path / "away")
        send(producer, values(5))
        assert poll(consumer, 5) == values(5)
        consumer.commit()
    with Producer(log) as producer, Consumer(log, "t", group_id="g", auto_offset_reset="earliest") as consumer:
        send(producer, values(10))
        assert poll(consumer, 5) == values(10), "the group goes on where it was"
        consumer.commit()
    for each in left:
        there = CommitLog(str(fast_path / each / "log"))
        assert [record.value for record in there.topic("t").read(0, 0, 100)] == values(0, 15)
        assert [row.offset for row in there.groups.describe("g").partitions] == [15]
    there.create_topic("more", 1)
    there.config.alter({"retention.ms": 12_345})
    assert CommitLog(str(fast_path / left[0] / "log")).config.get() == {"retention.ms": "12345"}
    assert not (fast_path / disk).exists(), "nothing is made where it was mounted"


def test_each_disk_in_turn(fast_path: Path) -> None:
    """One that comes back learns, and another may be lost then."""
    log = made(fast_path)
    for turn, disk in enumerate(DISKS):
        os.rename(fast_path / disk, fast_path / "away")
        with Producer(log) as producer, Consumer(log, "t", group_id="g", auto_offset_reset="earliest") as consumer:
            send(producer, values(turn * 5))
            assert poll(consumer, 5) == values(turn * 5)
            consumer.commit()
        os.rename(fast_path / "away", fast_path / disk)
        replicated = CommitLog(str(fast_path / disk / "log")).replicas.sync()
        assert [dict(row.failed) for row in replicated] == [{}]
        assert [len(row.isr) for row in replicated] == [3]
    for disk in DISKS:
        there = CommitLog(str(fast_path / disk / "log"))
        assert [record.value for record in there.topic("t").read(0, 0, 100)] == values(0, 15)
        assert [row.offset for row in there.groups.describe("g").partitions] == [15]
        assert not there.verify().faults
        assert not there.verify().unnamed

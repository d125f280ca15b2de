"""Consumers beside writers, settlers, retention and compaction, in threads, with no delay before files go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer, Record
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from tests.support.consumers import SMALL, at, by_partition, numbered
from tests.support.records import append, batch_of

#: Files go at once where the settle journal lets them: a reader has to look again and again.
HASTY = {**SMALL, "segment.bytes": 4096, "settle.entries": 2, "inline.max.bytes": 500, "file.delete.delay.ms": 0}
COMMITS = 60


def beside(act: Callable[[], None], root: str, readers: int = 3) -> list[list[Record]]:
    """Run `act` in a thread, and read all that there is beside it with several consumers; return what each saw."""
    seen: list[list[Record]] = [[] for _ in range(readers)]
    failed: list[Exception] = []

    def write() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 told in the test's thread
            failed.append(error)

    def read(into: list[Record]) -> None:
        try:
            with Consumer(root, "t", auto_offset_reset="earliest", max_poll_records=17) as each:
                while writer.is_alive() or any(each.lag().values()):
                    into += each.poll(0.005)
                while found := each.poll():
                    into += found
        except Exception as error:  # noqa: BLE001 told in the test's thread
            failed.append(error)

    writer = threading.Thread(target=write)
    threads = [threading.Thread(target=read, args=(into,)) for into in seen]
    writer.start()
    for thread in threads:
        thread.start()
    for thread in (writer, *threads):
        thread.join()
    if failed:
        raise failed[0]
    return seen


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The path of a root that is not there yet."""
    return str(tmp_path / "root")


def test_what_fails_beside_the_readers_fails_the_test(root: str) -> None:
    CommitLog(root).create_topic("t", 1, HASTY)

    def fail() -> None:
        raise RuntimeError("injected")

    with pytest.raises(RuntimeError, match="injected"):
        beside(fail, root)


def test_no_record_is_lost_or_comes_twice_beside_settlers_and_collectors(root: str) -> None:
    log = CommitLog(root)
    log.create_topic("t", 2, HASTY)

    def write() -> None:
        topic = log.root.topic("t")
        for n in range(COMMITS):
            append(topic, batch_of(numbered(5 * n, 5 * n + 5), partition=[n % 2] * 5))
            settle_after_commit(topic, topic.newest()[1].topic_id)
            if n % 10 == 0:
                log.topic("t").maintain()

    for seen in beside(write, root):
        rows = by_partition(seen)
        assert sum(map(len, rows.values())) == 5 * COMMITS
        for partition in range(2):
            own = [v for n in range(partition, COMMITS, 2) for v in numbered(5 * n, 5 * n + 5)]
            assert rows[at(partition)] == list(enumerate(own))


def test_retention_takes_only_what_is_below_the_log_start(root: str) -> None:
    log = CommitLog(root)
    log.create_topic("t", 1, {**HASTY, "retention.bytes": 6000})
    starts: list[int] = []

    def write() -> None:
        topic = log.root.topic("t")
        for n in range(COMMITS):
            append(topic, batch_of(numbered(5 * n, 5 * n + 5)))
            if n % 5 == 0:
                log.topic("t").maintain()
                starts.append(log.topic("t").describe().partitions[0].log_start_offset)

    all_of_it = numbered(0, 5 * COMMITS)
    for seen in beside(write, root):
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets))
        assert all(record.value == all_of_it[record.offset] for record in seen)
        jumps = [now for before, now in zip([-1, *offsets], offsets, strict=False) if now != before + 1]
        assert set(jumps) <= set(starts)
        assert offsets[-1] == 5 * COMMITS - 1
    assert starts[-1] > 0


def test_compaction_leaves_the_last_value_of_every_key_to_be_seen(root: str) -> None:
    log = CommitLog(root)
    log.create_topic("t", 1, {**HASTY, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})

    def write() -> None:
        topic = log.root.topic("t")
        for n in range(COMMITS):
            keys = [b"%d" % ((n + k) % 7) for k in range(5)]
            append(topic, batch_of([b"%06d" % (5 * n + k) for k in range(5)], key=keys))
            if n % 5 == 0:
                log.topic("t").maintain()

    for seen in beside(write, root):
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets))
        assert all(record.value == b"%06d" % record.offset for record in seen)
        last = {record.key: record.offset for record in seen}
        written = {b"%d" % ((n + k) % 7): 5 * n + k for n in range(COMMITS) for k in range(5)}
        assert last == written

"""`CommitLog`: what a user does to topics, and what is refused with nothing half-applied."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.core import url_to_fs

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import (
    ConfigError,
    CorruptionError,
    RootNotFoundError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedError,
    UsageError,
)
from tests.support.records import append, batch_of, read_topic


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def log(root: Path) -> CommitLog:
    return CommitLog(str(root))


def everything(root: Path) -> set[str]:
    """Return all paths below a root."""
    return {str(path.relative_to(root)) for path in root.rglob("*")} if root.exists() else set()


def test_opening_touches_nothing(log: CommitLog, root: Path) -> None:
    assert not root.exists()
    with pytest.raises(RootNotFoundError, match="create_topic"):
        log.topics()
    assert not root.exists()


def test_a_new_topic_is_empty_and_has_what_was_asked(log: CommitLog) -> None:
    log.create_topic("flights", partitions=4, config={"segment.bytes": 4096, "retention.ms": -1})
    described = log.topic("flights").describe()
    assert log.topics() == ["flights"]
    assert (described.config["segment.bytes"], described.config["retention.ms"]) == ("4096", "-1")
    assert described.config["compression.type"] == "lz4"
    assert [(p.partition, p.log_start_offset, p.high_watermark, p.log_end_offset, p.segments, p.size_bytes)
            for p in described.partitions] == [(n, 0, 0, 0, 1, 0) for n in range(4)]  # fmt: skip


def test_describe_counts_records_segments_and_bytes(log: CommitLog, root: Path) -> None:
    log.create_topic("t", config={"segment.bytes": 2048, "compression.type": "none"})
    topic = log.root.topic("t")
    for _ in range(5):
        append(topic, batch_of([b"x" * 100] * 10))
        log.topic("t").maintain()
    append(topic, batch_of([b"y"] * 3))
    (p,) = log.topic("t").describe().partitions
    logs = list(root.glob("topics/t/*/0/*.log"))
    assert (p.high_watermark, p.log_end_offset, p.unsettled) == (53, 53, 3)
    assert p.segments == len(logs) > 1
    assert p.size_bytes == sum(file.stat().st_size for file in logs)


def test_describe_counts_the_bytes_of_what_is_not_settled_too(log: CommitLog) -> None:
    """They were 0 for 336,776 records that were just written."""
    log.create_topic("t", 3, {"compression.type": "none", "settle.bytes": 2**40})
    append(log.root.topic("t"), batch_of([b"x" * 1000] * 40, partition=[0] * 10 + [2] * 30))
    described = log.topic("t").describe()
    assert [p.size_bytes for p in described.partitions] == [0, 0, 0]
    first, none, last = [p.unsettled_bytes for p in described.partitions]
    assert (none, last) == (0, pytest.approx(3 * first, abs=3))
    assert 40_000 < first + last < 60_000
    shown = [line.split() for line in str(described).splitlines()[2:5]]
    assert [int(row[5]) for row in shown] == [first, 0, last]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "__reserved", "../up", None])
def test_a_name_that_kafka_would_refuse_is_refused(log: CommitLog, root: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not allowed"):
        log.create_topic(name)
    assert not root.exists()


@pytest.mark.parametrize("name", ["a", "x" * 249, "A.b_c-9", "..."])
def test_a_name_that_kafka_allows_is_allowed(log: CommitLog, name: str) -> None:
    log.create_topic(name)
    assert log.topics() == [name]


@pytest.mark.parametrize("partitions", [0, -1, 10_001, True, 1.5, "3"])
def test_an_impossible_number_of_partitions_is_refused(log: CommitLog, root: Path, partitions: int) -> None:
    with pytest.raises(UsageError, match="1 to 10000"):
        log.create_topic("t", partitions=partitions)
    assert not root.exists()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"segment.byte": 1}, "did you mean 'segment.bytes'"),
        ({"segment.bytes": "many"}, "whole number"),
        ({"segment.bytes": 1}, "1024 to"),
        ({"compression.type": "gzip"}, "none, lz4, zstd"),
        ({"cleanup.policy": "shrink"}, "delete, compact"),
        ({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}, "is above max"),
    ],
)
def test_a_wrong_config_is_refused_before_anything_is_made(
    log: CommitLog, root: Path, config: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        log.create_topic("t", config=config)
    assert not root.exists()


def test_a_topic_that_is_there_is_not_made_again(log: CommitLog, root: Path) -> None:
    log.create_topic("t")
    before = everything(root)
    with pytest.raises(TopicExistsError):
        log.create_topic("t", partitions=9)
    assert everything(root) == before
    assert len(log.topic("t").describe().partitions) == 1


def test_an_unknown_topic_is_named_with_what_to_do(log: CommitLog) -> None:
    log.create_topic("t")
    with pytest.raises(UnknownTopicError, match=r"unknown topic 'nope'.*create_topic\('nope'"):
        log.topic("nope").describe()


def test_partitions_are_added_and_never_taken_away(log: CommitLog) -> None:
    log.create_topic("t", partitions=2)
    append(log.root.topic("t"), batch_of([b"a", b"b"], partition=[0, 1]))
    log.topic("t").add_partitions(3)
    append(log.root.topic("t"), batch_of([b"c"], partition=[2]))
    assert [p.high_watermark for p in log.topic("t").describe().partitions] == [1, 1, 1]
    for total in (3, 1):
        with pytest.raises(UsageError, match="has 3 partitions"):
            log.topic("t").add_partitions(total)


def test_numbers_of_numpy_are_taken_as_pythons(log: CommitLog) -> None:
    log.create_topic("t", partitions=np.int64(2))  # type: ignore[arg-type]
    append(log.root.topic("t"), batch_of([b"a"], partition=[1], timestamp=[5000]))
    log.topic("t").add_partitions(np.int32(3))  # type: ignore[arg-type]
    assert len(log.topic("t").describe().partitions) == 3
    found = log.topic("t").offsets_for_times({1: np.int64(4)})[1]  # type: ignore[dict-item]
    assert found is not None
    assert (found.offset, found.timestamp) == (0, 5)
    log.groups.commit("g", {"t": {1: 1}})
    moved = log.groups.reset("g", ["t"], timestamp=np.int64(5))  # type: ignore[arg-type]
    assert [row.after for row in moved] == [0, 0, 0]
    with pytest.raises(UsageError, match="is not allowed: it takes a whole number"):
        log.topic("t").offsets_for_times({1: np.datetime64(0, "ms")})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="use milliseconds since 1970, or a datetime"):
        log.groups.reset("g", ["t"], timestamp=np.float64(5))  # type: ignore[arg-type]


def test_configs_are_altered_and_taken_back(log: CommitLog) -> None:
    log.create_topic("t", config={"segment.bytes": 4096})
    log.topic("t").alter({"segment.ms": 1000, "segment.bytes": None})
    config = log.topic("t").describe().config
    assert (config["segment.ms"], config["segment.bytes"]) == ("1000", str(2**30))
    for wrong in ({"segment.ms": 0}, {"nope": 1}, {"nope": None}):
        with pytest.raises(ConfigError):
            log.topic("t").alter({"batch.size": 2048, **wrong})
    assert log.topic("t").describe().config["batch.size"] == "1048576"


def test_a_topic_made_again_is_another_topic(log: CommitLog) -> None:
    log.create_topic("t", partitions=3)
    first = log.topic("t").describe().topic_id
    append(log.root.topic("t"), batch_of([b"old"] * 10))
    log.topic("t").delete()
    assert log.topics() == []
    with pytest.raises(UnknownTopicError):
        log.topic("t").describe()
    log.create_topic("t", partitions=1)
    assert log.topic("t").describe().topic_id != first
    assert read_topic(log.root.topic("t")) == []
    append(log.root.topic("t"), batch_of([b"new"]))
    assert [record.value for record in read_topic(log.root.topic("t"))] == [b"new"]


def test_a_topic_that_is_there_is_made_only_if_it_does_not_exist(log: CommitLog) -> None:
    log.create_topic("t", partitions=2, if_not_exists=True)
    first = log.topic("t").describe()
    log.create_topic("t", partitions=5, config={"segment.bytes": 4096}, if_not_exists=True)
    assert log.topic("t").describe() == first
    with pytest.raises(TopicExistsError):
        log.create_topic("t", partitions=2)
    with pytest.raises(UsageError):
        log.create_topic("t", partitions=0, if_not_exists=True)


def test_another_format_version_is_refused_by_every_call(log: CommitLog, root: Path) -> None:
    log.create_topic("t")
    marker = root / "commitlog.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "formatVersion": 4}))
    for call in (
        log.topics,
        lambda: log.topic("t").describe(),
        lambda: log.create_topic("u"),
        lambda: log.topic("t").delete(),
    ):
        with pytest.raises(UnsupportedError, match=r"format version 4, this release .* reads version 3"):
            call()


def test_an_unknown_feature_is_refused_by_name(log: CommitLog, root: Path) -> None:
    log.create_topic("t")
    marker = root / "commitlog.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "readFeatures": ["replication"]}))
    with pytest.raises(UnsupportedError, match="uses replication"):
        log.topics()


def test_a_damaged_root_marker_is_named(log: CommitLog, root: Path) -> None:
    log.create_topic("t")
    (root / "commitlog.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"commitlog\.json"):
        log.topics()


def test_a_marker_that_says_another_id_than_its_crc_covers_is_damaged(log: CommitLog, root: Path) -> None:
    log.create_topic("t")
    marker = root / "commitlog.json"
    marker.write_text(re.sub('"rootId":"[^"]*"', '"rootId":"another"', marker.read_text()))
    with pytest.raises(CorruptionError, match=r"commitlog\.json: CRC-32C is "):
        log.topics()


def test_a_damaged_topic_does_not_hide_the_others(log: CommitLog, root: Path) -> None:
    for name in "ab":
        log.create_topic(name)
    (entry,) = (root / "topics" / "a" / "journal").iterdir()
    entry.write_bytes(b"{")
    assert log.topics() == ["a", "b"]


def test_a_url_of_a_local_directory_is_that_directory(tmp_path: Path) -> None:
    CommitLog(f"file://{tmp_path}/root").create_topic("t")
    assert CommitLog(str(tmp_path / "root")).topics() == ["t"]


@pytest.mark.parametrize("url", ["hdfs://namenode/root", "nonsense://x"])
def test_a_filesystem_that_is_not_known_to_be_safe_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedError):
        CommitLog(url)


def test_storage_options_reach_the_filesystem_of_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []

    def opened(url: str, **options: object) -> tuple[Any, str]:
        given.append(options)
        return url_to_fs(url)

    monkeypatch.setattr("fsspec.core.url_to_fs", opened)
    log = CommitLog(f"file://{tmp_path}/log", storage_options={"auto_mkdir": True})
    log.create_topic("t")
    assert given == [{"auto_mkdir": True}]
    assert CommitLog(str(tmp_path / "log")).topics() == ["t"]


def test_storage_options_of_a_path_are_refused() -> None:
    with pytest.raises(
        UsageError, match="storage options key, secret are for the filesystem of a URL, and '/data/log'"
    ):
        CommitLog("/data/log", storage_options={"secret": "s", "key": "k"})


def test_no_root_is_an_error_that_says_so() -> None:
    with pytest.raises(UsageError, match="no root given"):
        CommitLog("")

"""The metrics of topics and groups, from what `describe` returns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_commitlog import (
    Backlog,
    GroupDescription,
    GroupPartition,
    MemberDescription,
    PartitionDescription,
    ReplicaDescription,
    ReplicationDescription,
    TopicDescription,
    TopicPartition,
)
from pyspark_commitlog.cli.common.arguments import parse_listen
from pyspark_commitlog.cli.common.metric_samples import METRICS, Sample, group_samples, topic_samples
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.metrics import COUNTERS

ROWS = (PartitionDescription(0, 5, 40, 42, 3, 1000, 7, 70), PartitionDescription(1, 0, 0, 0, 1, 0, 0, 0))
TOPIC = TopicDescription(
    "clicks", "id", {}, ROWS, Backlog(2, 70, 1500), damaged={1: "a CRC differs"}, since_maintained_ms=60_000
)
REPLICATION = ReplicationDescription(
    "a", "/a", 0,
    (
        ReplicaDescription("a", "/a", "leader", (40,), (42,), 0, 0, 0),
        ReplicaDescription("b", "/b", "out of sync", fault="it is away"),
    ),
    ("a",), (), (),
)  # fmt: skip
PLACE = ("clicks", "0")


def values(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    """Return the samples by metric and labels; each is there once, with as many labels as its metric has."""
    found = {(each.metric, *each.labels): each.value for each in samples}
    assert len(found) == len(samples)
    assert all(len(METRICS[each.metric].labels) == len(each.labels) for each in samples)
    return found


def test_a_topic_that_stands_alone() -> None:
    found = values(list(topic_samples(TOPIC)))
    assert {name: value for (name, *labels), value in found.items() if tuple(labels) == PLACE} == {
        "kafka_topic_partition_current_offset": 40,
        "kafka_topic_partition_oldest_offset": 5,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_under_replicated_partition": 0,
        "commitlog_topic_partition_log_end_offset": 42,
        "commitlog_topic_partition_segments": 3,
        "commitlog_topic_partition_segment_bytes": 1000,
        "commitlog_topic_partition_unsettled_records": 7,
        "commitlog_topic_partition_unsettled_bytes": 70,
    }
    assert {name: value for (name, *labels), value in found.items() if labels == ["clicks"]} == {
        "kafka_topic_partitions": 2,
        "commitlog_topic_unsettled_entries": 2,
        "commitlog_topic_unsettled_age_seconds": 1.5,
        "commitlog_topic_since_maintenance_seconds": 60,
        "commitlog_topic_damaged_partitions": 1,
        "commitlog_topic_leader_up": 1,
    }
    assert len(found) == 2 * 10 + 6


def test_a_topic_that_nobody_maintained_yet_has_no_time_of_it() -> None:
    found = values(list(topic_samples(replace(TOPIC, since_maintained_ms=None))))
    assert ("commitlog_topic_since_maintenance_seconds", "clicks") not in found


def test_a_replica_that_is_away_is_out_of_sync_and_has_no_lag() -> None:
    found = values(list(topic_samples(replace(TOPIC, replication=REPLICATION))))
    assert found["kafka_topic_partition_replicas", *PLACE] == 2
    assert found["kafka_topic_partition_in_sync_replica", *PLACE] == 1
    assert found["kafka_topic_partition_under_replicated_partition", *PLACE] == 1
    assert found["commitlog_topic_leader_up", "clicks"] == 1
    assert {name: value for (name, *labels), value in found.items() if labels == ["clicks", "/a"]} == {
        "commitlog_replica_up": 1, "commitlog_replica_in_sync": 1, "commitlog_replica_lag_entries": 0,
        "commitlog_replica_lag_bytes": 0, "commitlog_replica_lag_seconds": 0,
    }  # fmt: skip
    assert {name: value for (name, *labels), value in found.items() if labels == ["clicks", "/b"]} == {
        "commitlog_replica_up": 0, "commitlog_replica_in_sync": 0,
    }  # fmt: skip


def test_a_leader_that_is_away() -> None:
    away = replace(REPLICATION, leader="b")
    assert values(list(topic_samples(replace(TOPIC, replication=away))))["commitlog_topic_leader_up", "clicks"] == 0


def test_a_group_lags_by_its_committed_offsets_alone() -> None:
    rows = (
        GroupPartition("clicks", 0, 30, 5, 40, 42, 10),
        GroupPartition("clicks", 1, None, 0, 9, 9, 9),
        GroupPartition("orders", 0, 7, 0, 7, 7, 0),
    )
    member = MemberDescription("c", "c", "host/1", None, ())
    group = GroupDescription("reports", 0, rows, {}, members=(member,), faults=("a fault",))
    assert values(list(group_samples(group, {TopicPartition("clicks", 0): 2500}))) == {
        ("kafka_consumergroup_members", "reports"): 1,
        ("commitlog_consumergroup_faults", "reports"): 1,
        ("kafka_consumergroup_current_offset", "reports", "clicks", "0"): 30,
        ("kafka_consumergroup_current_offset", "reports", "clicks", "1"): -1,
        ("kafka_consumergroup_current_offset", "reports", "orders", "0"): 7,
        ("kafka_consumergroup_lag", "reports", "clicks", "0"): 10,
        ("kafka_consumergroup_lag", "reports", "clicks", "1"): -1,
        ("kafka_consumergroup_lag", "reports", "orders", "0"): 0,
        ("commitlog_consumergroup_lag_seconds", "reports", "clicks", "0"): 2.5,
        ("kafka_consumergroup_current_offset_sum", "reports", "clicks"): 30,
        ("kafka_consumergroup_current_offset_sum", "reports", "orders"): 7,
        ("kafka_consumergroup_lag_sum", "reports", "clicks"): 10,
        ("kafka_consumergroup_lag_sum", "reports", "orders"): 0,
    }


def test_a_name_is_that_of_one_metric() -> None:
    assert METRICS.keys().isdisjoint(COUNTERS)
    assert all(each.help.endswith(".") for each in (*METRICS.values(), *COUNTERS.values()))


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9308", ("127.0.0.1", 9308)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_has_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address
    assert str(parse_listen(text)) == text


@pytest.mark.parametrize(
    "text",
    ["9308", ":9308", "localhost", "localhost:", "localhost:65536", "localhost:x", "127.0.0.1:-1", "::1:9308", "[::1]"],
)
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"use ADDRESS:PORT, as in 127.0.0.1:9308"):
        parse_listen(text)

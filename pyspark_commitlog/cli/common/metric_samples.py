"""Metrics of topics and groups: their names, and samples from descriptions. Pure.

Names that begin with `kafka_` are those of danielqsj/kafka_exporter, with its labels and meanings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pyspark_commitlog.metrics import Metric
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topic_description import ReplicaDescription, TopicDescription

if TYPE_CHECKING:
    from pyspark_commitlog.groups.descriptions import GroupDescription

_TOPIC, _PARTITION, _REPLICA = ("topic",), ("topic", "partition"), ("topic", "root")
_GROUP, _GROUP_TOPIC = ("consumergroup",), ("consumergroup", "topic")
_GROUP_PARTITION = (*_GROUP_TOPIC, "partition")
#: Value for a partition without a committed offset, as kafka_exporter has it.
_NO_OFFSET = -1

#: The metrics of `commitlog metrics`, all gauges, by name.
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("kafka_topic_partitions", _TOPIC, "Number of partitions."),
        Metric("kafka_topic_partition_current_offset", _PARTITION, "High watermark: readers see offsets below it."),
        Metric("kafka_topic_partition_oldest_offset", _PARTITION, "Log start offset."),
        Metric("kafka_topic_partition_replicas", _PARTITION, "Number of replicas; 1 of a root that stands alone."),
        Metric("kafka_topic_partition_in_sync_replica", _PARTITION, "Number of replicas in the ISR."),
        Metric("kafka_topic_partition_under_replicated_partition", _PARTITION, "1 if a replica is out of sync, or 0."),
        Metric("kafka_consumergroup_members", _GROUP, "Number of members."),
        Metric("kafka_consumergroup_current_offset", _GROUP_PARTITION, "Committed offset; -1 if there is none."),
        Metric("kafka_consumergroup_current_offset_sum", _GROUP_TOPIC, "Sum of the committed offsets of a topic."),
        Metric(
            "kafka_consumergroup_lag",
            _GROUP_PARTITION,
            "Offsets from the committed one to the high watermark; -1 if none is committed.",
        ),
        Metric("kafka_consumergroup_lag_sum", _GROUP_TOPIC, "Sum of the lags of a topic, of committed offsets alone."),
        Metric(
            "commitlog_consumergroup_lag_seconds",
            _GROUP_PARTITION,
            "Age of the first record that is not committed; 0 without lag. Only with --lag-seconds.",
        ),
        Metric("commitlog_consumergroup_faults", _GROUP, "Damaged entries and files of the group."),
        Metric("commitlog_topic_partition_log_end_offset", _PARTITION, "Log end offset: that of the next record."),
        Metric("commitlog_topic_partition_segments", _PARTITION, "Number of segments."),
        Metric("commitlog_topic_partition_segment_bytes", _PARTITION, "Bytes of the segments, without indexes."),
        Metric("commitlog_topic_partition_unsettled_records", _PARTITION, "Records that are in no segment yet."),
        Metric("commitlog_topic_partition_unsettled_bytes", _PARTITION, "About the bytes of these records."),
        Metric("commitlog_topic_unsettled_entries", _TOPIC, "Journal entries that wait to be settled."),
        Metric("commitlog_topic_unsettled_age_seconds", _TOPIC, "Age of the oldest of these entries; 0 without any."),
        Metric(
            "commitlog_topic_since_maintenance_seconds",
            _TOPIC,
            "Time since the topic was last maintained, or first settled; absent before.",
        ),
        Metric("commitlog_topic_damaged_partitions", _TOPIC, "Partitions that can't be settled and take no commits."),
        Metric("commitlog_topic_leader_up", _TOPIC, "1 if the leader's root answers, else 0."),
        Metric("commitlog_replica_up", _REPLICA, "1 if the replica's root answers, else 0; of topics with replicas."),
        Metric("commitlog_replica_in_sync", _REPLICA, "1 if the replica is in the ISR, else 0."),
        Metric("commitlog_replica_lag_entries", _REPLICA, "Journal entries that the replica has not learned."),
        Metric("commitlog_replica_lag_bytes", _REPLICA, "About the bytes of these entries, and of what they name."),
        Metric("commitlog_replica_lag_seconds", _REPLICA, "Time since the first of these entries was decided."),
        Metric("commitlog_up", (), "1 if the root's topics and groups could be listed, else 0."),
        Metric("commitlog_failed_topics", (), "Topics that could not be described: they have no other samples."),
        Metric("commitlog_failed_groups", (), "Groups that could not be described: they have no other samples."),
        Metric("commitlog_collection_duration_seconds", (), "Time that it took to describe everything."),
    )
}


class Sample(NamedTuple):
    """A value of a metric; `labels` are the values of its labels, in order."""

    metric: str
    labels: tuple[str, ...]
    value: float


def topic_samples(topic: TopicDescription) -> Iterator[Sample]:
    """Yield the samples of a topic, its partitions and replicas."""
    of = topic.replication
    replicas, in_sync = (1, 1) if of is None else (len(of.replicas), len(of.isr))
    yield Sample("kafka_topic_partitions", (topic.name,), len(topic.partitions))
    for row in topic.partitions:
        values = {
            "kafka_topic_partition_current_offset": row.high_watermark,
            "kafka_topic_partition_oldest_offset": row.log_start_offset,
            "kafka_topic_partition_replicas": replicas,
            "kafka_topic_partition_in_sync_replica": in_sync,
            "kafka_topic_partition_under_replicated_partition": in_sync < replicas,
            "commitlog_topic_partition_log_end_offset": row.log_end_offset,
            "commitlog_topic_partition_segments": row.segments,
            "commitlog_topic_partition_segment_bytes": row.size_bytes,
            "commitlog_topic_partition_unsettled_records": row.unsettled,
            "commitlog_topic_partition_unsettled_bytes": row.unsettled_bytes,
        }
        yield from _samples((topic.name, str(row.partition)), values)
    yield from _samples(
        (topic.name,),
        {
            "commitlog_topic_unsettled_entries": topic.unsettled.entries,
            "commitlog_topic_unsettled_age_seconds": _seconds(topic.unsettled.age_ms),
            "commitlog_topic_since_maintenance_seconds": _seconds(topic.since_maintained_ms),
            "commitlog_topic_damaged_partitions": len(topic.damaged),
            "commitlog_topic_leader_up": of is None or not of.is_unavailable,
        },
    )
    if of is not None:
        for replica in of.replicas:
            yield from _replica_samples(topic.name, replica, in_sync=replica.root_id in of.isr)


def _replica_samples(topic: str, replica: ReplicaDescription, *, in_sync: bool) -> Iterator[Sample]:
    values = {
        "commitlog_replica_up": replica.fault is None,
        "commitlog_replica_in_sync": in_sync,
        "commitlog_replica_lag_entries": replica.entries_behind,
        "commitlog_replica_lag_bytes": replica.bytes_behind,
        "commitlog_replica_lag_seconds": _seconds(replica.ms_behind),
    }
    return _samples((topic, replica.url), values)


def group_samples(group: GroupDescription, lag_ms: Mapping[TopicPartition, int]) -> Iterator[Sample]:
    """Yield the samples of a group; `lag_ms` has the lags whose time was looked up."""
    faults = {"kafka_consumergroup_members": len(group.members), "commitlog_consumergroup_faults": len(group.faults)}
    yield from _samples((group.group,), faults)
    for topic, found in groupby(group.partitions, key=lambda row: row.topic):
        rows = list(found)
        for row in rows:
            values = {
                "kafka_consumergroup_current_offset": _NO_OFFSET if row.offset is None else row.offset,
                "kafka_consumergroup_lag": _NO_OFFSET if row.offset is None else row.lag,
                "commitlog_consumergroup_lag_seconds": _seconds(lag_ms.get(TopicPartition(topic, row.partition))),
            }
            yield from _samples((group.group, topic, str(row.partition)), values)
        committed = [(row.offset, row.lag) for row in rows if row.offset is not None]
        sums = {
            "kafka_consumergroup_current_offset_sum": sum(offset for offset, _ in committed),
            "kafka_consumergroup_lag_sum": sum(lag for _, lag in committed),
        }
        yield from _samples((group.group, topic), sums)


def _samples(labels: tuple[str, ...], values: Mapping[str, float | None]) -> Iterator[Sample]:
    return (Sample(metric, labels, float(value)) for metric, value in values.items() if value is not None)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000

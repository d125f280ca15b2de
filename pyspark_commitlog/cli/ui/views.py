"""Topics and groups as plain data for the page (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pyspark_commitlog import (
    GroupDescription,
    PartitionDescription,
    ReplicationDescription,
    TopicDescription,
    TopicPartition,
)
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.topic_description import backlog_line, maintained_line

#: Rows of a page of topics or groups, and of one of partitions.
ROWS, PARTITION_ROWS = 50, 100
#: Partitions of a member that are named.
_NAMED = 100


def page_bounds(start: int, total: int, most: int) -> tuple[int, int]:
    """Return the first row and the one after the last of a page, inside `total` rows."""
    first = max(0, min(start, total))
    return first, min(first + most, total)


def error_view(error: Exception) -> dict[str, str]:
    """Class and text of an error; characters that are no text are escaped."""
    text = (error.on_command_line if isinstance(error, CommitLogError) else "") or str(error)
    return {"error": type(error).__name__, "message": text.encode(errors="backslashreplace").decode()}


def topic_row(topic: TopicDescription) -> dict[str, Any]:
    """Return a topic's row in the list of topics.

    `offsets` counts records before compaction, `written` also deleted ones.
    """
    replication = topic.replication
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "written": sum(row.high_watermark for row in topic.partitions),
        "offsets": sum(row.high_watermark - row.log_start_offset for row in topic.partitions),
        "bytes": sum(row.size_bytes + row.unsettled_bytes for row in topic.partitions),
        "unsettled": sum(row.unsettled for row in topic.partitions),
        "replicas": None if replication is None else len(replication.replicas),
        "inSync": None if replication is None else len(replication.isr),
        "typed": topic.schema is not None,
        "faults": topic_faults(topic),
    }


def topic_faults(topic: TopicDescription) -> list[str]:
    """Return what is wrong with a topic, in words."""
    faults = [
        f"partition {partition} takes no commits: it can't be settled: {why}"
        for partition, why in sorted(topic.damaged.items())
    ]
    if topic.replication is not None:
        faults += _replica_faults(topic.replication)
    if topic.unsafe_single_writer:
        faults.append("only one process may write: its root was made with unsafe.single.writer=true")
    return faults


def _replica_faults(of: ReplicationDescription) -> Iterator[str]:
    if of.is_unavailable:
        yield "the leader does not answer"
    if of.is_under_replicated:
        yield f"{len(of.isr)} of {len(of.replicas)} replicas are in sync"
    yield from (f"no answer from {each.url}: {each.fault}" for each in of.replicas if each.fault is not None)


def topic_view(topic: TopicDescription, start: int) -> dict[str, Any]:
    """Return a topic with a page of its partitions, and those of its replicas' offsets."""
    first, after = page_bounds(start, len(topic.partitions), PARTITION_ROWS)
    return {
        **topic_row(topic),
        "topicId": topic.topic_id,
        "config": dict(topic.config),
        "overrides": {name: topic.config[name] for name in topic.overrides},
        "backlog": backlog_line(topic.unsettled),
        "maintained": maintained_line(topic),
        "schema": None if topic.schema is None else asdict(topic.schema),
        "replication": None if topic.replication is None else replication_view(topic.replication),
        "partitionRows": {
            "total": len(topic.partitions),
            "from": first,
            "rows": [partition_row(row) for row in topic.partitions[first:after]],
        },
    }


def partition_row(row: PartitionDescription) -> dict[str, Any]:
    """Return a partition's row; `bytes` has those that are not settled, too."""
    return {
        "partition": row.partition,
        "logStart": row.log_start_offset,
        "highWatermark": row.high_watermark,
        "logEnd": row.log_end_offset,
        "segments": row.segments,
        "bytes": row.size_bytes + row.unsettled_bytes,
        "unsettled": row.unsettled,
    }


def replication_view(of: ReplicationDescription) -> dict[str, Any]:
    """Return leader, ISR and replicas, without their offsets by partition."""
    return {
        "leader": of.leader_url,
        "leaderEpoch": of.leader_epoch,
        "isr": [replica.url for replica in of.replicas if replica.root_id in of.isr],
        "replicas": [
            {
                "url": replica.url,
                "role": replica.role,
                "entriesBehind": replica.entries_behind,
                "bytesBehind": replica.bytes_behind,
                "msBehind": replica.ms_behind,
                "fault": replica.fault,
            }
            for replica in of.replicas
        ],
        "metadata": [{"url": root.url, "fault": root.fault} for root in of.metadata],
    }


def group_row(group: GroupDescription) -> dict[str, Any]:
    """Return a group's row in the list of groups; `lag` is in records."""
    return {
        "group": group.group,
        "state": group.state,
        "members": len(group.members),
        "topics": sorted({row.topic for row in group.partitions}),
        "lag": sum(row.lag for row in group.partitions),
        "faults": list(group.faults),
    }


def group_view(group: GroupDescription, start: int) -> dict[str, Any]:
    """Return a group with its members, and a page of its partitions: those with the largest lag first."""
    owners = {place: member.consumer_id for member in group.members for place in member.partitions}
    rows = sorted(group.partitions, key=lambda row: (-row.lag, row.topic, row.partition))
    first, after = page_bounds(start, len(rows), PARTITION_ROWS)
    return {
        **group_row(group),
        "protocol": group.protocol,
        "resets": group.generation,
        "generation": group.generation_id,
        "metadata": dict(group.metadata),
        "memberRows": [
            {
                "consumerId": member.consumer_id,
                "host": member.host,
                "instanceId": member.group_instance_id,
                "assigned": len(member.partitions),
                "partitions": partition_names(member.partitions),
            }
            for member in group.members
        ],
        "partitionRows": {
            "total": len(rows),
            "from": first,
            "rows": [
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "offset": row.offset,
                    "logStart": row.log_start_offset,
                    "highWatermark": row.high_watermark,
                    "lag": row.lag,
                    "member": owners.get(TopicPartition(row.topic, row.partition)),
                }
                for row in rows[first:after]
            ],
        },
    }


def partition_names(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as `topic-0, topic-1`, the first of many."""
    names = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:_NAMED])
    return names + ", …" * (len(partitions) > _NAMED)

"""What is known of a topic: its partitions, configs, columns and replicas."""

from __future__ import annotations

from pyspark_commitlog.api.replica_progress import describe_replication, log_ends
from pyspark_commitlog.format.schema.description import describe_schema
from pyspark_commitlog.topic.maintain.last_maintained import since_maintained_ms
from pyspark_commitlog.topic.read.backlog import backlog
from pyspark_commitlog.topic.settle.sources import settled_with_tail
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import PartitionDescription, TopicDescription


def describe_topic(topic: TopicLog, *, unsafe: bool) -> TopicDescription:
    """Describe a topic by its newest durable entry.

    `unsafe`: only one process may write to its root.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    newest, state = topic.newest_durable()
    settle_state, slices = settled_with_tail(topic, state.topic_id)
    log_ends_here = log_ends(topic, state)
    waiting = backlog(topic, newest, state, settle_state)
    left = [max(0, end - settle_state.partition(number).end_offset) for number, end in enumerate(state.log_end)]
    partitions = []
    for number in range(state.partitions):
        row = settle_state.partition(number)
        sealed, size = (row.manifest.segments, row.manifest.size_bytes) if row.manifest else (0, 0)
        partitions.append(
            PartitionDescription(
                partition=number,
                log_start_offset=state.log_start[number],
                high_watermark=state.log_end[number],
                log_end_offset=log_ends_here[number],
                segments=sealed + len(slices.get(number, ())) + topic.storage.can_append,
                size_bytes=size + sum(slices.get(number, ())) + row.active.length,
                unsettled=left[number],
                unsettled_bytes=left[number] * waiting.size_bytes // max(1, sum(left)),
            )
        )
    since_ms, was_maintained = since_maintained_ms(topic, state.topic_id)
    damaged = {damage.partition: damage.why for damage in settle_state.damaged}
    config = topic.config(state)
    return TopicDescription(
        topic.name,
        state.topic_id,
        config.resolved(),
        tuple(partitions),
        waiting,
        damaged,
        tuple(sorted(config.stored)),
        since_ms,
        unsafe,
        describe_replication(topic, newest),
        describe_schema(state.schema),
        was_maintained,
    )

"""Check all of a topic's stored bytes against what its newest entries say."""

from __future__ import annotations

from pyspark_commitlog.topic.damage import verify as package
from pyspark_commitlog.topic.topic_log import TopicLog


def verify(topic: TopicLog) -> int:
    """Fail on any fault; return the records in segments."""
    assert package.verify(topic).faults == ()
    topic_id = topic.newest()[1].topic_id
    records = 0
    settled = topic.settled(topic_id)[1]
    for partition, row in enumerate(settled.partitions):
        sealed = topic.sealed(settled, partition)
        records += row.end_offset - (sealed[0].base_offset if sealed else row.active.base_offset)
    return records

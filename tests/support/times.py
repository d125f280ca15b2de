"""Records a few milliseconds apart, and what is found by time compared with a walk over all of them."""

from __future__ import annotations

import random

from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_max_timestamp, find_time, spans_outside
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import Record, batch_of, read_partition
from tests.support.world import CHUNKS

CONFIG = {**CHUNKS, "segment.bytes": 4096, "index.interval.bytes": 100, "batch.size": 1024, "compression.type": "none"}
START_MS = 1_000_000_000


def batch(times: list[int]) -> object:
    """Return records of these timestamps (ms), some microseconds later."""
    noise = random.Random(times[0])
    return batch_of([noise.randbytes(200) for _ in times], timestamp=[1000 * at + 7 for at in times])


def walked(records: list[Record], at: int) -> OffsetAndTimestamp | None:
    """Return the answer of a walk over all readable records."""
    for record in records:
        if record.timestamp >= at * 1000:
            return OffsetAndTimestamp(record.offset, record.timestamp // 1000)
    return None


def latest(records: list[Record]) -> OffsetAndTimestamp | None:
    """Return the first of the records with the largest timestamp in ms."""
    told = [OffsetAndTimestamp(record.offset, record.timestamp // 1000) for record in records]
    return next((each for each in told if each.timestamp == max(other.timestamp for other in told)), None)


def agree(topic: TopicLog) -> None:
    """Compare the answers for every timestamp around every record, and for the largest."""
    topic_id = topic.newest()[1].topic_id
    records = read_partition(topic, 0)
    for at in [0, START_MS - 1, *range(START_MS, START_MS + 1300, 15), START_MS + 10**6]:
        assert find_time(topic, topic_id, 0, at) == walked(records, at), at
    assert find_max_timestamp(topic, topic_id, 0) == latest(records)


def check_windows(topic: TopicLog) -> int:
    """Try many windows of time; return how many records were left out."""
    topic_id, records = topic.newest()[1].topic_id, read_partition(topic, 0)
    left_out = 0
    for first in {START_MS - 50, START_MS + 5000, *(record.timestamp // 1000 for record in records)}:
        for width in (0, 9, 200):
            spans = spans_outside(topic, topic_id, 0, first, first + width)
            for record in records:
                if any(start <= record.offset < end for start, end in spans):
                    left_out += 1
                    assert not first <= record.timestamp // 1000 <= first + width
    return left_out

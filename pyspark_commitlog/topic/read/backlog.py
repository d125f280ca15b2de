"""Amount of unsettled records of a topic."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import Extent, TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import NOTHING_WAITS, Backlog

#: Entries sampled to estimate the bytes.
_READ = 64


def backlog(topic: TopicLog, newest: Stored, state: TopicState, settled: SettleState) -> Backlog:
    """Unsettled entries, their bytes, and the oldest readable one's age."""
    first = max(settled.oldest_unsettled, state.created + 1)
    entries = newest.sequence - first + 1
    if all(settled.partition(partition).end_offset >= end for partition, end in enumerate(state.log_end)):
        return NOTHING_WAITS
    some = min(entries, _READ)
    size, read, since_ms = 0, 0, topic.journal.dated(newest)[1]
    numbers = [first + number * entries // some for number in range(some)]
    for stored in topic.journal.read_several(numbers).values():  # verify reports those left out
        try:
            extents = topic.extents(stored.entry)
        except (FileNotFoundError, CorruptionError):
            continue
        size += _unsettled_bytes(extents, settled)
        since_ms = since_ms if read else stored.info.modified_ms
        read += 1
    age_ms = max(0, topic.storage.clock.now_ms() - since_ms) if since_ms >= 0 else 0
    return Backlog(entries, size * entries // max(1, read), age_ms)


def _unsettled_bytes(extents: Sequence[Extent], settled: SettleState) -> int:
    ends = ((extent, settled.partition(extent.partition).end_offset) for extent in extents)
    return sum(extent.length for extent, end in ends if extent.end_offset > end)

"""Failover of a task's read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.spark.common.root_failover import PATIENCE_SECONDS
from pyspark_commitlog.storage.clock import Deadline

if TYPE_CHECKING:
    from pyspark_commitlog.model import OffsetRange
    from pyspark_commitlog.topic.read.reader import Rows
    from pyspark_commitlog.topic.topic_log import TopicLog

#: Roots that a task tries one after the other.
_TRIES = 4
#: Seconds between two looks of a task at a root that has to learn an entry.
_PAUSE = 0.05


def read_on(
    opened: Callable[[OffsetRange], TopicLog],
    wanted: OffsetRange,
    read: Callable[[TopicLog, OffsetRange], Iterator[Rows]],
) -> Iterator[Rows]:
    """Yield the records of a range, after a failure from another root.

    `opened` opens the topic at a root that answers.
    """
    for left in reversed(range(_TRIES)):
        topic = opened(wanted)
        try:
            _await(topic, wanted)
            for rows in read(topic, wanted):
                yield rows
                wanted = replace(wanted, start=rows.offset_of(rows.count - 1) + 1, anchors=())
            return
        except (CommitLogError, OSError):
            if not left or not topic.is_away():
                raise
            wanted = replace(wanted, anchors=())


def _await(topic: TopicLog, wanted: OffsetRange) -> None:
    """Wait until the root shows what another one has shown."""
    if not topic.journal.is_replicated:
        return
    clock = topic.storage.clock
    deadline = Deadline(clock, PATIENCE_SECONDS)
    while True:
        _, state = topic.newest(wanted.topic_id)
        if state.log_end[wanted.partition] >= wanted.end:
            return
        if deadline.is_over:
            raise ReplicaNotAvailableError(
                f"topic {topic.name!r} partition {wanted.partition}: {topic.storage.url} shows offsets up to "
                f"{state.log_end[wanted.partition]} only, and {wanted.end} was read elsewhere: run "
                "`commitlog replicas sync`"
            )
        clock.sleep(_PAUSE)

"""Offsets that a root settled before they were made void (pure).

After an unclean election, or an operator's void elsewhere, segments may still have their records, and compaction may
have dropped living records in their favour. Until all below was fetched again (`topic.replica_fetch.mend`) the root
compacts nothing there and is no source of copies. `voids_at` of a row is the entry by which its segments have
nothing void.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_commitlog.topic.state.settle_state import SettledPartition
from pyspark_commitlog.topic.state.topic_state import TopicState

#: Reason to refuse a root as a source.
MISLED = (
    "a compaction there has seen records that were made void since, and may have dropped older ones: run `commitlog "
    "maintain` at that root first"
)


def late_voids(state: TopicState, partition: int, row: SettledPartition) -> list[tuple[int, int]]:
    """Settled offsets [start, end) voided later, ascending.

    Empty for a topic that stands alone, such as a copy of one that lost records: its settled records are read.
    """
    return _made_void(state, partition, row) if state.is_replicated else []


def _made_void(state: TopicState, partition: int, row: SettledPartition) -> list[tuple[int, int]]:
    start, end = state.log_start[partition], row.end_offset
    late = (void for lost in state.lost if lost.entry > row.voids_at for void in lost.ranges)
    ranges = ((max(void.start, start), min(void.end, end)) for void in late if void.partition == partition)
    return sorted(each for each in ranges if each[0] < each[1])


def with_voids_at(
    state: TopicState, number: int, partition: int, before: SettledPartition, after: SettledPartition
) -> SettledPartition:
    """Row after settling, with `voids_at` updated.

    Standalone copies keep it too: replicas may join later. `number` is the entry it was settled by.
    """
    counts = state.is_replicated or bool(state.lost)
    if not counts or partition >= state.partitions or before.end_offset == after.end_offset:
        return after
    known = min(before.voids_at, number) if _made_void(state, partition, before) else number
    return replace(after, voids_at=known)


def is_misled(state: TopicState, partition: int, row: SettledPartition) -> bool:
    """Whether compaction may have dropped records in favour of void ones."""
    return any(start < row.compacted_below for start, _ in late_voids(state, partition, row))

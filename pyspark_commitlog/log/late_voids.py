"""Offsets that a root had settled before an entry made them void: an unclean election, or an operator elsewhere (pure).

Their records may still be in its segments. Where compaction has seen such a record it may have dropped an older one of
the key, which lives: nothing is compacted there, or copied from there, before all that it has seen was fetched
(``log.maintain.mend``). What it dropped leaves no trace, so a row says by which entry its segments have nothing void.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_commitlog.log.settle_state import SettledPartition
from pyspark_commitlog.log.state import TopicState

#: What is said of a root that nothing is taken from.
MISLED = (
    "a compaction there has seen records that were made void since, and may have dropped older ones: run `commitlog "
    "maintain` at that root first"
)


def late_voids(state: TopicState, partition: int, row: SettledPartition) -> list[tuple[int, int]]:
    """Return the settled offsets [start, end) of a partition that were made void after they were settled, ascending.

    None where the topic stands alone, as a copy of one that lost records does: what is settled there is read.

    Args:
        state: of the topic, with all voids that count.
        partition, row: what a root has settled.
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
    """Return a row after settling, which leaves out what is void by then.

    A copy that stands alone says so, too: others may join it later.

    Args:
        state, number: of the topic, and its entry, by which it was settled.
        partition: whose row.
        before, after: it had something late already, or not.
    """
    counts = state.is_replicated or bool(state.lost)
    if not counts or partition >= state.partitions or before.end_offset == after.end_offset:
        return after
    known = min(before.voids_at, number) if _made_void(state, partition, before) else number
    return replace(after, voids_at=known)


def is_misled(state: TopicState, partition: int, row: SettledPartition) -> bool:
    """Return whether compaction may have dropped records that live, in favour of what is void by now."""
    return any(start < row.compacted_below for start, _ in late_voids(state, partition, row))

"""Compaction of own pieces without append.

Nobody else takes a compacted topic's own pieces (O3), so the tail is split first. A round publishes pieces by offset;
`cleaned` rises with the last (O5). A compactor whose pieces are no longer named gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.settle.pieces import Manifests, are_named, replace_own
from pyspark_commitlog.topic.state.late_voids import is_misled
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared
from pyspark_commitlog.topic.topic_log import TopicLog


def publish_piece(
    topic: TopicLog,
    topic_id: str,
    partition: int,
    old: Sequence[Sealed],
    new: Sequence[Sealed],
    cleaned: int | None,
    dropped_below: int,
    known_at: int,
) -> bool:
    """Replace `old` by `new`; return whether that is published.

    Refused if records that the round has read were voided since: another process may drop them, and nothing would say
    that `new` lacks older ones.

    Args:
        topic, topic_id, partition: the partition.
        old, new: adjacent pieces and their replacement.
        cleaned: the end of the round, for its last piece.
        dropped_below: the end of the round.
        known_at: topic entry whose voids the round knew.

    Raises:
        StorageError, OutcomeUnknownError: it may be published.
    """
    manifests = Manifests(topic, topic_id)

    def swap(base: Stored, now: SettleState) -> Change | None:
        _, state = topic.newest(topic_id)  # after `now`, which may lack late voids
        row = replace(now.partition(partition), dropped_below=dropped_below, voids_at=known_at)
        if is_misled(state, partition, row):
            return None
        return replace_own(
            topic, base, now, partition, old, new, cleaned=cleaned, dropped_below=dropped_below, manifests=manifests
        )

    if topic.change(topic_id, swap) is not None:
        return True
    return are_named(topic, topic.settled(topic_id)[1], partition, new)  # the reply was lost (rule O2)


def still_own(topic: TopicLog, topic_id: str, partition: int, pieces: Sequence[Sealed]) -> bool:
    """Whether the newest settle entry names all these pieces.

    Only then a missing one is a loss (rule R8).
    """
    return are_named(topic, topic.settled(topic_id)[1], partition, pieces)


def eligible(sealed: Sequence[Sealed], tail: Sequence[Shared]) -> tuple[Sealed, ...]:
    """Segments outside the newest tail object (pure).

    That one is like Kafka's active segment.
    """
    newest = tail[-1].name if tail else ""
    return tuple(segment for segment in sealed if segment.place is None or segment.place.object != newest)


def reaches_into(tail: Sequence[Shared], dirty: Sequence[Sealed]) -> int:
    """How many of the oldest tail objects have dirty segments (pure)."""
    wanted = {segment.place.object for segment in dirty if segment.place is not None}
    return max((number for number, shared in enumerate(tail, 1) if shared.name in wanted), default=0)

"""What compaction does to the settle state where nothing can be appended: operations on a partition's own pieces.

Nobody else takes those in a topic that is compacted (rule O3), so what lies in the tail is split first. A round
publishes piece by piece, in the order of offsets; ``cleaned`` rises with the last (rule O5). Any number of compactors
may work at once: the one whose pieces are not named any more gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.late_voids import is_misled
from pyspark_commitlog.log.objects.pieces import Manifests, are_named, replace_own
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import Sealed, SettleState, Shared
from pyspark_commitlog.log.topic import TopicLog


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
    """Put ``new`` in the place of ``old``; return whether that is published.

    Not where records were made void of which the round has read the keys: another process may have dropped them since,
    and then nothing would say that ``new`` lacks what they superseded.

    Args:
        topic, topic_id, partition: whose pieces.
        old, new: neighbours, and what was made of them.
        cleaned: of the last piece of a round: below it every key has one record.
        dropped_below: where the round ends: of each piece a record may be gone for one that is not published.
        known_at: the topic's entry by which the round knew what is void.

    Raises:
        StorageError, OutcomeUnknownError: it may be published.
    """
    manifests = Manifests(topic, topic_id)

    def swap(base: Stored, now: SettleState) -> Change | None:
        _, state = topic.newest(topic_id)  # after ``now``, which may lack what the topic's entry made void
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
    """Return whether the newest settle entry names all these pieces: only then a missing one is a loss (rule R8)."""
    return are_named(topic, topic.settled(topic_id)[1], partition, pieces)


def eligible(sealed: Sequence[Sealed], tail: Sequence[Shared]) -> tuple[Sealed, ...]:
    """Return the segments of a partition but that in the newest object of the tail (pure).

    That one has the part of Kafka's active segment, which is never compacted: what is split now will not be merged
    with what comes next.
    """
    newest = tail[-1].name if tail else ""
    return tuple(segment for segment in sealed if segment.place is None or segment.place.object != newest)


def reaches_into(tail: Sequence[Shared], dirty: Sequence[Sealed]) -> int:
    """Return how many objects of the tail, from the oldest on, hold segments that are to be compacted (pure)."""
    wanted = {segment.place.object for segment in dirty if segment.place is not None}
    return max((number for number, shared in enumerate(tail, 1) if shared.name in wanted), default=0)

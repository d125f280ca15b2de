"""Release of segments below the log start without a lock (O2).

An object of the tail goes once all its slices are below the log start (O11) and all before them are gone: no partition
gets a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.segment_object import Footer
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.settle.pieces import Manifests
from pyspark_commitlog.topic.state.settle_change import MAX_DROPS, Change
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared, objects_of
from pyspark_commitlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class LetGo:
    """Segments released by one entry; `more` if some are left.

    `own` counts the first own segments by partition.
    """

    own: Mapping[int, int]
    tail: frozenset[Shared]
    segments: int
    more: bool


def plan_let_go(
    own: Mapping[int, Sequence[Sealed]],
    tail: Sequence[tuple[Shared, Footer | None]],
    log_start: Sequence[int],
    most: int,
) -> LetGo:
    """Segments to release, dropping at most `most` names (pure).

    `own` has own segments by partition, without unreadable ones; `tail` has None for unreadable footers.
    """
    gone: dict[int, int] = {}
    emptied: set[int] = set()
    left, more = most, False
    for partition, segments in own.items():
        below = sum(segment.end_offset <= log_start[partition] for segment in segments)
        taken = min(below, max(0, left - 1))  # the manifest goes, too
        more = more or taken < below
        if taken == len(segments):
            emptied.add(partition)
        if taken:
            gone[partition], left = taken, left - taken - 1
    below_tail = _plan_tail(tail, log_start, emptied, left)
    return replace(
        below_tail, own=gone, segments=sum(gone.values()) + below_tail.segments, more=more or below_tail.more
    )


def _plan_tail(
    tail: Sequence[tuple[Shared, Footer | None]], log_start: Sequence[int], emptied: set[int], left: int
) -> LetGo:
    """Objects to release, at most `left`, after the own segments of partitions `emptied` by that (pure)."""
    objects: set[Shared] = set()
    segments, more = 0, False
    for shared, footer in tail:
        if footer is None:
            break
        slices = {piece.partition: piece.end_offset for piece in footer.slices}
        if all(p in emptied and end <= log_start[p] for p, end in slices.items()):
            if left < 1:
                more = True
                break
            objects.add(shared)
            left, segments = left - 1, segments + len(slices)
        else:
            emptied -= slices.keys()
    return LetGo({}, frozenset(objects), segments, more)


def let_go(topic: TopicLog, topic_id: str) -> int:
    """Release segments, by several entries if needed; return their number.

    Raises:
        TopicChangedError: the incarnation is gone.
        OutcomeUnknownError, ConflictError, StorageError: see `TopicLog.change`; safe to repeat.
    """
    operation, gone = _LettingGo(topic, topic_id), 0
    while topic.change(topic_id, operation) is not None:
        gone += operation.planned.segments
        if not operation.planned.more:
            break
    return gone


class _LettingGo:
    def __init__(self, topic: TopicLog, topic_id: str) -> None:
        self._topic, self._id = topic, topic_id
        self._manifests = Manifests(topic, topic_id)
        self.planned = LetGo({}, frozenset(), 0, more=False)

    def __call__(self, base: Stored, before: SettleState) -> Change | None:
        _, state = self._topic.newest_durable(self._id, fresh=True)
        if not any(state.log_start):
            return None
        own = self._own_segments(before, state.log_start)
        tail = [(shared, self._footer(shared)) for shared in before.tail]
        self.planned = plan = plan_let_go(own, tail, state.log_start, MAX_DROPS)
        if not plan.segments:
            return None
        rows, made, dropped = list(before.partitions), list[str](), list[str]()
        for partition, count in plan.own.items():
            gone, stay = own[partition][:count], own[partition][count:]
            manifest = self._manifests.after(base, before, partition, stay)
            rows[partition] = replace(rows[partition], manifest=manifest)
            made += [] if manifest is None else [f"manifests/{manifest.name}"]
            dropped += objects_of(gone, stay)
        kept = tuple(shared for shared in before.tail if shared not in plan.tail)
        return Change(replace(before, partitions=tuple(rows), tail=kept), tuple(made), tuple(dropped))

    def _own_segments(self, before: SettleState, log_start: Sequence[int]) -> dict[int, list[Sealed]]:
        own: dict[int, list[Sealed]] = {}
        for partition in range(len(log_start)):
            if log_start[partition]:
                try:
                    own[partition] = list(self._topic.own_segments(before, partition).every())
                except (FileNotFoundError, CorruptionError):  # reported by retention
                    continue
        return own

    def _footer(self, shared: Shared) -> Footer | None:
        found = self._topic.footer_or_fault(self._id, shared)
        return found if isinstance(found, Footer) else None  # as above

"""One run of a settler, independent of how it writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import (
    CorruptionError,
    StorageFullError,
    StorageReadOnlyError,
    SyncFailedError,
    as_reported,
)
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.budget import Budget
from pyspark_commitlog.topic.read.unsettled import Hole, Pending, Source, read_pending, sources_of
from pyspark_commitlog.topic.state.late_voids import with_voids_at
from pyspark_commitlog.topic.state.settle_state import Damage, SettledPartition, SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

# Errors that are not of one partition.
_OF_ALL = (StorageFullError, StorageReadOnlyError, SyncFailedError)
# Maximum of characters of a published damage.
_WHY = 400


@dataclass(frozen=True, slots=True)
class Settled:
    """Result of a run; no `sequence` if nothing was published.

    Attributes:
        complete: all undamaged partitions are settled.
        rebuilt: segments with rebuilt indexes.
        failures: per-partition errors, usually damage.
    """

    sequence: int | None
    records: int = 0
    complete: bool = True
    rebuilt: int = 0
    failures: tuple[Exception, ...] = ()


class SettleRun:
    """One run: `partitions` to publish, `failures` of others.

    `stored` and `state` are the topic's newest entry; `base` and `before` the newest settle entry, read after it.
    """

    def __init__(
        self, topic: TopicLog, stored: Stored, state: TopicState, base: Stored, before: SettleState, budget: Budget
    ) -> None:
        self._topic, self._state, self._stored, self._config = topic, state, stored, topic.config(state)
        self._base, self._before, self._budget = base, before, budget
        self._start = [before.partition(p) for p in range(state.partitions)]
        self._tried: set[int] = set()
        self.partitions = list(self._start)
        self.failures: list[tuple[int, Exception]] = []
        self.rebuilt: list[int] = []

    def pending(self, *, retry: bool) -> tuple[list[Pending], list[Pending]]:
        """Move all partitions; return all entries, and undamaged partitions' entries.

        `retry`: also damaged partitions; if some are not tried, the first list is empty.
        """
        marked = self._before.marked
        others = self.move(self._before.others_from, [p for p in range(self._state.partitions) if p not in marked])
        all_pending = [] if marked else others
        if marked and retry:
            all_pending = self.retried()
        return all_pending, others

    def retried(self) -> list[Pending]:
        """Move the damaged partitions; return the entries read."""
        return self.move(self._before.oldest_unsettled, sorted(self._before.marked))

    def move(self, first: int, partitions: Collection[int]) -> list[Pending]:
        """Settle some partitions, by entries from `first` on; return those read."""
        enough = self._read_enough()
        pending = read_pending(self._topic, self._before, self._state, self._stored, enough, first=first)
        unsettled = sources_of(pending, self._before, self._state.partitions)
        sources = {partition: unsettled[partition] for partition in partitions if partition in unsettled}
        self._tried.update(p for p in partitions if self.partitions[p].end_offset >= self._state.log_end[p])
        self._move_all(sources)
        return pending

    def _read_enough(self) -> Callable[[], bool]:
        def is_spent() -> bool:
            self._budget.rest()
            return self._budget.spent()

        return is_spent

    def _move_all(self, sources: Mapping[int, Sequence[Source | Hole]]) -> None:
        """Move every partition that has sources, by `_move`."""
        raise NotImplementedError

    def _move(self, partition: int, sources: Sequence[Source | Hole]) -> None:
        if self._is_over() and self.partitions != self._start:
            return
        with ErrorBoundary(lambda error: self.failures.append((partition, as_reported(error))), passing=_OF_ALL):
            mended = self._settle(partition, sources)
            self._tried.add(partition)
            self.rebuilt.extend([partition] * mended)

    def _is_over(self) -> bool:
        return self._budget.spent()

    def _settle(self, partition: int, sources: Sequence[Source | Hole]) -> bool:
        """Move one partition; return whether its indexes were rebuilt."""
        raise NotImplementedError

    @property
    def moved(self) -> int:
        """Number of records moved."""
        return sum(row.end_offset - start.end_offset for row, start in zip(self.partitions, self._start, strict=True))

    def after(
        self,
        before: SettleState,
        partitions: Sequence[SettledPartition],
        all_pending: Sequence[Pending],
        others: Sequence[Pending],
        *,
        publish_damage: bool,
    ) -> SettleState:
        """State to publish on top of `before`.

        `all_pending` are the entries from the oldest unsettled on, if read; `others` those that undamaged partitions
        need. Unmended old damage stays.
        """
        kept = {known.partition: known for known in before.damaged if known.partition not in self._tried}
        if publish_damage:
            kept |= self._new_damage(partitions)
        partitions = [
            with_voids_at(self._state, self._stored.sequence, p, before.partition(p), row)
            for p, row in enumerate(partitions)
        ]
        oldest, through = _reached(all_pending, partitions, frozenset(), (before.oldest_unsettled, before.through))
        ahead = None
        if kept:
            ahead, _ = _reached(all_pending, partitions, kept.keys(), (before.oldest_unsettled, before.through))
            if not all_pending or ahead >= before.others_from:
                ahead, _ = _reached(others, partitions, kept.keys(), (before.others_from, before.through))
        damaged = tuple(kept[partition] for partition in sorted(kept))
        return replace(
            before,
            through=through,
            oldest_unsettled=oldest,
            partitions=tuple(partitions),
            damaged=damaged,
            ahead=ahead,
        )

    def _new_damage(self, partitions: Sequence[SettledPartition]) -> dict[int, Damage]:
        return {
            partition: Damage(partition, partitions[partition].end_offset, str(error)[:_WHY])
            for partition, error in self.failures
            if isinstance(error, CorruptionError)
        }


def _reached(
    pending: Sequence[Pending],
    partitions: Sequence[SettledPartition],
    damaged: Collection[int],
    start: tuple[int, tuple[int, str]],
) -> tuple[int, tuple[int, str]]:
    """First needed entry, and the last below it (pure).

    By the log ends of undamaged partitions; `start` if there is none.
    """
    oldest, through = start
    for entry in pending:
        if any(end > partitions[p].end_offset for p, end in enumerate(entry.log_end) if p not in damaged):
            break
        if entry.sequence >= oldest:  # another settler may be ahead
            oldest, through = entry.sequence + 1, (entry.sequence, entry.write_id)
    return oldest, through

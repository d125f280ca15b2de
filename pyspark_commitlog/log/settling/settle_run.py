"""One run of a settler: what it reads, what it moved, and the state that this comes to. How it writes is its kind's."""

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
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.late_voids import with_voids_at
from pyspark_commitlog.log.read.unsettled import Hole, Pending, Source, read_pending, sources_of
from pyspark_commitlog.log.settle_state import Damage, SettledPartition, SettleState
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage import Clock

# Of what is damaged, characters that are published.
_WHY = 400


@dataclass(frozen=True, slots=True)
class Settled:
    """What one run did: the settle entry (None: nothing was due, or another settler has the lock) and records moved.

    ``complete``: of all partitions that are not damaged everything is settled. ``rebuilt`` counts segments whose
    indexes had to be rebuilt; ``failures`` says why partitions stayed as they are: damage, most times.
    """

    sequence: int | None
    records: int = 0
    complete: bool = True
    rebuilt: int = 0
    failures: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class SettleThrottle:
    """Pauses before each entry, which keep settling from starving its process.

    Attributes:
        seconds: for how long.
        in_all: how long one run may rest, seconds: it holds the settlers' lock meanwhile.
        hurries: whether somebody waits for the run: it rests no more then.
    """

    seconds: float
    in_all: float
    hurries: Callable[[], bool]


class Budget:
    """Time that a run may take; None for as long as it needs. What it rests is none of that."""

    def __init__(self, clock: Clock, seconds: float | None, throttle: SettleThrottle | None = None) -> None:
        self._clock, self._throttle, self._rested = clock, throttle, 0.0
        self._until = None if seconds is None else clock.monotonic() + seconds

    def spent(self) -> bool:
        """Return whether the time is over: asked before each step, by several threads."""
        return self._until is not None and self._clock.monotonic() >= self._until

    def rest(self) -> None:
        """Leave the processor to others for a moment; called by one thread, before each entry that is read."""
        throttle = self._throttle
        if throttle is None or self._rested + throttle.seconds > throttle.in_all or throttle.hurries():
            return
        began = self._clock.monotonic()
        self._clock.sleep(throttle.seconds)
        slept = self._clock.monotonic() - began
        self._rested += slept
        if self._until is not None:
            self._until += slept


class SettleRun:
    """One run: ``partitions`` are as they are to be published, ``failures`` why some stay.

    Args:
        topic, topic_id: whose.
        stored, state: the newest entry of the topic's journal.
        base, before: the newest settle entry, read after it.
        budget: when it is spent, the run ends after what it is at.
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
        """Move all partitions; return the entries from the oldest that is not settled on, and those that others need.

        Args:
            retry: whether partitions that are published as damaged are tried again. Where they are not, and there are
                some, the first list is empty.
        """
        marked = self._before.marked
        others = self.move(self._before.others_from, [p for p in range(self._state.partitions) if p not in marked])
        all_pending = [] if marked else others
        if marked and retry:
            all_pending = self.retried()
        return all_pending, others

    def retried(self) -> list[Pending]:
        """Move the partitions that are published as damaged; return the entries from the oldest unsettled on."""
        return self.move(self._before.oldest_unsettled, sorted(self._before.marked))

    def move(self, first: int, partitions: Collection[int]) -> list[Pending]:
        """Settle some partitions, which need entries from ``first`` on only; return the entries that were read."""
        enough = self._read_enough()
        pending = read_pending(self._topic, self._before, self._state, self._stored, enough, first=first)
        unsettled = sources_of(pending, self._before, self._state.partitions)
        sources = {partition: unsettled[partition] for partition in partitions if partition in unsettled}
        self._tried.update(p for p in partitions if self.partitions[p].end_offset >= self._state.log_end[p])
        self._move_all(sources)
        return pending

    def _read_enough(self) -> Callable[[], bool]:
        """Return what is asked before each entry is read, but for the first."""

        def is_spent() -> bool:
            self._budget.rest()
            return self._budget.spent()

        return is_spent

    def _move_all(self, sources: Mapping[int, Sequence[Source | Hole]]) -> None:
        """Move every partition that has sources, by ``_move``."""
        raise NotImplementedError

    def _move(self, partition: int, sources: Sequence[Source | Hole]) -> None:
        """Move one partition, unless the budget is spent; what fails is noted: no partition stops the others."""
        if self._is_over() and self.partitions != self._start:
            return
        try:
            mended = self._settle(partition, sources)
        except (StorageFullError, StorageReadOnlyError, SyncFailedError):  # no partition's own
            raise
        except Exception as error:  # noqa: BLE001 handed out: no partition stops the others
            self.failures.append((partition, as_reported(error)))
        else:
            self._tried.add(partition)
            self.rebuilt.extend([partition] * mended)

    def _is_over(self) -> bool:
        """Return whether there is no time for another partition."""
        return self._budget.spent()

    def _settle(self, partition: int, sources: Sequence[Source | Hole]) -> bool:
        """Move one partition and note its row; return whether its indexes were rebuilt."""
        raise NotImplementedError

    @property
    def moved(self) -> int:
        """Return how many records were moved."""
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
        """Return the state to publish on top of ``before``.

        Args:
            before: the state of the newest settle entry.
            partitions: their rows, as they are to be published.
            all_pending: entries from the oldest that is not settled on; none where those were not read.
            others: entries from the first that partitions without damage need.
            publish_damage: whether new damage is published; what was and is not mended stays.
        """
        kept = {known.partition: known for known in before.damaged if known.partition not in self._tried}
        if publish_damage:
            damage = [(partition, error) for partition, error in self.failures if isinstance(error, CorruptionError)]
            for partition, error in damage:
                kept[partition] = Damage(partition, partitions[partition].end_offset, str(error)[:_WHY])
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


def _reached(
    pending: Sequence[Pending],
    partitions: Sequence[SettledPartition],
    damaged: Collection[int],
    start: tuple[int, tuple[int, str]],
) -> tuple[int, tuple[int, str]]:
    """Return how far all but the ``damaged`` partitions are settled, by the entries' own log ends (pure).

    Returns:
        The first entry that is needed, and the last below it with its write id; ``start`` where there is none.
    """
    oldest, through = start
    for entry in pending:
        if any(end > partitions[p].end_offset for p, end in enumerate(entry.log_end) if p not in damaged):
            break
        if entry.sequence >= oldest:  # another settler may be ahead of what this one read
            oldest, through = entry.sequence + 1, (entry.sequence, entry.write_id)
    return oldest, through

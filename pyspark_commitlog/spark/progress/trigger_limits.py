"""Limits and delay of micro-batches (Spark: `CompositeReadLimit`). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_commitlog.model import TopicPartition

#: Longest wait for `minOffsetsPerTrigger`, ms.
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

Places = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch in records, stored bytes and ms; None: unlimited."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS

    def for_spark(self) -> ReadLimit:
        """One limit that Spark gets, which stands for all."""
        if self.max_offsets is not None:
            return ReadMaxRows(self.max_offsets)
        if self.max_bytes is not None:
            return ReadMaxBytes(self.max_bytes)
        return ReadAllAvailable() if self.min_offsets is None else ReadMinRows(self.min_offsets)

    def puts_off(self, starts: Places, ends: Places, waited_ms: float | None) -> bool:
        """Whether a micro-batch is delayed (Spark: `KafkaMicroBatchStream.delayBatch`).

        `waited_ms` is None before a run's first, which is never delayed.
        """
        if self.min_offsets is None or waited_ms is None:
            return False
        return _total(starts, ends) < self.min_offsets and waited_ms < self.max_delay_ms


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Stored bytes between two offsets, and the offset that a budget reaches."""

    between: Callable[[TopicPartition, int, int], int]
    reached: Callable[[TopicPartition, int, int, int], int]


def cut_by_bytes(starts: Places, ends: Places, max_bytes: int, stored: StoredBytes) -> dict[TopicPartition, int]:
    """Cut ends to about `max_bytes`, shared by size, at least one record."""
    places = [place for place, end in ends.items() if starts[place] < end]
    sizes = {place: stored.between(place, starts[place], ends[place]) for place in places}
    shares = prorate({}, sizes, max_bytes)
    cut = dict(ends)
    for place in places:
        if shares[place] < sizes[place]:
            reached = stored.reached(place, starts[place], ends[place], shares[place])
            cut[place] = min(max(reached, starts[place] + 1), ends[place])
    return cut


def _total(starts: Places, ends: Places) -> int:
    return sum(max(0, end - starts[place]) for place, end in ends.items())


def prorate(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Cut ends to `limit` records, shared in proportion to the backlog.

    Shares below 1 round up, even above the limit, so that no partition starves (Spark:
    `KafkaMicroBatchStream.rateLimit`). Others round down; the remainder goes to those cut most, so n limits of backlog
    take n triggers.
    """
    backlog = {place: max(0, end[place] - start.get(place, 0)) for place in end}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    shares = {place: limit * size // total or min(size, 1) for place, size in backlog.items()}
    left = max(0, limit - sum(shares.values()))
    cut_most = sorted(
        backlog, key=lambda place: (limit * backlog[place] // total == 0, -(limit * backlog[place] % total))
    )
    for place in cut_most[:left]:
        shares[place] += 1
    return {place: end[place] - size + shares[place] for place, size in backlog.items()}

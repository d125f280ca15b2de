"""Selection of segments to compact and to rewrite (pure).

Kafka: `LogCleanerManager.grabFilthiestCompactedLog`, `Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition

# Memory of a round per superseded offset.
_BYTES_AN_OFFSET = 8


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Adjacent segments of a round: compacted ones, then uncompacted ones."""

    clean: tuple[Sealed, ...]
    dirty: tuple[Sealed, ...]

    @property
    def segments(self) -> tuple[Sealed, ...]:
        """All of them."""
        return (*self.clean, *self.dirty)


def plan_compaction(
    sealed: Sequence[Sealed],
    row: SettledPartition,
    *,
    log_start: int,
    config: TopicConfig,
    now_ms: int,
    oldest_ms: int | None,
) -> Cleanable | None:
    """Segments to compact; None if not due (pure; `grabFilthiestCompactedLog`).

    `config` also bounds a round's dirty offsets (`cleaner.dedupe.buffer.size`). `oldest_ms` is the oldest uncompacted
    timestamp, if `max.compaction.lag.ms` is set. The active segment is never compacted.
    """
    if not config.has_policy("compact"):
        return None
    clean, uncompacted = _clean_and_dirty(sealed, row, log_start)
    dirty = _old_enough(uncompacted, config, now_ms)
    dirty_bytes = sum(s.length for s in dirty)
    if not dirty_bytes:
        return None
    share = dirty_bytes / (dirty_bytes + sum(s.length for s in clean))
    if not is_overdue(oldest_ms, config, now_ms) and share <= config.ratio("min.cleanable.dirty.ratio"):
        return None
    offsets = config.number("cleaner.dedupe.buffer.size") // _BYTES_AN_OFFSET
    return Cleanable(clean, tuple(_bounded(dirty, offsets)))


def idle_reason(
    sealed: Sequence[Sealed], row: SettledPartition, *, log_start: int, config: TopicConfig, now_ms: int
) -> str:
    """Reason why `plan_compaction` finds nothing (pure)."""
    clean, dirty = _clean_and_dirty(sealed, row, log_start)
    if not dirty:
        sizes = ", ".join(f"{name}={config.number(name)}" for name in ("segment.bytes", "segment.ms"))
        return f"no segment was sealed since the last compaction; the active one is never compacted ({sizes})"
    old = sum(s.length for s in _old_enough(dirty, config, now_ms))
    if not old:
        return f"its records are younger than min.compaction.lag.ms={config.number('min.compaction.lag.ms')}"
    share = old / (old + sum(s.length for s in clean))
    limit = config.ratio("min.cleanable.dirty.ratio")
    return f"the dirty ratio is {share:.2f}, and min.cleanable.dirty.ratio={limit}"


def _clean_and_dirty(
    sealed: Sequence[Sealed], row: SettledPartition, log_start: int
) -> tuple[tuple[Sealed, ...], tuple[Sealed, ...]]:
    first_dirty = max(log_start, row.cleaned)
    clean = tuple(s for s in sealed if log_start < s.end_offset <= first_dirty)
    return clean, tuple(s for s in sealed if s.end_offset > first_dirty)


def is_overdue(oldest_ms: int | None, config: TopicConfig, now_ms: int) -> bool:
    """Whether the oldest timestamp exceeds `max.compaction.lag.ms` (pure)."""
    return oldest_ms is not None and now_ms - oldest_ms > config.number("max.compaction.lag.ms")


def _old_enough(dirty: Sequence[Sealed], config: TopicConfig, now_ms: int) -> list[Sealed]:
    lag = config.number("min.compaction.lag.ms")
    young = (i for i, s in enumerate(dirty) if lag and s.max_timestamp > now_ms - lag)
    return list(dirty[: next(young, len(dirty))])


def _bounded(dirty: Sequence[Sealed], offsets: int) -> Iterator[Sealed]:
    taken = 0
    for segment in dirty:
        taken += segment.end_offset - segment.base_offset
        if taken > offsets and segment is not dirty[0]:
            return
        yield segment


def plan_groups(
    segments: Sequence[Sealed], touched: Sequence[bool], segment_bytes: int, split_bytes: int = LONG_MAX
) -> list[range]:
    """Return the runs to rewrite: touched segments and small neighbours (pure).

    `Cleaner.groupSegmentsBySize`. A run ends before `split_bytes`, after at least one segment.
    """
    groups: list[range] = []
    start, size = 0, 0
    for at, segment in enumerate(segments):
        joins = touched[at] or segment.length * 2 < segment_bytes
        if joins and size + segment.length <= split_bytes:
            size += segment.length
            continue
        groups.append(range(start, at))
        start, size = (at, segment.length) if joins else (at + 1, 0)
    groups.append(range(start, len(segments)))
    return [run for run in groups if len(run) > 1 or any(touched[i] for i in run)]

"""Values that the rooms hand to each other: frozen, and comparable by what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic, by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` (inclusive) to ``end`` (exclusive) of one partition of one topic id (rule R8)."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One row of ``CommitLog.describe``.

    ``segments`` and ``size_bytes`` speak of the segmented log; ``unsettled`` counts the records that are
    committed and readable but still lie in chunks or journal entries.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    segments: int
    size_bytes: int
    unsettled: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What ``CommitLog.describe`` answers."""

    name: str
    topic_id: str
    config: Mapping[str, str]
    partitions: tuple[PartitionDescription, ...]

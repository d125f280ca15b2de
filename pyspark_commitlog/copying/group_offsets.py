"""Copy consumer groups' offsets of copied topics. Forward only: a group that is further at the destination stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState, Position


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """An offset that the destination keeps, as it is higher than that of the source."""

    topic: str
    partition: int
    offset: int
    at_source: int


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """What a copy did to a group: how many partitions got an offset, and which keep theirs."""

    group: str
    moved: int
    kept: tuple[KeptOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group's offsets of some topics at the source: positions by what they were committed with."""

    group: str
    positions: tuple[tuple[str, tuple[Position, ...]], ...]


def read_offsets(source: Groups, topics: Collection[str]) -> list[GroupOffsets]:
    """Return all groups' offsets of some topics. Read them before the topics: then no offset is beyond the copy's end.

    Raises:
        CorruptionError: a group's newest entry is damaged.
    """
    return [offsets_of(name, source.open(name).newest(), topics) for name in source.list()]


def offsets_of(group: str, state: GroupState, topics: Collection[str]) -> GroupOffsets:
    """Return a group's offsets of some topics, with the metadata of the commits (pure)."""
    positions = []
    for topic_id, row in state.topics.items():
        if row.name in topics:
            offsets = state.offsets(topic_id).items()
            lineage = state.lineage(topic_id)
            rows = tuple(Position(row.name, topic_id, partition, offset, lineage) for partition, offset in offsets)
            positions.append((row.metadata, rows))
    return GroupOffsets(group, tuple((metadata, rows) for metadata, rows in positions if rows))


def moves(positions: Sequence[Position], there: GroupState) -> tuple[list[Position], list[KeptOffset]]:
    """Return which positions move a group forward, and which offsets of it are higher already (pure)."""
    forward, kept = [], []
    for at in positions:
        now = there.offset(at.topic_id, at.partition)
        if now == NEVER or at.offset > now:
            forward.append(at)
        elif now > at.offset:
            kept.append(KeptOffset(at.topic, at.partition, now, at.offset))
    return forward, kept


def write_offsets(destination: Groups, group: GroupOffsets) -> CopiedGroup:
    """Commit a group's offsets at the destination; raises as ``GroupLog.advance`` does."""
    handle, moved, kept = destination.open(group.group), 0, list[KeptOffset]()
    for metadata, positions in group.positions:
        there = handle.newest()
        forward, higher = moves(positions, there)
        kept += higher
        if forward:
            handle.advance(forward, there.generation, metadata)
            moved += len(forward)
    return CopiedGroup(group.group, moved, tuple(kept))

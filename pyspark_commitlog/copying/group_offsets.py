"""Copy of consumer groups' offsets of copied topics, forward only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState, Position
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """Offset that the destination keeps, as it is higher than the source's."""

    topic: str
    partition: int
    offset: int
    at_source: int


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """Outcome of a group's copy: partitions `moved`, offsets `kept`."""

    group: str
    moved: int
    kept: tuple[KeptOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """A group's offsets at the source, by commit metadata."""

    group: str
    positions: tuple[tuple[str, tuple[Position, ...]], ...]

    def of_topics(self, topics: Collection[str]) -> SourceOffsets:
        """Offsets of these topics."""
        return replace(self, positions=tuple(each for each in self.positions if each[1][0].topic in topics))


def read_offsets(source: Groups, topics: Mapping[str, TopicLog]) -> tuple[list[SourceOffsets], list[Exception]]:
    """All groups' offsets of some topics, and errors of unreadable groups.

    Read them before the topics, so that none is beyond the copy's end. Offsets of earlier incarnations are left out,
    and those from before a restore cut back.
    """
    groups, failures = list[tuple[GroupLog, GroupState]](), Failures()
    for name in source.list():
        with failures.collected():
            handle = source.open(name)
            groups.append((handle, handle.newest()))
    states = _states(topics) if groups else {}  # after the groups: to an older state they would look parted
    ids = {name: state.topic_id for name, state in states.items()}
    found = list[SourceOffsets]()
    for handle, state in groups:
        with failures.collected():
            found.append(offsets_of(handle.name, _of_histories(handle, state, states), ids))
    return found, failures.reported()


def _states(topics: Mapping[str, TopicLog]) -> dict[str, TopicState]:
    states = {}
    for name, topic in topics.items():
        with suppress(CommitLogError, OSError):  # one that is gone, or damaged, fails when it is copied
            states[name] = topic.newest_durable()[1]
    return states


def _of_histories(group: GroupLog, state: GroupState, topics: Mapping[str, TopicState]) -> GroupState:
    for name, topic in topics.items():
        state = group.of_history(state, name, topic)
    return state


def offsets_of(group: str, state: GroupState, ids: Mapping[str, str]) -> SourceOffsets:
    """Return a group's offsets by topic names and ids (pure)."""
    positions = []
    for topic_id, row in state.topics.items():
        if ids.get(row.name) == topic_id:
            offsets = state.offsets(topic_id).items()
            lineage = state.lineage(topic_id)
            rows = tuple(Position(row.name, topic_id, partition, offset, lineage) for partition, offset in offsets)
            positions.append((row.metadata, rows))
    return SourceOffsets(group, tuple((metadata, rows) for metadata, rows in positions if rows))


def moves(positions: Sequence[Position], there: GroupState) -> tuple[list[Position], list[KeptOffset]]:
    """Positions that move a group forward, and higher offsets (pure)."""
    forward, kept = [], []
    for at in positions:
        now = there.offset(at.topic_id, at.partition)
        if now == NEVER or at.offset > now:
            forward.append(at)
        elif now > at.offset:
            kept.append(KeptOffset(at.topic, at.partition, now, at.offset))
    return forward, kept


def write_offsets(destination: Groups, group: SourceOffsets) -> CopiedGroup:
    """Commit a group's offsets at the destination; raise as `GroupLog.advance`."""
    handle, moved, kept = destination.open(group.group), 0, list[KeptOffset]()
    for metadata, positions in group.positions:
        there = handle.newest()
        forward, higher = moves(positions, there)
        kept += higher
        if forward:
            fenced = handle.advance(forward, there.generation, metadata).fenced
            moved += len(forward) - len(fenced)
    return CopiedGroup(group.group, moved, tuple(kept))

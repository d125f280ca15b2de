"""State in a group's newest entry, and its transitions. Pure.

Offsets are of the next record to read, as in Kafka (`OffsetAndMetadata`). `since` is the generation of a
partition's last reset: followers of earlier ones can't move it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.groups.state.members import Members

#: No committed offset.
NEVER = -1


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """An offset of a partition, of one incarnation of a topic.

    `lineage`: the entry at which it was reached, if known.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    lineage: Lineage | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A group's offsets of one topic id, indexed by partition.

    `time_ms` and `metadata` are of the last commit or reset. `mark`: the topic's newest entry then
    (`Lineage.position`), whose history all offsets refer to.
    """

    name: str
    offsets: tuple[int, ...] = ()
    since: tuple[int, ...] = ()
    time_ms: int = 0
    metadata: str = ""
    mark: str = ""

    def to_json(self) -> Json:
        """Form for an entry."""
        return {
            "name": self.name,
            "offsets": list(self.offsets),
            "since": list(self.since),
            "time": self.time_ms,
            "metadata": self.metadata,
            "mark": self.mark,
        }

    @classmethod
    def from_json(cls, data: Json) -> TopicOffsets:
        """Value of that form."""
        offsets, since = tuple(data["offsets"]), tuple(data["since"])
        return cls(data["name"], offsets, since, data["time"], data["metadata"], data["mark"])


@dataclass(frozen=True, slots=True)
class GroupState:
    """State in a group's entry.

    Attributes:
        generation: number of resets.
        floor: generation of the last deletion, which fences every partition.
        last_reset: write id of the last entry that raised the generation.
        emptied_ms: when the last member left, by the clock of the one that noticed; 0 if there never was one.
    """

    generation: int = 0
    floor: int = 0
    last_reset: str = ""
    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    members: Members = field(default_factory=Members)
    emptied_ms: int = 0

    @property
    def exists(self) -> bool:
        """Whether the group has an offset or a member."""
        return bool(self.members.rows or self.names())

    def to_json(self) -> Json:
        """Form for an entry, without the members (`GroupLog`)."""
        return {
            "generation": self.generation,
            "floor": self.floor,
            "lastReset": self.last_reset,
            "topics": {topic_id: row.to_json() for topic_id, row in self.topics.items()},
            **({"emptied": self.emptied_ms} if self.emptied_ms else {}),
        }

    @classmethod
    def from_json(cls, data: Json, members: Members | None = None) -> GroupState:
        """Value of that form."""
        topics = {topic_id: TopicOffsets.from_json(row) for topic_id, row in data["topics"].items()}
        emptied = data.get("emptied", 0)
        return cls(data["generation"], data["floor"], data["lastReset"], topics, members or Members(), emptied)

    def offsets(self, topic_id: str) -> dict[int, int]:
        """Return partition -> committed offset of a topic id."""
        row = self.topics.get(topic_id)
        return {} if row is None else {p: offset for p, offset in enumerate(row.offsets) if offset != NEVER}

    def offset(self, topic_id: str, partition: int) -> int:
        """Return a partition's offset; `NEVER` if none is committed."""
        row = self.topics.get(topic_id)
        return row.offsets[partition] if row is not None and partition < len(row.offsets) else NEVER

    def lineage(self, topic_id: str) -> Lineage | None:
        """Topic entry of the last commit's offsets; None if unknown."""
        row = self.topics.get(topic_id)
        return None if row is None else Lineage.of_position(row.mark)

    def since(self, topic_id: str, partition: int) -> int:
        """Least generation whose followers may move a partition."""
        row = self.topics.get(topic_id)
        own = row.since[partition] if row is not None and partition < len(row.since) else 0
        return max(own, self.floor)

    def names(self) -> tuple[str, ...]:
        """Topics with committed offsets, sorted."""
        return tuple(sorted(row.name for topic_id, row in self.topics.items() if self.offsets(topic_id)))


def fenced(state: GroupState, positions: Iterable[Position], generation: int) -> tuple[Position, ...]:
    """Positions that a reset or deletion fences from `generation`."""
    return tuple(at for at in positions if state.since(at.topic_id, at.partition) > generation)


def committed(state: GroupState, positions: Iterable[Position], time_ms: int, metadata: str) -> GroupState:
    """State after a commit of higher offsets, if any."""
    moved = [at for at in positions if at.offset > state.offset(at.topic_id, at.partition)]
    if not moved:
        return state
    topics = dict(state.topics)
    for topic_id, rows in _by_topic(moved).items():
        before = topics.get(topic_id, TopicOffsets(rows[0].topic))
        offsets = _set(before.offsets, {at.partition: at.offset for at in rows}, NEVER)
        mark = _mark(rows, before)
        topics[topic_id] = replace(before, offsets=offsets, time_ms=time_ms, metadata=metadata, mark=mark)
    return replace(state, topics=_one_incarnation(topics, moved))


def without_lost(state: GroupState, topic_id: str, ends: Sequence[int] | None) -> GroupState:
    """State without commits to a lost history of a topic.

    `ends`: common prefix by partition; None, if unknown, drops all.
    """
    row = state.topics[topic_id]
    known = () if ends is None else ends
    offsets = tuple(
        offset if offset == NEVER else min(offset, known[p] if p < len(known) else 0) if known else NEVER
        for p, offset in enumerate(row.offsets)
    )
    return replace(state, topics={**state.topics, topic_id: replace(row, offsets=offsets, mark="")})


def _mark(rows: Sequence[Position], before: TopicOffsets) -> str:
    lineages = [at.lineage for at in rows if at.lineage is not None]
    return max(lineages, key=lambda lineage: lineage.sequence).position if lineages else before.mark


def reset(state: GroupState, positions: Iterable[Position], time_ms: int, write_id: str) -> GroupState:
    """State after a reset, in a new generation."""
    moved, generation, topics = list(positions), state.generation + 1, dict(state.topics)
    for topic_id, rows in _by_topic(moved).items():
        before = topics.get(topic_id, TopicOffsets(rows[0].topic))
        offsets = _set(before.offsets, {at.partition: at.offset for at in rows}, NEVER)
        since = _set(before.since, {at.partition: generation for at in rows}, 0)
        topics[topic_id] = TopicOffsets(before.name, offsets, since, time_ms, mark=_mark(rows, before))
    topics = _one_incarnation(topics, moved)
    return replace(state, generation=generation, last_reset=write_id, topics=topics)


def without_topic(state: GroupState, name: str, live: Mapping[str, int], time_ms: int, write_id: str) -> GroupState:
    """State after deleting a topic's offsets.

    `live`: topic id -> partitions of the present incarnation, to fence former queries.
    """
    generation = state.generation + 1
    topics = {topic_id: row for topic_id, row in state.topics.items() if row.name != name}
    for topic_id, partitions in live.items():
        topics[topic_id] = TopicOffsets(name, (), (generation,) * partitions, time_ms)
    return replace(state, generation=generation, last_reset=write_id, topics=topics)


def ended(state: GroupState, write_id: str) -> GroupState:
    """State after a deletion of the group."""
    generation = state.generation + 1
    return GroupState(generation, floor=generation, last_reset=write_id, members=state.members)


def forgotten(state: GroupState, topic_ids: Collection[str]) -> GroupState:
    """State without deleted topic ids.

    No new generation: nobody can commit to such ids.
    """
    topics = {topic_id: row for topic_id, row in state.topics.items() if topic_id not in topic_ids}
    return state if len(topics) == len(state.topics) else replace(state, topics=topics)


def without_expired(state: GroupState, before_ms: int) -> GroupState:
    """State without the offsets that nobody has used since `before_ms` (Kafka: `OffsetExpirationConditionImpl`).

    Without members: those committed before, if the last member left before, too. With members: those of topics that
    none wants. What fences followers of earlier generations stays.
    """
    members = state.members
    if not members.rows and state.emptied_ms >= before_ms:
        return state
    topics = {}
    for topic_id, row in state.topics.items():
        if row.time_ms >= before_ms or (members.rows and row.name in members.topics):
            topics[topic_id] = row
        elif any(row.since):
            topics[topic_id] = replace(row, offsets=(), metadata="", mark="")
    return state if topics == state.topics else replace(state, topics=topics)


def noting_emptied(before: GroupState, after: GroupState, now_ms: int) -> GroupState:
    """State that says when the last member left, if a change took it."""
    return replace(after, emptied_ms=now_ms) if before.members.rows and not after.members.rows else after


def _by_topic(positions: Iterable[Position]) -> dict[str, list[Position]]:
    by_topic: dict[str, list[Position]] = {}
    for at in positions:
        by_topic.setdefault(at.topic_id, []).append(at)
    return by_topic


def _set(values: tuple[int, ...], changed: Mapping[int, int], fill: int) -> tuple[int, ...]:
    grown = [*values, *(fill for _ in range(max(changed) + 1 - len(values)))]
    for index, value in changed.items():
        grown[index] = value
    return tuple(grown)


def _one_incarnation(topics: Mapping[str, TopicOffsets], moved: Iterable[Position]) -> dict[str, TopicOffsets]:
    current = {at.topic: at.topic_id for at in moved}
    return {topic_id: row for topic_id, row in topics.items() if current.get(row.name, topic_id) == topic_id}

"""Offsets of a query in Spark's checkpoint. Pure.

`{"flights": {"0": 42, "1": 40}, "__topic_ids": {"flights": "…"}}`, keys in a fixed order, because Spark compares JSON
strings. The topic ids detect a recreated topic, `"__lineages": {"flights": "…"}` a restored one: the entries at which
the offsets were reached, replaced only when an offset moves, or they would look like new records. Typed topics add
`"__schemas": {"flights": 2}`, the versions of the columns that were read. A group adds
`"__group": {"id": "…", "generation": 0, "share": "1/1"}`.

The end of the first batch, and of one with a new topic, has the batch's start, too: `"__start": {"flights": {…}, …}`.
Spark keeps only ends, and asks for the initial offset again before it replays the first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pyspark_commitlog.errors import CorruptionError, OptionError
from pyspark_commitlog.format.shape import Id, Position, Shape, TopicName, Whole, check, damage
from pyspark_commitlog.model import TopicPartition

if TYPE_CHECKING:
    from pyspark_commitlog.spark.progress.topic_selection import QueryGroup

TOPIC_IDS = "__topic_ids"
LINEAGES = "__lineages"
SCHEMAS = "__schemas"
GROUP_MARK = "__group"
START = "__start"
_MARKS = (TOPIC_IDS, LINEAGES, SCHEMAS, GROUP_MARK, START)
#: Name of Spark's JSON in errors: it does not tell the file.
CHECKPOINT = "offsets of the query's checkpoint"


class _GroupMarkShape(Shape):
    id: Annotated[str, Meta(min_length=1, max_length=4096)]
    generation: Whole
    share: Annotated[str, Meta(pattern="^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}$")]


_PartitionText = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,8})$")]
_TopicId = Annotated[Id, Meta(min_length=1)]


def _members(data: Any, key: Any, value: Any, where: str) -> dict[str, Any]:
    try:
        return check(data, dict[key, value], where)
    except CorruptionError:
        if isinstance(data, dict):
            for name, member in data.items():
                check(name, key, f"{where}: the key {name!r}")
                check(member, value, f"{where}: {name!r}")
        raise


@dataclass(frozen=True, slots=True)
class GroupMark:
    """Group that a query commits to, generation that it follows, share `k/n`."""

    group: str
    generation: int
    share: str

    def to_json(self) -> dict[str, Any]:
        """Form for Spark's checkpoint."""
        return {"id": self.group, "generation": self.generation, "share": self.share}

    @classmethod
    def from_json(cls, data: object, where: str) -> GroupMark:
        """Parse the checkpoint's form; raises as `SourceOffset.from_json`."""
        mark = check(data, _GroupMarkShape, f"{where}: {GROUP_MARK}")
        return cls(mark.id, mark.generation, mark.share)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Next offset of each partition, with topic ids, lineage positions and versions of schemas.

    `start`: of the batch ending here, if the first or with a new topic.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    group: GroupMark | None = None
    lineages: Mapping[str, str] = field(default_factory=dict, compare=False)
    start: SourceOffset | None = field(default=None, compare=False)
    schemas: Mapping[str, int] = field(default_factory=dict, compare=False)

    def extends(self, begin: SourceOffset) -> bool:
        """Whether no offset differs from `begin`, except of recreated topics."""
        return all(
            self.offsets.get(place, offset) == offset
            for place, offset in begin.offsets.items()
            if self.topic_ids.get(place.topic) == begin.topic_ids[place.topic]
        )

    def to_json(self) -> dict[str, Any]:
        """Form for Spark's checkpoint, keys in stable order."""
        topics: dict[str, Any] = {}
        for place in sorted(self.offsets):
            topics.setdefault(place.topic, {})[str(place.partition)] = self.offsets[place]
        form = {**topics, TOPIC_IDS: {name: self.topic_ids[name] for name in sorted(self.topic_ids)}}
        if self.lineages:
            form[LINEAGES] = {name: self.lineages[name] for name in sorted(self.lineages)}
        if self.schemas:
            form[SCHEMAS] = {name: self.schemas[name] for name in sorted(self.schemas)}
        if self.group is not None:
            form[GROUP_MARK] = self.group.to_json()
        if self.start is not None:
            form[START] = self.start.to_json()
        return form

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = CHECKPOINT) -> SourceOffset:
        """Parse the checkpoint's form; `where` names its file in errors."""
        topics = {
            check(name, TopicName, f"{where}: the topic {name!r}"): _members(
                partitions, _PartitionText, Whole, f"{where}: topic {name!r}"
            )
            for name, partitions in data.items()
            if name not in _MARKS
        }
        ids = _members(data.get(TOPIC_IDS), TopicName, _TopicId, f"{where}: {TOPIC_IDS}")
        for name in topics:
            if name not in ids:
                raise damage(where, f"{TOPIC_IDS} of {name!r}", None, "the id of each topic that has offsets")
        marks = _members(data.get(LINEAGES, {}), TopicName, Position, f"{where}: {LINEAGES}")
        schemas = _members(data.get(SCHEMAS, {}), TopicName, Whole, f"{where}: {SCHEMAS}")
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
        group, start = data.get(GROUP_MARK), data.get(START)
        return cls(
            offsets,
            ids,
            None if group is None else GroupMark.from_json(group, where),
            marks,
            None if start is None else cls._start_from_json(start, f"{where}: {START}"),
            schemas,
        )

    @classmethod
    def _start_from_json(cls, data: object, where: str) -> SourceOffset:
        start = check(data, dict[str, Any], where)
        if START in start:
            raise damage(where, START, start[START], "no start of a start")
        return cls.from_json(start, where)


def check_share(group: QueryGroup | None, known: GroupMark | None) -> None:
    """Refuse a share other than the checkpoint's: partitions would be skipped."""
    before = known.share if known else "1/1"
    now = share_of(group) if group else "1/1"
    if before != now:
        raise OptionError(
            f"option 'groupShare' is {now}, the checkpoint was made with {before}: start with a new checkpoint and "
            "startingOffsets=group once all queries of the group have stopped"
        )


def share_of(group: QueryGroup) -> str:
    """Return a group's share as `k/n`."""
    return "/".join(map(str, group.share))

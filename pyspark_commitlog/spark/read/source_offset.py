"""Offsets as Spark's checkpoint holds them, and how a trigger's share is cut. Pure.

``{"flights": {"0": 42, "1": 40}, "__topic_ids": {"flights": "…"}}``: topics and partitions always in the same order,
because Spark compares the JSON as a string. The topic ids mark a topic that was deleted and made again, and
``"__lineages": {"flights": "…"}`` one that was restored from a copy: the entries that the offsets were reached under.
Those are newer where some offset moved, so whether there is something to read never depends on them. A query with a
group adds ``"__group": {"id": "…", "generation": 0, "share": "1/1"}``.

The end of the first batch, and of one in which a topic is new, has the batch's start, too, of all topics and in the
same form: ``"__start": {"flights": {"0": 0, "1": 0}, …}``. Spark keeps the ends of batches only: it asks for the start
of a query again before it plays the first one again, and no end before says where a new topic starts.
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
    from pyspark_commitlog.spark.read.topic_selection import QueryGroup

TOPIC_IDS = "__topic_ids"
LINEAGES = "__lineages"
GROUP_MARK = "__group"
START = "__start"
_MARKS = (TOPIC_IDS, LINEAGES, GROUP_MARK, START)
#: What errors call the JSON that Spark hands over: it does not name the file.
CHECKPOINT = "offsets of the query's checkpoint"


class _GroupMarkShape(Shape):
    """``__group``."""

    id: Annotated[str, Meta(min_length=1, max_length=4096)]
    generation: Whole
    share: Annotated[str, Meta(pattern="^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}$")]


_PartitionText = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,8})$")]
_TopicId = Annotated[Id, Meta(min_length=1)]


def _members(data: Any, key: Any, value: Any, where: str) -> dict[str, Any]:
    """Return a mapping whose keys and values are of two shapes; of what is not, the error names the key."""
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
    """The group that a query commits to, the generation of it that it follows, and its share ``k/n``."""

    group: str
    generation: int
    share: str

    def to_json(self) -> dict[str, Any]:
        """Return the form for Spark's checkpoint."""
        return {"id": self.group, "generation": self.generation, "share": self.share}

    @classmethod
    def from_json(cls, data: object, where: str) -> GroupMark:
        """Return the value of that form; raises as ``SourceOffset.from_json``."""
        mark = check(data, _GroupMarkShape, f"{where}: {GROUP_MARK}")
        return cls(mark.id, mark.generation, mark.share)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """How far each partition was read, in which incarnation of its topic and which history (``Lineage.position``).

    ``start`` is that of the batch that ends here, if it is the query's first, or a topic is new in it.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    group: GroupMark | None = None
    lineages: Mapping[str, str] = field(default_factory=dict, compare=False)
    start: SourceOffset | None = field(default=None, compare=False)

    def extends(self, begin: SourceOffset) -> bool:
        """Return whether it is at no other offset than ``begin``, except of topics made again."""
        return all(
            self.offsets.get(place, offset) == offset
            for place, offset in begin.offsets.items()
            if self.topic_ids.get(place.topic) == begin.topic_ids[place.topic]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form for Spark's checkpoint, keys in stable order."""
        topics: dict[str, Any] = {}
        for place in sorted(self.offsets):
            topics.setdefault(place.topic, {})[str(place.partition)] = self.offsets[place]
        form = {**topics, TOPIC_IDS: {name: self.topic_ids[name] for name in sorted(self.topic_ids)}}
        if self.lineages:
            form[LINEAGES] = {name: self.lineages[name] for name in sorted(self.lineages)}
        if self.group is not None:
            form[GROUP_MARK] = self.group.to_json()
        if self.start is not None:
            form[START] = self.start.to_json()
        return form

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = CHECKPOINT) -> SourceOffset:
        """Return the value of that form.

        Args:
            data: the JSON, decoded.
            where: its file, for errors.

        Raises:
            CorruptionError: another release wrote it, or an editor; names file, keys, what was found and expected.
        """
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
        )

    @classmethod
    def _start_from_json(cls, data: object, where: str) -> SourceOffset:
        start = check(data, dict[str, Any], where)
        if START in start:
            raise damage(where, START, start[START], "no start of a start")
        return cls.from_json(start, where)


def check_share(group: QueryGroup | None, known: GroupMark | None) -> None:
    """Refuse to go on with another share than the checkpoint's: partitions would be left out, or read again.

    Raises:
        OptionError: names both.
    """
    before = known.share if known else "1/1"
    now = share_of(group) if group else "1/1"
    if before != now:
        raise OptionError(
            f"option 'groupShare' is {now}, the checkpoint was made with {before}: start with a new checkpoint and "
            "startingOffsets=group once all queries of the group have stopped"
        )


def share_of(group: QueryGroup) -> str:
    """Return which share of its group a query has, as offsets and messages write it."""
    return "/".join(map(str, group.share))

"""Shapes of a group's entries, tables and files. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from pyspark_commitlog.config import MAX_PARTITIONS
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.shape import Id, OrNone, Position, Shape, Text, TopicName, Whole, check, damage
from pyspark_commitlog.groups.state.member_config import MAX_SESSION_MS, MIN_SESSION_MS
from pyspark_commitlog.replication.protocol.replica_state import check_replicated
from pyspark_commitlog.topic.state.shapes import Partition
from pyspark_commitlog.topic.state.side_files import Side

Session = Annotated[int, Meta(ge=MIN_SESSION_MS, le=MAX_SESSION_MS)]
#: A generation that counts resets; the bound leaves room.
Generation = Annotated[int, Meta(ge=0, lt=2**53)]
Places = dict[TopicName, tuple[Partition, ...]]


class Offsets(Shape):
    """A group's offsets of a topic id."""

    name: TopicName
    offsets: Annotated[tuple[OrNone, ...], Meta(max_length=MAX_PARTITIONS)]
    since: Annotated[tuple[Generation, ...], Meta(max_length=MAX_PARTITIONS)]
    time: Whole
    metadata: Text
    mark: Position


class State(Shape):
    """`state` of an entry of a group's journal."""

    generation: Generation
    floor: Generation
    last_reset: Id
    topics: dict[Id, Offsets]
    emptied: Whole = 0
    members: dict[str, object] | None = None
    leader_epoch: Whole | None = None
    replicas: dict[str, object] | None = None


class GroupEntry(Shape):
    """Body of a group's entry."""

    state: State


class MemberFields(Shape):
    """Profile of a member, without topics."""

    client_id: str
    host: str
    pattern: str | None
    assignors: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    instance_id: str | None
    session_timeout_ms: Session


class MemberRow(MemberFields):
    """A member's row."""

    topics: Whole
    joined: Whole
    owned: Places
    revoking: Places
    revoked_in: Whole


class Table(Shape):
    """All members of a group."""

    generation: Whole
    admitted: Whole
    phase: Literal["Empty", "PreparingRebalance", "Stable"]
    protocol: str | None
    topics: dict[TopicName, tuple[Id, Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]]]
    wishes: tuple[tuple[str, ...], ...]
    rows: dict[Id, MemberRow]


class File(MemberFields):
    """A member's file."""

    format_version: Whole
    topics: tuple[str, ...]
    generation: OrNone


def check_group_entry(body: Json, where: str) -> None:
    """Check an entry of a group's journal, with inline members."""
    state = check(body, GroupEntry, where).state
    check_replicated(state.replicas, body, where)
    members = state.members
    if members is None:
        return
    if "file" in members:
        check(members, Side, where)
    else:
        check_members(members, where)


def check_members(members: Json, where: str) -> Json:
    """Check and return a table of members."""
    table = check(members, Table, where)
    for member_id, row in table.rows.items():
        if row.topics >= len(table.wishes):
            expected = f"below {len(table.wishes)}, as wishes has"
            raise damage(where, f"topics of member {member_id}", row.topics, expected)
        for topic in (*row.owned, *row.revoking):
            if topic not in table.topics:
                raise damage(where, f"a partition of member {member_id}", topic, "a topic of the table")
    return members

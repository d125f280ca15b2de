"""Descriptions of a root's groups: values without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_commitlog.groups.state.members import Members, Phase
from pyspark_commitlog.model import TopicPartition

#: The state of a group whose newest entry can't be read.
DAMAGED = "Damaged"


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One row of ``Groups.describe``.

    ``offset`` is the next one to read, None if none was ever committed. ``lag`` counts the offsets from there, or from
    the log start offset, to the high watermark.
    """

    topic: str
    partition: int
    offset: int | None
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, with what it has: also what it has to give up and did not yet.

    ``host`` is ``host/pid``; ``consumer_id`` is how Kafka's tools would name it.
    """

    consumer_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """What ``Groups.describe`` answers; ``metadata`` holds the last commit's of each topic that has some.

    ``generation`` counts resets, ``generation_id`` rebalances. ``state`` is ``Empty`` where there are no members,
    ``PreparingRebalance`` while partitions are handed on, or ``Stable``; or ``Damaged`` where the newest entry can't be
    read: then all is empty but ``faults``. These also name the topics and members' files that can't be read.
    """

    group: str
    generation: int
    partitions: tuple[GroupPartition, ...]
    metadata: Mapping[str, str]
    state: str = Phase.EMPTY.value
    generation_id: int = 0
    protocol: str | None = None
    members: tuple[MemberDescription, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """One row of a reset: a partition's offset before (None: never committed) and after."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class MaintainedGroup:
    """What ``Groups.maintain`` did to one group: topic ids whose offsets it forgot, and entries that it removed."""

    group: str
    forgotten_topics: int
    collected_entries: int


def described_members(members: Members) -> tuple[MemberDescription, ...]:
    """Return the members of a group, by their names."""
    rows = (
        MemberDescription(
            f"{row.profile.client_id}-{member_id}",
            row.profile.client_id,
            row.profile.host,
            row.profile.instance_id,
            tuple(sorted(row.places)),
        )
        for member_id, row in members.rows.items()
    )
    return tuple(sorted(rows, key=lambda row: row.consumer_id))

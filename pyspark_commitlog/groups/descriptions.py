"""Descriptions of a root's groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_commitlog.groups.state.members import Members, Phase
from pyspark_commitlog.model import TopicPartition

#: State of a group with a damaged newest entry.
DAMAGED = "Damaged"


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One row of `Groups.describe`.

    `offset` is the next to read, None without a commit. `lag` counts from there, or from the log start offset.
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
    """A member of a group, with its partitions, including revoked ones.

    `host` is `host/pid`; `consumer_id` Kafka's.
    """

    consumer_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Result of `Groups.describe`.

    Attributes:
        generation: number of resets.
        metadata: by topic, of its last commit, if any.
        state: `Empty`, `PreparingRebalance`, `Stable`, or `Damaged`: the newest entry can't be read, and only
            `faults` is set.
        generation_id: number of rebalances.
        faults: also of topics and members' files.
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
class OffsetReset:
    """One move of a reset; `before` is None without a commit."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class MaintainedGroup:
    """Result of `Groups.maintain`."""

    group: str
    forgotten_topics: int
    collected_entries: int


def described_members(members: Members) -> tuple[MemberDescription, ...]:
    """Members of a group, by their names."""
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

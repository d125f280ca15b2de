"""Descriptions of a root's groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_commitlog.groups.state.members import Members, Phase
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.text import html_lines, html_table

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

    def _repr_html_(self) -> str:
        rows = [(row.topic, row.partition, row.offset, row.log_end_offset, row.lag) for row in self.partitions]
        lag = sum(row.lag for row in self.partitions)
        head = f"Group: {self.group}  State: {self.state}  Members: {len(self.members)}  Lag: {lag:,}"
        columns = ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
        return html_lines([head]) + html_table(columns, rows) + html_lines(f"FAULT {fault}" for fault in self.faults)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """One move of a reset; `before` is None without a commit."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class MaintainedGroup:
    """Result of `Groups.maintain`: topics whose offsets were forgotten, as deleted or expired, and entries removed."""

    group: str
    forgotten_topics: int
    collected_entries: int
    expired_topics: int = 0


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

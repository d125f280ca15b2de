"""ConsumerGroupMetadata: which member commits, and in which generation. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from pyspark_commitlog.errors import CommitFailedError, FencedInstanceIdError
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.groups.state.members import Members
from pyspark_commitlog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Identity of a committing member (Kafka: `ConsumerGroupMetadata`).

    `joined` is the number of its admission.
    """

    member_id: str
    joined: int | None
    generation: int
    instance_id: str | None = None


def check_generation(
    group: str, members: Members, member: ConsumerGroupMetadata, positions: Iterable[Position]
) -> None:
    """Refuse a commit of a generation that is over, or of partitions that are not the member's (pure).

    Raises `FencedInstanceIdError` if another process is the static member now.
    """
    row = members.rows.get(member.member_id)
    if row is None or (row.joined, members.generation) != (member.joined, member.generation):
        _refuse(group, members, member)
    for at in positions:
        place = TopicPartition(at.topic, at.partition)
        if not members.has(member.member_id, place, at.topic_id):
            raise CommitFailedError(
                f"group {group!r}: {at.topic} partition {at.partition} is not assigned to member "
                f"{member.member_id} in generation {members.generation}: nothing was committed"
            )


def _refuse(group: str, members: Members, member: ConsumerGroupMetadata) -> NoReturn:
    other = members.instance(member.instance_id)
    if other not in (None, member.member_id):
        raise FencedInstanceIdError(
            f"group {group!r}: another process, member {other}, has joined with group_instance_id "
            f"{member.instance_id!r}: nothing was committed. Give each process an id of its own, and start this "
            "one again"
        )
    row = members.rows.get(member.member_id)
    now = "still a member" if row is not None and row.joined == member.joined else "not a member any more"
    raise CommitFailedError(
        f"group {group!r} is in generation {members.generation}, member {member.member_id} commits in "
        f"generation {member.generation} and is {now}: nothing was committed. Poll, and commit what is assigned "
        "then; if that comes often, poll more often, or raise max_poll_interval_ms or session_timeout_ms"
    )

"""What a member of a group is assigned: its partitions, and what came and went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_commitlog.model import TopicPartition

Places = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member has now, and what changed (Kafka: ``ConsumerRebalanceListener``).

    ``revoked`` is the member's until it calls ``poll`` again: commit it before. With ``lost`` it is gone already, and
    can't be committed. A topic that was made again is in both ``revoked`` and ``assigned``; ``topic_ids`` has those of
    now, where the membership knows them.
    """

    generation: int
    partitions: Places
    revoked: Places = frozenset()
    assigned: Places = frozenset()
    topic_ids: Mapping[str, str] | None = None
    lost: bool = False


class Membership(Protocol):
    """Where a consumer's partitions come from."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that ``poll`` has assigned."""

    def poll(self) -> Assignment | None:
        """Return the assignment if it changed.

        Call it with every poll of the consumer: it is cheap.
        """

    def leave(self) -> None:
        """Give up all partitions; others may have them at once."""

"""Assignment of a group member, and its changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_commitlog.model import TopicPartition

Places = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's partitions and their changes (Kafka: `ConsumerRebalanceListener`).

    `revoked` can be committed until the next `poll`, unless `lost`. A recreated topic is in `revoked` and `assigned`.
    """

    generation: int
    partitions: Places
    revoked: Places = frozenset()
    assigned: Places = frozenset()
    topic_ids: Mapping[str, str] | None = None
    lost: bool = False


class Membership(Protocol):
    """Source of a consumer's partitions."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that `poll` has assigned."""

    def poll(self) -> Assignment | None:
        """Return the assignment if it changed; cheap."""

    def leave(self) -> None:
        """Give up all partitions, for others to take at once."""

"""Which partitions a consumer reads: those it was given, or those that its group membership gives it.

A consumer asks its membership on every poll, and follows it. There are two here: partitions named one by one, and the
only member of a group (or of none), who gets all partitions of its topics, also those that are added later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark_commitlog.model import TopicPartition

Places = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member reads from now on, and what that takes from it and adds."""

    generation: int
    partitions: Places
    revoked: Places
    assigned: Places


class Membership(Protocol):
    """A consumer's place in its group."""

    generation: int

    def poll(self) -> Assignment | None:
        """Return the new assignment where it has changed. Cheap: called on every poll of the consumer."""

    def leave(self) -> None:
        """Give up all partitions; others may have them at once."""


class ConsumerRebalanceListener:
    """Told, inside ``poll``, what a consumer loses and gets (Kafka: ``ConsumerRebalanceListener``). Override either."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before partitions are taken away: their positions can still be committed."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called when partitions were added: positions may be sought."""


def changed(generation: int, before: Places, now: Places) -> Assignment | None:
    """Return what leads from one set of partitions to another; None where they are the same (pure)."""
    return None if now == before else Assignment(generation, now, before - now, now - before)


class Sole:
    """The only member: it has all partitions of its topics.

    Args:
        counts: asked on every poll: topic -> number of partitions.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self.generation = 0
        self._counts = counts
        self._last: Mapping[str, int] | None = None
        self._partitions: Places = frozenset()

    def poll(self) -> Assignment | None:
        """See ``Membership.poll``."""
        counts = self._counts()
        if counts == self._last:
            return None
        self._last = counts
        now = frozenset(
            TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)
        )
        found, self._partitions = changed(self.generation, self._partitions, now), now
        return found

    def leave(self) -> None:
        """See ``Membership.leave``."""


class Given:
    """Partitions that were named one by one (Kafka: ``assign``): they never change."""

    def __init__(self, places: Collection[TopicPartition]) -> None:
        self.generation = 0
        self._places: Places | None = frozenset(places)

    def poll(self) -> Assignment | None:
        """See ``Membership.poll``."""
        given, self._places = self._places, None
        return None if given is None else changed(self.generation, frozenset(), given)

    def leave(self) -> None:
        """See ``Membership.leave``."""

"""Which partitions a consumer reads: those it was given, those of its topics, or those that its group gives it.

A consumer asks its membership on every poll, and follows it. Two are here: partitions named one by one, and a consumer
without a group, which gets all partitions of its topics, also those that are added later. The third is ``GroupMember``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pyspark_commitlog.groups.assignment.assignment import Assignment, Places
from pyspark_commitlog.model import TopicPartition


class ConsumerRebalanceListener:
    """Called, inside ``poll``, when a consumer loses or gets partitions (Kafka: ``ConsumerRebalanceListener``)."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Handle partitions that are about to be revoked: their positions can still be committed."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Handle partitions that others have already: their positions can't be committed. As revoked, by default."""
        self.on_partitions_revoked(lost)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Handle partitions that were added: positions may be sought."""


def changed(before: Places, now: Places) -> Assignment | None:
    """Return the change between two sets of partitions, if they differ (pure)."""
    return None if now == before else Assignment(0, now, before - now, now - before)


class Sole:
    """In no group: it has all partitions of its topics.

    Args:
        counts: asked on every poll: topic -> number of partitions.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts
        self._last: Mapping[str, int] | None = None
        self._partitions: Places = frozenset()

    @property
    def assignment(self) -> Places:
        """See ``Membership.assignment``."""
        return self._partitions

    def poll(self) -> Assignment | None:
        """See ``Membership.poll``."""
        counts = self._counts()
        if counts == self._last:
            return None
        now = frozenset(
            TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)
        )
        change = changed(self._partitions, now)
        self._partitions, self._last = now, counts  # together, and last: Ctrl-C before this changes nothing
        return change

    def leave(self) -> None:
        """See ``Membership.leave``."""


class ManualAssignment:
    """Partitions that were named one by one (Kafka: ``assign``): they never change."""

    def __init__(self, places: Collection[TopicPartition]) -> None:
        self._places: Places | None = frozenset(places)
        self.assignment = self._places

    def poll(self) -> Assignment | None:
        """See ``Membership.poll``."""
        given, self._places = self._places, None
        return None if given is None else changed(frozenset(), given)

    def leave(self) -> None:
        """See ``Membership.leave``."""

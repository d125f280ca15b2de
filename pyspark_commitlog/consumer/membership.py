"""Sources of a consumer's assignment without a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pyspark_commitlog.groups.assignment.assignment import Assignment, Places
from pyspark_commitlog.model import TopicPartition


class ConsumerRebalanceListener:
    """Callbacks, inside `poll`, for changed assignments (Kafka: `ConsumerRebalanceListener`)."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Handle partitions about to be revoked: they can still be committed."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Handle partitions that others own: commits fail. Default: as revoked."""
        self.on_partitions_revoked(lost)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Handle partitions that were assigned: positions may be sought."""


def changed(before: Places, now: Places) -> Assignment | None:
    """Change between two sets of partitions, if any (pure)."""
    return None if now == before else Assignment(0, now, before - now, now - before)


class Sole:
    """Membership without a group: all partitions of the topics.

    `counts` returns topic -> number of partitions.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts
        self._last: Mapping[str, int] | None = None
        self._partitions: Places = frozenset()

    @property
    def assignment(self) -> Places:
        """See `Membership`."""
        return self._partitions

    def poll(self) -> Assignment | None:
        """See `Membership`."""
        counts = self._counts()
        if counts == self._last:
            return None
        now = frozenset(
            TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)
        )
        change = changed(self._partitions, now)
        self._partitions, self._last = now, counts  # together, and last: Ctrl-C before changes nothing
        return change

    def leave(self) -> None:
        """See `Membership`."""


class ManualAssignment:
    """Fixed partitions (Kafka: `assign`)."""

    def __init__(self, places: Collection[TopicPartition]) -> None:
        self._places: Places | None = frozenset(places)
        self.assignment = self._places

    def poll(self) -> Assignment | None:
        """See `Membership`."""
        given, self._places = self._places, None
        return None if given is None else changed(frozenset(), given)

    def leave(self) -> None:
        """See `Membership`."""

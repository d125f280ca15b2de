"""Subscription and positions of a consumer. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from pyspark_commitlog.consumer.consumer_config import Subscription, check_places
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener
from pyspark_commitlog.consumer.partition_state import PartitionState
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState, Position
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topic.view import View

log = logging.getLogger("pyspark_commitlog.consumer")


class SubscriptionState:
    """Subscription, listener and assigned partitions (Kafka: `SubscriptionState`).

    Attributes:
        begun: partition counts by topic at the subscription's first look, or None.
        reading: topic ids and positions before a table of several polls, whose rows are not returned yet.
    """

    def __init__(self) -> None:
        self.assigned: dict[TopicPartition, PartitionState] = {}
        self.subscription: Subscription | None = None
        self.listener = ConsumerRebalanceListener()
        self.begun: dict[str, int] | None = None
        self.reading: dict[TopicPartition, tuple[str | None, int]] = {}
        self._former: Mapping[TopicPartition, PartitionState] = {}

    def begin(
        self,
        subscription: Subscription | None,
        listener: ConsumerRebalanceListener | None,
        former: Mapping[TopicPartition, PartitionState],
    ) -> None:
        """Replace the subscription; partitions in `former` keep their state."""
        self.subscription, self.listener = subscription, listener or ConsumerRebalanceListener()
        self.begun, self._former = None, former

    def topics(self) -> set[str]:
        """Return the subscribed topics; of a pattern, those found."""
        if self.subscription is None:
            return set()
        return set(self.subscription.names) if self.subscription.pattern is None else self.names()

    def names(self) -> set[str]:
        """Topics with assigned partitions."""
        return {key.topic for key in self.assigned}

    def count(self, name: str) -> int:
        """Return a topic's number of assigned partitions."""
        return sum(key.topic == name for key in self.assigned)

    def add(
        self, partitions: Iterable[TopicPartition], late: Callable[[TopicPartition], bool], topic_ids: Mapping[str, str]
    ) -> None:
        """Assign partitions; `late`: those that are new to the consumer."""
        for key in partitions:
            new = PartitionState(topic_ids.get(key.topic), late=late(key))
            self.assigned[key] = self._former.get(key, new)
        self._former = {}  # last: Ctrl-C before loses none

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Unassign partitions."""
        for key in partitions:
            self.assigned.pop(key, None)

    def is_late(self, key: TopicPartition) -> bool:
        """Whether a partition was added after the subscription began."""
        return self.begun is not None and key.partition >= self.begun.get(key.topic, 0)

    def check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that are not assigned."""
        for key in check_places(partitions):
            if key not in self.assigned:
                raise UsageError(
                    f"topic {key.topic!r} partition {key.partition} is not assigned to this consumer: assign it, "
                    "or poll once after subscribe"
                )

    def move(self, key: TopicPartition, offset: int) -> None:
        """Move a position within the same history."""
        self.assigned[key].position = offset

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Exclude partitions from polls, or include them again."""
        for key in partitions:
            self.assigned[key].paused = paused

    def positions(self) -> list[Position]:
        """Positions after the returned records, sorted."""
        return [
            Position(key.topic, state.topic_id, key.partition, self._handed_out(key, state), state.lineage)
            for key, state in sorted(self.assigned.items(), key=lambda item: item[0])
            if state.topic_id is not None and state.position is not None
        ]

    def _handed_out(self, key: TopicPartition, state: PartitionState) -> int:
        assert state.position is not None
        topic_id, before = self.reading.get(key, (None, state.position))
        return min(before, state.position) if topic_id == state.topic_id else state.position

    def lag(self, views: Mapping[str, View]) -> dict[TopicPartition, int]:
        """Return the number of offsets before each partition's high watermark."""
        lags = {}
        for key, state in self.assigned.items():
            topic = views[key.topic].topic if key.topic in views else None
            if topic is None or state.position is None or key.partition >= topic.partitions:
                continue
            if topic.topic_id == state.topic_id:
                lags[key] = max(0, topic.log_end[key.partition] - state.position)
        return lags

    def follow(
        self,
        group: GroupState,
        generation: int,
        group_id: str | None,
        forget: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        """Move to offsets reset after `generation`; stay if only removed.

        `forget` drops rows read at a position, before it moves.
        """
        for key, state in self.assigned.items():
            if (
                state.position is None
                or state.topic_id is None
                or group.since(state.topic_id, key.partition) <= generation
            ):
                continue
            committed = group.offset(state.topic_id, key.partition)
            if committed not in (NEVER, state.position):
                log.warning(
                    "group %r was reset: topic %r partition %d is read from offset %d on, it was at %s",
                    group_id, key.topic, key.partition, committed, state.position,
                )  # fmt: skip
                forget([key])
                self.reading.pop(key, None)  # a failing `read_up` goes back to here at most
                state.position, state.lineage = committed, group.lineage(state.topic_id)

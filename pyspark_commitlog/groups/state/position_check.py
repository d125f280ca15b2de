"""Check positions against their topics before a group commits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from pyspark_commitlog.errors import OffsetOutOfRangeError, TopicChangedError, UnknownTopicError
from pyspark_commitlog.groups.state.group_state import GroupState, Position
from pyspark_commitlog.topic.divergence import check_parted
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

#: Maximum age in seconds of topic states that check commits, if a look is a request.
_RECENT_SECONDS = 60.0


class PositionCheck:
    """Checks a group's positions; `topic` returns the handle of a topic."""

    def __init__(self, group: str, topic: Callable[[str], TopicLog]) -> None:
        self._group, self._topic = group, topic

    def checked(self, positions: Iterable[Position], state: GroupState) -> tuple[list[Position], dict[str, TopicState]]:
        """Return valid positions, and the states of their topics.

        A topic with offsets of another incarnation is read again, also within one commit: the deleted one would remove
        the other's offsets.
        """
        states: dict[str, TopicState] = {}
        incarnations = Counter(row.name for row in state.topics.values())
        checked = []
        for at in positions:
            if at.topic not in states:
                has_other = incarnations[at.topic] > (at.topic_id in state.topics)
                states[at.topic] = self._durable(at.topic, at.topic_id) if has_other else self._covering(at, state)
            elif states[at.topic].topic_id != at.topic_id:
                for each in (at.topic_id, states[at.topic].topic_id):  # one of them is deleted, which raises
                    self._durable(at.topic, each)
            elif not _covers(states[at.topic], at, state):
                states[at.topic] = self._durable(at.topic, at.topic_id)
            check_partition(at.topic, states[at.topic], at.partition)
            high = states[at.topic].log_end[at.partition]
            if not 0 <= at.offset <= high:
                raise OffsetOutOfRangeError(
                    f"group {self._group!r}: {at.topic} partition {at.partition}: offset {at.offset} can't be "
                    f"committed, the high watermark is {high}; nothing was committed"
                )
            check_parted(self._topic(at.topic), at.lineage, states[at.topic], [(at.partition, at.offset)])
            checked.append(at)
        return [replace(at, lineage=states[at.topic].lineage) for at in checked], states

    def _covering(self, at: Position, state: GroupState) -> TopicState:
        """Return a topic's state to check a position, cached if looks cost.

        A cached one may miss a deletion or restore of the last minute. The position's incarnation and history are
        judged when it is used.
        """
        topic = self._topic(at.topic)
        try:
            stored, remembered = topic.newest_at(topic.journal.recent(_RECENT_SECONDS), at.topic_id)
        except (TopicChangedError, UnknownTopicError):
            return self._durable(at.topic, at.topic_id)
        if not _covers(remembered, at, state):
            return self._durable(at.topic, at.topic_id)
        topic.journal.sync_exposed(stored)
        return remembered

    def _durable(self, name: str, topic_id: str) -> TopicState:
        return self._topic(name).newest_durable(topic_id)[1]


def _covers(topic: TopicState, at: Position, group: GroupState) -> bool:
    """Whether a cached topic state suffices for a position (pure).

    It must have the offset, and be no older than position and last commit, or it looks diverged.
    """
    seen = [lineage.sequence for lineage in (at.lineage, group.lineage(at.topic_id)) if lineage is not None]
    is_old = max(seen, default=0) > topic.lineage.sequence
    return not is_old and at.partition < topic.partitions and at.offset <= topic.log_end[at.partition]

"""Lookup, validation and reset of positions (Kafka: `OffsetFetcher`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, Reset
from pyspark_commitlog.consumer.fetch_buffer import FetchBuffer
from pyspark_commitlog.consumer.partition_state import (
    PartitionState,
    first_position,
    is_moved,
    no_offset,
    out_of_range,
    reset_position,
)
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.consumer.topic_metadata import ConsumerMetadata
from pyspark_commitlog.errors import (
    CorruptionError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicChangedError,
    UnknownTopicError,
)
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.storage.shared.caches import Reported
from pyspark_commitlog.topic.divergence import Divergence, describe_loss
from pyspark_commitlog.topic.state.lost_ranges import losses_since
from pyspark_commitlog.topic.topic_log import check_partition
from pyspark_commitlog.topic.view import View

log = logging.getLogger("pyspark_commitlog.consumer")


class OffsetFetcher:
    """Validator of positions in the assigned topics."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        buffer: FetchBuffer,
        group_state: Callable[[], GroupState | None],
    ) -> None:
        self._config, self._subscriptions, self._metadata = config, subscriptions, metadata
        self._buffer, self._group_state = buffer, group_state
        self._warned = Reported()

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move to an application's offsets, and drop fetched records."""
        self._buffer.forget(offsets)
        for key, offset in offsets.items():
            self._seek(key, offset)

    def _seek(self, key: TopicPartition, offset: int) -> None:
        self._subscriptions.move(key, offset)
        self._metadata.topic(key.topic).doubt()
        state = self._subscriptions.assigned[key]
        if state.remade:  # the offset is of the new topic: the next look finds its id
            state.topic_id, state.remade = None, False
        if state.lost:
            state.lineage, state.lost = None, False

    def position(self, key: TopicPartition) -> int:
        """Return an assigned partition's position; raises as `Consumer.position`."""
        if self._subscriptions.assigned[key].position is None:
            self.look()
        state = self._subscriptions.assigned[key]
        if state.position is None:
            self._metadata.check_damaged(key.topic)
            raise TopicChangedError(
                f"topic {key.topic!r} partition {key.partition} has no position: the topic (id {state.topic_id}) was "
                "deleted, or made again with fewer partitions. Subscribe again"
            )
        return state.position

    def look(self, known: Mapping[str, View] | None = None, *, certain: bool = True) -> dict[str, View]:
        """Return views of the assigned topics, and correct every position by them.

        Topics with a damaged newest entry go to `ConsumerMetadata.damaged`. `known` has views from just now; `certain`:
        see `SharedTopic.look`.

        Raises:
            UnknownTopicError: a topic never existed.
            TopicChangedError, OffsetOutOfRangeError, LogTruncationError: `auto_offset_reset` is `none`, and a position
                is invalid.
        """
        views = self._look_at_each(known or {}, certain=certain)
        moving = [
            (key, state)
            for key, state in self._subscriptions.assigned.items()
            if key.topic in views and is_moved(state, key.partition, views[key.topic].topic)
        ]
        group = self._group_state() if moving else None
        for key, state in moving:
            self._bring(key, state, views[key.topic], group)
        self._look_again(views)
        self._follow_history(views)
        for key, state in moving:
            if key.topic in views:
                self._bring_inside(key, state, views[key.topic])
        self._metadata.bound_others()
        return views

    def _look_at_each(self, known: Mapping[str, View], *, certain: bool) -> dict[str, View]:
        views: dict[str, View] = {}
        for name in sorted(self._subscriptions.names()):
            try:
                views[name] = known.get(name) or self._metadata.look(name, certain=certain)
                self._metadata.damaged.pop(name, None)
            except UnknownTopicError as error:
                self._report_deleted(name, error)
            except CorruptionError as error:  # the others proceed; the caller may report it
                self._metadata.damaged[name] = error
        return views

    # --- deleted and restored topics ---------------------------------------------------------------------

    def _report_deleted(self, name: str, error: UnknownTopicError) -> None:
        for key, state in self._subscriptions.assigned.items():
            if key.topic == name and state.topic_id is None:
                raise error
            if key.topic == name and self._config.reset is Reset.NONE:
                raise TopicChangedError(
                    f"topic {name!r} (id {state.topic_id}) was deleted: partition {key.partition} stays at offset "
                    f"{state.position}, which means nothing any more. Subscribe to another topic"
                ) from None
        self._warn(f"topic {name!r} was deleted: the consumer waits for it to be made again")

    def _look_again(self, views: dict[str, View]) -> None:
        for key, state in self._subscriptions.assigned.items():
            view = views.get(key.topic)
            if view is None or state.lineage is None or state.topic_id != view.topic.topic_id:
                continue
            if state.lineage.sequence > view.topic.lineage.sequence:
                try:
                    views[key.topic] = self._metadata.look(key.topic)
                except (UnknownTopicError, CorruptionError):  # deleted or damaged since: the next look finds that
                    del views[key.topic]

    def _follow_history(self, views: Mapping[str, View]) -> None:
        judged: dict[tuple[str, Lineage | None], Divergence | None] = {}
        refused: list[LogTruncationError] = []
        for key, state in self._subscriptions.assigned.items():
            view = views.get(key.topic)
            if view is None or state.lineage is view.topic.lineage or state.topic_id != view.topic.topic_id:
                continue
            seen = key.topic, state.lineage
            if seen not in judged:
                judged[seen] = self._metadata.topic(key.topic).find_divergence(state.lineage, view)
            state.lost = False
            if state.position is not None:
                self._validate(key, state, view, judged[seen], refused)
            if not state.lost:
                state.lineage = view.topic.lineage
        if refused:  # after all are marked: the application may seek in all
            raise refused[0]

    def _validate(
        self,
        key: TopicPartition,
        state: PartitionState,
        view: View,
        parted: Divergence | None,
        refused: list[LogTruncationError],
    ) -> None:
        assert state.position is not None
        if parted is None:
            self._tell_passed(key, state, view, refused)
            return
        self._buffer.forget([key])
        if parted.loses(key.partition, state.position):
            self._truncate(key, state, view, parted, refused)

    def _truncate(
        self,
        key: TopicPartition,
        state: PartitionState,
        view: View,
        parted: Divergence,
        refused: list[LogTruncationError],
    ) -> None:
        """Move to the divergence, as Kafka does; if unknown, by `auto_offset_reset`."""
        assert state.position is not None
        if key.partition >= view.topic.partitions:  # added after the copy: the next assignment lacks it
            return
        low, high = view.topic.log_start[key.partition], view.topic.log_end[key.partition]
        what = describe_loss(key.topic, key.partition, state.position, parted)
        if self._config.reset is Reset.NONE:
            state.lost = True
            refused.append(
                LogTruncationError(
                    f"{what}; auto_offset_reset is 'none': seek to an offset from {low} (log start offset) to {high} "
                    "(high watermark)"
                )
            )
            return
        end = parted.end(key.partition)
        position = reset_position(self._config.reset, low, high) if end is None else max(low, min(end, high))
        log.warning("%s: the consumer goes on at %s", what, position)
        state.position = position
        if position is not None and (begun := self._subscriptions.reading.get(key)):
            self._subscriptions.reading[key] = begun[0], min(begun[1], position)

    def _tell_passed(
        self, key: TopicPartition, state: PartitionState, view: View, refused: list[LogTruncationError]
    ) -> None:
        """Report records before the position that an unclean election lost.

        The position stays valid, as no offset is reused.
        """
        assert state.position is not None
        for gap in losses_since(view.topic, key.partition, state.position, state.lineage):
            what = (
                f"topic {key.topic!r} partition {key.partition}: {gap.description}; the position {state.position} is "
                "of before that: the consumer may have read them"
            )
            if self._config.reset is Reset.NONE:
                state.lost = True
                refused.append(
                    LogTruncationError(
                        f"{what}; auto_offset_reset is 'none': seek, to {state.position} to go on as if "
                        "nothing had happened"
                    )
                )
                return
            log.warning("%s: it goes on at %d", what, state.position)

    # --- positions ---------------------------------------------------------------------------------------

    def _bring(self, key: TopicPartition, state: PartitionState, view: View, group: GroupState | None) -> None:
        topic = view.topic
        if key.partition >= topic.partitions and state.topic_id is not None:
            return  # recreated with fewer partitions: the next assignment lacks it
        check_partition(key.topic, topic, key.partition)
        low, high = topic.log_start[key.partition], topic.log_end[key.partition]
        if state.topic_id not in (None, topic.topic_id):
            self._made_again(key, state, view)
        state.topic_id = topic.topic_id
        if state.position is None:
            committed = NEVER if group is None else group.offset(topic.topic_id, key.partition)
            state.position = first_position(
                self._config.reset, None if committed == NEVER else committed, low, high, late=state.late
            )
            if state.position is None:
                raise no_offset(key, low, high, self._config.group_id)
            state.lineage = None if group is None or committed == NEVER else group.lineage(topic.topic_id)

    def _made_again(self, key: TopicPartition, state: PartitionState, view: View) -> None:
        what = f"topic {key.topic!r} (id {state.topic_id}) was deleted, and made again with id {view.topic.topic_id}"
        if self._config.reset is Reset.NONE:
            for place, other in self._subscriptions.assigned.items():  # all, as the application may seek in all
                if (place.topic, other.topic_id) == (key.topic, state.topic_id):
                    other.lost = other.remade = True
            raise TopicChangedError(
                f"{what}: partition {key.partition} stays at offset {state.position}, which means nothing in the new "
                "topic. Seek to an offset of the new one, or subscribe again"
            )
        self._warn(f"{what}: it is read from its start, or from where the group is in it")
        self._buffer.forget([key])
        state.position, state.late, state.lineage = None, True, None

    def _bring_inside(self, key: TopicPartition, state: PartitionState, view: View) -> None:
        if key.partition < view.topic.partitions and state.position is not None:
            low, high = view.topic.log_start[key.partition], view.topic.log_end[key.partition]
            if state.topic_id == view.topic.topic_id and not low <= state.position <= high:
                self._reset(key, state, low, high)

    def _reset(self, key: TopicPartition, state: PartitionState, low: int, high: int) -> None:
        assert state.position is not None
        what = out_of_range(key, state.position, low, high)
        position = reset_position(self._config.reset, low, high)
        if position is None:
            raise OffsetOutOfRangeError(f"{what}; auto_offset_reset is 'none': seek to an offset between them")
        log.warning("%s: the consumer goes on at %d (%s)", what, position, self._config.reset.value)
        self._buffer.forget([key])
        state.position = position

    def _warn(self, message: str) -> None:
        if self._warned.is_new(message):
            log.warning("%s", message)

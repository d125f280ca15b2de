"""Selection of the rows to return next (Kafka: `Fetcher`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark_commitlog.consumer.fetch_buffer import FetchBuffer, FrameRest, PolledRows, cut
from pyspark_commitlog.consumer.partition_state import in_turn
from pyspark_commitlog.consumer.shared.shared_topic import bytes_of
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.consumer.topic_metadata import ConsumerMetadata
from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topic.read.reader import Rows
from pyspark_commitlog.topic.view import View

#: Least bytes of a row: its offset and partition.
_ROW_BYTES = 16


class PolledColumns(Protocol):
    """Columns of polled rows."""

    def stored(self, topic: str) -> tuple[str, ...]:
        """Columns to decode of a topic's frames."""


@dataclass(slots=True)
class PollResult:
    """Rows and positions of one poll, not yet applied.

    `columns` are those of the rows. `positions` are after the rows or gaps; `before` is for `undo`.
    """

    columns: PolledColumns
    pieces: list[PolledRows] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    before: dict[TopicPartition, tuple[str | None, int | None]] = field(default_factory=dict)
    rest: FrameRest | None = None
    last: TopicPartition | None = None


class Fetcher:
    """Fetcher of assigned partitions, a frame of each in turn."""

    def __init__(self, subscriptions: SubscriptionState, metadata: ConsumerMetadata, buffer: FetchBuffer) -> None:
        self._subscriptions, self._metadata, self._buffer = subscriptions, metadata, buffer
        self._last: TopicPartition | None = None

    def take(self, views: Mapping[str, View], columns: PolledColumns, max_records: int, max_bytes: int) -> PollResult:
        """Return the next rows of partitions not paused, round-robin by frame.

        No further frame is taken after `max_bytes` decoded bytes. A damaged frame raises if there are no other rows;
        the position stays.
        """
        result = PollResult(columns, last=self._last)
        active = deque(in_turn([key for key in self._subscriptions.assigned if self._is_due(key, views)], self._last))
        rest = self._buffer.rest
        if rest is not None and rest.place in active and self._suits(rest, views[rest.place.topic], columns):
            self._hand_out(result, rest.place, views[rest.place.topic], rest.rows, rest.next_offset, max_records)
            max_records -= result.pieces[0].rows.count
            max_bytes -= _size(rest.rows)
        while active and max_records > 0 and max_bytes > 0:
            key = active.popleft()
            rows = self._next(result, key, views[key.topic], max_records)
            if rows is not None:
                active.append(key)
                max_records -= rows.count
                max_bytes -= _size(rows)
        return result

    def apply(self, result: PollResult) -> None:
        """Move the positions after a poll's rows."""
        assigned = self._subscriptions.assigned
        result.before = {key: (assigned[key].topic_id, assigned[key].position) for key in result.positions}
        for key, position in result.positions.items():
            assigned[key].position = position
        self._buffer.rest, self._last = result.rest, result.last

    def undo(self, result: PollResult) -> None:
        """Restore a poll's positions in partitions that are still assigned."""
        for key, (topic_id, position) in result.before.items():
            state = self._subscriptions.assigned.get(key)
            if state is not None and state.topic_id == topic_id:
                state.position = position

    def _is_due(self, key: TopicPartition, views: Mapping[str, View]) -> bool:
        state = self._subscriptions.assigned[key]
        view = views.get(key.topic)
        if view is None or state.paused or state.position is None or state.topic_id != view.topic.topic_id:
            return False
        return key.partition < view.topic.partitions and state.position < view.topic.log_end[key.partition]

    def _suits(self, rest: FrameRest, view: View, columns: PolledColumns) -> bool:
        state, names = self._subscriptions.assigned[rest.place], columns.stored(rest.place.topic)
        suits = (rest.topic_id, rest.position, rest.names) == (state.topic_id, state.position, names)
        return suits and rest.history == view.history

    def _next(self, result: PollResult, key: TopicPartition, view: View, max_records: int) -> Rows | None:
        position = result.positions.get(key, self._subscriptions.assigned[key].position)
        assert position is not None
        if position >= view.topic.log_end[key.partition]:
            return None
        result.last, names = key, result.columns.stored(key.topic)
        try:
            fetched = self._metadata.topic(key.topic).partition(view, key.partition, names).fetch(view, position)
        except (OffsetOutOfRangeError, TopicChangedError):  # overtaken: the next look corrects the position
            return None
        except (CorruptionError, OSError) as error:
            if self._metadata.topic(key.topic).is_away():  # the next look uses another root
                self._metadata.topic(key.topic).doubt()
                return None
            if not isinstance(error, CorruptionError):
                raise
            if result.pieces:
                return None
            self._last = key  # start with the other partitions next time
            raise CorruptionError(
                f"{error}. The consumer stays at offset {position} of topic {key.topic!r} partition {key.partition}; "
                "to go past it, seek to after the damage, or pause the partition"
            ) from error
        if fetched.rows is None:
            result.positions[key] = fetched.next_offset
            return None
        return self._hand_out(result, key, view, fetched.rows, fetched.next_offset, max_records)

    def _hand_out(
        self,
        result: PollResult,
        key: TopicPartition,
        view: View,
        rows: Rows,
        next_offset: int,
        max_records: int,
    ) -> Rows:
        head, tail = cut(rows, max_records)
        position = next_offset if tail is None else head.offset_of(head.count - 1) + 1
        result.pieces.append(PolledRows(key, head, position))
        result.positions[key], result.last, result.rest = position, key, None
        if tail is not None:
            names = result.columns.stored(key.topic)
            result.rest = FrameRest(key, view.topic.topic_id, view.history, names, position, tail, next_offset)
        return head


def _size(rows: Rows) -> int:
    return max(bytes_of(rows), _ROW_BYTES * rows.count)

"""A consumer's partitions: where it stands in each, and the rows that come next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, Reset
from pyspark_commitlog.consumer.partition_state import (
    Place,
    first_position,
    in_turn,
    no_offset,
    out_of_range,
    reset_position,
)
from pyspark_commitlog.consumer.polled_rows import PolledRows, cut
from pyspark_commitlog.consumer.shared_topic import SharedTopic, bytes_of
from pyspark_commitlog.errors import (
    CorruptionError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicChangedError,
    UnknownTopicError,
)
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState
from pyspark_commitlog.log.parted import Parted, lost
from pyspark_commitlog.log.read.reader import Rows, View
from pyspark_commitlog.log.topic import check_partition
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.storage.caches import Told

log = logging.getLogger("pyspark_commitlog.consumer")

#: What a row counts for at least: its offset and partition.
_ROW_BYTES = 16
#: Topics that were asked for, but that nothing is assigned of: how many a consumer keeps, and until its next look.
_OTHERS, _MOST_OTHERS = 8, 512


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of a frame that was handed out in part, at ``position``; ``next_offset`` lies behind it."""

    place: TopicPartition
    topic_id: str
    history: int
    names: tuple[str, ...]
    position: int
    rows: Rows
    next_offset: int


@dataclass(slots=True)
class Taken:
    """What one poll took: nothing of the consumer has moved until it is applied.

    ``positions`` lie behind what was taken, or behind gaps without records; ``before`` has where they were, and the
    topics' ids, once it is applied.
    """

    pieces: list[PolledRows] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    before: dict[TopicPartition, tuple[str | None, int | None]] = field(default_factory=dict)
    rest: _Rest | None = None
    last: TopicPartition | None = None


class Fetcher:
    """The partitions that are assigned to a consumer.

    Args:
        opened: returns a topic as the process shares it, if it may be read.
        settings: the consumer's.
        group_state: returns what the consumer's group has committed; None where it has no group.
        forget: is told of partitions that go on elsewhere: what was read of them is not to be handed out.
    """

    def __init__(
        self,
        opened: Callable[[str], SharedTopic],
        settings: ConsumerConfig,
        group_state: Callable[[], GroupState | None],
        forget: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.places: dict[TopicPartition, Place] = {}
        self._opened, self._settings, self._group_state, self._forget = opened, settings, group_state, forget
        self._topics: dict[str, SharedTopic] = {}
        self._rest: _Rest | None = None
        self._last: TopicPartition | None = None
        self._told = Told()

    def topic(self, name: str) -> SharedTopic:
        """Return a topic as the process shares it.

        Raises:
            AccessDeniedError: at the first use: the principal may not read it.
        """
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._opened(name)
            found.doubt()
            if len(self._topics) > len(self.places) + _MOST_OTHERS:
                self._let_go(_MOST_OTHERS)
        return found

    def _let_go(self, most: int) -> None:
        """Let go of topics that nothing is assigned of, and so of their frames; ``most`` of them stay, the last."""
        assigned = {place.topic for place in self.places}
        others = [name for name in self._topics if name not in assigned]
        for name in others[: max(0, len(others) - most)]:
            del self._topics[name]

    def add(
        self,
        places: Iterable[TopicPartition],
        late: Callable[[TopicPartition], bool],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Take partitions on.

        Args:
            places: which.
            late: tells of each whether it is new to the consumer.
            topic_ids: which lives of topics they belong to, as far as that is known.
        """
        for place in places:
            self.places[place] = Place(topic_ids.get(place.topic), late=late(place))

    def remove(self, places: Iterable[TopicPartition]) -> None:
        """Give partitions up."""
        for place in places:
            self.places.pop(place, None)
        if self._rest is not None and self._rest.place not in self.places:
            self._rest = None
        self._let_go(_OTHERS)

    def end(self) -> None:
        """Let go of the topics, and of what is kept of their frames."""
        self.places.clear()
        self._topics.clear()
        self._rest = None

    def move(self, place: TopicPartition, offset: int) -> None:
        """Go on at another offset of the history that was read."""
        self.places[place].position = offset

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on where the application says: also where its position had lost its meaning."""
        self.move(place, offset)
        self.topic(place.topic).doubt()
        if self.places[place].lost:
            self.places[place].lineage, self.places[place].lost = None, False

    # --- where it stands ----------------------------------------------------------------------------------

    def look(self, known: Mapping[str, View] | None = None, *, certain: bool = True) -> dict[str, View]:
        """Return what is visible of the assigned topics, with every position brought into it.

        Args:
            known: what was looked at just now.
            certain: see ``SharedTopic.look``.

        Raises:
            UnknownTopicError: a topic was never there.
            TopicChangedError, OffsetOutOfRangeError: ``auto_offset_reset`` is ``none``, and a position means nothing;
                of a topic that was restored from a copy, this is a LogTruncationError.
            UsageError: a partition that does not exist.
        """
        views: dict[str, View] = {}
        names = {place.topic for place in self.places}
        for name in sorted(names):
            try:
                views[name] = (known or {}).get(name) or self.topic(name).look(certain=certain)
            except UnknownTopicError:
                self._gone(name)
        moving = [each for each in self.places.items() if each[0].topic in views and _is_moved(*each, views)]
        state = self._group_state() if moving else None
        for key, place in moving:
            self._bring(key, place, views[key.topic], state)
        self._look_again(views)
        self._follow_history(views)
        for key, place in moving:
            if key.topic in views:
                self._bring_inside(key, place, views[key.topic])
        if len(self._topics) > len(names) + _OTHERS:
            self._let_go(_OTHERS)
        return views

    def _look_again(self, views: dict[str, View]) -> None:
        """Look again at topics of which the group knows a later entry: others committed since they were looked at."""
        for key, place in self.places.items():
            view = views.get(key.topic)
            if view is None or place.lineage is None or place.topic_id != view.topic.topic_id:
                continue
            if place.lineage.sequence > view.topic.lineage.sequence:
                try:
                    views[key.topic] = self.topic(key.topic).look()
                except UnknownTopicError:  # deleted meanwhile: the next look tells
                    del views[key.topic]

    def _follow_history(self, views: Mapping[str, View]) -> None:
        """Judge the positions that were reached under another entry: the topic may have been restored from a copy."""
        judged: dict[tuple[str, Lineage | None], Parted | None] = {}
        refused: list[LogTruncationError] = []
        for key, place in self.places.items():
            view = views.get(key.topic)
            if view is None or place.lineage is view.topic.lineage or place.topic_id != view.topic.topic_id:
                continue
            seen = key.topic, place.lineage
            if seen not in judged:
                judged[seen] = self.topic(key.topic).parted(place.lineage, view)
            found, place.lost = judged[seen], False
            if found is not None and place.position is not None:
                self._forget([key])
                if found.loses(key.partition, place.position):
                    self._truncate(key, place, view, found, refused)
            if not place.lost:
                place.lineage = view.topic.lineage
        if refused:  # with all of them marked: one answer may seek in all
            raise refused[0]

    def _truncate(
        self, key: TopicPartition, place: Place, view: View, found: Parted, refused: list[LogTruncationError]
    ) -> None:
        """Go back to where the histories parted, as Kafka does; where nobody can tell, the policy says where to."""
        assert place.position is not None
        if key.partition >= view.topic.partitions:  # it was added behind the copy: the next assignment is without it
            return
        low, high = view.topic.log_start[key.partition], view.topic.log_end[key.partition]
        if self._settings.reset is Reset.NONE:
            place.lost = True
            told = lost(key.topic, key.partition, place.position, found)
            refused.append(
                LogTruncationError(
                    f"{told}; auto_offset_reset is 'none': seek to an offset from {low} (log start offset) to {high} "
                    "(high watermark)"
                )
            )
            return
        end = found.end(key.partition)
        position = reset_position(self._settings.reset, low, high) if end is None else max(low, min(end, high))
        log.warning("%s: the consumer goes on at %s", lost(key.topic, key.partition, place.position, found), position)
        place.position = position

    def _gone(self, name: str) -> None:
        for key, place in self.places.items():
            if key.topic == name and place.topic_id is None:
                raise
            if key.topic == name and self._settings.reset is Reset.NONE:
                raise TopicChangedError(
                    f"topic {name!r} (id {place.topic_id}) was deleted: partition {key.partition} stays at offset "
                    f"{place.position}, which means nothing any more. Subscribe to another topic"
                ) from None
        self._warn(f"topic {name!r} was deleted: the consumer waits for it to be made again")

    def _bring(self, key: TopicPartition, place: Place, view: View, state: GroupState | None) -> None:
        topic = view.topic
        if key.partition >= topic.partitions and place.topic_id is not None:
            return  # made again with fewer partitions: the next assignment is without it
        check_partition(key.topic, topic, key.partition)
        low, high = topic.log_start[key.partition], topic.log_end[key.partition]
        if place.topic_id not in (None, topic.topic_id):
            self._made_again(key, place, view)
        place.topic_id = topic.topic_id
        if place.position is None:
            committed = NEVER if state is None else state.offset(topic.topic_id, key.partition)
            place.position = first_position(
                self._settings.reset, None if committed == NEVER else committed, low, high, late=place.late
            )
            if place.position is None:
                raise no_offset(key, low, high, self._settings.group_id)
            place.lineage = None if state is None or committed == NEVER else state.lineage(topic.topic_id)

    def _bring_inside(self, key: TopicPartition, place: Place, view: View) -> None:
        if key.partition < view.topic.partitions and place.position is not None:
            low, high = view.topic.log_start[key.partition], view.topic.log_end[key.partition]
            if place.topic_id == view.topic.topic_id and not low <= place.position <= high:
                self._reset(key, place, low, high)

    def _made_again(self, key: TopicPartition, place: Place, view: View) -> None:
        told = f"topic {key.topic!r} (id {place.topic_id}) was deleted, and made again with id {view.topic.topic_id}"
        if self._settings.reset is Reset.NONE:
            raise TopicChangedError(
                f"{told}: partition {key.partition} stays at offset {place.position}, which means nothing in the new "
                "topic. Seek to an offset of the new one, or subscribe anew"
            )
        self._warn(f"{told}: it is read from its start, or from where the group is in it")
        place.position, place.late, place.lineage = None, True, None

    def _reset(self, key: TopicPartition, place: Place, low: int, high: int) -> None:
        assert place.position is not None
        told = out_of_range(key, place.position, low, high)
        position = reset_position(self._settings.reset, low, high)
        if position is None:
            raise OffsetOutOfRangeError(f"{told}; auto_offset_reset is 'none': seek to an offset between them")
        log.warning("%s: the consumer goes on at %d (%s)", told, position, self._settings.reset.value)
        place.position = position

    def follow(self, state: GroupState, generation: int) -> None:
        """Go to where a reset behind ``generation`` moved the group; where it only lost its offsets, stay."""
        for key, place in self.places.items():
            if (
                place.position is None
                or place.topic_id is None
                or state.since(place.topic_id, key.partition) <= generation
            ):
                continue
            committed = state.offset(place.topic_id, key.partition)
            if committed not in (NEVER, place.position):
                log.warning(
                    "group %r was reset: topic %r partition %d is read from offset %d on, it was at %s",
                    self._settings.group_id, key.topic, key.partition, committed, place.position,
                )  # fmt: skip
                place.position, place.lineage = committed, state.lineage(place.topic_id)

    def _warn(self, told: str) -> None:
        if self._told.is_new(told):
            log.warning("%s", told)

    # --- what comes next ----------------------------------------------------------------------------------

    def versions(self, views: Mapping[str, View]) -> dict[SharedTopic, str]:
        """Return what was seen of every topic: whoever waits is woken by another."""
        names = {place.topic for place in self.places}
        return {self.topic(n): views[n].newest.write_id if n in views else self.topic(n).version for n in names}

    def take(self, views: Mapping[str, View], names: tuple[str, ...], max_records: int, max_bytes: int) -> Taken:
        """Return the next rows of all partitions that are not paused, a frame of each in turn.

        Args:
            views: from ``look``.
            names: of the columns to decode.
            max_records: how many rows at most.
            max_bytes: no further frame is taken beyond so many decoded bytes.

        Raises:
            CorruptionError: a frame is damaged, and nothing else could be taken. The position stays before it.
        """
        taken = Taken(last=self._last)
        active = in_turn([key for key in self.places if self._is_due(key, views)], self._last)
        rest = self._rest
        if rest is not None and rest.place in active and self._suits(rest, views[rest.place.topic], names):
            self._hand_out(taken, rest.place, views[rest.place.topic], names, rest.rows, rest.next_offset, max_records)
            max_records -= taken.pieces[0].rows.count
            max_bytes -= _size(rest.rows)
        while active and max_records > 0 and max_bytes > 0:
            again = []
            for key in active:
                if max_records <= 0 or max_bytes <= 0:
                    break
                rows = self._next(taken, key, views[key.topic], names, max_records)
                if rows is not None:
                    again.append(key)
                    max_records -= rows.count
                    max_bytes -= _size(rows)
            active = again
        return taken

    def apply(self, taken: Taken) -> None:
        """Move on behind what was taken."""
        taken.before = {key: (self.places[key].topic_id, self.places[key].position) for key in taken.positions}
        for key, position in taken.positions.items():
            self.places[key].position = position
        self._rest, self._last = taken.rest, taken.last

    def undo(self, taken: Taken) -> None:
        """Go back to before what was applied, as far as it was, and as the partitions are still those."""
        for key, (topic_id, position) in taken.before.items():
            place = self.places.get(key)
            if place is not None and place.topic_id == topic_id:
                place.position = position

    def _is_due(self, key: TopicPartition, views: Mapping[str, View]) -> bool:
        place = self.places[key]
        view = views.get(key.topic)
        if view is None or place.paused or place.position is None or place.topic_id != view.topic.topic_id:
            return False
        return key.partition < view.topic.partitions and place.position < view.topic.log_end[key.partition]

    def _suits(self, rest: _Rest, view: View, names: tuple[str, ...]) -> bool:
        place = self.places[rest.place]
        suits = (rest.topic_id, rest.position, rest.names) == (place.topic_id, place.position, names)
        return suits and rest.history == view.history

    def _next(
        self, taken: Taken, key: TopicPartition, view: View, names: tuple[str, ...], max_records: int
    ) -> Rows | None:
        """Take the next rows of a partition; None where there are none, or a later poll will tell why."""
        position = taken.positions.get(key, self.places[key].position)
        assert position is not None
        if position >= view.topic.log_end[key.partition]:
            return None
        taken.last = key
        try:
            fetched = self.topic(key.topic).partition(view, key.partition, names).fetch(view, position)
        except (OffsetOutOfRangeError, TopicChangedError):  # overtaken: the next look brings the position in order
            return None
        except CorruptionError as error:
            if taken.pieces:
                return None
            self._last = key  # the other partitions are served first next time
            raise CorruptionError(
                f"{error}. The consumer stays at offset {position} of topic {key.topic!r} partition {key.partition}; "
                "to go past it, seek behind the damage, or pause the partition"
            ) from error
        if fetched.rows is None:
            taken.positions[key] = fetched.next_offset
            return None
        return self._hand_out(taken, key, view, names, fetched.rows, fetched.next_offset, max_records)

    def _hand_out(
        self,
        taken: Taken,
        key: TopicPartition,
        view: View,
        names: tuple[str, ...],
        rows: Rows,
        behind: int,
        max_records: int,
    ) -> Rows:
        head, tail = cut(rows, max_records)
        position = behind if tail is None else head.offset_of(head.count - 1) + 1
        taken.pieces.append(PolledRows(key, head, position))
        taken.positions[key], taken.last, taken.rest = position, key, None
        if tail is not None:
            taken.rest = _Rest(key, view.topic.topic_id, view.history, names, position, tail, behind)
        return head


def _size(rows: Rows) -> int:
    """Return the bytes that rows count for: those of its stored columns, or of offset and partition."""
    return max(bytes_of(rows), _ROW_BYTES * rows.count)


def _is_moved(key: TopicPartition, place: Place, views: Mapping[str, View]) -> bool:
    """Return whether a position has to be found, or means nothing where it is (pure)."""
    topic = views[key.topic].topic
    if place.topic_id != topic.topic_id or place.position is None or key.partition >= topic.partitions:
        return True
    return not topic.log_start[key.partition] <= place.position <= topic.log_end[key.partition]


def backlog(places: Mapping[TopicPartition, Place], views: Mapping[str, View]) -> dict[TopicPartition, int]:
    """Return how many offsets lie before the high watermark of every partition (pure)."""
    found = {}
    for key, place in places.items():
        topic = views[key.topic].topic if key.topic in views else None
        if topic is None or place.position is None or key.partition >= topic.partitions:
            continue
        if topic.topic_id == place.topic_id:
            found[key] = max(0, topic.log_end[key.partition] - place.position)
    return found

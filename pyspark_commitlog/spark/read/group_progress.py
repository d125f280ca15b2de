"""Consumer group of a query: its start, and the commit of progress.

Spark's checkpoint stays the authority. It holds the generation that the query follows: a query never undoes a later
reset.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark_commitlog.errors import (
    ConflictError,
    CorruptionError,
    LogTruncationError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StorageError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import GroupState, Position
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.source_offset import GroupMark, SourceOffset, share_of
from pyspark_commitlog.spark.progress.topic_selection import QueryGroup
from pyspark_commitlog.storage.shared.caches import Reported
from pyspark_commitlog.topic.divergence import Divergence, describe_loss, find_divergence, truncated
from pyspark_commitlog.topic.state.lost_ranges import losses_since
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

log = logging.getLogger("pyspark_commitlog.spark")

#: The group's errors for lost offsets, partitions and topics; the query reports its own.
_NOT_THERE = (OffsetOutOfRangeError, UnknownTopicError, UsageError)


@dataclass(frozen=True, slots=True)
class GroupStart:
    """Position of a group, for `startingOffsets=group`."""

    group: QueryGroup
    state: GroupState

    def of(self, topic: TopicLog, state: TopicState, taken: Collection[int], *, strict: bool) -> dict[int, int]:
        """Return partition -> offset of `taken` partitions with a commit.

        If `strict`, raise for offsets outside of the log, and records that the group had read and a restore or unclean
        election lost.
        """
        restored = find_divergence(topic, self.state.lineage(state.topic_id), state)
        offsets = {p: o for p, o in self.state.offsets(state.topic_id).items() if p in taken}
        for partition, offset in offsets.items():
            low, high = state.log_start[partition], state.log_end[partition]
            if restored is not None and restored.loses(partition, offset):
                if strict:
                    raise truncated(topic.name, partition, offset, restored)
                offsets[partition] = self._resume_offset(topic.name, partition, offset, restored, low, high)
                continue
            if restored is None:
                self._tell_passed(topic, state, partition, offset, strict=strict)
            if strict and not low <= offset <= high:
                raise self._out_of_range(topic.name, partition, offset, low, high)
        return offsets

    def _out_of_range(self, topic: str, partition: int, offset: int, low: int, high: int) -> OffsetOutOfRangeError:
        gone = f": {low - offset} records were deleted before the group read them" if offset < low else ""
        return OffsetOutOfRangeError(
            f"group {self.group.name!r} is at offset {offset} of {topic} partition {partition}, which has "
            f"offsets {low} to {high}{gone}. Reset it, for example to earliest (commitlog groups reset ROOT GROUP)"
        )

    def _resume_offset(self, topic: str, partition: int, offset: int, restored: Divergence, low: int, high: int) -> int:
        """Return the offset from which a restored partition is read; warn of it."""
        end = restored.end(partition)
        resumed = max(low, min(offset if end is None else end, high))
        log.warning(
            "group %r: %s; failOnDataLoss is false: it goes on at offset %d",
            self.group.name, describe_loss(topic, partition, offset, restored), resumed,
        )  # fmt: skip
        return resumed

    def _tell_passed(self, topic: TopicLog, state: TopicState, partition: int, offset: int, *, strict: bool) -> None:
        for gap in losses_since(state, partition, offset, self.state.lineage(state.topic_id)):
            what = (
                f"group {self.group.name!r}: {topic.name} partition {partition}: {gap.description}; the group is at "
                f"offset {offset} since before that: it may have read them"
            )
            if strict:
                raise LogTruncationError(
                    f"{what}. Reset it once you know what it made of them, to that offset or another (commitlog groups "
                    "reset ROOT GROUP), or set the option 'failOnDataLoss' to 'false'"
                )
            log.warning("%s; failOnDataLoss is false: it goes on at offset %d", what, offset)


class GroupProgress:
    """Committer of progress for one run of a streaming query."""

    def __init__(self, handle: GroupLog, group: QueryGroup, *, strict: bool) -> None:
        self._handle, self._group, self._strict = handle, group, strict
        self._first: GroupState | None = None
        self._committed: tuple[Mapping[TopicPartition, int], Mapping[str, str], Mapping[str, str]] | None = None
        self._reported = Reported()

    def start(self) -> GroupStart:
        """Return the group's position: offsets and generation of one entry."""
        if self._first is None:
            self._first = self._handle.newest()
        return GroupStart(self._group, self._first)

    def mark(self, known: GroupMark | None) -> GroupMark:
        """Return the checkpoint's mark, else one of the present generation."""
        if known is not None and known.group == self._group.name:
            return known
        return GroupMark(self._group.name, self.start().state.generation, share_of(self._group))

    def commit(self, reached: SourceOffset, topics: Collection[str]) -> GroupMark:
        """Commit the query's progress; return the mark that it follows.

        A failed commit only warns, and is retried with the next. If `strict` (failOnDataLoss), raise for a topic
        deleted or recreated.
        """
        mark = self.mark(reached.group)
        # offsets alone may be equal for a recreated or restored topic
        said = reached.offsets, reached.topic_ids, reached.lineages
        if not reached.offsets or said == self._committed:
            return mark
        seen = {name: Lineage.of_position(mark) for name, mark in reached.lineages.items()}
        positions = [
            Position(place.topic, reached.topic_ids[place.topic], place.partition, offset, seen.get(place.topic))
            for place, offset in reached.offsets.items()
            if place.topic in topics
        ]
        try:
            fenced = self._advance(positions, mark)
        except (ConflictError, CorruptionError, OutcomeUnknownError, StorageError, *_NOT_THERE) as error:
            if self._strict and isinstance(error, TopicChangedError):
                raise
            self._warn(f"group {mark.group!r}: progress was not committed, it is tried again: {error}")
            return mark
        self._committed = said
        if fenced:
            self._warn(
                f"group {mark.group!r} was reset, or deleted, after generation {mark.generation}, which this query "
                f"follows: its progress no longer counts for {len(fenced)} partitions, such as {fenced[0].topic} "
                f"partition {fenced[0].partition}. It reads on from its checkpoint; to go by the reset, start it with "
                "a new checkpoint and startingOffsets=group"
            )
        return mark

    def _advance(self, positions: Sequence[Position], mark: GroupMark) -> tuple[Position, ...]:
        """Commit; unless `strict`, skip deleted topics. Return fenced positions."""
        try:
            return self._handle.advance(positions, mark.generation).fenced
        except (TopicChangedError, UnknownTopicError) as error:
            if self._strict:
                raise
            lives = {(at.topic, at.topic_id) for at in positions}
            left = {life for life in lives if self._is_there(*life)}
            if not left:
                raise
            there = [at for at in positions if (at.topic, at.topic_id) in left]
            self._warn(f"group {mark.group!r}: progress is committed without what is gone: {error}")
        return self._handle.advance(there, mark.generation).fenced

    def _is_there(self, topic: str, topic_id: str) -> bool:
        try:
            self._handle.topic_state(topic, topic_id)
        except (TopicChangedError, UnknownTopicError):
            return False
        return True

    def _warn(self, warning: str) -> None:
        if self._reported.is_new(warning):
            log.warning("%s", warning)

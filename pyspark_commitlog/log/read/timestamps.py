"""Find an offset by timestamp: the first whose record is as late as asked, as Kafka answers ``offsetsForTimes``.

By segment (largest timestamp), then by time index, then by walking: Kafka's ``UnifiedLog.fetchOffsetByTimestamp`` and
``LogSegment.findOffsetByTimestamp``. An index is a hint: the frame that it leads to is checked. And the record with the
largest timestamp (KIP-734), in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError
from pyspark_commitlog.format.columns import instants
from pyspark_commitlog.format.index import TimeEntry, first_time, lookup_time
from pyspark_commitlog.format.segment_object import TIMEINDEX
from pyspark_commitlog.log.read.reader import PartitionReader, Rows, read_view
from pyspark_commitlog.log.read.segment_indexes import part_of
from pyspark_commitlog.log.settle_state import Active, Sealed
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.model import whole_number

_TRIES = 3
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset, and the timestamp (ms) of its record."""

    offset: int
    timestamp: int


def find_time(topic: TopicLog, topic_id: str, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
    """Return the first record of a partition that is not before ``timestamp_ms``; None if all are, or there is none.

    Raises:
        CorruptionError: the frames that would tell are damaged.
        TopicChangedError: the topic was deleted or made again.
        UsageError: ``timestamp_ms`` is no whole number.
    """
    at = whole_number("timestamp", timestamp_ms)
    return _searched(topic, partition, lambda: _Search(topic, topic_id, partition, at).run())


def find_max_timestamp(topic: TopicLog, topic_id: str, partition: int) -> OffsetAndTimestamp | None:
    """Return the first of a partition's records with the largest timestamp, in ms; None where there is no record.

    Kafka: ``ListOffsetsRequest.MAX_TIMESTAMP`` (KIP-734), but never a record below the log start offset.

    Raises:
        CorruptionError: the frames that would tell are damaged.
        TopicChangedError: the topic was deleted or made again.
    """
    return _searched(topic, partition, lambda: _Latest(topic, topic_id, partition).run())


def _searched(
    topic: TopicLog, partition: int, search: Callable[[], OffsetAndTimestamp | None]
) -> OffsetAndTimestamp | None:
    for _ in range(_TRIES - 1):
        try:
            return search()
        except (OffsetOutOfRangeError, FileNotFoundError):  # retention or a collector overtook the search
            continue
    try:
        return search()
    except FileNotFoundError as error:
        raise CorruptionError(
            f"topic {topic.name!r} partition {partition}: {error.filename or error} is missing, and the newest entries "
            "still name it: restore it from a copy"
        ) from error


def spans_outside(topic: TopicLog, topic_id: str, partition: int, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    """Return offsets, as ranges [start, end), of which no record is of ``first_ms`` to ``last_ms``, these included.

    By what is stored of segments and by time indexes: no record is read. Not all such offsets are known; of damaged or
    missing files none are, and a reader of the records gets the error.

    Raises:
        TopicChangedError: the topic was deleted or made again.
    """
    try:
        return list(_Search(topic, topic_id, partition, first_ms).outside(last_ms))
    except (FileNotFoundError, CorruptionError):
        return []


def _time_index(topic: TopicLog, topic_id: str, partition: int, segment: Sealed | Active) -> pa.Buffer:
    return part_of(topic.storage, topic.paths(topic_id), partition, segment, TIMEINDEX)


class _Search:
    def __init__(self, topic: TopicLog, topic_id: str, partition: int, timestamp_ms: int) -> None:
        self._topic, self._id, self._partition, self._time = topic, topic_id, partition, timestamp_ms
        view = read_view(topic, topic_id, durable=True)
        self._reader = PartitionReader(topic, topic_id, partition, ("timestamp",), view)

    def run(self) -> OffsetAndTimestamp | None:
        for start, end in self._ranges():
            for rows in self._reader.read(start, end, careful=True):
                record = self._in_rows(rows)
                if record is not None:
                    return record
        return None

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the offsets to walk, in order: of segments that hold such a record, then all that is not settled."""
        view = self._reader.view
        low, high = view.topic.log_start[self._partition], view.topic.log_end[self._partition]
        row = view.settle.partition(self._partition)
        settled_end = min(row.end_offset, high)
        for sealed in self._topic.segments(view.settle, self._partition, low).not_before(self._time, low):
            yield max(low, self._hint(sealed)), min(sealed.end_offset, high)
        if row.active.max_timestamp >= self._time and settled_end > low:
            yield max(low, self._hint(row.active)), settled_end
        if max(settled_end, low) < high:
            yield max(settled_end, low), high

    def outside(self, last_ms: int) -> Iterator[tuple[int, int]]:
        """Yield settled offsets whose records are all before the time asked, or all after ``last_ms``.

        Timestamps need not ascend: after a frame whose largest is so far after ``last_ms`` as no record of its segment
        is late, all are after it.
        """
        settle = self._reader.view.settle
        row = settle.partition(self._partition)
        low = self._reader.view.topic.log_start[self._partition]
        for sealed in self._topic.segments(settle, self._partition, low).every():
            yield from self._outside(sealed, sealed.end_offset, last_ms)
        yield from self._outside(row.active, row.end_offset, last_ms)

    def _outside(self, segment: Sealed | Active, end: int, last_ms: int) -> Iterator[tuple[int, int]]:
        least, lateness = segment.min_timestamp, segment.lateness
        if segment.max_timestamp < self._time or (least is not None and least > last_ms):
            yield segment.base_offset, end
            return
        if self._time > 0 and (least is None or least < self._time):
            yield segment.base_offset, self._hint(segment)
        if lateness is not None and segment.max_timestamp > last_ms + lateness:
            yield self._late_from(segment, end, last_ms + lateness), end

    def _hint(self, segment: Sealed | Active) -> int:
        """Return the offset from which on to look: all records of the segment before it are too early."""
        try:
            entry = lookup_time(self._times(segment), segment.base_offset, self._time - 1)
            return entry.offset + 1 if entry.timestamp >= 0 and self._right(entry) else segment.base_offset
        except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError):  # a hint only
            return segment.base_offset

    def _late_from(self, segment: Sealed | Active, end: int, after_ms: int) -> int:
        """Return the offset after a frame with a record that is after ``after_ms``; ``end`` if the index has none."""
        low = self._reader.view.topic.log_start[self._partition]
        try:
            entry = first_time(self._times(segment), segment.base_offset, after_ms, low)
            return entry.offset + 1 if entry is not None and self._right(entry) else end
        except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError):  # a hint only
            return end

    def _times(self, segment: Sealed | Active) -> pa.Buffer:
        return _time_index(self._topic, self._id, self._partition, segment)

    def _right(self, entry: TimeEntry) -> bool:
        """Return whether the frame that a time-index entry leads to bears it out."""
        frame = self._reader.frame_at(entry.offset)
        return (frame.next_offset - 1, frame.frame.max_timestamp) == (entry.offset, entry.timestamp)

    def _in_rows(self, rows: Rows) -> OffsetAndTimestamp | None:
        assert rows.batch is not None
        times = instants(rows.batch.column("timestamp"))
        late = np.flatnonzero(times >= self._time * _US_PER_MS)
        if not len(late):
            return None
        at = int(late[0])
        return OffsetAndTimestamp(rows.offset_of(at), int(times[at]) // _US_PER_MS)


@dataclass(frozen=True, slots=True)
class _TimestampCandidate:
    """Offsets [start, end) none of whose records is later than ``max_timestamp`` (ms), and the segment they are in."""

    max_timestamp: int
    start: int
    end: int
    segment: Sealed | Active | None

    def promise(self) -> tuple[int, int]:
        """Return the best rank that one of its records can have."""
        return self.max_timestamp, -self.start


class _Latest:
    """A search for the largest timestamp.

    What is stored of a segment's timestamps is an upper bound only: the log start offset may cut off the record that
    had the largest, and a frame that stands in for what was compacted or voided has a timestamp and no record.
    """

    def __init__(self, topic: TopicLog, topic_id: str, partition: int) -> None:
        self._topic, self._id, self._partition = topic, topic_id, partition
        view = read_view(topic, topic_id, durable=True)
        self._reader = PartitionReader(topic, topic_id, partition, ("timestamp",), view)
        state = self._reader.view.topic
        self._low, self._high = state.log_start[partition], state.log_end[partition]

    def run(self) -> OffsetAndTimestamp | None:
        best: OffsetAndTimestamp | None = None
        for candidate in sorted(self._candidates(), key=_TimestampCandidate.promise, reverse=True):
            if best is not None and candidate.promise() < _rank(best):
                break
            best = max(best, self._best_in(candidate), key=_rank)
        return best

    def _candidates(self) -> Iterator[_TimestampCandidate]:
        """Yield the segments, and all that is not settled, of which nobody knows how late it is."""
        settle = self._reader.view.settle
        row = settle.partition(self._partition)
        settled_end = min(row.end_offset, self._high)
        for sealed in self._topic.segments(settle, self._partition, self._low).not_before(-LONG_MAX, self._low):
            end = min(sealed.end_offset, self._high)
            yield _TimestampCandidate(sealed.max_timestamp, max(self._low, sealed.base_offset), end, sealed)
        if row.active.base_offset < settled_end:
            yield _TimestampCandidate(
                row.active.max_timestamp, max(self._low, row.active.base_offset), settled_end, row.active
            )
        yield _TimestampCandidate(LONG_MAX, max(self._low, settled_end), self._high, None)

    def _best_in(self, candidate: _TimestampCandidate) -> OffsetAndTimestamp | None:
        hinted = self._in_hinted(candidate, candidate.segment) if candidate.segment else None
        return hinted or self._in_range(candidate.start, candidate.end)

    def _in_hinted(self, candidate: _TimestampCandidate, segment: Sealed | Active) -> OffsetAndTimestamp | None:
        """Return the answer for a segment from its first frame that is as late; None where that has no such record."""
        try:
            offset = self._hint(segment)
            frame = None if offset is None else self._reader.frame_at(offset)
        except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError):  # a hint only
            return None
        if frame is None or frame.next_offset - 1 != offset:
            return None
        record = self._in_range(max(candidate.start, frame.base_offset), min(candidate.end, frame.next_offset))
        return record if record is not None and record.timestamp == segment.max_timestamp else None

    def _hint(self, segment: Sealed | Active) -> int | None:
        """Return the last offset of the first frame with a segment's largest timestamp; None where nothing says it."""
        if isinstance(segment, Active):
            return segment.index.max_timestamp_offset
        times = _time_index(self._topic, self._id, self._partition, segment)
        entry = lookup_time(times, segment.base_offset, LONG_MAX)
        return entry.offset if entry.timestamp == segment.max_timestamp else None

    def _in_range(self, start: int, end: int) -> OffsetAndTimestamp | None:
        best: OffsetAndTimestamp | None = None
        for rows in self._reader.read(start, end) if start < end else ():
            assert rows.batch is not None
            times = instants(rows.batch.column("timestamp")) // _US_PER_MS
            at = int(times.argmax())  # the first of the largest
            best = max(best, OffsetAndTimestamp(rows.offset_of(at), int(times[at])), key=_rank)
        return best


def _rank(record: OffsetAndTimestamp | None) -> tuple[int, int]:
    """Return what the record that is asked for has the largest of: the latest, of those the first."""
    return (-LONG_MAX, 0) if record is None else (record.timestamp, -record.offset)

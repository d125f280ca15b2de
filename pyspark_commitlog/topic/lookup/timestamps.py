"""Offset look-ups by timestamp, as Kafka's `offsetsForTimes`, and by largest timestamp (KIP-734).

By segment, time index, then frames (`UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`). An index
is a hint: its frame is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError
from pyspark_commitlog.format.columns.frame_rows import timestamps
from pyspark_commitlog.format.columns.untyped import instants
from pyspark_commitlog.format.index import TimeEntry, first_time, lookup_time
from pyspark_commitlog.format.segment_object import TIMEINDEX
from pyspark_commitlog.model import whole_number
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows
from pyspark_commitlog.topic.read.segment_indexes import part_of
from pyspark_commitlog.topic.state.settle_state import Active, Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.view import read_view

_TRIES = 3
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset, and the timestamp (ms) of its record."""

    offset: int
    timestamp: int


def find_time(topic: TopicLog, topic_id: str, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp_ms`; None if none."""
    at = whole_number("timestamp", timestamp_ms)
    return _searched(topic, partition, lambda: _Search(topic, topic_id, partition, at).run())


def find_max_timestamp(topic: TopicLog, topic_id: str, partition: int) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp (ms); None if none.

    Kafka: `ListOffsetsRequest.MAX_TIMESTAMP` (KIP-734), but never below the log start.
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
    """Ranges [start, end) without records from `first_ms` to `last_ms`, inclusive.

    From metadata and time indexes alone, so incomplete; empty if a file is damaged or missing, which a reader reports.
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
        """Yield settled ranges all before the time, or all after `last_ms`.

        Timestamps need not ascend: all is later after a frame whose largest exceeds `last_ms` by the segment's
        lateness.
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
        try:
            entry = lookup_time(self._times(segment), segment.base_offset, self._time - 1)
            return entry.offset + 1 if entry.timestamp >= 0 and self._right(entry) else segment.base_offset
        except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError):  # a hint only
            return segment.base_offset

    def _late_from(self, segment: Sealed | Active, end: int, after_ms: int) -> int:
        low = self._reader.view.topic.log_start[self._partition]
        try:
            entry = first_time(self._times(segment), segment.base_offset, after_ms, low)
            return entry.offset + 1 if entry is not None and self._right(entry) else end
        except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError):  # a hint only
            return end

    def _times(self, segment: Sealed | Active) -> pa.Buffer:
        return _time_index(self._topic, self._id, self._partition, segment)

    def _right(self, entry: TimeEntry) -> bool:
        frame = self._reader.frame_at(entry.offset)
        return (frame.next_offset - 1, frame.frame.max_timestamp) == (entry.offset, entry.timestamp)

    def _in_rows(self, rows: Rows) -> OffsetAndTimestamp | None:
        assert rows.batch is not None
        times = instants(timestamps(rows.batch))
        late = np.flatnonzero(times >= self._time * _US_PER_MS)
        if not len(late):
            return None
        at = int(late[0])
        return OffsetAndTimestamp(rows.offset_of(at), int(times[at]) // _US_PER_MS)


@dataclass(frozen=True, slots=True)
class _TimestampCandidate:
    """Offsets [start, end) with timestamps up to `max_timestamp` (ms)."""

    max_timestamp: int
    start: int
    end: int
    segment: Sealed | Active | None

    def promise(self) -> tuple[int, int]:
        return self.max_timestamp, -self.start


class _Latest:
    """Search for the largest timestamp.

    A segment's stored maximum is only an upper bound: its record may be below the log start, compacted or voided.
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
        if isinstance(segment, Active):
            return segment.index.max_timestamp_offset
        times = _time_index(self._topic, self._id, self._partition, segment)
        entry = lookup_time(times, segment.base_offset, LONG_MAX)
        return entry.offset if entry.timestamp == segment.max_timestamp else None

    def _in_range(self, start: int, end: int) -> OffsetAndTimestamp | None:
        best: OffsetAndTimestamp | None = None
        for rows in self._reader.read(start, end) if start < end else ():
            assert rows.batch is not None
            times = instants(timestamps(rows.batch)) // _US_PER_MS
            at = int(times.argmax())  # the first of the largest
            best = max(best, OffsetAndTimestamp(rows.offset_of(at), int(times[at])), key=_rank)
        return best


def _rank(record: OffsetAndTimestamp | None) -> tuple[int, int]:
    return (-LONG_MAX, 0) if record is None else (record.timestamp, -record.offset)

"""Compare a topic's records in two roots, offset by offset; read-only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyspark_commitlog.errors import LogTruncationError, OffsetOutOfRangeError
from pyspark_commitlog.format.columns import frame_rows, typed
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.model import OffsetRange, Progress, silent
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import checksum, typed_checksum

#: Offsets compared at a time, and faults named of a partition.
_WINDOW = 2**18
_FAULTS = 5
#: Added to the hash if the timestamp is that of the append.
_APPEND_TIME, _ZERO = np.uint64(0x9E3779B97F4A7C15), np.uint64(0)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Compared:
    """Outcome of a comparison: equal `records`, and `faults`.

    `superseded` counts records of a compacted topic at one side only: the other is compacted further, or missed
    tombstones (docs/explanation/design/copies.md).
    """

    topic: str
    records: int
    faults: tuple[str, ...]
    superseded: int = 0


def compare_topic(source: TopicLog, destination: TopicLog, progress: Progress = silent) -> Compared:
    """Compare a topic as far as the destination has it.

    `progress` gets a title, and offsets done and in all; it may raise to stop.

    Raises:
        UnknownTopicError: one has no such topic.
        CorruptionError: stored bytes are damaged.
    """
    _, there = destination.newest()
    _, here = source.newest()
    if here.topic_id != there.topic_id:
        return Compared(source.name, 0, (f"topic ids differ: {here.topic_id}, {there.topic_id}",))
    comparison = _Comparison(source, destination, here, there, progress)
    for number in range(there.partitions):
        comparison.partition(number)
    return Compared(source.name, comparison.same, tuple(comparison.faults), comparison.superseded)


class _Comparison:
    def __init__(
        self, source: TopicLog, destination: TopicLog, here: TopicState, there: TopicState, progress: Progress
    ) -> None:
        self._source, self._destination, self._here, self._there = source, destination, here, there
        self._progress = progress
        self._compacted = destination.config(there).has_policy("compact")
        self._total, self._done = sum(there.log_end) - sum(there.log_start), 0
        self.same = self.superseded = 0
        self.faults: list[str] = []

    def partition(self, number: int) -> None:
        first = max(self._there.log_start[number], *self._here.log_start[number : number + 1])
        end, beyond = self._there.log_end[number], self._here.log_end[number : number + 1]
        if not beyond or end > beyond[0]:
            self.faults.append(f"partition {number}: it ends at {end}, at the source at {beyond[0] if beyond else 0}")
            return
        begun = len(self.faults)
        while first < end:
            stop = min(end, first + _WINDOW)
            try:
                left = _hashed(self._source, self._here, number, first, stop)
                right = _hashed(self._destination, self._there, number, first, stop)
            except LogTruncationError:
                raise
            except OffsetOutOfRangeError:
                stop = min(end, self._log_start(number))
                if stop <= first:
                    raise
            else:
                named = (f"partition {number} offset {fault}" for fault in self._differences(left, right))
                self.faults = [*self.faults[:begun], *[*self.faults[begun:], *named][:_FAULTS]]
            self._done += stop - first
            first = stop
            self._progress("verify", self._done, self._total)

    def _log_start(self, number: int) -> int:
        ends = ((self._source, self._here), (self._destination, self._there))
        return max(topic.newest(state.topic_id)[1].log_start[number] for topic, state in ends)

    def _differences(self, left: tuple[Ints, Hashes], right: tuple[Ints, Hashes]) -> Iterator[str]:
        both, at_left, at_right = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
        wrong = left[1][at_left] != right[1][at_right]
        self.same += len(both) - int(wrong.sum())
        yield from (f"{offset}: the records differ" for offset in both[wrong].tolist())
        for offsets, where in ((left[0], "the destination has no record"), (right[0], "the source has no record")):
            alone = np.setdiff1d(offsets, both, assume_unique=True).tolist()
            if self._compacted:
                self.superseded += len(alone)
            else:
                yield from (f"{offset}: {where}" for offset in alone)


def _hashed(topic: TopicLog, state: TopicState, partition: int, start: int, end: int) -> tuple[Ints, Hashes]:
    wanted = OffsetRange(topic.name, state.topic_id, partition, start, end)
    offsets: list[Ints] = [np.zeros(0, np.int64)]
    found: list[Hashes] = [np.zeros(0, np.uint64)]
    for rows in read_range(topic, wanted):
        if rows.batch is None or not rows.count:
            continue
        own = rows.offsets if rows.offsets is not None else rows.first_offset + np.arange(rows.count, dtype=np.int64)
        offsets.append(own)
        hashes = typed_checksum.hashes if typed.is_typed(rows.batch.schema) else checksum.hashes
        hashed = hashes(rows.batch, frame_rows.timestamps(rows.batch))
        found.append(hashed ^ (_APPEND_TIME if rows.log_append_time else _ZERO))
    return np.concatenate(offsets), np.concatenate(found)

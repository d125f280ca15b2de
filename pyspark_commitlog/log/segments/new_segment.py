"""A sealed segment that is written at one go: three files of its own, or a segment object that holds nothing else.

Which of the two, storage decides. Nothing of it counts before a settle entry names it.
"""

from __future__ import annotations

from typing import Protocol

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.index import IndexState, RollLimits, index_frame, seal_time, should_roll
from pyspark_commitlog.format.paths import segment_stem
from pyspark_commitlog.log.segments.directory import SegmentDir
from pyspark_commitlog.log.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.log.segments.writer import Stamped
from pyspark_commitlog.log.settle_state import Sealed, earliest, later


class NewSegment(Protocol):
    """Settled frames one after the other, and their indexes."""

    def full(self, frame: Frame) -> bool:
        """Return whether the frame must go to another segment."""

    def append(self, frame: Frame, least_ms: int | None) -> None:
        """Append a frame; no record of it is before ``least_ms``; None: nobody knows."""

    def finish(self, end_offset: int) -> Sealed:
        """Make it durable; return the segment, which ends before ``end_offset``, as its frames do.

        Raises:
            StorageError, OSError: it may be there or not; nobody names it.
        """

    def discard(self) -> None:
        """Give up."""


def new_segment(directory: SegmentDir, number: int, base_offset: int, limits: SliceLimits) -> NewSegment:
    """Begin a segment.

    Args:
        directory: of the partition's segments.
        number: with files of its own: the settle entry that will name it (rule R1); in an object: the newest settle
            entry when this work began (rule O1).
        base_offset: its first offset.
        limits: when it is full.
    """
    if directory.storage.can_append:
        return _FileSegment(directory, number, base_offset, limits)
    return _ObjectSegment(directory, number, base_offset, limits)


class _FileSegment:
    """Three new files, whole and synced at ``finish``."""

    def __init__(self, directory: SegmentDir, number: int, base_offset: int, limits: SliceLimits) -> None:
        self._directory, self._number = directory, number
        self._interval_bytes = limits.interval_bytes
        self._state = IndexState(base_offset)
        self._index, self._times = bytearray(), bytearray()
        self._least: int | None = None
        self._lateness: int | None = 0
        self._limits = RollLimits(limits.segment_bytes, LONG_MAX, limits.index_bytes, jitter_ms=0)
        self._log = directory.storage.create(self._path("log"))

    def _path(self, suffix: str) -> str:
        stem = segment_stem(self._state.base_offset, self._number)
        return self._directory.paths.segment_file(self._directory.partition, stem, suffix)

    def full(self, frame: Frame) -> bool:
        return should_roll(
            self._state,
            self._limits,
            incoming_bytes=frame.length,
            incoming_max_timestamp=frame.max_timestamp,
            incoming_last_offset=frame.last_offset,
            now_ms=0,
        )

    def append(self, frame: Frame, least_ms: int | None) -> None:
        self._least = earliest((self._least, least_ms)) if self._state.position else least_ms
        self._lateness = later(self._lateness, self._state.max_timestamp, least_ms)
        indexed = index_frame(
            self._state,
            last_offset=frame.last_offset,
            max_timestamp=frame.max_timestamp,
            length=frame.length,
            interval_bytes=self._interval_bytes,
        )
        self._state = indexed.state
        self._index += indexed.offset_entry
        self._times += indexed.time_entry
        self._log.write(frame.buffer)

    def discard(self) -> None:
        self._log.discard()

    def finish(self, end_offset: int) -> Sealed:
        self._times += seal_time(self._state)
        length, crc = self._log.close()
        self._directory.storage.write_once(self._path("index"), bytes(self._index))
        self._directory.storage.write_once(self._path("timeindex"), bytes(self._times))
        base, latest = self._state.base_offset, self._state.max_timestamp
        return Sealed(base, end_offset, self._number, length, crc, len(self._index), len(self._times), latest,
                      self._least, self._lateness)  # fmt: skip


class _ObjectSegment:
    """The only slice of a new object, which appears whole at ``finish``."""

    def __init__(self, directory: SegmentDir, number: int, base_offset: int, limits: SliceLimits) -> None:
        self._partition = directory.partition
        self._writer = ObjectWriter(directory.storage, directory.paths, number, limits)
        self._slice = self._writer.slice(directory.partition, base_offset)

    def full(self, frame: Frame) -> bool:
        return self._slice.full(stamped(frame, None))

    def append(self, frame: Frame, least_ms: int | None) -> None:
        self._slice.append(stamped(frame, least_ms))

    def discard(self) -> None:
        self._writer.discard()

    def finish(self, end_offset: int) -> Sealed:
        assert self._slice.next_offset == end_offset
        self._slice.finish()
        written = self._writer.finish(tier=0)
        assert written is not None, "a segment has a frame"
        return written.sealed()[self._partition]


def stamped(frame: Frame, least_ms: int | None) -> Stamped:
    """Return a settled frame as a segment's writer takes it; no record of it is before ``least_ms``."""
    return Stamped((frame.buffer,), frame.length, frame.base_offset, frame.last_offset, frame.max_timestamp, least_ms)

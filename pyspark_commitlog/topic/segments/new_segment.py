"""Sealed segments written at one go, as files or an object."""

from __future__ import annotations

from typing import Protocol

from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.paths import segment_stem
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.growing import GrowingSegment, stamped
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.topic.state.settle_state import Sealed


class NewSegment(Protocol):
    """Sequence of settled frames with indexes."""

    def full(self, frame: Frame) -> bool:
        """Whether the frame must go to another segment."""

    def append(self, frame: Frame, least_ms: int | None) -> None:
        """Append a frame; `least_ms` bounds its timestamps, if known."""

    def finish(self, end_offset: int) -> Sealed:
        """Make the segment durable and return it.

        Raises:
            StorageError, OSError: it may exist; nothing names it.
        """

    def discard(self) -> None:
        """Discard the segment."""


def new_segment(directory: SegmentDir, number: int, base_offset: int, limits: SliceLimits) -> NewSegment:
    """Begin a segment.

    `number`: the settle entry that will name its files (rule R1), or for an object the newest when this work began
    (O1).
    """
    if directory.storage.can_append:
        return _FileSegment(directory, number, base_offset, limits)
    return _ObjectSegment(directory, number, base_offset, limits)


class _FileSegment:
    """New files, whole and synced at `finish`."""

    def __init__(self, directory: SegmentDir, number: int, base_offset: int, limits: SliceLimits) -> None:
        self._directory, self._number, self._roll = directory, number, limits.roll
        self._growing = GrowingSegment.at(base_offset, limits.interval_bytes)
        self._log = directory.storage.create(self._path("log"))

    def _path(self, suffix: str) -> str:
        stem = segment_stem(self._growing.index.base_offset, self._number)
        return self._directory.paths.segment_file(self._directory.partition, stem, suffix)

    def full(self, frame: Frame) -> bool:
        return self._growing.is_full(stamped(frame, None), self._roll)

    def append(self, frame: Frame, least_ms: int | None) -> None:
        self._growing.append(stamped(frame, least_ms))
        self._log.write(frame.buffer)

    def discard(self) -> None:
        self._log.discard()

    def finish(self, end_offset: int) -> Sealed:
        self._growing.seal()
        _, crc = self._log.close()
        self._directory.storage.write_once(self._path("index"), bytes(self._growing.offsets))
        self._directory.storage.write_once(self._path("timeindex"), bytes(self._growing.times))
        return self._growing.sealed(end_offset, crc, self._number)


class _ObjectSegment:
    """The only slice of a new object, put at `finish`."""

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

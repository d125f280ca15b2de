"""A sealed segment that is written at one go: three files of its own, or a segment object that holds nothing else.

Which of the two, storage decides. Nothing of it counts before a settle entry names it.
"""

from __future__ import annotations

from typing import Protocol

from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.paths import segment_stem
from pyspark_commitlog.log.segments.directory import SegmentDir
from pyspark_commitlog.log.segments.growing import GrowingSegment, stamped
from pyspark_commitlog.log.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.log.settle_state import Sealed


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

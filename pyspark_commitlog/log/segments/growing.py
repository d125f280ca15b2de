"""What frames make of a segment while they are appended to it: what is published, and its index bytes. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.index import IndexState, RollLimits, index_frame, rolling_from, seal_time, should_roll
from pyspark_commitlog.log.settle_state import Active, Sealed, lateness_with


@dataclass(frozen=True, slots=True)
class Stamped:
    """A frame with its real offsets, ready to be written. Timestamps in ms; no row is before the smallest."""

    pieces: tuple[bytes | pa.Buffer, ...]
    length: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    min_timestamp: int | None = None


def stamped(frame: Frame, least_ms: int | None) -> Stamped:
    """Return a settled frame as a segment's writer takes it; no record of it is before ``least_ms``."""
    return Stamped((frame.buffer,), frame.length, frame.base_offset, frame.last_offset, frame.max_timestamp, least_ms)


class GrowingSegment:
    """Follows what is appended to a segment's log; its caller writes the frames, and keeps their CRC.

    Args:
        begun: what is there of it already.
        interval_bytes: how much of the log lies between two index entries (``index.interval.bytes``).
    """

    __slots__ = ("index", "interval_bytes", "lateness", "min_timestamp", "offsets", "times")

    def __init__(self, begun: Active, interval_bytes: int) -> None:
        self.index, self.interval_bytes = begun.index, interval_bytes
        self.min_timestamp, self.lateness = begun.min_timestamp, begun.lateness
        #: What follows in the two indexes.
        self.offsets, self.times = bytearray(), bytearray()

    @classmethod
    def at(cls, base_offset: int, interval_bytes: int) -> GrowingSegment:
        """Return a segment without frames."""
        return cls(Active(IndexState(base_offset)), interval_bytes)

    @property
    def length(self) -> int:
        """Return the bytes of its log."""
        return self.index.position

    def is_full(self, frame: Stamped, limits: RollLimits, now_ms: int = 0) -> bool:
        """Return whether the frame must go to another segment; the time counts where ``limits`` have one."""
        return should_roll(
            self.index,
            limits,
            incoming_bytes=frame.length,
            incoming_max_timestamp=frame.max_timestamp,
            incoming_last_offset=frame.last_offset,
            now_ms=now_ms,
        )

    def append(self, frame: Stamped) -> None:
        """Go on to the end of a frame."""
        before, least = self.index, frame.min_timestamp
        if before.position:
            known = self.min_timestamp
            self.min_timestamp = None if known is None or least is None else min(known, least)
            self.lateness = lateness_with(self.lateness, before.max_timestamp, least)
        else:
            self.min_timestamp, self.lateness = least, lateness_with(0, -1, least)
        indexed = index_frame(
            before,
            last_offset=frame.last_offset,
            max_timestamp=frame.max_timestamp,
            length=frame.length,
            interval_bytes=self.interval_bytes,
        )
        self.index = indexed.state
        self.offsets += indexed.offset_entry
        self.times += indexed.time_entry

    def roll_from(self, now_ms: int) -> None:
        """After the first frame: count the time until the roll from the clock, if the frame has no timestamp."""
        self.index = rolling_from(self.index, now_ms)

    def seal(self) -> None:
        """Add the last time-index entry, which a roll forces."""
        forced = seal_time(self.index)
        self.times += forced
        self.index = replace(self.index, time_bytes=self.index.time_bytes + len(forced))

    def active(self, crc: int, rewrite: int) -> Active:
        """Return it as the active segment is published."""
        return Active(self.index, crc, rewrite, self.min_timestamp, self.lateness)

    def sealed(self, end_offset: int, crc: int, rewrite: int) -> Sealed:
        """Return it as a sealed segment with files of its own is published; after ``seal``."""
        i = self.index
        return Sealed(i.base_offset, end_offset, rewrite, i.position, crc, i.offset_bytes, i.time_bytes,
                      i.max_timestamp, self.min_timestamp, self.lateness)  # fmt: skip

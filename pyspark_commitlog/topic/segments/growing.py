"""State of a segment while frames are appended, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.index import IndexState, RollLimits, index_frame, rolling_from, seal_time, should_roll
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, lateness_with


@dataclass(frozen=True, slots=True)
class Stamped:
    """Frame with real offsets, ready to write; timestamps in ms.

    `min_timestamp` is a lower bound.
    """

    pieces: tuple[bytes | pa.Buffer, ...]
    length: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    min_timestamp: int | None = None


def stamped(frame: Frame, least_ms: int | None) -> Stamped:
    """Settled frame for a segment's writer; `least_ms` bounds its timestamps."""
    return Stamped((frame.buffer,), frame.length, frame.base_offset, frame.last_offset, frame.max_timestamp, least_ms)


class GrowingSegment:
    """State of a segment whose log the caller writes.

    `interval_bytes` is `index.interval.bytes`.
    """

    __slots__ = ("index", "interval_bytes", "lateness", "min_timestamp", "offsets", "times")

    def __init__(self, begun: Active, interval_bytes: int) -> None:
        self.index, self.interval_bytes = begun.index, interval_bytes
        self.min_timestamp, self.lateness = begun.min_timestamp, begun.lateness
        #: Bytes to add to the two indexes.
        self.offsets, self.times = bytearray(), bytearray()

    @classmethod
    def at(cls, base_offset: int, interval_bytes: int) -> GrowingSegment:
        """Begin a segment without frames."""
        return cls(Active(IndexState(base_offset)), interval_bytes)

    @property
    def length(self) -> int:
        """Bytes of the log."""
        return self.index.position

    def is_full(self, frame: Stamped, limits: RollLimits, now_ms: int = 0) -> bool:
        """Whether a frame must go to another segment."""
        return should_roll(
            self.index,
            limits,
            incoming_bytes=frame.length,
            incoming_max_timestamp=frame.max_timestamp,
            incoming_last_offset=frame.last_offset,
            now_ms=now_ms,
        )

    def append(self, frame: Stamped) -> None:
        """Account for an appended frame."""
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
        """Time the roll by the clock if the frame has no timestamp."""
        self.index = rolling_from(self.index, now_ms)

    def seal(self) -> None:
        """Add the last time-index entry, forced by a roll."""
        forced = seal_time(self.index)
        self.times += forced
        self.index = replace(self.index, time_bytes=self.index.time_bytes + len(forced))

    def active(self, crc: int, rewrite: int) -> Active:
        """Active segment to publish."""
        return Active(self.index, crc, rewrite, self.min_timestamp, self.lateness)

    def sealed(self, end_offset: int, crc: int, rewrite: int) -> Sealed:
        """Sealed segment to publish; after `seal`."""
        i = self.index
        return Sealed(i.base_offset, end_offset, rewrite, i.position, crc, i.offset_bytes, i.time_bytes,
                      i.max_timestamp, self.min_timestamp, self.lateness)  # fmt: skip

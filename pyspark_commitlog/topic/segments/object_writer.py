"""Writer of segment objects: slices with indexes, in one write-once file.

It counts once a settle entry names it (rule O1). Memory holds a slice's indexes, not its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.errors import CorruptionError, StorageError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.index import RollLimits
from pyspark_commitlog.format.paths import TopicPaths, object_name
from pyspark_commitlog.format.segment_object import INDEX, LOG, TIMEINDEX, Slice, SlicePart, encode_footer
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.segments.growing import GrowingSegment, Stamped
from pyspark_commitlog.topic.state.settle_state import Sealed, Shared, sealed_slice

_WRITE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """Maximum bytes of a slice's log and indexes, and index interval."""

    segment_bytes: int
    index_bytes: int
    interval_bytes: int

    @classmethod
    def of(cls, config: TopicConfig) -> SliceLimits:
        """Build from a topic's config."""
        return cls(
            config.number("segment.bytes"),
            config.number("segment.index.bytes"),
            config.number("index.interval.bytes"),
        )

    @property
    def roll(self) -> RollLimits:
        """Limits for `should_roll`, without one of time."""
        return RollLimits(self.segment_bytes, LONG_MAX, self.index_bytes, jitter_ms=0)


@dataclass(frozen=True, slots=True)
class Written:
    """A written segment object, and the positions of its slices."""

    shared: Shared
    slices: tuple[tuple[int, Slice], ...]

    def sealed(self) -> dict[int, Sealed]:
        """Return partition -> segment."""
        return {piece.partition: sealed_slice(self.shared.name, at, piece) for at, piece in self.slices}


class ObjectWriter:
    """Writer of one segment object; partitions ascend, with one slice each.

    `sequence`: the newest settle entry when this work began (rule O1).
    """

    def __init__(self, storage: Storage, paths: TopicPaths, sequence: int, limits: SliceLimits) -> None:
        self.name = object_name(sequence, storage.new_id())
        self._limits = limits
        self._path = paths.object(self.name)
        self._output = storage.create(self._path)
        self._slices: list[Slice] = []
        self._open: SliceWriter | None = None
        #: Whether a write failed: the object is not put.
        self.is_broken = False
        self.size_bytes = 0

    def slice(self, partition: int, base_offset: int) -> SliceWriter:
        """Begin a partition's slice, after the last is finished; empty ones vanish."""
        assert self._open is None
        assert not self._slices or self._slices[-1].partition < partition
        self._open = SliceWriter(self, partition, base_offset, self._limits)
        return self._open

    def copy(self, piece: Slice, data: Iterable[pa.Buffer]) -> None:
        """Copy another object's slice with its CRCs, so that damage stays visible."""
        assert self._open is None
        assert not self._slices or self._slices[-1].partition < piece.partition
        start = self.size_bytes
        for buffer in data:
            self.write([buffer])
        if self.size_bytes - start != piece.length:
            what = f"the slice of partition {piece.partition}"
            raise CorruptionError(f"{what}: {self.size_bytes - start} bytes are there of {piece.length}")
        self._slices.append(piece)

    def write(self, pieces: Sequence[bytes | pa.Buffer]) -> None:
        """Append a slice's bytes."""
        whole, self.is_broken = not self.is_broken, True
        self._output.write(*pieces)
        self.is_broken = not whole
        self.size_bytes += sum(piece.size if isinstance(piece, pa.Buffer) else len(piece) for piece in pieces)

    def ended(self, piece: Slice | None) -> None:
        """Record a finished slice; for `SliceWriter`."""
        self._open = None
        if piece is not None:
            self._slices.append(piece)

    def gave_up(self) -> None:
        """Record a failed slice; for `SliceWriter`."""
        self._open, self.is_broken = None, True

    def finish(self, tier: int) -> Written | None:
        """Put the object; None if it has no frame.

        After an error it may exist, but nothing names it.
        """
        assert self._open is None
        if self.is_broken:
            raise self._given_up()
        if not self._slices:
            self._output.discard()
            return None
        footer, named = encode_footer(self._slices)
        self.write([footer])
        if self._output.close()[0] != self.size_bytes:
            raise self._given_up()
        shared, position, placed = Shared(self.name, tier, self.size_bytes, named), 0, []
        for piece in self._slices:
            placed.append((position, piece))
            position += piece.length
        return Written(shared, tuple(placed))

    def _given_up(self) -> StorageError:
        return StorageError(f"{self._path}: not all of its bytes could be written: it is given up")

    def discard(self) -> None:
        """Discard the object."""
        self._output.discard()


class SliceWriter:
    """Writer of one partition's slice."""

    def __init__(self, target: ObjectWriter, partition: int, base_offset: int, limits: SliceLimits) -> None:
        self._target, self._partition, self._roll = target, partition, limits.roll
        self._growing = GrowingSegment.at(base_offset, limits.interval_bytes)
        self._crc = 0
        self._gathered: list[bytes | pa.Buffer] = []
        self._gathered_bytes = 0
        #: Offset after the last frame.
        self.next_offset = base_offset

    @property
    def length(self) -> int:
        """Bytes of the log."""
        return self._growing.length

    @property
    def latest_timestamp(self) -> int:
        """Largest timestamp (ms); -1 if none."""
        return self._growing.index.max_timestamp

    def full(self, frame: Stamped) -> bool:
        """Whether the frame must go to another segment."""
        return self._growing.is_full(frame, self._roll)

    def append(self, frame: Stamped) -> None:
        """Append a frame."""
        if frame.base_offset != self.next_offset:
            raise CorruptionError(
                f"partition {self._partition}: frame at offset {frame.base_offset}, expected {self.next_offset}"
            )
        self._growing.append(frame)
        for piece in frame.pieces:
            self._crc = crc32c(piece, self._crc)
        self._gathered += frame.pieces
        self._gathered_bytes += frame.length
        self.next_offset = frame.last_offset + 1
        if self._gathered_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._target.write(self._gathered)
        self._gathered, self._gathered_bytes = [], 0

    def finish(self) -> None:
        """Write the indexes after the log."""
        with call_on_error(self._target.gave_up):
            piece = self._finish_slice() if self._growing.length else None
        self._target.ended(piece)

    def _finish_slice(self) -> Slice:
        growing = self._growing
        growing.seal()
        self._flush()
        index, times = bytes(growing.offsets), bytes(growing.times)
        self._target.write([index, times])
        parts = [
            SlicePart(LOG, growing.length, self._crc),
            SlicePart(INDEX, len(index), crc32c(index)),
            SlicePart(TIMEINDEX, len(times), crc32c(times)),
        ]
        base, latest = growing.index.base_offset, growing.index.max_timestamp
        least, lateness = growing.min_timestamp, growing.lateness
        return Slice(self._partition, base, self.next_offset, latest, least, lateness, parts)

"""Frames of a copy, which cover every offset, from a reader's records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.frame import MAX_ROWS
from pyspark_commitlog.topic.read.reader import Rows
from pyspark_commitlog.topic.segments.encoding import empty_frame
from pyspark_commitlog.topic.segments.rewrite import FrameRows, encode_rows

#: Offsets that a frame covers at most, by its 32-bit last offset.
MAX_COVERED = 2**31
_US_PER_MS = 1000


class CopyFrameSink(Protocol):
    """Destination of a partition's frames, in order."""

    def chunk_for(self, offset: int) -> tuple[str, int]:
        """Return a frame's chunk id, and its extent's base offset."""

    def add(self, data: bytes, offset: int, covered: int) -> None:
        """Append a frame that covers `covered` offsets."""


@dataclass
class FrameMaker:
    """Makes frames of one partition, up to offset `covered` so far.

    A frame also covers the offsets before it without records; one without rows covers the last. `otherwise_ms`
    returns its timestamp if no record came before.
    """

    sink: CopyFrameSink
    topic_id: str
    partition: int
    covered: int
    frame_bytes: int
    compression: str
    otherwise_ms: Callable[[], int]
    _held: list[FrameRows] = field(default_factory=list)
    _latest_ms: int | None = None

    def take(self, rows: Rows) -> None:
        """Add the next records."""
        if rows.batch is None or not rows.count:
            return
        offsets: Ints = rows.offsets if rows.offsets is not None else rows.first_offset + np.arange(rows.count)
        start = 0
        for part in untyped.bounded(rows.batch, untyped.most_decoded(self.frame_bytes)):
            for at in range(0, part.num_rows, MAX_ROWS):
                piece = part.slice(at, MAX_ROWS)
                own = offsets[start : start + piece.num_rows]
                self._hold(FrameRows(piece, own, int(own[0]), int(own[-1]), rows.log_append_time, None, leader_epoch=0))
                start += piece.num_rows

    def finish(self, end_offset: int) -> None:
        """Cover the offsets left up to `end_offset`."""
        self._flush(end_offset)
        self._cover(end_offset)

    def _hold(self, rows: FrameRows) -> None:
        if self._held and not self._joins(rows):
            self._flush(rows.base_offset)
        while not self._held and rows.last_offset - self.covered >= MAX_COVERED:
            self._empty(min(rows.base_offset, self.covered + MAX_COVERED))
        self._held.append(rows)

    def _joins(self, rows: FrameRows) -> bool:
        together = [*self._held, rows]
        return (
            len({each.log_append_time for each in together}) == 1
            and rows.batch.schema == together[0].batch.schema
            and sum(len(each.offsets) for each in together) <= MAX_ROWS
            and sum(each.batch.nbytes for each in together) <= self.frame_bytes
            and rows.last_offset - self.covered < MAX_COVERED
        )

    def _flush(self, up_to: int) -> None:
        if not self._held:
            return
        held, self._held = self._held, []
        last = held[-1].last_offset
        chunk, base = self.sink.chunk_for(self.covered)
        data = encode_rows(held, self.covered, last, self.topic_id, self.partition, self.compression, chunk)
        stamps = (untyped.instants(frame_rows.timestamps(each.batch)).max() for each in held)
        self._latest_ms = max(self._latest_ms or 0, int(max(stamps)) // _US_PER_MS)
        self._add(data, base, last + 1)

    def _cover(self, end_offset: int) -> None:
        while self.covered < end_offset:
            self._empty(min(end_offset, self.covered + MAX_COVERED))

    def _empty(self, end: int) -> None:
        chunk, base = self.sink.chunk_for(self.covered)
        at_ms = self.otherwise_ms() if self._latest_ms is None else self._latest_ms
        count = end - self.covered
        data = empty_frame(self.topic_id, self.partition, self.compression, self.covered, count, at_ms, chunk)
        self._add(data, base, end)

    def _add(self, data: bytes, base: int, end: int) -> None:
        head, rest = codec.stamp(codec.parse_encoded(data), self.covered - base, 0)
        self.sink.add(head + rest.to_pybytes(), self.covered, end - self.covered)
        self.covered = end

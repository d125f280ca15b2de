"""Joining of small unsettled frames, and stamping with offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.frame import MAX_ROWS, Frame, Payload
from pyspark_commitlog.topic.read.unsettled import Gap, Unsettled
from pyspark_commitlog.topic.segments.encoding import empty_frame, encode_frame
from pyspark_commitlog.topic.segments.frames import earliest_ms
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.state.settle_state import earliest

# Frames below this share of batch.size join their neighbours, up to half of it (both compressed, by header), and decode
# to at most `most_decoded`.
_SMALL = 8
_MERGED = 2


class SegmentSink(Protocol):
    """Target of frames: an active segment, or an object's slice."""

    def append(self, frame: Stamped) -> None:
        """Append a frame."""

    def latest_timestamp(self) -> int:
        """Last segment's largest timestamp (ms); -1 if none."""


def append_unsettled(
    sink: SegmentSink,
    merger: FrameJoiner,
    frames: Iterable[Unsettled | Gap],
    *,
    now_ms: int,
    enough: Callable[[], bool],
) -> None:
    """Append a partition's unsettled frames until `enough`.

    `now_ms` stamps voided records without neighbours.
    """
    lost: list[Gap] = []
    for unsettled in frames:
        if isinstance(unsettled, Gap):
            _append(sink, merger.drain())
            lost.append(unsettled)
        else:
            _fill(sink, merger, lost, unsettled.frame.max_timestamp)
            _append(sink, merger.offer(unsettled))
        if enough():
            break
    _append(sink, merger.drain())
    _fill(sink, merger, lost, now_ms)


def _append(sink: SegmentSink, ready: Iterable[Stamped]) -> None:
    for stamped in ready:
        sink.append(stamped)


def _fill(sink: SegmentSink, merger: FrameJoiner, lost: list[Gap], otherwise_ms: int) -> None:
    """Append empty frames for voided offsets.

    They get the partition's largest timestamp so far, else `otherwise_ms`, to keep time index and retention valid.
    """
    for gap in lost:
        latest = sink.latest_timestamp()
        at_ms = latest if latest >= 0 else otherwise_ms
        for start in range(gap.start, gap.end, MAX_ROWS):
            rows = min(MAX_ROWS, gap.end - start)
            data = empty_frame(merger.topic_id, merger.partition, merger.codec, start, rows, at_ms)
            sink.append(_stamped(codec.parse_encoded(data), start, gap.leader_epoch, at_ms))
    lost.clear()


@dataclass
class FrameJoiner:
    """Joins small neighbouring frames of a partition.

    Only dense frames of one schema, codec, timestamp type and leader epoch join, without a delete horizon, which rows
    would lose.
    """

    frame_bytes: int
    codec: str
    topic_id: str
    partition: int
    _held: list[Unsettled] = field(default_factory=list)
    _held_bytes: int = 0
    _held_rows: int = 0
    _held_decoded: int = 0

    def offer(self, unsettled: Unsettled) -> Iterator[Stamped]:
        """Add a frame; yield those ready to append, in order."""
        small = self._small(unsettled.frame, unsettled.payload)
        if self._held and not (small and self._joins(unsettled)):
            yield from self.drain()
        if small:
            self._held.append(unsettled)
            self._held_bytes += unsettled.frame.length
            self._held_rows += unsettled.frame.last_offset_delta + 1
            self._held_decoded += unsettled.decoded
        else:
            least = earliest_ms(unsettled.frame, unsettled.payload)
            yield _stamped(unsettled.frame, unsettled.base_offset, unsettled.leader_epoch, least)

    def _small(self, frame: Frame, payload: Payload) -> bool:
        joinable = not payload.identity.is_sparse and frame.delete_horizon_ms is None
        return joinable and frame.length * _SMALL < self.frame_bytes

    def _joins(self, unsettled: Unsettled) -> bool:
        frame, payload, first = unsettled.frame, unsettled.payload, self._held[0]
        return (
            payload.identity.codec == first.payload.identity.codec
            and frame_rows.schema_bytes(payload) == frame_rows.schema_bytes(first.payload)
            and frame.log_append_time == first.frame.log_append_time
            and unsettled.leader_epoch == first.leader_epoch
            and self._held_decoded + unsettled.decoded <= untyped.most_decoded(self.frame_bytes)
            and self._held_bytes + frame.length <= self.frame_bytes // _MERGED
            and self._held_rows + frame.last_offset_delta + 1 <= MAX_ROWS
        )

    def drain(self) -> Iterator[Stamped]:
        """Yield the held frames, joined."""
        held, self._held = self._held, []
        self._held_bytes = self._held_rows = self._held_decoded = 0
        if held:
            frame = held[0].frame if len(held) == 1 else self._join(held)
            least = earliest(earliest_ms(unsettled.frame, unsettled.payload) for unsettled in held)
            yield _stamped(frame, held[0].base_offset, held[0].leader_epoch, least)

    def _join(self, held: Sequence[Unsettled]) -> Frame:
        batches = [frame_rows.decode(unsettled.payload) for unsettled in held]
        for unsettled, batch in zip(held, batches, strict=True):
            if batch.num_rows != unsettled.frame.last_offset_delta + 1:
                raise CorruptionError(
                    f"frame at offset {unsettled.base_offset} holds {batch.num_rows} rows, header says otherwise"
                )
        data = encode_frame(
            pa.concat_batches(batches),
            codec=held[0].payload.identity.codec,
            topic_id=self.topic_id,
            partition=self.partition,
            log_append_time=held[0].frame.log_append_time,
            base_offset=held[0].base_offset,
        )
        return codec.parse_encoded(data.joined())


def _stamped(frame: Frame, base_offset: int, leader_epoch: int, min_timestamp: int | None) -> Stamped:
    last = base_offset + frame.last_offset_delta
    pieces = codec.stamp(frame, base_offset, leader_epoch)
    return Stamped(pieces, frame.length, base_offset, last, frame.max_timestamp, min_timestamp)

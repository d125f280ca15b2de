"""Rewrite of sealed segments without some records, under new names.

Remaining records keep offset, timestamp and order (Kafka: `Cleaner.cleanInto`, `MemoryRecords.filterTo`). Unlike
Kafka's, frames cover dropped offsets too: as offsets are not under a frame's CRC, their continuity confirms them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX, TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.frame import MAX_ROWS, Frame, Identity, Payload
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.encoding import empty_frame, frame_times
from pyspark_commitlog.topic.segments.frames import check, earliest_ms, earliest_of, walk
from pyspark_commitlog.topic.segments.growing import stamped
from pyspark_commitlog.topic.segments.new_segment import NewSegment, new_segment
from pyspark_commitlog.topic.segments.object_writer import SliceLimits, SliceWriter
from pyspark_commitlog.topic.state.settle_state import Sealed

Mask = npt.NDArray[np.bool_]
_MAX_DELTA = 2**31 - 1
# Whole frames above this share of batch.size are copied, smaller ones joined.
_SMALL = 8


@dataclass(frozen=True, slots=True)
class Rules:
    """Retention of records: from `log_start`; tombstones for `delete_retention_ms` once seen.

    Frames with tombstones below `cleaned`, seen by an earlier compaction, have a delete horizon. `now_ms` is storage
    time or less (`Storage.now_ms`), `seen_ms` local time; with both, nothing goes too early.
    """

    log_start: int
    cleaned: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    interval_bytes: int
    frame_bytes: int
    compression: str
    seen_ms: int = 0

    @property
    def horizon_ms(self) -> int:
        """Delete horizon of tombstones seen now, within a header's range."""
        return min(max(self.now_ms, self.seen_ms) + self.delete_retention_ms, LONG_MAX)

    @property
    def limits(self) -> SliceLimits:
        """Limits of a segment."""
        return SliceLimits(self.segment_bytes, self.index_bytes, self.interval_bytes)

    @classmethod
    def of(cls, config: TopicConfig, *, log_start: int, cleaned: int, now_ms: int) -> Rules:
        """Build from a topic's config."""
        return cls(
            log_start=log_start,
            cleaned=cleaned,
            now_ms=now_ms,
            delete_retention_ms=config.number("delete.retention.ms"),
            segment_bytes=config.number("segment.bytes"),
            index_bytes=config.number("segment.index.bytes"),
            interval_bytes=config.number("index.interval.bytes"),
            frame_bytes=min(config.number("batch.size"), config.number("segment.bytes")),
            compression=config.codec(),
        )


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows with their offsets, and their frame's fields."""

    batch: pa.RecordBatch
    offsets: Ints
    base_offset: int
    last_offset: int
    log_append_time: bool
    horizon_ms: int | None
    leader_epoch: int


def rewrite(
    directory: SegmentDir, run: Sequence[Sealed], gone: Sequence[Ints], rules: Rules, *, number: int, latest_ms: int
) -> list[Sealed]:
    """Rewrite adjacent segments; return replacements with the same offsets.

    Files written before damage (rule R11) are unnamed.

    Args:
        gone: per segment, ascending offsets to drop.
        number: see `new_segment`.
        latest_ms: largest timestamp before; -1 if none.
    """
    output = _Output(directory, number, run[0].base_offset, run[-1].end_offset, rules, latest_ms)
    with call_on_error(output.discard):
        for segment, offsets in zip(run, gone, strict=True):
            span = directory.span(segment)
            for located in walk(directory.storage, span):
                output.take(located.frame, check(located, span), offsets)
        return output.finish()


def rewrite_frames(
    directory: SegmentDir,
    base_offset: int,
    end_offset: int,
    frames: Iterable[tuple[Frame, int | None]],
    rules: Rules,
    *,
    number: int,
    latest_ms: int,
    lost_ms: int = codec.NO_TIMESTAMP,
) -> list[Sealed]:
    """Write frames unchanged to segments that cover [base_offset, end_offset).

    Each comes with a lower bound of its timestamps (ms), or None. `latest_ms` is the largest timestamp before;
    `lost_ms` that of their segment, which keeps its age if no frame remains.
    """
    output = _Output(directory, number, base_offset, end_offset, rules, latest_ms, lost_ms)
    with call_on_error(output.discard):
        for frame, least_ms in frames:
            output.copy(frame, least_ms)
        return output.finish()


def fill_slice(
    into: SliceWriter,
    end_offset: int,
    frames: Iterable[tuple[Frame, int | None]],
    rules: Rules,
    topic_id: str,
    partition: int,
    latest_ms: int,
    lost_ms: int,
) -> None:
    """Write frames unchanged to a slice up to `end_offset`, and finish it; see `rewrite_frames`."""

    def cover(end: int, at_ms: int, epoch: int) -> None:
        while into.next_offset < end:
            rows = min(end - into.next_offset, _MAX_DELTA + 1)
            start, compression = into.next_offset, rules.compression
            data = empty_frame(topic_id, partition, compression, start, rows, at_ms, leader_epoch=epoch)
            into.append(stamped(codec.parse_encoded(data), at_ms))

    epoch = None
    for frame, least_ms in frames:
        epoch = frame.leader_epoch if epoch is None else epoch
        cover(frame.base_offset, latest_ms if latest_ms >= 0 else frame.max_timestamp, epoch)
        epoch = frame.leader_epoch
        into.append(stamped(frame, least_ms))
        latest_ms = max(latest_ms, frame.max_timestamp)
    cover(end_offset, _first_known(latest_ms, lost_ms, rules.now_ms), epoch or 0)
    into.finish()


def _first_known(*timestamps: int) -> int:
    return next(ms for ms in timestamps if ms >= 0)


def rows_of(frame: Frame, payload: Payload, names: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Ints]:
    """Columns of a settled frame's rows (None: all), and their offsets."""
    sparse = payload.identity.is_sparse
    asked = None if names is None else [*names, untyped.OFFSET_DELTA] if sparse else names
    batch = frame_rows.decode(payload, asked)
    if sparse:
        deltas = untyped.deltas_of(batch, frame.base_offset, frame.last_offset_delta)
        return batch.drop_columns([untyped.OFFSET_DELTA]), deltas + frame.base_offset
    if batch.num_rows != frame.last_offset_delta + 1:
        raise CorruptionError(
            f"frame at offset {frame.base_offset} holds {batch.num_rows} rows, its header says "
            f"{frame.last_offset_delta + 1}"
        )
    return batch, frame.base_offset + np.arange(batch.num_rows, dtype=np.int64)


def staying(batch: pa.RecordBatch, offsets: Ints, gone: Ints, horizon_ms: int | None, rules: Rules) -> Mask:
    """Mask of remaining rows (pure; `Cleaner.shouldRetainRecord`)."""
    kept = ~np.isin(offsets, gone, assume_unique=True) & (offsets >= rules.log_start)
    if horizon_ms is not None and rules.now_ms >= horizon_ms:
        kept &= batch.column("value").is_valid().to_numpy(zero_copy_only=False)
    return kept


@dataclass
class _Output:
    """Joins rows to frames and frames to segments without gaps.

    An empty frame has the largest timestamp before it, so no search by time ends there; a Kafka broker would date an
    otherwise empty segment by its file (`LogSegment.largestTimestamp`). At the start it takes that of the first frame;
    without frames `lost_ms`, or the clock's. Leader epochs are chosen likewise, else 0.
    """

    directory: SegmentDir
    number: int
    covered: int
    end_offset: int
    rules: Rules
    latest_ms: int
    lost_ms: int = codec.NO_TIMESTAMP
    _first_ms: int = codec.NO_TIMESTAMP
    _epoch: int | None = None
    _held: list[FrameRows] = field(default_factory=list)
    _held_bytes: int = 0
    _done: list[Sealed] = field(default_factory=list)
    _segment: NewSegment | None = None

    def take(self, frame: Frame, payload: Payload, gone: Ints) -> None:
        self._note(frame)
        between = gone[np.searchsorted(gone, frame.base_offset) : np.searchsorted(gone, frame.next_offset)]
        horizon = frame.delete_horizon_ms
        copies = frame.length * _SMALL >= self.rules.frame_bytes and self._follows(frame)
        if copies and not len(between) and self._stays(frame):
            self.copy(frame, earliest_ms(frame, payload))
            return
        batch, offsets = rows_of(frame, payload)
        kept = staying(batch, offsets, between, horizon, self.rules)
        if not kept.any():
            return
        if not kept.all():
            batch, offsets = batch.filter(pa.array(kept)), offsets[kept]
        elif horizon is None and copies and not batch.column("value").null_count:
            self.copy(frame, earliest_ms(frame, payload))
            return
        self._hold_all(frame, batch, offsets)

    def _stays(self, frame: Frame) -> bool:
        horizon = frame.delete_horizon_ms
        expired = horizon is not None and self.rules.now_ms >= horizon
        seen = horizon is not None or frame.last_offset < self.rules.cleaned
        return seen and not expired and frame.base_offset >= self.rules.log_start

    def _hold_all(self, frame: Frame, batch: pa.RecordBatch, offsets: Ints) -> None:
        parts = list(self._parts(frame, batch, offsets))
        for rows in parts:
            self._hold(rows)
        if len(parts) > 1:  # held rows would keep all of a large frame
            self._cover(frame.next_offset)

    def _parts(self, frame: Frame, batch: pa.RecordBatch, offsets: Ints) -> Iterator[FrameRows]:
        horizon = self.rules.horizon_ms if frame.delete_horizon_ms is None else frame.delete_horizon_ms
        start, base = 0, frame.base_offset
        for part in untyped.bounded(batch, untyped.most_decoded(self.rules.frame_bytes)):
            end = start + part.num_rows
            last = frame.last_offset if end == batch.num_rows else int(offsets[end - 1])
            seen = horizon if part.column("value").null_count else None
            yield FrameRows(part, offsets[start:end], base, last, frame.log_append_time, seen, frame.leader_epoch)
            start, base = end, last + 1

    def _note(self, frame: Frame) -> None:
        if self._first_ms < 0:
            self._first_ms = frame.max_timestamp
        if self._epoch is None:
            self._epoch = frame.leader_epoch

    def _follows(self, frame: Frame) -> bool:
        return bool(self._held) or frame.base_offset == self.covered

    def copy(self, frame: Frame, least_ms: int | None) -> None:
        self._note(frame)
        self._cover(frame.base_offset)
        self._append(frame, least_ms)

    def _hold(self, rows: FrameRows) -> None:
        if not self._joins(rows):
            self._cover(rows.base_offset)
        self._held.append(rows)
        self._held_bytes += rows.batch.nbytes

    def _joins(self, rows: FrameRows) -> bool:
        together = [*self._held, rows]
        return (
            len({held.horizon_ms for held in together} - {None}) <= 1
            and len({(held.log_append_time, held.leader_epoch) for held in together}) == 1
            and sum(len(held.offsets) for held in together) <= MAX_ROWS
            and (not self._held or self._held_bytes + rows.batch.nbytes <= self.rules.frame_bytes)
            and rows.last_offset - self.covered <= _MAX_DELTA
        )

    def _cover(self, end_offset: int) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            last = held[-1].last_offset if end_offset - self.covered > _MAX_DELTA else end_offset - 1
            self._encode(held, last)
        while self.covered < end_offset:
            self._encode([], min(end_offset - 1, self.covered + _MAX_DELTA))

    def _encode(self, held: Sequence[FrameRows], last_offset: int) -> None:
        topic_id, partition, codec_name = (
            self.directory.paths.topic_id,
            self.directory.partition,
            self.rules.compression,
        )
        if held:
            data = encode_rows(held, self.covered, last_offset, topic_id, partition, codec_name)
            least_ms = min(earliest_of(rows.batch) for rows in held)
        else:
            least_ms = at_ms = _first_known(self.latest_ms, self._first_ms, self.lost_ms, self.rules.now_ms)
            rows = last_offset - self.covered + 1
            data = empty_frame(
                topic_id, partition, codec_name, self.covered, rows, at_ms, leader_epoch=self._epoch or 0
            )
        self._append(codec.parse_encoded(data), least_ms)

    def _append(self, frame: Frame, least_ms: int | None) -> None:
        if self._segment is not None and self._segment.full(frame):
            self._done.append(self._segment.finish(frame.base_offset))
            self._segment = None
        if self._segment is None:
            self._segment = new_segment(self.directory, self.number, frame.base_offset, self.rules.limits)
        self._segment.append(frame, least_ms)
        self.covered, self._epoch = frame.next_offset, frame.leader_epoch
        self.latest_ms = max(self.latest_ms, frame.max_timestamp)

    def finish(self) -> list[Sealed]:
        self._cover(self.end_offset)
        assert self._segment is not None
        return [*self._done, self._segment.finish(self.end_offset)]

    def discard(self) -> None:
        if self._segment is not None:
            self._segment.discard()


def encode_rows(
    held: Sequence[FrameRows],
    base_offset: int,
    last_offset: int,
    topic_id: str,
    partition: int,
    compression: str,
    chunk: str | None = None,
) -> bytes:
    """Encode rows of adjacent frames as one, dense if possible, staged for `chunk` if given."""
    covered = last_offset - base_offset + 1
    batch = pa.concat_batches([rows.batch for rows in held])
    offsets = np.concatenate([rows.offsets for rows in held])
    horizon = next((rows.horizon_ms for rows in held if rows.horizon_ms is not None), None)
    times = frame_times(frame_rows.timestamps(batch), log_append_time=held[0].log_append_time)
    times = codec.Times(times.base_ms, times.max_ms, times.log_append_time, horizon)
    stored_base = None
    if len(offsets) < covered:
        batch = frame_rows.with_deltas(batch, pa.array((offsets - base_offset).astype(np.int32)))
        stored_base = base_offset
    encoded = frame_rows.encode(batch, compression)
    identity = Identity(
        topic_id, partition, compression, encoded.kind, stored_base, chunk, encoded.columns, encoded.statistics
    )
    epoch = held[0].leader_epoch
    return codec.encode(
        encoded.value, rows=covered, times=times, identity=identity, base_offset=base_offset, leader_epoch=epoch
    )

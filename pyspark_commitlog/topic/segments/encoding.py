"""Encoding of records to frames, and of frames without rows."""

from __future__ import annotations

import pyarrow as pa

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows, untyped

_US_PER_MS = 1000
#: Frames of typed topics, in units of `batch.size`: dictionaries and narrowed numbers leave half of it.
_TYPED_BATCHES = 2


def most_frame_bytes(batch_bytes: int, *, typed: bool) -> int:
    """Maximum bytes of a frame's rows before encoding, unless it is one row.

    `batch_bytes`: the topic's `batch.size`.
    """
    return batch_bytes * _TYPED_BATCHES if typed else batch_bytes


def frame_times(timestamps: pa.Array, *, log_append_time: bool) -> frame.Times:
    """Return a frame's times in ms from its timestamp column (microseconds, no nulls)."""
    times = untyped.instants(timestamps)
    return frame.Times(int(times.min()) // _US_PER_MS, int(times.max()) // _US_PER_MS, log_append_time)


def encode_frame(
    batch: pa.RecordBatch,
    *,
    codec: str,
    topic_id: str,
    partition: int,
    log_append_time: bool,
    base_offset: int,
    chunk: str | None = None,
) -> frame.Pieces:
    """Encode rows (see `frame_rows.encode`) as one dense frame."""
    encoded = frame_rows.encode(batch, codec)
    return frame.pieces(
        encoded.value,
        rows=batch.num_rows,
        times=frame_times(frame_rows.timestamps(batch), log_append_time=log_append_time),
        identity=frame.Identity(
            topic_id, partition, codec, encoded.kind, None, chunk, encoded.columns, encoded.statistics
        ),
        base_offset=base_offset,
    )


def restaged(frames: bytes, chunk: str) -> bytes:
    """Return a group's frames with the identity of another chunk."""
    data, position, parts = pa.py_buffer(frames), 0, list[bytes]()
    while (staged := frame.parse(data, position)) is not None:
        parts.append(frame.restage(staged, chunk))
        position += staged.length
    return b"".join(parts)


def empty_frame(
    topic_id: str,
    partition: int,
    codec: str,
    base_offset: int,
    offsets: int,
    at_ms: int,
    chunk: str | None = None,
    *,
    leader_epoch: int = 0,
) -> bytes:
    """Sparse frame without rows that covers `offsets` offsets."""
    return frame.encode(
        untyped.encode(pa.RecordBatch.from_pylist([], untyped.SPARSE_SCHEMA), codec),
        rows=offsets,
        times=frame.Times(at_ms, at_ms),
        identity=frame.Identity(topic_id, partition, codec, frame.SPARSE, base_offset=base_offset, chunk=chunk),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )

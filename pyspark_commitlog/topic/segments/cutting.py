"""Parts of a settled frame by offset, without void records.

An unclean election may void settled offsets: readers skip them, copies of frames leave them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.topic.segments.encoding import empty_frame
from pyspark_commitlog.topic.segments.frames import earliest_ms, earliest_of
from pyspark_commitlog.topic.segments.rewrite import FrameRows, encode_rows, rows_of
from pyspark_commitlog.topic.state.topic_state import Void

#: A frame, and a lower bound of its timestamps (ms); None if unknown.
Timed = tuple[Frame, int | None]


def parts_of(
    frame: Frame, payload: Payload, partition: int, start: int, end: int, voids: Sequence[Void]
) -> Iterator[Timed]:
    """Yield a checked frame's part in [start, end), ascending `voids` emptied."""
    at, end = max(start, frame.base_offset), min(end, frame.next_offset)
    for void in voids:
        if void.start < end and at < void.end:
            if at < void.start:
                yield _cut(frame, payload, partition, at, void.start)
            yield _without_rows(frame, payload, partition, max(at, void.start), min(end, void.end))
            at = min(end, void.end)
    if at < end:
        yield _cut(frame, payload, partition, at, end)


def _cut(frame: Frame, payload: Payload, partition: int, start: int, end: int) -> Timed:
    if (start, end) == (frame.base_offset, frame.next_offset):
        return frame, earliest_ms(frame, payload)
    batch, offsets = rows_of(frame, payload)
    kept = (offsets >= start) & (offsets < end)
    batch, offsets = batch.filter(pa.array(kept)), offsets[kept]
    if not len(offsets):
        return _without_rows(frame, payload, partition, start, end)
    last, identity = end - 1, payload.identity
    rows = FrameRows(batch, offsets, start, last, frame.log_append_time, frame.delete_horizon_ms, frame.leader_epoch)
    data = encode_rows([rows], start, last, identity.topic_id, partition, identity.codec)
    return codec.parse_encoded(data), earliest_of(batch)


def _without_rows(frame: Frame, payload: Payload, partition: int, start: int, end: int) -> Timed:
    identity, at_ms, epoch = payload.identity, frame.max_timestamp, frame.leader_epoch
    data = empty_frame(identity.topic_id, partition, identity.codec, start, end - start, at_ms, leader_epoch=epoch)
    return codec.parse_encoded(data), at_ms

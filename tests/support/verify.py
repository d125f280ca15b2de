"""Check all of a topic's stored bytes against what its newest entries say."""

from __future__ import annotations

import google_crc32c

from pyspark_commitlog.format.index import decode_offset, decode_time
from pyspark_commitlog.log.frames import Span, check, walk
from pyspark_commitlog.log.state import Active, Sealed
from pyspark_commitlog.log.topic import TopicLog


def verify(topic: TopicLog) -> int:
    """Check every named segment: frames, running CRC, offsets and indexes; return the settled records."""
    _, state = topic.newest()
    _, settled = topic.settled(state.topic_id)
    records = 0
    for partition, row in enumerate(settled.partitions):
        found = topic.sealed(state.topic_id, row)
        first = offset = found[0].base_offset if found else row.active.base_offset
        assert first <= state.log_start[partition], "nothing that is readable is missing at the start"
        for sealed in found:
            assert sealed.base_offset == offset, "segments follow each other"
            offset = _segment(topic, state.topic_id, partition, sealed)
            assert offset == sealed.end_offset
        assert row.active.base_offset == offset
        assert _segment(topic, state.topic_id, partition, row.active) == row.settled
        assert row.settled <= state.log_end[partition]
        records += row.settled - first
    return records


def _segment(topic: TopicLog, topic_id: str, partition: int, segment: Active | Sealed) -> int:
    """Check one segment; return the offset behind its last record."""
    paths = topic.paths(topic_id)
    if segment.length == 0:
        return segment.base_offset
    path = paths.segment_file(partition, segment.stem, "log")
    data = topic.storage.read(path, 0, segment.length)
    assert len(data) == segment.length
    assert google_crc32c.value(data) == segment.crc, f"running CRC of {path}"
    ends, offset, latest = {}, segment.base_offset, -1
    for located in walk(topic.storage, Span(path, 0, segment.length, offset, 0, topic_id, partition)):
        check(located, Span(path, 0, segment.length, 0, 0, topic_id, partition))
        offset, latest = located.next_offset, max(latest, located.frame.max_timestamp)
        ends[offset - 1] = (located.position, latest)
    _indexes(topic, paths.segment_file(partition, segment.stem, "index"), segment, ends)
    return offset


def _indexes(topic: TopicLog, path: str, segment: Active | Sealed, ends: dict[int, tuple[int, int]]) -> None:
    """Check that every published index entry names a frame."""
    active = segment.index if isinstance(segment, Active) else segment
    data = topic.storage.read(path, 0, active.offset_bytes)
    for slot in range(active.offset_bytes // 8):
        entry = decode_offset(data, slot, segment.base_offset)
        assert ends[entry.offset][0] == entry.position
    times = topic.storage.read(path.replace(".index", ".timeindex"), 0, active.time_bytes)
    for slot in range(active.time_bytes // 12):
        found = decode_time(times, slot, segment.base_offset)
        assert ends[found.offset][1] == found.timestamp

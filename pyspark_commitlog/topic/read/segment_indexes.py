"""Segments' indexes; those in objects are write-once and cached."""

from __future__ import annotations

import pyarrow as pa

from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.shared.caches import Shelf
from pyspark_commitlog.topic.segments.frames import segment_part
from pyspark_commitlog.topic.state.settle_state import Active, Sealed

#: By root, object (its name has a uuid) and position, process-wide.
_kept: Shelf[tuple[str, str, int], pa.Buffer] = Shelf()


def part_of(storage: Storage, paths: TopicPaths, partition: int, segment: Active | Sealed, suffix: str) -> pa.Buffer:
    """Return the published part of a segment's index or time index."""
    part = segment_part(paths, partition, segment, suffix)
    if isinstance(segment, Active) or segment.place is None:  # may be rebuilt, under the same name
        return storage.map(part.path, part.start, part.length)
    key = storage.url, part.path, part.start
    kept = _kept.get(key)
    if kept is None:
        kept = storage.map(part.path, part.start, part.length)
        if kept.size == part.length:
            _kept.put(key, kept, kept.size)
    return kept

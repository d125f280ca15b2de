"""Rebuilt indexes are those that appending made, byte for byte: active and sealed, whatever the frames are."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hypothesis import example, given, strategies as st

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.frame import Identity, Times
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import ROOT_MARKER, TopicPaths
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.indexes import index_fault, mended
from pyspark_commitlog.topic.segments.writer import SegmentWriter
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition
from tests.property.strategies import quick

ID = "00000000-0000-4000-8000-000000000001"
#: (rows, largest timestamp, bytes of the message)
Drawn = tuple[int, int, int]
frames = st.lists(st.tuples(st.integers(1, 500), st.integers(-2, 40), st.integers(0, 300)), min_size=1, max_size=40)
intervals = st.integers(0, 2000)
bases = st.integers(0, 2**40)


def stamped(drawn: Sequence[Drawn], base: int) -> list[Stamped]:
    """Return frames one behind the other."""
    found = []
    for rows, at, size in drawn:
        data = codec.encode(
            pa.py_buffer(bytes(size)),
            rows=rows,
            times=Times(min(at, 0), at),
            identity=Identity(ID, 0, "none"),
            base_offset=base,
        )
        found.append(Stamped((data,), len(data), base, base + rows - 1, at))
        base += rows
    return found


def indexes(segment_dir: SegmentDir, segment: Active | Sealed) -> tuple[bytes, bytes]:
    """Return the published bytes of both indexes."""
    lengths = (segment.index.offset_bytes, segment.index.time_bytes) if isinstance(segment, Active) else (None, None)
    by_offset, by_time = (
        segment_dir.storage.read(segment_dir.file(segment, suffix), 0, length)
        for suffix, length in zip(("index", "timeindex"), lengths, strict=True)
    )
    return by_offset, by_time


@quick
@example([(1, -1, 0), (1, 0, 0)], 0, 0, 338, set())
@given(frames, intervals, bases, st.integers(300, 4000), st.sets(st.integers(0, 40)))
def test_what_is_appended_is_what_is_rebuilt(
    drawn: list[Drawn], interval: int, base: int, segment_bytes: int, published: set[int]
) -> None:
    """Segments roll, runs end after any frame; then every index is lost."""
    config = TopicConfig(
        {"segment.bytes": str(segment_bytes), "index.interval.bytes": str(interval), "segment.index.bytes": "120"}
    )
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / ROOT_MARKER).touch()
        segment_dir = SegmentDir(LocalStorage(Path(directory)), TopicPaths("t", ID), 0)
        row, sealed = SettledPartition(base, Active(IndexState(base))), list[Sealed]()
        frames = stamped(drawn, base)
        while frames:
            writer = SegmentWriter(segment_dir.storage, segment_dir.paths, 0, row, list[Sealed], config)
            while frames:
                writer.append(frames.pop(0))
                if len(frames) in published:
                    break
            sealed += writer._sealed
            row = replace(writer.finish(1, published_ms=0), manifest=None)
        for segment, end in [*((s, s.end_offset) for s in sealed), (row.active, row.end_offset)]:
            assert index_fault(segment_dir, segment, end) == ""
            before = indexes(segment_dir, segment)
            for suffix in ("index", "timeindex"):
                segment_dir.storage.write_once(segment_dir.file(segment, suffix), b"x")
            found = mended(segment_dir, segment, end, interval)
            if found is not None:  # with no entry published in the active one there is nothing to miss
                assert found == segment
            assert found is not None or before == (b"", b"")
            assert found is None or indexes(segment_dir, segment) == before

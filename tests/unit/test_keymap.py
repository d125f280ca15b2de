"""Which records are superseded: against a dict, whatever the hash, the buffer and the layout."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pyspark_commitlog.format.murmur2 import murmur2
from pyspark_commitlog.topic.compaction.keymap import Keys, KeySource, bucket_of, find_superseded

Row = tuple[int, bytes | None]


@dataclass
class Segment:
    """Some records: frames of (offset, key); counts how often it was read."""

    frames: Sequence[Sequence[Row]]
    reads: int = 0

    def source(self) -> KeySource:
        """Return it as the code under test takes it."""
        offsets = [offset for frame in self.frames for offset, _ in frame]
        return KeySource(min(offsets, default=0), max(offsets, default=-1) + 1, self._read)

    def _read(self) -> Iterator[Keys]:
        self.reads += 1
        for frame in self.frames:
            offsets = np.array([offset for offset, _ in frame], np.int64)
            yield Keys(offsets, pa.array([key for _, key in frame], pa.binary()))


def constant(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the same hash for every key."""
    return np.full(len(keys), 12345, np.uint32)


def expected(clean: Sequence[Segment], dirty: Sequence[Segment]) -> list[set[int]]:
    """Return, per segment, what may go: counted with a dict."""
    last: dict[bytes | None, int] = {}
    for segment in dirty:
        for frame in segment.frames:
            last |= {key: offset for offset, key in frame}
    return [
        {
            offset
            for frame in segment.frames
            for offset, key in frame
            if (key is None and number >= len(clean)) or (key is not None and last.get(key, -1) > offset)
        }
        for number, segment in enumerate((*clean, *dirty))
    ]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[Segment], list[Segment]]:
    """Return clean segments (every key once) and dirty ones behind them, offsets with gaps."""
    keys = st.sampled_from([b"", b"a", b"b", b"\0", b"\0\0", b"key-1", b"key-2", b"x" * 40, b"x" * 39 + b"y"])
    offset = 0

    def segment(chosen: Sequence[bytes | None]) -> Segment:
        nonlocal offset
        frames: list[list[Row]] = [[]]
        for key in chosen:
            if frames[-1] and draw(st.booleans()):
                frames.append([])
            frames[-1].append((offset, key))
            offset += draw(st.integers(1, 3))
        return Segment([frame for frame in frames if frame])

    once = draw(st.lists(keys, unique=True, max_size=6))
    cut = draw(st.integers(0, len(once)))
    clean = [segment(part) for part in (once[:cut], once[cut:]) if part]
    dirty = [segment(draw(st.lists(st.none() | keys, min_size=1, max_size=12))) for _ in range(draw(st.integers(1, 3)))]
    return clean, dirty


@settings(deadline=None)
@given(layouts(), st.sampled_from([1, 20, 100, 10_000]), st.sampled_from([murmur2, constant]))
def test_the_last_record_of_every_key_stays_and_no_other(
    layout: tuple[list[Segment], list[Segment]], buffer_bytes: int, key_hash: object
) -> None:
    """All keys in one bucket, or each in its own: equal hashes never make a record go."""
    clean, dirty = layout
    gone, keyless = find_superseded(
        [s.source() for s in clean], [s.source() for s in dirty], buffer_bytes, key_hash  # type: ignore[arg-type]
    )  # fmt: skip
    assert [set(offsets.tolist()) for offsets in gone] == expected(clean, dirty)
    assert all(np.all(np.diff(offsets) > 0) for offsets in gone)
    assert keyless == sum(key is None for s in dirty for frame in s.frames for _, key in frame)


@pytest.mark.parametrize(("buffer_bytes", "buckets"), [(100_000, 1), (25_000, 3), (1, 254)])
def test_the_buffer_decides_how_often_keys_are_read(buffer_bytes: int, buckets: int) -> None:
    keys = [b"%08d" % (n % 3000) for n in range(5000)]
    dirty = [Segment([list(enumerate(keys[:2500]))]), Segment([[(2500 + i, k) for i, k in enumerate(keys[2500:])]])]
    gone, _ = find_superseded([], [s.source() for s in dirty], buffer_bytes)
    assert [set(offsets.tolist()) for offsets in gone] == [set(range(2000)), set()]
    assert [s.reads for s in dirty] == [1 + buckets] * 2, "once to measure, then once per bucket"


def test_keys_of_one_partition_fill_all_buckets() -> None:
    """Their hashes are alike modulo the number of partitions; the buckets are even all the same."""
    every = pa.array([b"%d" % n for n in range(64_000)], pa.binary())
    mine = every.filter(pa.array((murmur2(every) & 0x7FFFFFFF) % 64 == 5))
    held = np.bincount(bucket_of(mine, 4, murmur2), minlength=4)
    assert len(held) == 4
    assert min(held) > 0.8 * max(held)


def test_a_hot_key_does_not_fill_the_memory() -> None:
    """Equal keys are in one bucket, however many there are."""
    rows, frames, buffer_bytes = 1000, 400, 2**20

    def read() -> object:
        for n in range(frames):
            keys = pa.array([b"k" * 200] * rows, pa.binary())
            yield Keys(np.arange(rows, dtype=np.int64) + n * rows, keys)

    held = [0]

    def watched() -> object:
        for keys in read():  # type: ignore[attr-defined]
            held[0] = max(held[0], pa.total_allocated_bytes() - start)
            yield keys

    start = pa.total_allocated_bytes()
    gone, _ = find_superseded([], [KeySource(0, rows * frames, watched)], buffer_bytes)  # type: ignore[arg-type]
    assert len(gone[0]) == rows * frames - 1
    assert held[0] < 10 * buffer_bytes


def test_memory_with_short_keys() -> None:
    """A round has an offset for every 8 bytes of the buffer (`plan_compaction`)."""
    buffer_bytes, rows = 2**20, 8192
    frames = buffer_bytes // 8 // rows // 2
    keys = [pa.array([b"%06d" % (n * rows + i) for i in range(rows)], pa.binary()) for n in range(frames)]

    def source(base: int) -> KeySource:
        def read() -> Iterator[Keys]:
            for n, found in enumerate(keys):
                yield Keys(np.arange(rows, dtype=np.int64) + base + n * rows, found)

        return KeySource(base, base + rows * frames, read)

    tracemalloc.start()
    try:
        find_superseded([], [source(0), source(rows * frames)], buffer_bytes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 5 * buffer_bytes

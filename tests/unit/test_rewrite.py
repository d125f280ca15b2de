"""Segments that are written anew: what their frames cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.frame import Frame
from pyspark_commitlog.format.paths import ROOT_MARKER, TopicPaths
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.encoding import empty_frame
from pyspark_commitlog.topic.segments.frames import check, walk
from pyspark_commitlog.topic.segments.rewrite import FrameRows, Rules, encode_rows, rewrite, rows_of
from pyspark_commitlog.topic.state.settle_state import Sealed
from tests.support.objects import UnknownMount

ID = "00000000-0000-4000-8000-000000000001"
MAX = 2**31


@pytest.fixture(params=[LocalStorage, UnknownMount])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> SegmentDir:
    """Where segments have files of their own, and where each is an object."""
    (tmp_path / ROOT_MARKER).touch()
    return SegmentDir(request.param(tmp_path), TopicPaths("t", ID), 0)


def frame(base: int, end: int, offsets: Sequence[int]) -> bytes:
    """Return a frame from `base` to `end` with records at some offsets."""
    if not offsets:
        return empty_frame(ID, 0, "none", base, end - base, 0)
    values = [b"%d" % offset for offset in offsets]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values), pa.array(values), pa.nulls(len(values), untyped.SCHEMA.field("headers").type),
         pa.array([0] * len(values)).cast(untyped.SCHEMA.field("timestamp").type)],
        schema=untyped.SCHEMA,
    )  # fmt: skip
    rows = FrameRows(batch, np.array(offsets, dtype=np.int64), base, end - 1, False, None, 0)
    return encode_rows([rows], base, end - 1, ID, 0, "none")


def segment(directory: SegmentDir, base: int, end: int, *frames: bytes) -> Sealed:
    """Write a segment."""
    data = b"".join(frames)
    sealed = Sealed(base, end, 1, len(data), crc32c(data), 0, 0, 0)
    directory.storage.write_once(directory.paths.segment_file(0, sealed.stem, "log"), data)
    return sealed


def left(directory: SegmentDir, segments: Sequence[Sealed]) -> tuple[list[Frame], list[int], list[int]]:
    """Return the frames of segments, the offsets of their records, and how many each has."""
    frames, offsets, counts = list[Frame](), list[int](), list[int]()
    for each in segments:
        span = directory.span(each)
        for located in walk(directory.storage, span):
            frames.append(located.frame)
            batch, found = rows_of(located.frame, check(located, span))
            assert batch.column("value").to_pylist() == [b"%d" % offset for offset in found]
            offsets += found.tolist()
            counts.append(len(found))
    return frames, offsets, counts


def rules(**config: str) -> Rules:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return Rules.of(TopicConfig(named), log_start=0, cleaned=2**62, now_ms=0)


SMALL, COPIED = rules(batch_size="1000000"), rules(batch_size="1024")


@pytest.mark.parametrize("rules", [SMALL, COPIED])
@pytest.mark.parametrize(
    "gone",
    [[], [0], [0, 1, 2, 3], [4, 5], [4, 5, 6, 7], [8, 11], [8, 9, 10, 11], [0, 1, 2, 3, 4, 5, 6, 7], list(range(1, 12)),
     list(range(11)), list(range(12)), [0, 1, 2, 3, 8, 9, 10, 11]],
)  # fmt: skip
def test_frames_cover_all_offsets_one_behind_the_other(directory: SegmentDir, gone: list[int], rules: Rules) -> None:
    frames = (frame(10 + n, 14 + n, range(10 + n, 14 + n)) for n in (0, 4, 8))
    made = rewrite(
        directory,
        [segment(directory, 10, 25, *frames, frame(22, 25, []))],
        [np.array(gone) + 10],
        rules,
        number=2,
        latest_ms=-1,
    )
    found, offsets, counts = left(directory, made)
    assert offsets == [offset for offset in range(10, 22) if offset - 10 not in gone]
    assert [f.base_offset for f in found] == [10, *(f.next_offset for f in found[:-1])]
    assert found[-1].next_offset == 25
    assert [(s.base_offset, s.end_offset) for s in made] == [(10, 25)]
    assert 0 not in counts[:-1], "no empty frame where the one behind it can cover the gap"


def test_a_frame_of_which_all_stays_is_copied_as_it_is(directory: SegmentDir) -> None:
    frames = [frame(n, n + 4, range(n, n + 4)) for n in (0, 4, 8)]
    packed = replace(COPIED, compression="zstd")  # what is written anew is packed
    made = rewrite(directory, [segment(directory, 0, 12, *frames)], [np.array([5])], packed, number=2, latest_ms=-1)
    found, _, _ = left(directory, made)
    assert [f.buffer.to_pybytes() == data for f, data in zip(found, frames, strict=True)] == [True, False, True]


@pytest.mark.parametrize(("latest_ms", "told"), [(7, 7), (-1, 0)])
def test_a_frame_without_rows_has_the_largest_timestamp_before_it(
    directory: SegmentDir, latest_ms: int, told: int
) -> None:
    """Where nothing is before, it has that of the first frame which it takes the place of: never none."""
    whole = segment(directory, 10, 14, frame(10, 14, range(10, 14)))
    made = rewrite(directory, [whole], [np.arange(10, 14)], SMALL, number=2, latest_ms=latest_ms)
    (found,), offsets, _ = left(directory, made)
    assert offsets == []
    assert (found.base_timestamp, found.max_timestamp) == (told, told)
    assert [each.max_timestamp for each in made] == [told]


def test_offsets_beyond_what_a_frame_and_a_segment_can_cover(directory: SegmentDir) -> None:
    first = segment(directory, 0, MAX, frame(0, 2, [0, 1]), frame(2, MAX, []))
    second = segment(directory, MAX, 2 * MAX, frame(MAX, 2 * MAX - 2, []), frame(2 * MAX - 2, 2 * MAX, [2 * MAX - 1]))
    third = segment(directory, 2 * MAX, 2 * MAX + 1, frame(2 * MAX, 2 * MAX + 1, [2 * MAX]))
    nothing = np.array([], dtype=np.int64)
    made = rewrite(directory, [first, second, third], [np.array([1]), nothing, nothing], SMALL, number=2, latest_ms=-1)
    found, offsets, _ = left(directory, made)
    assert offsets == [0, 2 * MAX - 1, 2 * MAX]
    assert [f.base_offset for f in found] == [0, *(f.next_offset for f in found[:-1])]
    assert found[-1].next_offset == made[-1].end_offset == 2 * MAX + 1
    assert all(s.end_offset - s.base_offset <= MAX for s in made)
    assert all(before.end_offset == behind.base_offset for before, behind in pairwise(made))

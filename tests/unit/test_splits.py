"""How ranges are cut into Spark partitions."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings, strategies as st

from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.spark.progress.splits import FrameOf, Split, cuts, longest_first, split


def ranges(*spans: tuple[int, int]) -> list[OffsetRange]:
    """Return one range per partition."""
    return [OffsetRange("t", "id", partition, *span) for partition, span in enumerate(spans)]


def frames(*borders: int) -> FrameOf:
    """Return what tells the frame of an offset, by all borders."""

    def frame_of(offset: int) -> tuple[int, int] | None:
        at = bisect_right(borders, offset)
        return (borders[at - 1], borders[at]) if 0 < at < len(borders) else None

    return frame_of


def unknown(offset: int) -> None:
    """Know no frame."""


@pytest.mark.parametrize(
    ("how", "sizes", "wanted"),
    [
        (Split(), [5, 1], [1, 1]),
        (Split(min_partitions=2), [5, 1], [1, 1]),
        (Split(min_partitions=5), [60, 30, 10], [3, 1, 1]),
        (Split(min_partitions=6), [60, 30, 10], [3, 2, 1]),
        (Split(min_partitions=99), [2, 3], [2, 3]),
        (Split(max_records=10), [10, 11, 30], [1, 2, 3]),
        (Split(min_partitions=4, max_records=10), [10, 11, 30], [1, 2, 3]),
        (Split(min_partitions=8, max_records=10), [10, 11, 30], [2, 2, 4]),
    ],
)
def test_the_largest_parts_are_cut_until_there_are_enough(how: Split, sizes: list[int], wanted: list[int]) -> None:
    assert how.counts(sizes) == wanted


def test_nothing_is_looked_up_where_nothing_is_cut() -> None:
    def refused(wanted: OffsetRange) -> FrameOf:
        raise AssertionError(wanted)

    whole = ranges((3, 9), (0, 1))
    assert split(whole, Split(2, 6), refused) == whole
    assert split([], Split(2, 6), refused) == []


def test_parts_keep_topic_and_partition_and_follow_each_other() -> None:
    got = split(ranges((10, 20), (0, 5)), Split(min_partitions=3), lambda wanted: unknown)
    assert [(each.topic_id, each.partition, each.start, each.end) for each in got] == [
        ("id", 0, 10, 15), ("id", 0, 15, 20), ("id", 1, 0, 5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("borders", "wanted"),
    [
        ((0, 40, 60, 100), [40]),  # as near as the other: the frame's start
        ((0, 30, 55, 100), [55]),
        ((0, 26, 100), [26]),
        ((0, 100), [50]),  # one frame: inside it
        ((0, 24, 77, 100), [50]),  # both borders too far: a part would be half as large as asked
        ((0, 50, 100), [50]),
    ],
)
def test_a_cut_goes_to_the_nearer_border_unless_it_is_far(borders: tuple[int, ...], wanted: list[int]) -> None:
    assert list(cuts(0, 100, 2, None, frames(*borders))) == wanted


def test_a_part_never_exceeds_the_limit_for_a_border() -> None:
    assert list(cuts(0, 100, 2, 50, frames(0, 55, 100))) == [50]
    assert list(cuts(0, 90, 2, 50, frames(0, 42, 55, 100))) == [42]
    assert list(cuts(0, 90, 2, 50, frames(0, 38, 55, 100))) == [45]


@settings(deadline=None)
@given(st.data())
def test_parts_cover_the_range_are_not_empty_and_keep_the_limit(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 1000))
    size = data.draw(st.integers(1, 500))
    how = Split(
        data.draw(st.none() | st.integers(1, 60), label="min"), data.draw(st.none() | st.integers(1, 200), label="max")
    )
    inner = data.draw(st.sets(st.integers(start - 50, start + size + 50), max_size=40), label="borders")
    borders = sorted({start - 100, *inner, start + size + 100})
    parts = split(ranges((start, start + size)), how, lambda wanted: frames(*borders))
    assert [each.start for each in parts[1:]] == [each.end for each in parts[:-1]]
    assert (parts[0].start, parts[-1].end) == (start, start + size)
    lengths = [each.end - each.start for each in parts]
    assert min(lengths) >= 1
    assert how.max_records is None or max(lengths) <= how.max_records
    assert len(parts) >= min(how.min_partitions or 1, size)


def test_the_longest_topic_partition_is_begun_first_and_equal_ones_stay_in_order() -> None:
    found = ranges((0, 5), (100, 107), (7, 12), (0, 7), (3, 4))
    assert longest_first(found) == [found[1], found[3], found[0], found[2], found[4]]


def test_parts_of_one_topic_partition_stay_adjacent_and_in_order() -> None:
    def part(topic: str, partition: int, start: int, end: int) -> OffsetRange:
        return OffsetRange(topic, "id", partition, start, end)

    a0 = [part("a", 0, 0, 10), part("a", 0, 10, 25), part("a", 0, 25, 26)]
    a1 = [part("a", 1, 0, 12)]
    b0 = [part("b", 0, 5, 6), part("b", 0, 40, 70)]
    assert longest_first([*a0, *a1, *b0]) == [*b0, *a0, *a1]

"""What is known of a partition's slices where objects of the tail can't be read: gaps are told, never passed over."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.segment_object import Footer, Slice, SlicePart
from pyspark_commitlog.topic.state.settle_state import Shared
from pyspark_commitlog.topic.state.tail import Slices, slices_of

PARTS = [SlicePart("log", 9, 0), SlicePart("index", 0, 0), SlicePart("timeindex", 0, 0)]
Object = tuple[Shared, Footer | CorruptionError]


def shared(**offsets: tuple[int, int]) -> Object:
    """Return an object with these slices."""
    slices = (Slice(int(p[1:]), base, end, 5, 5, 0, PARTS) for p, (base, end) in sorted(offsets.items()))
    return Shared("sound", 0, 99, Checked(9, 0)), Footer(tuple(slices))


def lost(name: str = "lost") -> Object:
    """Return an object that nobody can read."""
    return Shared(name, 0, 99, Checked(9, 0)), CorruptionError(name)


def looked(tail: list[Object], start: int, end: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, str]]]:
    """Return the offsets of partition 0's slices, and its gaps."""
    found = slices_of(0, tail, start, end)
    return [(row[0], row[1]) for row in found.rows], [(gap.start, gap.end, str(gap.why)) for gap in found.gaps]


def test_a_whole_tail_has_no_gaps() -> None:
    assert looked([shared(p0=(3, 5)), shared(p1=(0, 9)), shared(p0=(5, 7), p1=(9, 10))], 3, 7) == ([(3, 5), (5, 7)], [])
    assert looked([shared(p0=(3, 5)), shared(p0=(6, 7))], 1, 9) == ([(3, 5), (6, 7)], []), "no object is lost"


def test_a_lost_object_holds_nothing_of_a_partition_whose_segments_meet_around_it() -> None:
    assert looked([lost(), shared(p0=(3, 5))], 3, 5)[1] == [], "its own segments before it"
    assert looked([shared(p0=(3, 5)), lost(), shared(p0=(5, 7))], 3, 7)[1] == []
    assert looked([shared(p0=(3, 5)), lost()], 3, 5)[1] == [], "nothing is settled after it"
    assert looked([lost()], 0, 0)[1] == []


def test_offsets_that_do_not_meet_around_lost_objects_are_a_gap() -> None:
    assert looked([lost(), shared(p0=(3, 5))], 0, 5)[1] == [(0, 3, "lost")]
    assert looked([shared(p0=(3, 5)), lost(), shared(p0=(6, 7))], 3, 7)[1] == [(5, 6, "lost")]
    assert looked([shared(p0=(3, 5)), lost()], 3, 6)[1] == [(5, 6, "lost")]
    assert looked([lost()], 3, 6) == ([], [(3, 6, "lost")])


def test_neighbours_that_are_lost_have_one_gap_and_others_one_each() -> None:
    assert looked([lost("a"), shared(p1=(0, 1)), lost("b"), shared(p0=(3, 5))], 0, 5)[1] == [(0, 3, "a")]
    apart = [lost("a"), shared(p0=(3, 5)), lost("b"), shared(p0=(5, 6)), lost("c"), shared(p0=(7, 8))]
    assert looked(apart, 1, 8)[1] == [(1, 3, "a"), (6, 7, "c")]


def test_only_a_gap_that_is_needed_is_refused() -> None:
    found = slices_of(0, [lost("a"), shared(p0=(3, 5)), lost("b"), shared(p0=(8, 9))], 0, 9)
    for low, name in ((0, "a"), (2, "a"), (3, "b"), (7, "b")):
        with pytest.raises(CorruptionError, match=f"^{name}$"):
            found.check(low)
    found.check(8)
    assert refused(found) == [0, 1, 2, 5, 6, 7]


def refused(found: Slices) -> list[int]:
    """Return the offsets up to 9 that are refused."""
    offsets = []
    for offset in range(10):
        try:
            found.check_offset(offset)
        except CorruptionError:
            offsets.append(offset)
    return offsets

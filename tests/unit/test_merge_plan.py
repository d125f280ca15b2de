"""What is merged next: neighbours of one tier, the oldest and the smallest first (O3)."""

from __future__ import annotations

import pytest

from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.topic.settle.merge import replaced_in_tail
from pyspark_commitlog.topic.settle.merge_plan import (
    FAN_IN,
    LATE,
    OWN_BYTES,
    TailMerge,
    makes_own,
    own_bytes,
    plan_own,
    plan_tail,
    size_class,
)
from pyspark_commitlog.topic.state.settle_state import Place, Sealed, Shared

MIB = 2**20
SEGMENT = 1024 * MIB


def shared(number: int, tier: int, size: int = 1000) -> Shared:
    return Shared(f"object-{number}", tier, size, Checked(10, 0))


def tail_of(*tiers: int, size: int = 1000) -> tuple[Shared, ...]:
    return tuple(shared(number, tier, size) for number, tier in enumerate(tiers))


def one_partition(each: Shared) -> dict[int, int]:
    return {0: each.size_bytes}


def ten_partitions(each: Shared) -> dict[int, int]:
    return dict.fromkeys(range(10), each.size_bytes // 10)


def planned(tail: tuple[Shared, ...], segment_bytes: int = SEGMENT) -> TailMerge | None:
    return next(plan_tail(tail, ten_partitions, segment_bytes), None)


def test_eight_neighbours_of_a_tier_are_due_and_seven_are_not() -> None:
    assert planned(tail_of(*[0] * 7)) is None
    tail = tail_of(*[0] * 8)
    assert planned(tail) == TailMerge(tail, split=False)


def test_a_merge_takes_one_tier_only() -> None:
    """O3: a small merge never takes what a long one works on."""
    assert planned(tail_of(2, *[1] * 7, *[0] * 7)) is None
    tail = tail_of(2, *[1] * 7, *[0] * 8)
    plan = planned(tail)
    assert plan is not None
    assert (plan.objects, plan.tier) == (tail[8:], 1)


def test_the_oldest_of_a_tier_are_merged_first() -> None:
    """Then tiers descend along the tail for ever, and a merge of others never takes them."""
    tail = tail_of(1, *[0] * 20)
    plan = planned(tail)
    assert plan is not None
    assert plan.objects == tail[1:9]


def test_the_smallest_tier_is_merged_first() -> None:
    tail = tail_of(*[1] * 8, *[0] * 8)
    plan = planned(tail)
    assert plan is not None
    assert plan.objects == tail[8:]


def test_each_tier_that_is_due_is_planned() -> None:
    """A tier that is late must not wait behind a smaller one that is not, and is too large for a commit."""
    tail = tail_of(*[1] * 24, *[0] * 8)
    plans = list(plan_tail(tail, ten_partitions, SEGMENT))
    assert [(plan.tier, plan.late) for plan in plans] == [(1, False), (2, True)]


def test_three_times_as_many_as_are_due_are_late() -> None:
    assert LATE == 3 * FAN_IN
    for count, late in ((LATE - 1, False), (LATE, True)):
        plan = planned(tail_of(*[0] * count))
        assert plan is not None
        assert plan.late is late


@pytest.mark.parametrize(
    ("each", "split"), [pytest.param(OWN_BYTES * 10 // 8 - 10, False), pytest.param(OWN_BYTES * 10 // 8 + 10, True)]
)
def test_from_8_mib_a_slice_on_partitions_get_own_objects(each: int, split: bool) -> None:
    plan = planned(tail_of(*[0] * 8, size=each))
    assert plan is not None
    assert plan.split is split


def test_only_partitions_with_records_count_for_the_average() -> None:
    assert makes_own([{0: OWN_BYTES}], SEGMENT)
    assert not makes_own([{0: OWN_BYTES, 1: 1}], SEGMENT)
    assert not makes_own([], SEGMENT)


def test_a_slice_that_fills_a_segment_makes_own_objects() -> None:
    assert makes_own([{0: SEGMENT, 1: 1, **dict.fromkeys(range(2, 200), 1)}, {0: 1}], SEGMENT)


def test_a_split_takes_all_of_the_tail_from_the_first_on() -> None:
    """O2: own pieces lie before all of the tail."""
    tail = tail_of(2, 2, *[1] * 8, 0, size=OWN_BYTES)
    (plan,) = plan_tail(tail, one_partition, SEGMENT)
    assert (plan.objects, plan.split) == (tail[:10], True)


def test_a_damaged_object_parts_its_neighbours() -> None:
    """It stays where it is, in the order of offsets; what is before it and after it goes on."""
    tail = tail_of(*[0] * 16)
    assert list(plan_tail(tail, ten_partitions, SEGMENT, {tail[7].name})) == [TailMerge(tail[8:], split=False)]
    assert list(plan_tail(tail, ten_partitions, SEGMENT, {tail[8].name})) == [TailMerge(tail[:8], split=False)]
    assert list(plan_tail(tail[:15], ten_partitions, SEGMENT, {tail[7].name})) == []
    assert list(plan_tail(tail[:8], ten_partitions, SEGMENT, {shared.name for shared in tail})) == []


def test_what_is_after_a_damaged_object_becomes_larger_objects_of_the_tail() -> None:
    """O2: own pieces lie before all of the tail."""
    tail = tail_of(1, *[0] * 9, size=OWN_BYTES)
    assert list(plan_tail(tail, one_partition, SEGMENT, {tail[0].name})) == [TailMerge(tail[1:9], split=False)]
    (before,) = plan_tail(tail, one_partition, SEGMENT, {tail[-1].name})
    assert (before.objects, before.split) == (tail[:9], True)


@pytest.mark.parametrize(("size", "late"), [(OWN_BYTES - 1, True), (OWN_BYTES, False)])
def test_a_commit_merges_no_more_after_a_damaged_object_than_it_splits(size: int, late: bool) -> None:
    tail = tail_of(1, *[0] * LATE, size=size)
    (plan,) = plan_tail(tail, one_partition, SEGMENT, {tail[0].name})
    assert (plan.split, plan.late) == (False, late)


def test_no_slice_after_a_damaged_object_gets_larger_than_a_segment() -> None:
    tail = tail_of(1, *[0] * 8, size=SEGMENT // 8)
    assert len(list(plan_tail(tail, one_partition, SEGMENT, {tail[0].name}))) == 1
    assert list(plan_tail(tail, one_partition, SEGMENT - 1, {tail[0].name})) == []


def test_small_segments_are_own_objects_from_their_size_on() -> None:
    assert own_bytes(SEGMENT) == OWN_BYTES
    assert own_bytes(1024) == 1024


# --- own pieces -------------------------------------------------------------------------------------------


def pieces(*sizes: int) -> tuple[Sealed, ...]:
    return tuple(Sealed(n, n + 1, 0, size, 0, 0, 12, 5, 5, 0, Place(f"object-{n}", 0)) for n, size in enumerate(sizes))


@pytest.mark.parametrize(
    ("size", "found"),
    [(8 * MIB, 0), (64 * MIB - 1, 0), (64 * MIB, 1), (512 * MIB, 2), (8 * MIB - 1, -1), (MIB - 1, -2), (0, -7)],
)
def test_classes_grow_by_eight(size: int, found: int) -> None:
    assert size_class(size, SEGMENT) == found


def test_eight_own_pieces_of_a_class_are_due_and_seven_are_not() -> None:
    assert plan_own(pieces(*[32 * MIB] * 7), SEGMENT) == ()
    own = pieces(*[32 * MIB] * 9)
    assert plan_own(own, SEGMENT) == own[:8]


def test_own_pieces_are_merged_up_to_a_segment() -> None:
    assert plan_own(pieces(*[256 * MIB] * 8), SEGMENT) == ()
    own = pieces(*[128 * MIB] * 8)
    assert plan_own(own, SEGMENT) == own


def test_a_merge_brings_its_pieces_up_by_a_class() -> None:
    """Else a large piece would be written again and again, each time with a few small ones."""
    assert plan_own(pieces(*[8 * MIB] * 7, 64 * MIB), SEGMENT) == ()


def test_larger_pieces_are_no_part_of_a_merge() -> None:
    assert plan_own(pieces(*[32 * MIB] * 4, 64 * MIB, *[32 * MIB] * 4), SEGMENT) == ()
    own = pieces(*[32 * MIB] * 4, 64 * MIB, *[32 * MIB] * 8)
    assert plan_own(own, SEGMENT) == own[5:]


def test_smaller_ones_between_are_a_part_of_it() -> None:
    """Sizes about the border of two classes must not keep each other from being merged."""
    own = pieces(*[60 * MIB, 70 * MIB] * 6)
    assert plan_own(own, SEGMENT) == own[:8]


def test_smaller_ones_at_the_end_are_left_to_their_own_class() -> None:
    """O3: they are merged among themselves while a long merge works on those before."""
    own = pieces(*[70 * MIB] * 7, *[9 * MIB] * 5)
    assert plan_own(own, SEGMENT) == ()
    own = pieces(*[70 * MIB] * 7, *[9 * MIB] * 5, 70 * MIB)
    assert plan_own(own, SEGMENT) == own


def test_the_smallest_class_is_merged_first() -> None:
    own = pieces(*[128 * MIB] * 8, *[10 * MIB] * 8)
    assert plan_own(own, SEGMENT) == own[8:]


# --- the tail as published --------------------------------------------------------------------------------


def test_neighbours_of_the_tail_are_replaced() -> None:
    tail, new = tail_of(1, 0, 0, 0), shared(9, 1)
    assert replaced_in_tail(tail, tail[1:3], [new]) == (tail[0], new, tail[3])
    assert replaced_in_tail(tail, tail[:2], []) == tail[2:]


@pytest.mark.parametrize(
    "at",
    [
        pytest.param((0, 1, 3), id="the last was let go of"),
        pytest.param((0, 2, 3), id="the first was let go of"),
        pytest.param((0, 1, 3, 2), id="no neighbours"),
        pytest.param((), id="none is left"),
    ],
)
def test_exactly_the_objects_that_were_merged_are_replaced(at: tuple[int, ...]) -> None:
    """O2. Else what another operation let go of or merged would come back."""
    tail = tail_of(1, 0, 0, 0)
    assert replaced_in_tail([tail[number] for number in at], tail[1:3], [shared(9, 1)]) is None

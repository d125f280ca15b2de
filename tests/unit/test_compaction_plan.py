"""What compaction takes, when, and what it writes anew: the deciding functions alone."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.topic.compaction.compaction_plan import idle_reason, plan_compaction, plan_groups
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition

DAY_MS = 86_400_000


def segment(base: int, end: int, length: int = 100, at: int = 0) -> Sealed:
    """Return a sealed segment whose latest record is of `at`."""
    return Sealed(base, end, 0, length, 0, 0, 0, at)


FOUR = [segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 40)]


def planned(
    sealed: list[Sealed] = FOUR, cleaned: int = 0, start: int = 0, now: int = 0, oldest: int | None = None, **config: object
) -> tuple[list[int], list[int]] | None:  # fmt: skip
    """Return the base offsets of (clean, dirty) segments that a round takes."""
    stored = {"cleanup.policy": "compact", **{name.replace("_", "."): str(value) for name, value in config.items()}}
    row = SettledPartition(50, Active(IndexState(40, position=100)), None, cleaned)
    plan = plan_compaction(
        sealed, row, log_start=start, config=TopicConfig(stored), now_ms=now, oldest_ms=oldest
    )  # fmt: skip
    return plan and ([s.base_offset for s in plan.clean], [s.base_offset for s in plan.dirty])


def test_the_dirty_share_must_be_above_the_ratio() -> None:
    assert planned() == ([], [0, 10, 20, 30])
    assert planned(cleaned=10) == ([0], [10, 20, 30])
    assert planned(cleaned=20) is None, "half is dirty, and that is not above 0.5"
    assert planned(cleaned=20, min_cleanable_dirty_ratio=0.49) == ([0, 10], [20, 30])
    assert planned(cleaned=40, min_cleanable_dirty_ratio=0) is None, "nothing is dirty"
    assert planned([segment(0, 10, length=0)], min_cleanable_dirty_ratio=0) is None


def test_only_a_compacted_topic_is_compacted() -> None:
    assert planned(cleanup_policy="delete") is None
    assert planned(cleanup_policy="compact,delete") == ([], [0, 10, 20, 30])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"cleaned": 40},
            "no segment was sealed since the last compaction; the active one is never compacted (segment.b",
        ),
        ({"sealed": []}, "no segment was sealed since"),
        ({"start": 40}, "no segment was sealed since"),
        ({"cleaned": 20}, "the dirty ratio is 0.50, and min.cleanable.dirty.ratio=0.5"),
        ({"cleaned": 30, "start": 20}, "the dirty ratio is 0.50, and"),
        ({"now": 39, "min_compaction_lag_ms": 40}, "its records are younger than min.compaction.lag.ms=40"),
    ],
)
def test_why_nothing_is_due(given: dict[str, Any], reason: str) -> None:
    assert planned(**given) is None
    names = {
        name.replace("_", "."): str(given[name]) for name in given if name not in ("sealed", "cleaned", "start", "now")
    }
    row = SettledPartition(50, Active(IndexState(40, position=100)), None, given.get("cleaned", 0))
    said = idle_reason(
        given.get("sealed", FOUR),
        row,
        log_start=given.get("start", 0),
        config=TopicConfig(names),
        now_ms=given.get("now", 0),
    )
    assert said.startswith(reason)


def test_segments_below_the_log_start_offset_are_left_alone() -> None:
    assert planned(start=20) == ([], [20, 30])
    assert planned(start=25) == ([], [20, 30]), "some records of 20 are still there"
    assert planned(cleaned=20, start=15, min_cleanable_dirty_ratio=0) == ([10], [20, 30])


def test_nothing_from_the_first_young_segment_on_is_taken() -> None:
    sealed = [segment(0, 10, at=0), segment(10, 20, at=60), segment(20, 30, at=5)]
    assert planned(sealed, now=100, min_compaction_lag_ms=40) == ([], [0, 10, 20])
    assert planned(sealed, now=99, min_compaction_lag_ms=40) == ([], [0])
    assert planned(sealed, now=0, min_compaction_lag_ms=0) == ([], [0, 10, 20]), "no lag: a fast clock holds nothing up"


def test_an_old_record_makes_it_due_whatever_the_ratio() -> None:
    config = {"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": DAY_MS}
    assert planned(cleaned=30, now=DAY_MS, oldest=0, **config) is None
    assert planned(cleaned=30, now=DAY_MS + 1, oldest=0, **config) == ([0, 10, 20], [30])
    assert planned(cleaned=40, now=DAY_MS + 1, oldest=0, **config) is None


def test_a_round_takes_so_many_dirty_offsets_at_most_but_one_segment_at_least() -> None:
    big = [segment(0, 600), segment(600, 1000), segment(1000, 1200)]
    assert planned(big, cleaner_dedupe_buffer_size=8 * 1024) == ([], [0, 600])
    assert planned([segment(0, 5000), segment(5000, 5001)], cleaner_dedupe_buffer_size=8 * 1024) == ([], [0])


@pytest.mark.parametrize(
    ("lengths", "touched", "groups"),
    [
        ([80, 80, 80], [0, 0, 0], []),
        ([80, 80, 80], [0, 1, 0], [range(1, 2)]),
        ([80, 10, 80], [0, 0, 0], []),
        ([10, 80, 10, 10], [0, 0, 0, 0], [range(2, 4)]),
        ([10, 80, 10], [0, 1, 0], [range(3)]),
        ([80, 10, 80, 80], [1, 0, 0, 1], [range(2), range(3, 4)]),
    ],
)
def test_touched_segments_are_written_anew_with_their_small_neighbours(
    lengths: list[int], touched: list[int], groups: list[range]
) -> None:
    segments = [segment(10 * i, 10 * i + 10, length) for i, length in enumerate(lengths)]
    assert plan_groups(segments, [bool(t) for t in touched], segment_bytes=100) == groups


def test_a_long_run_is_cut() -> None:
    """So that several tasks share it; a segment larger than the bound has a run of its own."""
    segments = [segment(10 * i, 10 * i + 10, length) for i, length in enumerate([80, 80, 10, 300, 80, 80])]
    cut = plan_groups(segments, [True] * 5 + [False], segment_bytes=100, split_bytes=200)
    assert cut == [range(3), range(3, 4), range(4, 5)]

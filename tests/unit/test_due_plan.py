"""Work that maintenance would do to a partition, decided from its segments alone."""

from __future__ import annotations

from dataclasses import replace

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.topic.maintain.due import DueWork, SegmentRange, plan_due
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition
from pyspark_commitlog.topic.state.topic_state import TopicState

STATE = TopicState("id", False, {}, log_start=(5,), log_end=(47,), created=1)
NOW_MS = 1000


def segment(base: int, end: int, at: int, least: int | None = None) -> Sealed:
    return Sealed(base, end, 0, 100, 0, 0, 0, at, least)


SEALED = [segment(0, 10, 100, 90), segment(10, 20, 200, 190), segment(20, 30, 900, 890)]
ROW = SettledPartition(40, Active(IndexState(30, position=50, max_timestamp=950)))


def planned(state: TopicState = STATE, row: SettledPartition = ROW, **config: object) -> DueWork:
    stored = {"retention.ms": "-1", **{name.replace("_", "."): str(value) for name, value in config.items()}}
    return plan_due(0, SEALED, row, state, TopicConfig(stored), NOW_MS, {})


def test_the_segments_of_a_partition() -> None:
    work = planned()
    assert work.segments[0] == SegmentRange(0, 10, 100, 100)
    assert work.segments[-1] == SegmentRange(30, 40, 50, 950, is_active=True)
    assert (work.settled_end, work.unsettled, work.log_start) == (40, 7, 5)
    assert (work.due_log_start, work.due_segments, work.due_bytes) == (5, 0, 0)
    assert (work.compact_segments, work.idle) == (0, "")


def test_retention_by_time_and_by_size() -> None:
    by_time = planned(retention_ms=850)
    assert (by_time.due_log_start, by_time.due_segments, by_time.due_bytes) == (10, 1, 100)
    by_size = planned(retention_bytes=150)
    assert (by_size.due_log_start, by_size.due_segments, by_size.due_bytes) == (20, 2, 200)
    everything = planned(retention_ms=10)
    assert (everything.due_log_start, everything.due_segments, everything.due_bytes) == (40, 4, 350)


def test_segments_below_the_log_start_are_due_whatever_retention_says() -> None:
    work = planned(replace(STATE, log_start=(20,)))
    assert (work.due_log_start, work.due_segments, work.due_bytes) == (20, 2, 200)


def test_a_copy_is_not_retained() -> None:
    copy = replace(STATE, copied=STATE.lineage.sequence or 1)
    copy = replace(copy, lineage=replace(STATE.lineage, sequence=copy.copied))
    assert copy.is_copy
    assert planned(copy, retention_ms=10).due_log_start == 5


def test_compaction() -> None:
    work = planned(cleanup_policy="compact")
    assert (work.compact_segments, work.compact_bytes, work.idle) == (3, 300, "")
    idle = planned(row=replace(ROW, cleaned=30), cleanup_policy="compact")
    assert (idle.compact_segments, idle.cleaned) == (0, 30)
    assert idle.idle.startswith("no segment was sealed since the last compaction")


def test_an_overdue_compaction_whatever_the_ratio() -> None:
    row = replace(ROW, cleaned=20)
    assert planned(row=row, cleanup_policy="compact").compact_segments == 0
    assert planned(row=row, cleanup_policy="compact", max_compaction_lag_ms=100).compact_segments == 3
    assert planned(row=row, cleanup_policy="compact", max_compaction_lag_ms=200).compact_segments == 0


def test_retention_comes_before_compaction() -> None:
    work = planned(cleanup_policy="compact,delete", retention_ms=750)
    assert (work.due_segments, work.compact_segments) == (2, 1)

"""Groups, the pure part: what commits, resets and deletions make of a state, and where resets go."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.groups.reset_target import Target, Way, duration_ms, new_offset, target_of
from pyspark_commitlog.groups.state.group_state import (
    GroupState,
    Position,
    committed,
    ended,
    fenced,
    reset,
    without_topic,
)
from pyspark_commitlog.model import TopicPartition

PLACE = TopicPartition("t", 0)
NOW = 1_700_000_000_000


def at(partition: int, offset: int, topic: str = "t", life: str = "A") -> Position:
    return Position(topic, life, partition, offset)


def start() -> GroupState:
    return committed(GroupState(), [at(0, 5), at(2, 7)], NOW, "by me")


def test_a_commit_moves_forward_only() -> None:
    state = start()
    assert state.offsets("A") == {0: 5, 2: 7}
    assert committed(state, [at(0, 4), at(1, 0), at(2, 9)], NOW, "").offsets("A") == {0: 5, 1: 0, 2: 9}
    assert committed(state, [at(0, 5), at(2, 6)], NOW + 1, "other") is state


def test_a_commit_to_a_new_life_of_a_topic_drops_the_former_and_leaves_other_topics() -> None:
    state = committed(start(), [at(0, 3, "other", "O")], NOW, "")
    after = committed(state, [at(0, 1, life="B")], NOW, "")
    assert (after.offsets("A"), after.offsets("B"), after.offsets("O")) == ({}, {0: 1}, {0: 3})
    assert after.names() == ("other", "t")


def test_a_reset_goes_back_and_fences_what_it_moved() -> None:
    after = reset(start(), [at(0, 1)], NOW, "w")
    assert (after.generation, after.last_reset, after.offsets("A")) == (1, "w", {0: 1, 2: 7})
    assert fenced(after, [at(0, 9), at(1, 9), at(2, 9)], 0) == (at(0, 9),)
    assert fenced(after, [at(0, 9)], 1) == ()
    assert fenced(reset(after, [at(2, 0)], NOW, "x"), [at(0, 9), at(2, 9)], 1) == (at(2, 9),)


def test_a_deleted_topic_and_a_deleted_group_fence_who_followed_before() -> None:
    after = without_topic(start(), "t", {"A": 3}, NOW, "w")
    assert (after.names(), after.generation) == ((), 1)
    assert fenced(after, [at(0, 9), at(2, 9)], 0) == (at(0, 9), at(2, 9))
    assert without_topic(start(), "t", {}, NOW, "w").topics == {}
    gone = ended(start(), "w")
    anew = committed(gone, [at(0, 1)], NOW, "")
    assert (gone.names(), anew.names()) == ((), ("t",))
    assert fenced(anew, [at(0, 9), at(7, 9, "new", "N")], 0) == (at(0, 9), at(7, 9, "new", "N"))
    assert fenced(anew, [at(0, 9)], 1) == ()


@pytest.mark.parametrize(
    ("target", "current", "expected"),
    [
        (Target(Way.EARLIEST), 50, 10),
        (Target(Way.LATEST), 50, 100),
        (Target(Way.CURRENT), 50, 50),
        (Target(Way.CURRENT), None, 100),
        (Target(Way.OFFSET, 10), None, 10),
        (Target(Way.OFFSET, 100), None, 100),
        (Target(Way.SHIFT, 7), 50, 57),
        (Target(Way.SHIFT, -70), 50, 10),
        (Target(Way.SHIFT, 70), 50, 100),
        (Target(Way.EACH, each={"t": {0: 42}}), None, 42),
    ],
)
def test_where_a_reset_goes(target: Target, current: int | None, expected: int) -> None:
    assert new_offset(PLACE, target, current, 10, 100) == expected


@pytest.mark.parametrize("offset", [9, 101])
def test_an_offset_outside_the_log_is_refused(offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"t partition 0 has offsets 10 to 100 .* not {offset}"):
        new_offset(PLACE, Target(Way.OFFSET, offset), None, 10, 100)


def test_a_shift_needs_something_to_shift_from() -> None:
    with pytest.raises(UsageError, match="no committed offset to shift from"):
        new_offset(PLACE, Target(Way.SHIFT, 1), None, 10, 100)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT1H", 3_600_000), ("P1DT2H3M4.5S", 93_784_500), ("P2D", 172_800_000), ("PT0S", 0), ("PT0.25S", 250)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1H ", "PT-1H", "P1DT", "PT1.5H", "pt1h"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match="PnDTnHnMnS"):
        duration_ms(text)


@pytest.mark.parametrize(
    "text", ["P106751991168D", f"P{'9' * 400}D", f"PT{'9' * 30}.5S"], ids=["days", "endless", "seconds"]
)
def test_a_duration_beyond_all_timestamps_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no timestamp is so long ago"):
        duration_ms(text)


def test_a_target_is_given_once() -> None:
    def of(to: object = None, **given: object) -> Target:
        names = ("offset", "timestamp", "shift", "duration")
        return target_of(to, *(given.get(name) for name in names), NOW)  # type: ignore[arg-type]

    assert of("latest") == Target(Way.LATEST)
    assert of(shift=0) == Target(Way.SHIFT, 0)
    assert of(duration="PT1S") == Target(Way.TIMESTAMP, NOW - 1000)
    assert of(timestamp=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)) == Target(Way.TIMESTAMP, NOW)
    with pytest.raises(UsageError, match=r"exactly one of .*; given: none"):
        of()
    with pytest.raises(UsageError, match="given: to, offset"):
        of("latest", offset=3)
    with pytest.raises(UsageError, match="to='newest': use earliest, latest, current"):
        of("newest")
    with pytest.raises(UsageError, match="time zone"):
        of(timestamp=datetime(2023, 11, 14))  # noqa: DTZ001 what is refused

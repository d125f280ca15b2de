"""Offsets as Spark's checkpoint holds them, and how a trigger's share is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.source_offset import GroupMark, SourceOffset
from pyspark_commitlog.spark.progress.trigger_limits import prorate

BACKLOGS = st.lists(st.integers(0, 10**9), min_size=1, max_size=12)


def cut(backlog: list[int], limit: int) -> list[int]:
    """Return what each partition gets of a limit."""
    places = [TopicPartition("t", partition) for partition in range(len(backlog))]
    start = {place: 100 * place.partition for place in places}
    end = {place: start[place] + size for place, size in zip(places, backlog, strict=True)}
    found = prorate(start, end, limit)
    return [found[place] - start[place] for place in places]


def test_shares_follow_the_backlog() -> None:
    assert cut([600, 300, 100], 100) == [60, 30, 10]


def test_what_rounding_leaves_is_given_out() -> None:
    assert cut([500, 500, 500], 100) in ([34, 33, 33], [33, 34, 33], [33, 33, 34])
    assert cut([199, 100, 101], 100) == [50, 25, 25]


def test_nobody_starves() -> None:
    assert cut([10**9, 1, 0, 5], 10) == [9, 1, 0, 1]


@given(BACKLOGS, st.integers(1, 10**9))
def test_a_share_is_within_the_backlog_and_all_shares_make_the_limit(backlog: list[int], limit: int) -> None:
    shares = cut(backlog, limit)
    assert all(min(size, 1) <= share <= size for share, size in zip(shares, backlog, strict=True))
    assert sum(shares) >= min(limit, sum(backlog))
    assert sum(shares) <= max(limit, min(limit, sum(backlog)) + len(backlog))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(8, 10**6))
def test_a_backlog_of_n_limits_takes_n_triggers(backlog: list[int], limit: int) -> None:
    triggers, left = 0, backlog
    while sum(left):
        left = [size - share for size, share in zip(left, cut(left, limit), strict=True)]
        triggers += 1
        if triggers > 50:
            break
    assert triggers <= min(51, -(-sum(backlog) // limit))


_MARK = "3:AAAAAAAA"
_GOOD: dict[str, Any] = {
    "t": {"0": 42, "1": 0},
    "__topic_ids": {"t": "id", "gone": "id-2"},
    "__lineages": {"t": _MARK},
    "__group": {"id": "any text", "generation": 0, "share": "1/2"},
    "__start": {"t": {"0": 40}, "__topic_ids": {"t": "id"}, "__lineages": {"t": "2:AAAAAAAA"}},
}


def test_what_is_written_is_read() -> None:
    places = {TopicPartition("t", 0): 42, TopicPartition("t", 1): 0}
    read = SourceOffset.from_json(_GOOD)
    assert read == SourceOffset(places, {"t": "id", "gone": "id-2"}, GroupMark("any text", 0, "1/2"))
    assert (read.to_json(), dict(read.lineages)) == (
        {**_GOOD, "__topic_ids": {"gone": "id-2", "t": "id"}},
        {"t": _MARK},
    )
    assert read.start == SourceOffset({TopicPartition("t", 0): 40}, {"t": "id"})
    assert dict(read.start.lineages) == {"t": "2:AAAAAAAA"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"t": {"0": "42"}}, "topic 't': '0': $ is '42', expected int"),
        ({"t": {"0": -1}}, "topic 't': '0': $ is -1, expected int >= 0"),
        ({"t": {"0": 2**64}}, "expected int"),
        ({"t": {"0": True}}, "expected int, got bool"),
        ({"t": {"0": 4.5}}, "expected int, got float"),
        ({"t": {"zero": 4}}, "expected str matching regex"),
        ({"t": {"-1": 4}}, "expected str matching regex"),
        ({"t": [42]}, "expected object, got array"),
        ({"t": None}, "expected object, got null"),
        ({"../t": {"0": 4}}, "expected str matching regex"),
        ({"u": {"0": 4}}, "__topic_ids of 'u' is None, expected the id of each topic that has offsets"),
        ({"__topic_ids": None}, "expected object, got null"),
        ({"__topic_ids": {"t": 7}}, "expected str, got int"),
        ({"__topic_ids": {"t": "../.."}}, "expected str matching regex"),
        ({"__lineages": {"t": "mine"}}, "expected str matching regex"),
        ({"__lineages": []}, "expected object, got array"),
        ({"__group": {"id": "g"}}, "missing required field generation"),
        ({"__group": {"id": "g", "generation": "1", "share": "1/1"}}, "generation is '1', expected int"),
        ({"__group": {"id": "g", "generation": 1, "share": "all"}}, "share is 'all', expected str matching regex"),
        ({"__group": "g"}, "expected object, got str"),
        ({"__start": "t"}, "expected object, got str"),
        ({"__start": {}}, "__start: __topic_ids: "),
        ({"__start": {"t": {"0": -1}, "__topic_ids": {"t": "id"}}}, "__start: topic 't': '0': $ is -1, expected int"),
        ({"__start": {"__topic_ids": {}, "__start": {"__topic_ids": {}}}}, "expected no start of a start"),
    ],
)
def test_what_an_editor_made_of_a_checkpoint_is_told_by_file_key_and_what_was_expected(
    changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(CorruptionError) as raised:
        SourceOffset.from_json({**_GOOD, **changed}, "/c/offsets/7 line 3")
    assert str(raised.value).startswith("/c/offsets/7 line 3: ")
    assert told in str(raised.value)
    without = {key: value for key, value in _GOOD.items() if key != "__topic_ids"}
    with pytest.raises(CorruptionError, match=r"query's checkpoint: __topic_ids: .* expected object, got null"):
        SourceOffset.from_json(without)

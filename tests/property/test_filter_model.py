"""Pruning by filters against a walk over all records: what a filter may match is never left out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_commitlog.spark.read.filters import CEILING, FLOOR, Filters, complement, joined
from pyspark_commitlog.topic.read.filter.spans import Spans, common, united
from tests.property.strategies import quick

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BINARY = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
TOPICS = ("a", "b", "bb")
SIZE = 24


@dataclass(frozen=True)
class Row:
    """A record, with the columns that filters speak of; the time in microseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


literals = {
    "topic": st.sampled_from((*TOPICS, "", "az", "é")) | st.none(),
    "partition": st.integers(-1, 4) | st.none(),
    "offset": st.integers(-2, SIZE + 2) | st.sampled_from((-(2**63), 2**63 - 1)) | st.none(),
    "timestamp": st.none() | st.integers(-9000, 9000).map(lambda us: EPOCH + timedelta(microseconds=us)),
    "key": st.binary(max_size=1),
}
columns = st.sampled_from(sorted(literals))


@st.composite
def pushes(draw: st.DrawFn) -> Filter:
    """Draw a filter as Spark pushes them: a comparison of a column with a literal, or its opposite."""
    column = draw(columns)
    path, kind = (column,), draw(st.sampled_from((*BINARY, In, IsNull, IsNotNull, StringStartsWith)))
    found: Filter
    if kind in (IsNull, IsNotNull):
        found = kind(path)
    elif kind is In:
        found = In(path, tuple(draw(st.lists(literals[column], max_size=4))))
    elif kind is StringStartsWith:
        found = StringStartsWith(("topic",), draw(st.sampled_from(("", "b", "x"))))
    else:
        found = kind(path, draw(literals[column]))
    return Not(found) if draw(st.booleans()) else found


def passes(test: Filter, row: Row) -> bool | None:
    """Return SQL's answer: true, false, or null."""
    if isinstance(test, Not):
        inner = passes(test.child, row)
        return None if inner is None else not inner
    (column,) = test.attribute  # type: ignore[attr-defined]
    found: Any = b"" if column == "key" else getattr(row, column)
    found = EPOCH + timedelta(microseconds=found) if column == "timestamp" else found
    found = found.encode() if isinstance(found, str) else found
    if isinstance(test, IsNull | IsNotNull):
        return isinstance(test, IsNotNull)
    wanted: Any = test.value  # type: ignore[attr-defined]
    if isinstance(test, In):
        equal = [passes(EqualTo(test.attribute, each), row) for each in wanted]
        return True if True in equal else None if None in equal else False
    wanted = wanted.encode() if isinstance(wanted, str) else wanted
    if isinstance(test, StringStartsWith):
        return bool(found.startswith(wanted))
    if wanted is None:
        return False if isinstance(test, EqualNullSafe) else None
    answers = {EqualTo: found == wanted, EqualNullSafe: found == wanted, LessThan: found < wanted,
               LessThanOrEqual: found <= wanted, GreaterThan: found > wanted,
               GreaterThanOrEqual: found >= wanted}  # fmt: skip
    return bool(answers[type(test)])


def inside(spans: Spans, number: int) -> bool:
    return any(start <= number < end for start, end in spans)


@quick
@given(st.lists(pushes(), max_size=4), st.integers(0, SIZE), st.integers(0, SIZE), st.data())
def test_no_record_that_passes_is_left_out(pushed: list[Filter], start: int, end: int, data: st.DataObject) -> None:
    filters = Filters(tuple(pushed))
    for topic in TOPICS:
        for partition in range(4):
            kept, times = filters.offsets(topic, partition, start, end), filters.times()
            assert all(start <= first < last <= end for first, last in kept)
            for offset in range(start, end):
                row = Row(topic, partition, offset, data.draw(st.integers(-9000, 9000)))
                if all(passes(test, row) for test in pushed):
                    assert inside(joined(kept), offset)
                    assert times is not None
                    assert times[0] <= row.timestamp // 1000 <= times[1]


@quick
@example([Not(In(("offset",), (3, None)))])  # chance does not always come to a null in a list
@given(st.lists(pushes().filter(lambda test: "offset" in repr(test) or "partition" in repr(test)), max_size=3))
def test_of_offsets_and_partitions_nothing_else_is_kept(pushed: list[Filter]) -> None:
    """But for `joined`, which reads a little more in fewer tasks."""
    for partition in range(4):
        kept = Filters(tuple(pushed)).offsets("a", partition, 0, SIZE)
        rows = [Row("a", partition, offset, 0) for offset in range(SIZE)]
        understood = [test for test in pushed if "StartsWith" not in repr(test)]
        assert [row.offset for row in rows if all(passes(test, row) for test in understood)] == [
            offset for offset in range(SIZE) if inside(kept, offset)
        ]


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("literal", [-2001, -2000, -1, 0, 1, 999, 1000, 1001])
def test_times_reach_to_the_first_and_the_last_that_pass(kind: type[Filter], negated: bool, literal: int) -> None:
    compared = kind(("timestamp",), EPOCH + timedelta(microseconds=literal))  # type: ignore[call-arg]
    test = Not(compared) if negated else compared
    passing = [us // 1000 for us in range(-4000, 4000) if passes(test, Row("a", 0, 0, us))]
    found = Filters((test,)).times()
    assert found is not None
    assert (max(found[0], -4), min(found[1], 3)) == (passing[0], passing[-1])


some_spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8).map(united)


@quick
@given(some_spans, some_spans)
def test_ranges_are_sets_of_numbers(one: Spans, other: Spans) -> None:
    both, outside = common(one, other), complement(one)
    for number in (FLOOR, *range(-1, 42), CEILING - 1):
        assert inside(both, number) == (inside(one, number) and inside(other, number))
        assert inside(outside, number) != inside(one, number)
    assert united(both) == both
    assert united(outside) == outside


@quick
@given(some_spans, st.integers(0, 9), st.integers(1, 5))
def test_joined_ranges_cover_the_ranges_and_are_few(spans: Spans, near: int, most: int) -> None:
    made = joined(spans, near, most)
    assert common(made, spans) == spans
    assert len(made) <= most
    assert [made[0][0], made[-1][1]] == [spans[0][0], spans[-1][1]] if spans else made == ()
    assert all(after[0] - before[1] >= near for before, after in pairwise(made))
    if len(spans) <= most and not near:
        assert made == spans

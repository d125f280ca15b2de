"""Spark's pushed filters: topics, partitions, offsets and times that may pass.

Pure, but for the takers. Spark evaluates every filter again on what is read, so a filter that is not understood just
leaves all there is. The columns that are looked at are never null. A test and its opposite are worked out together: a
null literal fails both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
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
)

if TYPE_CHECKING:
    from pyspark_commitlog.log.read.reader import Rows

#: Whole numbers, as ranges [start, end) that ascend and do not touch.
Spans = tuple[tuple[int, int], ...]

FLOOR, CEILING = -(2**63), 2**63
ALL: Spans = ((FLOOR, CEILING),)
NONE: Spans = ()
#: A range costs a task: so many records that nobody asked for take less, and often lie in the same frame.
NEAR = 1024
MOST_RANGES = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_PER_MS = 1000
#: What ``Filters.times`` answers where no filter speaks of times.
ANY_TIME = FLOOR // _US_PER_MS, (CEILING - 1) // _US_PER_MS


class UnknownLiteralError(Exception):
    """A literal that is not of its column's type: nothing is concluded from it."""


# --- ranges of numbers ------------------------------------------------------------------------------------


def united(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the numbers that are in any of these ranges."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def common(one: Spans, other: Spans) -> Spans:
    """Return the numbers that are in both."""
    both, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            both.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(both)


def complement(spans: Spans) -> Spans:
    """Return all numbers but these."""
    edges = [FLOOR, *(edge for span in spans for edge in span), CEILING]
    return tuple((start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)


def joined(spans: Spans, near: int = NEAR, most: int = MOST_RANGES) -> Spans:
    """Return ranges that cover these: not more than ``most``, and none ``near`` the next."""
    gaps = sorted((after[0] - before[1] for before, after in pairwise(spans)), reverse=True)
    limit = max(near, gaps[most - 1] + 1 if len(gaps) >= most else 0)
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] < limit:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)


# --- tests ------------------------------------------------------------------------------------------------


def matching(test: Filter, read: Callable[[Any], int]) -> tuple[Spans, Spans]:
    """Return the numbers that may pass a test, and those that may pass its opposite.

    Args:
        test: on a column that is never null.
        read: the number that a literal stands for.
    """
    if isinstance(test, Not):
        passing, failing = matching(test.child, read)
        return failing, passing
    if isinstance(test, IsNull):
        return NONE, ALL
    if isinstance(test, IsNotNull):
        return ALL, NONE
    try:
        return _compared(test, read)
    except UnknownLiteralError:
        return ALL, ALL


def _compared(test: Filter, read: Callable[[Any], int]) -> tuple[Spans, Spans]:
    if isinstance(test, In):
        passing = united((at, at + 1) for at in (read(value) for value in test.value if value is not None))
        return passing, NONE if None in test.value else complement(passing)
    if isinstance(test, EqualNullSafe) and test.value is None:
        return NONE, ALL
    if not isinstance(test, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual):
        return ALL, ALL
    if test.value is None:
        return NONE, NONE
    at = read(test.value)
    if isinstance(test, EqualTo | EqualNullSafe):
        passing = united([(at, at + 1)])
    elif isinstance(test, LessThan | LessThanOrEqual):
        passing = united([(FLOOR, at + isinstance(test, LessThanOrEqual))])
    else:
        passing = united([(at + isinstance(test, GreaterThan), CEILING)])
    return passing, complement(passing)


def number(value: Any) -> int:
    """Return a whole number as it is."""
    if type(value) is not int:
        raise UnknownLiteralError
    return value


def microseconds(value: Any) -> int:
    """Return an instant as microseconds since 1970."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UnknownLiteralError
    return (value - _EPOCH) // _MICROSECOND


def rank_against(name: str) -> Callable[[Any], int]:
    """Return a reader of texts: 1 is ``name``, 0 all that Spark sorts before it, 2 all after it."""

    def read(value: Any) -> int:
        if not isinstance(value, str):
            raise UnknownLiteralError
        one, other = value.encode(), name.encode()
        return 1 + (one > other) - (one < other)

    return read


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of which every record that is wanted passes all."""

    tests: Sequence[Filter] = ()

    def _matching(self, column: str, read: Callable[[Any], int]) -> Spans:
        spans = ALL
        for test in self.tests:
            inner = test
            while isinstance(inner, Not):
                inner = inner.child
            if getattr(inner, "attribute", None) == (column,):
                spans = common(spans, matching(test, read)[0])
        return spans

    def offsets(self, topic: str, partition: int, start: int, end: int) -> Spans:
        """Return which offsets of [start, end) of a partition may be wanted, by all but their times."""
        topics, partitions = self._matching("topic", rank_against(topic)), self._matching("partition", number)
        if not common(topics, ((1, 2),)) or not common(partitions, ((partition, partition + 1),)) or not self.times():
            return NONE
        return common(self._matching("offset", number), ((start, end),))

    def times(self) -> tuple[int, int] | None:
        """Return the first and the last ms that may be wanted; None when no time at all can be."""
        spans = self._matching("timestamp", microseconds)
        return (spans[0][0] // _US_PER_MS, (spans[-1][1] - 1) // _US_PER_MS) if spans else None


class Taker:
    """Stands in for a reader's ``pushFilters``: takes the filters, and leaves all of them to Spark as well.

    While ``spark.sql.python.filterPushdown.enabled`` is off, Spark refuses a reader whose ``pushFilters`` is not the
    one it inherits, and a reader can't see the conf. What Spark compares is ``__func__``.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self) -> None:
        self.taken = Filters()

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters; Spark evaluates those that are returned."""
        self.taken = Filters(tuple(filters))
        return filters


class LimitTaker:
    """Stands in for a reader's ``pushLimit``, which PySpark before 4.4 has not: takes how many rows are enough.

    Spark limits what is read once more, and pushes a limit only where no filter stands before it. Unlike pushed filters
    it belongs to one query. While ``spark.sql.python.limitPushdown.enabled`` is off, see ``Taker``.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushLimit", None))  # type: ignore[arg-type]

    def __init__(self) -> None:
        self.taken: int | None = None

    def __call__(self, limit: int) -> bool:
        """Take the limit; True: it will be used."""
        self.taken = limit
        return True

    def limit_rows(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        """Yield rows up to the limit: at most a frame more."""
        if self.taken is None:
            yield from rows
            return
        left = self.taken
        while left > 0 and (piece := next(rows, None)) is not None:
            left -= piece.count
            yield piece

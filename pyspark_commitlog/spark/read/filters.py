"""Pushed filters as ranges of topics, partitions, offsets and times.

Spark evaluates every filter again, so an unknown filter selects everything. The tested columns are never null. A null
literal fails a test and its negation, so both are derived together.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
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

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns.order import INTEGERS
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.topic.read.filter.condition import Test
from pyspark_commitlog.topic.read.filter.literals import TestedColumn
from pyspark_commitlog.topic.read.filter.row_filter import RowFilter, outcome
from pyspark_commitlog.topic.read.filter.spans import (
    NONE,
    LiteralBounds,
    Spans,
    TruthSets,
    common,
    compared,
    complement as outside,
    every,
    listed,
)
from pyspark_commitlog.topic.read.filter.tokens import Literal

if TYPE_CHECKING:
    from pyspark_commitlog.topic.read.reader import Rows

FLOOR, CEILING = INTEGERS
ALL: Spans = every(INTEGERS)
#: Ranges closer than this are joined: a range costs a task, and neighbours often share a frame.
NEAR = 1024
MOST_RANGES = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_PER_MS = 1000
#: Result of `Filters.times` without a filter on times.
ANY_TIME = FLOOR // _US_PER_MS, (CEILING - 1) // _US_PER_MS


OPERATORS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
Comparison = EqualTo | EqualNullSafe | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual


class UnknownLiteralError(Exception):
    """A literal of another type than its column's: nothing follows."""


def complement(spans: Spans) -> Spans:
    """Complement."""
    return outside(spans, INTEGERS)


def milliseconds(spans: Spans) -> tuple[int, int] | None:
    """First and last ms of ranges of µs, or None."""
    return (spans[0][0] // _US_PER_MS, (spans[-1][1] - 1) // _US_PER_MS) if spans else None


def joined(spans: Spans, near: int = NEAR, most: int = MOST_RANGES) -> Spans:
    """Join ranges closer than `near`, and further until at most `most` remain."""
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
    """Integers that may pass a test, and its negation's.

    `read` maps a literal to an integer.
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
        return _listed(test, read)
    if isinstance(test, EqualNullSafe) and test.value is None:
        return NONE, ALL
    if not isinstance(test, Comparison):
        return ALL, ALL
    if test.value is None:
        return NONE, NONE
    return _spans(compared(OPERATORS[type(test)], _at(read(test.value)), INTEGERS))


def _listed(test: In, read: Callable[[Any], int]) -> tuple[Spans, Spans]:
    literals = [_at(read(value)) for value in test.value if value is not None]
    return _spans(listed(literals, INTEGERS, has_null=None in test.value))


def _at(place: int) -> LiteralBounds:
    return LiteralBounds(place, place + 1)


def _spans(found: TruthSets) -> tuple[Spans, Spans]:
    return found.true.spans, found.false.spans


def number(value: Any) -> int:
    """Integer literal."""
    if type(value) is not int:
        raise UnknownLiteralError
    return value


def microseconds(value: Any) -> int:
    """Instant as microseconds since 1970."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UnknownLiteralError
    return (value - _EPOCH) // _MICROSECOND


def rank_against(name: str) -> Callable[[Any], int]:
    """Reader of texts: 0 before `name`, 1 equal, 2 after."""

    def read(value: Any) -> int:
        if not isinstance(value, str):
            raise UnknownLiteralError
        one, other = value.encode(), name.encode()
        return 1 + (one > other) - (one < other)

    return read


#: Common columns of all topics, by the log's names.
_COMMON = {"topic": "_topic", "partition": "_partition_id", "offset": "_offset", "timestamp": "_timestamp"}


@dataclass(frozen=True, slots=True)
class Filters:
    """Conjunction of filters.

    `declared` are columns of typed topics: data, also one that is named `offset`.
    """

    tests: Sequence[Filter] = ()
    declared: Container[str] = ()

    def _matching(self, column: str, read: Callable[[Any], int]) -> Spans:
        spans = ALL
        common_name = (_COMMON[column],)
        names = {common_name} if column in self.declared else {(column,), common_name}
        for test in self.tests:
            inner = test
            while isinstance(inner, Not):
                inner = inner.child
            if getattr(inner, "attribute", None) in names:
                spans = common(spans, matching(test, read)[0])
        return spans

    def offsets(self, topic: str, partition: int, start: int, end: int) -> Spans:
        """Offsets of [start, end) that may pass, ignoring their times."""
        topics, partitions = self._matching("topic", rank_against(topic)), self._matching("partition", number)
        if not common(topics, ((1, 2),)) or not common(partitions, ((partition, partition + 1),)) or not self.times():
            return NONE
        return common(self._matching("offset", number), ((start, end),))

    def times(self) -> tuple[int, int] | None:
        """First and last ms that may pass, or None."""
        return milliseconds(self._matching("timestamp", microseconds))


# --- tests of declared columns --------------------------------------------------------------------------


def pushed_filter(filters: Sequence[Filter], declared: Mapping[str, Type]) -> RowFilter | None:
    """Return the tests of pushed filters on declared columns; None if there are none."""
    tests = [test for each in filters for test in _tests(each, declared) if _is_bound(test, declared)]
    used = {test.column: declared[test.column] for test in tests}
    return RowFilter(tuple(tests), used, frozenset(used)) if tests else None


def _is_bound(test: Test, declared: Mapping[str, Type]) -> bool:
    try:
        outcome(test, TestedColumn.of(test.column, declared[test.column], None))
    except UsageError:
        return False
    return True


def _tests(pushed: Filter, declared: Mapping[str, Type], *, negated: bool = False) -> Iterator[Test]:
    """Yield the test of a filter, if there is one."""
    if isinstance(pushed, Not):
        yield from _tests(pushed.child, declared, negated=not negated)
        return
    path: Sequence[str] = getattr(pushed, "attribute", ())
    if len(path) != 1 or path[0] not in declared:
        return
    if isinstance(pushed, IsNull | IsNotNull):
        yield Test(path[0], "IS NULL", negated=negated != isinstance(pushed, IsNotNull))
    elif isinstance(pushed, In):
        yield Test(path[0], "IN", tuple(map(_literal, pushed.value)), negated)
    elif isinstance(pushed, Comparison):
        yield Test(path[0], OPERATORS[type(pushed)], (_literal(pushed.value),), negated)


def _literal(value: Any) -> Literal:
    kinds = {type(None): "null", bool: "boolean", int: "integer", float: "double", Decimal: "decimal", str: "string",
             bytes: "binary", date: "date"}  # fmt: skip
    if isinstance(value, datetime):
        kind, zone = ("timestamp_ntz", "") if value.tzinfo is None else ("timestamp", "Z")
        wall = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return Literal(kind, f"{wall.isoformat(' ', 'microseconds')}{zone}", repr(value))
    kind = kinds.get(type(value), "unknown")
    return Literal(kind, value.isoformat() if kind == "date" else value, repr(value))


# --- what Spark hands over ------------------------------------------------------------------------------


class Taker:
    """Replacement of `pushFilters` that leaves the filters to Spark as well.

    If `spark.sql.python.filterPushdown.enabled` is off, which a reader can't see, Spark refuses a reader whose
    `pushFilters.__func__` is not the inherited one.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, declared: Container[str] = ()) -> None:
        self.taken = Filters(declared=declared)

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self.taken = replace(self.taken, tests=tuple(filters))
        return filters


class LimitTaker:
    """Replacement of `pushLimit` (from PySpark 4.4) that records the row limit.

    Spark applies the limit again, and pushes it only without a filter before it. `__func__`: see `Taker`.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushLimit", None))  # type: ignore[arg-type]

    def __init__(self) -> None:
        self.taken: int | None = None

    def __call__(self, limit: int) -> bool:
        """Record the limit; True promises its use."""
        self.taken = limit
        return True

    def limit_rows(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        """Yield rows up to the limit and at most a frame more."""
        if self.taken is None:
            yield from rows
            return
        left = self.taken
        while left > 0 and (piece := next(rows, None)) is not None:
            left -= piece.count
            yield piece

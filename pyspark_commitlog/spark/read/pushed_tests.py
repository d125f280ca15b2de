"""Pushed filters on declared columns, as tests of rows.

Spark evaluates all of them again, so those that can't be a test are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

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
)

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.topic.read.filter.condition import Test
from pyspark_commitlog.topic.read.filter.literals import TestedColumn
from pyspark_commitlog.topic.read.filter.row_filter import RowFilter, outcome
from pyspark_commitlog.topic.read.filter.tokens import Literal

OPERATORS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


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
    elif isinstance(pushed, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual):
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

"""Conditions bound to columns: the values of each for which a row is kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import reduce
from typing import TypeAlias

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns.order import INTEGERS
from pyspark_commitlog.format.schema.topic_schema import TopicSchema, Type
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.topic.read.filter.condition import Test, parse_condition
from pyspark_commitlog.topic.read.filter.literals import TestedColumn
from pyspark_commitlog.topic.read.filter.spans import (
    UNKNOWN,
    LiteralBounds,
    Passing,
    Spans,
    TruthSets,
    common,
    compared,
    every,
    intersection,
    is_null,
    listed,
)
from pyspark_commitlog.topic.read.filter.times import ZoneUnknownError
from pyspark_commitlog.topic.read.filter.tokens import Literal, refuse

#: Types of columns of all topics, and of untyped ones, by name.
COMMON: Mapping[str, Type] = {
    "_topic": "string",
    "_partition_id": "integer",
    "_offset": "long",
    "_timestamp": "timestamp",
    "_key": "binary",
}
UNTYPED: Mapping[str, Type] = {
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "key": "binary",
}
#: Common columns as `FrameFilter` knows them.
_FIELDS = {name: ours for ours, name in zip(UNTYPED, COMMON, strict=True)} | {name: name for name in UNTYPED}
EVERY_INTEGER = every(INTEGERS)
#: Schemas of topics by name; None of untyped ones.
Schemas: TypeAlias = Mapping[str, TopicSchema | None]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Condition whose columns exist and can be compared with its literals.

    Attributes:
        tests: all of which must be true, under the columns' own names.
        types: of their columns.
        declared: their columns that are declared ones.
    """

    tests: tuple[Test, ...]
    types: Mapping[str, Type]
    declared: frozenset[str]

    def bind(self, zone: tzinfo | None) -> BoundFilter:
        """Return the values that pass, for a session's time zone.

        Raises:
            ZoneUnknownError: it is unknown, and needed.
        """
        passing: dict[str, Passing] = {}
        for test in self.tests:
            values = outcome(test, TestedColumn.of(test.column, self.types[test.column], zone)).true
            passing[test.column] = intersection(passing[test.column], values) if test.column in passing else values
        return BoundFilter(passing, self.declared)

    def joined(self, other: RowFilter | None) -> RowFilter:
        """Return a filter that keeps the rows which both keep."""
        if other is None:
            return self
        types = {**self.types, **other.types}
        return RowFilter(self.tests + other.tests, types, self.declared | other.declared)

    def planned(self) -> BoundFilter:
        """Return the values that pass the tests which need no time zone."""
        kept = [test for test in self.tests if not self._needs_zone(test)]
        return RowFilter(tuple(kept), self.types, self.declared).bind(None)

    def _needs_zone(self, test: Test) -> bool:
        try:
            outcome(test, TestedColumn.of(test.column, self.types[test.column], None))
        except ZoneUnknownError:
            return True
        return False


@dataclass(frozen=True, slots=True)
class FieldTests:
    """Tests of one topic-partition's rows: values that pass, by field of its frames, and by offset.

    A field is a column id, or `key` or `timestamp`.
    """

    fields: Mapping[str, Passing]
    offsets: Spans = EVERY_INTEGER


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """Values that pass, by column."""

    passing: Mapping[str, Passing]
    declared: frozenset[str]

    def _common(self, name: str) -> Spans | None:
        """Values of a common column that pass; None if none are tested."""
        found = [values for column, values in self.passing.items() if self._field(column) == name]
        return reduce(intersection, found).spans if found else None

    def _field(self, column: str) -> str:
        return "" if column in self.declared else _FIELDS[column]

    def offsets(self, topic: str, partition: int) -> Spans:
        """Offsets of a topic-partition that may pass, whatever else their rows have."""
        topics, partitions, offsets = (self._common(name) for name in ("topic", "partition", "offset"))
        name = topic.encode()
        if topics is not None and not common(topics, (((0, name), (0, name + b"\0")),)):
            return ()
        if partitions is not None and not common(partitions, ((partition, partition + 1),)):
            return ()
        return EVERY_INTEGER if offsets is None else offsets

    def times(self) -> Spans:
        """Timestamps in µs that may pass."""
        times = self._common("timestamp")
        return EVERY_INTEGER if times is None else times

    def of(self, topic: str, partition: int, ids: Mapping[str, int] | None) -> FieldTests:
        """Return the tests of a topic-partition; `ids` has its declared columns, None if it is untyped.

        A column that the topic lacks is null.
        """
        fields: dict[str, Passing] = {}
        offsets = self.offsets(topic, partition)
        for column, values in self.passing.items():
            name = self._field(column)
            if name in ("topic", "partition", "offset"):
                continue
            if not name:
                if ids is None or column not in ids:
                    offsets = offsets if values.null else ()
                    continue
                name = str(ids[column])
            fields[name] = intersection(fields[name], values) if name in fields else values
        return FieldTests(fields, offsets)


def outcome(test: Test, column: TestedColumn) -> TruthSets:
    """Return the values for which a test is true, and those for which it is false.

    Raises:
        UsageError: Spark would not test this column so.
    """
    found = _outcome(test, column)
    return found.negated() if test.negated else found


def _outcome(test: Test, column: TestedColumn) -> TruthSets:
    domain = column.domain
    if test.operator == "IS NULL":
        return is_null(domain)
    if test.operator == "IS TRUE":
        if column.kind != "boolean":
            refuse(column.name, f"the column is {column.kind}, and only a BOOLEAN stands alone; compare it")
        return compared("=", LiteralBounds(1, 2), domain)
    if test.operator == "BETWEEN":
        low, high = test.literals
        return _compared(">=", low, column).joined(_compared("<=", high, column))
    if test.operator == "IN":
        literals = [literal for literal in test.literals if literal.kind != "null"]
        has_null = len(literals) < len(test.literals)
        return listed(column.bounds("IN", literals), domain, has_null=has_null)
    return _compared(test.operator, test.literals[0], column)


def _compared(operator: str, literal: Literal, column: TestedColumn) -> TruthSets:
    if literal.kind == "null":
        return is_null(column.domain) if operator == "<=>" else UNKNOWN
    (bounds,) = column.bounds(operator, [literal])
    return compared(operator, bounds, column.domain)


def make_filter(tests: Sequence[Test], declared: Mapping[str, Type] | None) -> RowFilter:
    """Check a condition's columns and types.

    Args:
        declared: types of declared columns by name; None if the topics are untyped.

    Raises:
        UsageError: an unknown column, or one that can't be compared so.
    """
    types = {**(UNTYPED if declared is None else declared), **COMMON}
    names = {name.lower(): name for name in types}
    resolved = []
    for test in tests:
        name = names.get(test.column.lower())
        if name is None:
            refuse(test.column, f"there is no such column; a filter takes {', '.join(types)}")
        resolved.append(Test(name, test.operator, test.literals, test.negated))
        outcome(resolved[-1], TestedColumn.of(name, types[name], UTC))
    used = {test.column: types[test.column] for test in resolved}
    return RowFilter(tuple(resolved), used, frozenset(declared or ()) & used.keys())


def filter_of(condition: str | None, schemas: Schemas) -> BoundFilter | None:
    """Return a condition of some topics, times in UTC; None without one.

    Raises:
        UsageError: it can't be a filter of them.
    """
    if condition is None:
        return None
    tests = parse_condition(condition)
    return make_filter(tests, _declared(tests, schemas)).bind(UTC)


def _declared(tests: Sequence[Test], schemas: Schemas) -> Mapping[str, Type] | None:
    """Return the types of declared columns; None if a topic is untyped."""
    types: dict[str, Type] = {}
    named = {test.column.lower() for test in tests}
    for topic, schema in schemas.items():
        if schema is None:
            return None
        for column in schema.columns:
            kind = as_nullable(column.field.type)
            if types.setdefault(column.name, kind) != kind and column.name.lower() in named:
                raise UsageError(
                    f"the filter has column {column.name!r}, which is {kind} in topic {topic!r} and "
                    f"{types[column.name]} in another: read them apart"
                )
    return types

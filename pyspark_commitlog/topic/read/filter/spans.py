"""Sets of a column's values as ranges, and tests of three-valued logic on them. Pure.

A value is an integer, or of strings and binary a pair: (0, bytes). Both are ordered as Spark orders the column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from pyspark_commitlog.format.columns.order import Domain

#: An ordered value, or the end of all.
Point: TypeAlias = Any
#: Ranges [start, end), ascending, not adjacent.
Spans: TypeAlias = tuple[tuple[Point, Point], ...]

NONE: Spans = ()


class LiteralBounds(NamedTuple):
    """Literal as places among a column's values: the first that is not below it, and the first above it."""

    at: Point
    above: Point


class Passing(NamedTuple):
    """Values for which a test is true, and whether it is for null."""

    spans: Spans
    null: bool = False


class TruthSets(NamedTuple):
    """Values for which a test is true, and those for which it is false; for the rest it is null."""

    true: Passing
    false: Passing

    def negated(self) -> TruthSets:
        """TruthSets of NOT."""
        return TruthSets(self.false, self.true)

    def joined(self, other: TruthSets) -> TruthSets:
        """TruthSets of AND."""
        null = self.false.null or other.false.null
        return TruthSets(
            intersection(self.true, other.true), Passing(united((*self.false.spans, *other.false.spans)), null)
        )


def every(domain: Domain) -> Spans:
    """All values of a domain."""
    return ((domain.floor, domain.ceiling),)


def united(spans: Iterable[tuple[Point, Point]]) -> Spans:
    """Union of ranges."""
    merged: list[tuple[Point, Point]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def common(one: Spans, other: Spans) -> Spans:
    """Intersection."""
    shared, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            shared.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(shared)


def complement(spans: Spans, domain: Domain) -> Spans:
    """Values of a domain outside of ranges."""
    edges = [domain.floor, *(edge for span in spans for edge in span), domain.ceiling]
    return tuple((start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)


def intersection(one: Passing, other: Passing) -> Passing:
    """Values that pass two tests."""
    return Passing(common(one.spans, other.spans), one.null and other.null)


def compared(operator: str, literal: LiteralBounds, domain: Domain) -> TruthSets:
    """TruthSets of a comparison with a literal: `=`, `<=>`, `<`, `<=`, `>` or `>=`."""
    floor, ceiling = domain
    ranges = {
        "<": (floor, literal.at),
        "<=": (floor, literal.above),
        ">": (literal.above, ceiling),
        ">=": (literal.at, ceiling),
    }
    passing = common(united([ranges.get(operator, (literal.at, literal.above))]), every(domain))
    return TruthSets(Passing(passing), Passing(complement(passing, domain), operator == "<=>"))


def listed(literals: Iterable[LiteralBounds], domain: Domain, *, has_null: bool) -> TruthSets:
    """TruthSets of IN; with a null in the list, it is never false."""
    passing = common(united((each.at, each.above) for each in literals), every(domain))
    return TruthSets(Passing(passing), Passing(NONE if has_null else complement(passing, domain)))


def is_null(domain: Domain) -> TruthSets:
    """TruthSets of IS NULL."""
    return TruthSets(Passing(NONE, null=True), Passing(every(domain)))


#: TruthSets of a comparison with null: null.
UNKNOWN = TruthSets(Passing(NONE), Passing(NONE))

"""Literals as places among a column's values, by Spark's rules of comparison. Pure.

What Spark compares otherwise with ANSI than without, or may fail to cast, is refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from fractions import Fraction
from math import ceil, floor
from struct import error, pack, unpack

from pyspark_commitlog.format.columns.order import BYTES, DECIMALS, DOUBLES, INTEGERS, Domain, double_key
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.format.schema.types import decimal_parameters
from pyspark_commitlog.topic.read.filter import times
from pyspark_commitlog.topic.read.filter.spans import LiteralBounds
from pyspark_commitlog.topic.read.filter.tokens import Literal, refuse

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
#: Digits that Spark gives a BIGINT and an INT which it compares with a decimal, and the most of a decimal.
_LONG_DIGITS, _INT_DIGITS, _MAX_DIGITS = 20, 10, 38
_WHOLE = ("byte", "short", "integer", "long")
_LISTED = "IN"


@dataclass(frozen=True, slots=True)
class TestedColumn:
    """Column of a test.

    Attributes:
        name: for messages.
        kind: its type without parameters; `precision` and `scale` are those of decimals.
        zone: the session's; None if unknown.
    """

    name: str
    kind: str
    precision: int = 0
    scale: int = 0
    zone: tzinfo | None = None

    @classmethod
    def of(cls, name: str, kind: Type, zone: tzinfo | None) -> TestedColumn:
        """Return a column of a type."""
        if not isinstance(kind, str):
            return cls(name, str(kind["type"]), zone=zone)
        parameters = decimal_parameters(kind)
        return cls(name, kind, zone=zone) if parameters is None else cls(name, "decimal", *parameters, zone=zone)

    @property
    def domain(self) -> Domain:
        """Values of the column."""
        if self.kind == "decimal":
            return DECIMALS
        if self.kind in ("float", "double"):
            return DOUBLES
        return BYTES if self.kind in ("string", "binary") else INTEGERS

    def bounds(self, operator: str, literals: Sequence[Literal]) -> list[LiteralBounds]:
        """Return the places of literals that are compared, or are an IN list, none of them null.

        Raises:
            UsageError: Spark would not compare them with this column, or not in each of its modes.
            ZoneUnknownError: it takes the session's time zone, which is unknown.
        """
        if operator == _LISTED:
            self._check_list(literals)
        return [self._bounds(operator, literal) for literal in literals]

    def _bounds(self, operator: str, literal: Literal) -> LiteralBounds:
        place = _PLACES.get((self.kind, literal.kind))
        if place is None:
            refuse(
                literal.text, f"column {self.name} is {self.kind}, and it is {literal.kind}; {self._advice(literal)}"
            )
        return place(self, operator, literal)

    def _check_list(self, literals: Sequence[Literal]) -> None:
        """Refuse a list that Spark may convert to another type than its members'."""
        kinds = {literal.kind for literal in literals}
        exact = {"integer", "decimal"} | ({"float", "double"} if self.kind in ("float", "double") else set())
        if len(kinds) > 1 and not kinds <= exact:
            refuse(literals[0].text, f"the list mixes {' and '.join(sorted(kinds))}; write all as {self._example}")
        if self.kind in (*_WHOLE, "decimal"):
            scale = max((_scale(each) for each in literals), default=0)
            for literal in literals:
                self.check_digits(literal, scale)

    @property
    def _example(self) -> str:
        return _EXAMPLES.get(_WHOLE[-1] if self.kind in _WHOLE else self.kind, "IS NULL or IS NOT NULL")

    def _advice(self, literal: Literal) -> str:
        if literal.kind == "integer" and self.kind == "string":
            return f"write '{literal.value}'"
        return f"write {self._example}"

    def check_digits(self, literal: Literal, scale: int) -> None:
        """Refuse a decimal that Spark could compare only after a loss of digits."""
        if literal.kind not in ("integer", "decimal"):
            return
        scale = max(scale, self.scale)
        whole = _LONG_DIGITS if self.kind != "decimal" else self.precision - self.scale
        if max(whole, _whole_digits(literal)) + scale > _MAX_DIGITS and (scale or self.kind == "decimal"):
            refuse(literal.text, f"Spark rounds it against column {self.name}; write fewer digits, and 1BD for 1")

    def need_zone(self, literal: Literal) -> tzinfo:
        """Return the session's zone."""
        return times.refuse_zone(literal.text) if self.zone is None else self.zone


def _scale(literal: Literal) -> int:
    return max(0, -int(literal.value.as_tuple().exponent)) if literal.kind == "decimal" else 0


def _whole_digits(literal: Literal) -> int:
    if literal.kind == "integer":
        return _INT_DIGITS if -(2**31) <= literal.value < 2**31 else _LONG_DIGITS
    _, digits, exponent = literal.value.as_tuple()
    return max(0, len(digits) + int(exponent))


def _at(value: int) -> LiteralBounds:
    return LiteralBounds(value, value + 1)


def _rational(value: Fraction) -> LiteralBounds:
    return LiteralBounds(ceil(value), floor(value) + 1)


def _plain(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    return _at(int(literal.value))


def _decimal_of_whole(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    if not _LONG_MIN <= literal.value <= _LONG_MAX:
        refuse(literal.text, "no BIGINT is as large; leave this part out")
    column.check_digits(literal, _scale(literal))
    return _rational(Fraction(literal.value))


def _double_of_whole(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    """Return the integers that are the literal as doubles: Spark casts the column, which rounds large ones."""
    value = literal.value
    return LiteralBounds(_first(lambda number: number >= value), _first(lambda number: number > value))


def _first(reaches: Callable[[float], bool]) -> int:
    """Return the first integer whose double reaches something; they ascend."""
    low, high = _LONG_MIN, _LONG_MAX + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(float(middle)) else (middle + 1, high)
    return low


def _unscaled(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    column.check_digits(literal, _scale(literal))
    return _rational(Fraction(literal.value) * 10**column.scale)


def _double(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    value = float(literal.value)
    if column.kind == "float" and literal.kind == "integer" and not _is_single(literal.value):
        refuse(literal.text, f"column {column.name} is float, which has no such number; write it as {literal.value}D")
    return _at(double_key(value))


def _is_single(value: int) -> bool:
    try:
        return bool(unpack("<f", pack("<f", value))[0] == value)
    except (OverflowError, error):
        return False


def _bytes(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    value = literal.value.encode() if isinstance(literal.value, str) else literal.value
    return LiteralBounds((0, value), (0, value + b"\0"))


def _date(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    return _at(_day(literal))


def _day(literal: Literal) -> int:
    day = times.day_of(literal.value)
    if day is None:
        refuse(literal.text, "write a date as DATE '2026-01-31'")
    return day


def _date_by_instant(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    zone, at = column.need_zone(literal), _instant(column, literal)
    return _days(lambda day: times.midnight(day, zone), at)


def _date_by_wall(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    return _days(lambda day: day * times.US_PER_DAY, _wall(literal))


def _days(begin: Callable[[int], int], at: int) -> LiteralBounds:
    """Return the days that begin at a time: Spark casts the column to it."""
    days = range(times.FIRST_DAY + 1, times.LAST_DAY)
    return LiteralBounds(days[0] + bisect_left(days, at, key=begin), days[0] + bisect_right(days, at, key=begin))


def _time(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    if operator == _LISTED and literal.kind == "string":
        refuse(literal.text, "Spark compares it as text in a list; write TIMESTAMP before it")
    return _at(_instant(column, literal))


def _instant(column: TestedColumn, literal: Literal) -> int:
    parsed = times.wall_time(literal.value)
    if parsed is None:
        refuse(literal.text, "write a time as TIMESTAMP '2026-01-31 12:00:00.5', or with a zone, as '…Z'")
    wall, zone = parsed
    return times.instant(wall, times.zone_of(zone) if zone else column.need_zone(literal))


def _time_by_date(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    return _at(times.midnight(_day(literal), column.need_zone(literal)))


def _wall_time(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    if operator == _LISTED and literal.kind == "string":
        refuse(literal.text, "Spark compares it as text in a list; write TIMESTAMP_NTZ before it")
    return _at(_wall(literal))


def _wall(literal: Literal) -> int:
    parsed = times.wall_time(literal.value)
    if parsed is None or parsed[1]:
        refuse(literal.text, "write a time without a zone, as TIMESTAMP_NTZ '2026-01-31 12:00:00.5'")
    return times.wall_microseconds(parsed[0])


def _wall_by_date(column: TestedColumn, operator: str, literal: Literal) -> LiteralBounds:
    return _at(_day(literal) * times.US_PER_DAY)


_Place = Callable[[TestedColumn, str, Literal], LiteralBounds]
_PLACES: Mapping[tuple[str, str], _Place] = {
    ("boolean", "boolean"): _plain,
    **{(kind, "integer"): _plain for kind in _WHOLE},
    **{(kind, "decimal"): _decimal_of_whole for kind in _WHOLE},
    **{(kind, "double"): _double_of_whole for kind in _WHOLE},
    **{(kind, of): _double for kind in ("float", "double") for of in ("integer", "decimal", "float", "double")},
    ("decimal", "integer"): _unscaled,
    ("decimal", "decimal"): _unscaled,
    ("string", "string"): _bytes,
    ("binary", "binary"): _bytes,
    ("binary", "string"): _bytes,
    ("date", "date"): _date,
    ("date", "string"): _date,
    ("date", "timestamp"): _date_by_instant,
    ("date", "timestamp_ntz"): _date_by_wall,
    ("timestamp", "timestamp"): _time,
    ("timestamp", "string"): _time,
    ("timestamp", "date"): _time_by_date,
    ("timestamp_ntz", "timestamp_ntz"): _wall_time,
    ("timestamp_ntz", "string"): _wall_time,
    ("timestamp_ntz", "date"): _wall_by_date,
}
_EXAMPLES = {
    "boolean": "TRUE or FALSE",
    "long": "1, 1.5 or 1.5D",
    "float": "1.5D",
    "double": "1.5D",
    "decimal": "1 or 1.5",
    "string": "'text'",
    "binary": "X'0aff' or 'text'",
    "date": "DATE '2026-01-31'",
    "timestamp": "TIMESTAMP '2026-01-31 12:00:00'",
    "timestamp_ntz": "TIMESTAMP_NTZ '2026-01-31 12:00:00'",
}

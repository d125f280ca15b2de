"""Conditions of filters: what they mean, and what is refused by name."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC
from typing import Any

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns.order import DECIMALS, INTEGERS, double_key
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.topic.read.filter.condition import parse_condition
from pyspark_commitlog.topic.read.filter.row_filter import make_filter
from pyspark_commitlog.topic.read.filter.spans import Passing
from pyspark_commitlog.topic.read.filter.times import ZoneUnknownError, zone_of

TYPES: dict[str, Type] = {
    "n": "long",
    "Big Name": "integer",
    "date": "date",
    "f": "float",
    "d": "double",
    "price": "decimal(10,2)",
    "fine": "decimal(38,30)",
    "s": "string",
    "x": "binary",
    "ok": "boolean",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
}
LOW, HIGH = INTEGERS


def passing(condition: str, zone: str = "UTC") -> dict[str, Passing]:
    return dict(make_filter(parse_condition(condition), TYPES).bind(zone_of(zone)).passing)


MEANT: list[tuple[str, dict[str, Any]]] = [
    ("n = 5", {"n": ((5, 6),)}),
    ("N == 5L", {"n": ((5, 6),)}),
    ("5 < n", {"n": ((6, HIGH),)}),
    ("n <> - 5", {"n": ((LOW, -5), (-4, HIGH))}),
    ("n > 1 and (n <= +3 AND NOT n = 2)", {"n": ((3, 4),)}),
    ("n BETWEEN 1 AND 3", {"n": ((1, 4),)}),
    ("n NOT BETWEEN 1 AND 3", {"n": ((LOW, 1), (4, HIGH))}),
    ("n NOT BETWEEN NULL AND 3", {"n": ((4, HIGH),)}),
    ("n BETWEEN NULL AND 3", {"n": ()}),
    ("n IN (1, 2, NULL, 9)", {"n": ((1, 3), (9, 10))}),
    ("n NOT IN (1, NULL)", {"n": ()}),
    ("n NOT IN (1)", {"n": ((LOW, 1), (2, HIGH))}),
    ("n = NULL", {"n": ()}),
    ("n < 2.5", {"n": ((LOW, 3),)}),
    ("n = 2.5", {"n": ()}),
    ("n >= 9007199254740993D", {"n": ((2**53, HIGH),)}),
    ("n > 9007199254740992D", {"n": ((2**53 + 2, HIGH),)}),
    ("n >= 1e300", {"n": ()}),
    ("`Big Name` = 1", {"Big Name": ((1, 2),)}),
    ("date > DATE '2024-01-31'", {"date": ((19754, HIGH),)}),
    ("date = '1970-01-02'", {"date": ((1, 2),)}),
    ("date >= TIMESTAMP '1970-01-02 00:00:00.000001Z'", {"date": ((2, HIGH),)}),
    ("price < 1.005", {"price": ((DECIMALS.floor, 101),)}),
    ("price = 1.005", {"price": ()}),
    ("fine = 1BD", {"fine": ((10**30, 10**30 + 1),)}),
    ("d = -0.0D", {"d": ((0, 1),)}),
    ("f > 0.1", {"f": ((double_key(0.1) + 1, double_key(float("nan")) + 1),)}),
    ("s = 'it''s'", {"s": (((0, b"it's"), (0, b"it's\0")),)}),
    (r"s < r'a\b'", {"s": (((0, b""), (0, rb"a\b")),)}),
    ("s > 'é'", {"s": (((0, "é\0".encode()), (1, b"")),)}),
    ("x IN (X'0aFF')", {"x": (((0, b"\n\xff"), (0, b"\n\xff\0")),)}),
    ("NOT ok", {"ok": ((LOW, 1), (2, HIGH))}),
    ("! ok AND ok", {"ok": ()}),
    ("at = '1970-01-01T00:00:00.5Z'", {"at": ((500_000, 500_001),)}),
    ("at < TIMESTAMP '1970-01-01 01:00:00 Europe/Berlin'", {"at": ((LOW, 0),)}),
    ("wall = TIMESTAMP_NTZ '1970-01-01 00:01'", {"wall": ((60_000_000, 60_000_001),)}),
    ("_offset >= 7", {"_offset": ((7, HIGH),)}),
]


@pytest.mark.parametrize(("condition", "expected"), MEANT)
def test_what_passes(condition: str, expected: dict[str, Any]) -> None:
    assert passing(condition) == {name: Passing(spans) for name, spans in expected.items()}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n IS NULL", Passing((), null=True)),
        ("n IS NOT NULL", Passing(((LOW, HIGH),))),
        ("n <=> NULL", Passing((), null=True)),
        ("NOT n <=> NULL", Passing(((LOW, HIGH),))),
        ("NOT n <=> 3", Passing(((LOW, 3), (4, HIGH)), null=True)),
        ("n <=> 3", Passing(((3, 4),))),
        ("n IS NULL AND n <=> NULL", Passing((), null=True)),
        ("n IS NULL AND n = 3", Passing(())),
    ],
)
def test_nulls_pass_only_what_is_true_of_them(condition: str, expected: Passing) -> None:
    assert passing(condition) == {"n": expected}


@pytest.mark.parametrize(
    ("condition", "zone", "hours"),
    [
        ("at = '1970-01-01'", "America/New_York", 5),
        ("at = '1970-01-01'", "+05:30", -5.5),
        ("at = '2024-03-10 02:30:00'", "America/New_York", 475_015.5),  # skipped there: as 03:30
        ("at = '2024-11-03 01:30:00'", "America/New_York", 480_725.5),  # twice there: the first
    ],
)
def test_a_wall_time_is_that_of_the_session(condition: str, zone: str, hours: float) -> None:
    at = int(hours * 3_600_000_000)
    assert passing(condition, zone) == {"at": Passing(((at, at + 1),))}


def test_a_date_next_to_an_instant_begins_in_the_session_s_zone() -> None:
    assert passing("date = TIMESTAMP '1970-01-02 05:00:00Z'", "America/New_York") == {"date": Passing(((1, 2),))}
    assert passing("date = TIMESTAMP '1970-01-02 05:00:00Z'") == {"date": Passing(())}


@pytest.mark.parametrize(
    "condition", ["at = '2024-01-01'", "at > DATE '2024-01-01'", "date < TIMESTAMP '2024-01-01 00:00Z'"]
)
def test_a_zone_that_is_unknown_is_asked_for_only_if_it_is_needed(condition: str) -> None:
    unbound = make_filter(parse_condition(f"{condition} AND n = 3"), TYPES)
    with pytest.raises(ZoneUnknownError, match=r"spark\.sql\.session\.timeZone is not set"):
        unbound.bind(None)
    assert unbound.planned().passing == {"n": Passing(((3, 4),))}
    make_filter(parse_condition("at = '2024-01-01T00:00:00Z' AND wall = '2024-01-01'"), TYPES).bind(None)


REFUSED = [
    ("", "ends where a column is expected"),
    ("n", "column is long, and only a BOOLEAN stands alone"),
    ("n =", "ends where a literal is expected"),
    ("n = s", "'s': a literal is expected"),
    ("n = 1 OR n = 2", "'OR': AND or the end"),
    ("NOT (n = 1 AND s = 'a')", "it stands before several tests"),
    ("s LIKE 'a%'", "'LIKE': AND or the end"),
    ("upper(s) = 'A'", "functions are not taken"),
    ("n + 1 = 2", r"'\+': AND or the end"),
    ("t.n = 1", "no filter goes on so"),
    ("n IN (SELECT 1)", "a literal is expected"),
    ("n IN ()", "a literal is expected"),
    ("1 = 1", "a column is expected"),
    ("n IS TRUE", "for IS TRUE, write <=> TRUE"),
    ("n = 1 -- why", "no filter goes on so"),
    ("n = 1;", "no filter goes on so"),
    ('s = "a"', "no filter goes on so"),
    ("s = 'a\\n'", "what a backslash means depends on Spark's settings"),
    ("s = '${x}'", "Spark would replace a variable"),
    ("s = 'a' 'b'", "AND or the end"),
    ("s = 5", "column s is string, and it is integer; write '5'"),
    ("n = '5'", "column n is long, and it is string; write 1, 1.5 or 1.5D"),
    ("n = 1.5F", "column n is long, and it is float"),
    ("n < 99999999999999999999", "no BIGINT is as large"),
    ("n > 0.1234567890123456789", "Spark rounds it against column n"),
    ("price = 1D", "column price is decimal, and it is double"),
    ("fine = 1", "Spark rounds it against column fine; write fewer digits, and 1BD for 1"),
    ("f = 16777217", "column f is float, which has no such number; write it as 16777217D"),
    ("d = 1e999", "out of the range of DOUBLE"),
    ("f = 1e99F", "out of the range of FLOAT"),
    ("n = 300Y", "out of the range of its type"),
    ("n = 5abc", "there is no such number"),
    ("n IN (1, 2D)", "the list mixes double and integer; write all as"),
    ("at IN ('2024-01-01')", "compares it as text in a list; write TIMESTAMP before it"),
    ("at = TIMESTAMP '2024-13-01'", "write a time as TIMESTAMP"),
    ("at = TIMESTAMP_NTZ '2024-01-01'", "column at is timestamp, and it is timestamp_ntz"),
    ("at = '2024-01-01 00:00 Nowhere/Land'", "time zone 'Nowhere/Land' is unknown"),
    ("wall = '2024-01-01 00:00Z'", "write a time without a zone"),
    ("date = '2024-1-1'", "write a date as DATE"),
    ("ok = 1", "column ok is boolean, and it is integer; write TRUE or FALSE"),
    ("x = X'abc'", "two digits a byte"),
    ("tags = 'a'", "column tags is array, and it is string; write IS NULL or IS NOT NULL"),
    ("nope = 1", "'nope': there is no such column; a filter takes n, Big Name, date"),
    ("offset = 1", "there is no such column"),
    ("(" * 40 + "n = 1" + ")" * 40, "more than 32 brackets or NOT"),
    ("n = 1 AND " * 8000 + "n = 1", "bytes, at most 65536 are taken"),
    ("n IN (" + "1," * 10_000 + "1)", "10001 literals, at most 10000"),
]


@pytest.mark.parametrize(("condition", "message"), REFUSED, ids=lambda text: str(text)[:40])
def test_what_can_be_no_filter_is_refused_by_name(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_filter(parse_condition(condition), TYPES).bind(UTC)


def test_nested_columns_are_tested_for_null() -> None:
    assert passing("tags IS NULL") == {"tags": Passing((), null=True)}


def test_a_filter_of_an_untyped_topic_knows_its_columns_by_both_names() -> None:
    bound = make_filter(parse_condition("offset > 3 AND _offset < 9 AND topic = 't'"), None).bind(UTC)
    assert bound.offsets("t", 0) == ((4, 9),)
    assert bound.offsets("u", 0) == ()
    assert make_filter(parse_condition("partition = 1"), None).bind(UTC).offsets("t", 0) == ()


def test_a_column_that_a_topic_lacks_is_null_there() -> None:
    bound = make_filter(parse_condition("n IS NULL AND _offset < 9"), TYPES).bind(UTC)
    assert bound.of("t", 0, {"s": 7}).offsets == ((LOW, 9),)
    assert make_filter(parse_condition("n = 1"), TYPES).bind(UTC).of("t", 0, {"s": 7}).offsets == ()


def test_no_parser_is_imported_for_a_filter() -> None:
    code = "import sys; from pyspark_commitlog.topic.read.filter import row_filter; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Statistics of typed frames: what they say, what they must not, and what follows from them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows, statistics
from pyspark_commitlog.format.columns.order import double_key
from pyspark_commitlog.format.columns.statistics import Statistics
from pyspark_commitlog.format.columns.untyped import TIMESTAMP
from pyspark_commitlog.format.frame import Payload
from pyspark_commitlog.topic.read.filter.selected_rows import undecided
from pyspark_commitlog.topic.read.filter.spans import Passing
from pyspark_commitlog.topic.segments.encoding import encode_frame
from tests.support.typed_rows import batch_of_columns

NAN = float("nan")


@pytest.fixture(autouse=True)
def short_frames() -> Any:
    """Have frames of few rows told of, too."""
    with mock.patch.object(statistics, "MIN_ROWS", 1):
        yield


def payload_of(key: str = "", **columns: pa.Array) -> Payload:
    rows = len(next(iter(columns.values())))
    named = {name.removeprefix("_"): column for name, column in columns.items()}
    batch = batch_of_columns({**named, "timestamp": pa.array(range(rows), TIMESTAMP)})
    batch = batch.replace_schema_metadata({**batch.schema.metadata, b"key": key.encode()})
    data = encode_frame(batch, codec="lz4", topic_id="id", partition=0, log_append_time=False, base_offset=0)
    return frame.open_payload(frame.parse_encoded(data.joined()))


def told(column: pa.Array) -> Statistics:
    return frame_rows.statistics(payload_of(_1=column))["1"]


LONG = b"k" * 40
TOLD: list[tuple[pa.Array, tuple[Any, Any, int]]] = [
    (pa.array([3, None, -5], pa.int16()), (-5, 3, 1)),
    (pa.array(range(-7, 60), pa.int64()), (-7, 59, 0)),
    (pa.array([2**63 - 1, -(2**63)]), (-(2**63), 2**63 - 1, 0)),
    (pa.array([True, None]), (1, 1, 1)),
    (pa.array([None, None], pa.int8()), (None, None, 2)),
    (pa.array([-0.0, 1.5]), (0, double_key(1.5), 0)),
    (pa.array([NAN, -1.5, None], pa.float32()), (double_key(-1.5), double_key(NAN), 1)),
    (pa.array([NAN, NAN]), (double_key(NAN), double_key(NAN), 0)),
    (pa.array([float("-inf"), float("inf")]), (double_key(float("-inf")), double_key(float("inf")), 0)),
    (pa.array([Decimal("-1.05"), Decimal("9" * 8 + ".99")], pa.decimal128(10, 2)), (-105, 10**10 - 1, 0)),
    (pa.array([Decimal(1 - 10**38), Decimal(10**38 - 1)], pa.decimal128(38, 0)), (1 - 10**38, 10**38 - 1, 0)),
    (pa.array(["é", "", "z"]), ((0, b""), (0, "é".encode()), 0)),
    (pa.array(["a", "b"] * 40), ((0, b"a"), (0, b"b"), 0)),
    (pa.array([LONG, None]), ((0, LONG[:32]), (0, LONG[:31] + b"l"), 1)),
    (pa.array([b"a" + b"\xff" * 40]), ((0, b"a" + b"\xff" * 31), (0, b"b"), 0)),
    (pa.array([b"\xff" * 33]), ((0, b"\xff" * 32), None, 0)),
    (pa.array([b"\xff" * 32]), ((0, b"\xff" * 32), (0, b"\xff" * 32), 0)),
    (pa.array([-1, None], pa.date32()), (-1, -1, 1)),
    (pa.array([-1, 5], pa.timestamp("us")), (-1, 5, 0)),
]


@pytest.mark.parametrize(("column", "expected"), TOLD, ids=str)
def test_they_bound_a_column(column: pa.Array, expected: tuple[Any, Any, int]) -> None:
    found = told(column)
    assert found == expected
    assert statistics.holds(found, column)


def test_lists_and_headers_have_none_and_few_rows_neither() -> None:
    lists = pa.array([[1], None], pa.list_(pa.field("element", pa.int64())))
    assert frame_rows.statistics(payload_of(_1=lists)).keys() == {"timestamp"}
    with mock.patch.object(statistics, "MIN_ROWS", 3):
        assert frame_rows.statistics(payload_of(_1=pa.array([1, 2]))) == {}


def test_the_key_is_known_by_its_role_if_it_is_text() -> None:
    text, number = pa.array(["a", "b"]), pa.array([1, 2])
    assert frame_rows.statistics(payload_of("1", _1=text), ["key"])["key"] == ((0, b"a"), (0, b"b"), 0)
    assert "key" not in frame_rows.statistics(payload_of("1", _1=number), ["key", "1"])


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"9": [1, 2, 0]}', '{"1": [1, 2]}', '{"1": [1, 2, -1]}', '{"1": ["1", 2, 0]}', '{"1": [1.5, 2, 0]}',
        '{"1": [9223372036854775808, 2, 0]}', '{"2": ["0", "00", 0]}', '{"2": ["%s", "00", 0]}' % ("00" * 33),
        '{"2": [1, 2, 0]}', '{"3": [1, 2, 0]}', '{"4": [1, 2, 0]}', '{"3": ["x", "1", 0]}',
        '{"1": [1, 2, 0]' + " " * statistics.MAX_BYTES + "}",
    ],
)  # fmt: skip
def test_what_does_not_parse_is_damage(text: str) -> None:
    schema = pa.schema([("1", pa.int64()), ("2", pa.string()), ("3", pa.decimal128(9, 2)), ("4", pa.list_(pa.int64()))])
    with pytest.raises(CorruptionError, match="header statistics"):
        statistics.parse(text, schema)


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        (Statistics(2, 3, 0), [1, 3]),
        (Statistics(1, 2, 0), [1, 3]),
        (Statistics(1, 3, 0), [1, 3, None]),
        (Statistics(1, 3, 2), [1, 3, None]),
    ],
)
def test_statistics_that_do_not_hold_are_noticed(wrong: Statistics, column: list[int | None]) -> None:
    assert not statistics.holds(wrong, pa.array(column))


IN_RANGE = Passing(((3, 6),))
OR_NULL = Passing(((3, 6),), null=True)


@pytest.mark.parametrize(
    ("passing", "known", "expected"),
    [
        (IN_RANGE, Statistics(6, 9, 0), None),
        (IN_RANGE, Statistics(0, 2, 0), None),
        (IN_RANGE, Statistics(0, 3, 0), {"1": IN_RANGE}),
        (IN_RANGE, Statistics(5, 9, 0), {"1": IN_RANGE}),
        (IN_RANGE, Statistics(3, 5, 0), {}),
        (IN_RANGE, Statistics(3, 5, 1), {"1": IN_RANGE}),
        (OR_NULL, Statistics(3, 5, 1), {}),
        (OR_NULL, Statistics(6, 9, 1), {"1": OR_NULL}),
        (OR_NULL, Statistics(6, 9, 0), None),
        (IN_RANGE, Statistics(None, None, 10), None),
        (OR_NULL, Statistics(None, None, 10), {}),
        (IN_RANGE, Statistics(None, 2, 0), None),
        (IN_RANGE, Statistics(3, None, 0), {"1": IN_RANGE}),
        (Passing(((0, 3), (5, 9))), Statistics(3, 4, 0), None),
        (Passing(((0, 3), (5, 9))), Statistics(2, 5, 0), {"1": Passing(((0, 3), (5, 9)))}),
    ],
)
def test_a_frame_is_skipped_or_taken_only_if_that_is_sure(
    passing: Passing, known: Statistics, expected: dict[str, Passing] | None
) -> None:
    assert undecided({"1": passing}, {"1": known}, 10) == expected
    assert undecided({"1": passing}, {}, 10) == {"1": passing}

"""Records of a typed topic are checked column by column: types, nulls at every depth, values that do not fit."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.format.schema.arrow_types import from_arrow
from pyspark_commitlog.format.schema.topic_schema import Column, Field, TopicSchema
from pyspark_commitlog.topic.write.records import Records, TopicLimits
from pyspark_commitlog.topic.write.typed_records import TypedRows

NOW_MS = 10**12
LIMITS = TopicLimits("t", 2, 2**20, log_append_time=False, before_max_ms=2**62, after_max_ms=0)
TEXT = pa.string()


def checks(kind: pa.DataType, *, nullable: bool = True, key: bool = False, time: bool = False) -> TypedRows:
    """Return the checks of a topic with the column `a` of a type."""
    column = Column(7, Field("a", from_arrow(kind, "a"), nullable))
    return TypedRows("t", TopicSchema(1, (column,), 7 if key else None, 7 if time else None), LIMITS)


def write(rows: TypedRows, **columns: pa.Array) -> Records:
    batch = pa.RecordBatch.from_pydict(columns)
    rows.check_columns(batch.schema)
    return rows.prepare(batch, NOW_MS)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (TEXT, pa.large_string()),
        (TEXT, pa.string_view()),
        (TEXT, pa.dictionary(pa.int32(), TEXT)),
        (pa.binary(), pa.binary(1)),
        (pa.binary(), pa.binary_view()),
        (pa.int64(), pa.int8()),
        (pa.int64(), pa.int32()),
        (pa.int16(), pa.int8()),
        (pa.float64(), pa.float32()),
        (pa.date32(), pa.date64()),
        (pa.timestamp("us"), pa.timestamp("s")),
        (TIMESTAMP, pa.timestamp("ms", "Europe/Berlin")),
        (pa.decimal128(10, 2), pa.decimal128(5, 1)),
        (pa.decimal128(10, 2), pa.decimal64(10, 2)),
        (pa.list_(TEXT), pa.large_list(pa.large_string())),
        (pa.list_(TEXT), pa.list_(pa.field("other", pa.dictionary(pa.int8(), TEXT)))),
        (pa.list_(TEXT), pa.list_(TEXT, 2)),
        (pa.struct([("x", TEXT)]), pa.struct([("x", pa.string_view())])),
        (pa.map_(TEXT, TEXT), pa.map_(pa.large_string(), pa.string_view())),
    ],
    ids=str,
)
def test_takes_types_with_the_same_values(kind: pa.DataType, given: pa.DataType) -> None:
    samples: list[tuple[Any, list[Any]]] = [
        (pa.types.is_integer, [1, None, -3]),
        (pa.types.is_floating, [1.5, None, 0]),
        (pa.types.is_decimal, [1, None, 0]),
        (pa.types.is_date, [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        (pa.types.is_timestamp, [dt.datetime(1, 1, 2, tzinfo=dt.UTC), None, dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]),
        (pa.types.is_list, [["a", None], None, ["", "b"]]),
        (pa.types.is_struct, [{"x": "a"}, None, {"x": None}]),
        (pa.types.is_map, [[("a", None)], None, []]),
        (lambda _: True, ["a", None, "b"]),
    ]
    values = next(values for holds, values in samples if holds(kind))
    column = pa.array(values, given)

    for part in (column, column.slice(1), column.slice(3)):
        found = write(checks(kind), a=part).batch.column("7")
        found.validate(full=True)
        assert found.to_pylist() == pa.array(values, kind).slice(len(column) - len(part)).to_pylist()


@pytest.mark.parametrize(
    ("kind", "given", "match"),
    [
        (TEXT, pa.array([b"a"]), "column 'a' is binary, declared is string: cast it"),
        (pa.int16(), pa.array([1], pa.int32()), "declared is int16: cast it"),
        (pa.float64(), pa.array([1], pa.int32()), "declared is double: cast it"),
        (pa.decimal128(5, 2), pa.array([1], pa.int64()).cast(pa.decimal128(38, 0)), "declared is decimal128"),
        (pa.decimal128(10, 2), pa.array([1], pa.int64()).cast(pa.decimal128(38, 3)).cast(pa.decimal128(5, 3)), "cast"),
        (pa.decimal128(5, 2), pa.array([1], pa.int64()).cast(pa.decimal128(30, 3)), "declared is decimal128"),
        (pa.int64(), pa.array([1], pa.uint8()), "uint8, which can't be stored"),
        (TIMESTAMP, pa.array([1], pa.timestamp("us")), "declared is timestamp"),
        (pa.list_(TEXT), pa.array([[None]], pa.list_(pa.null())), "element' is null, which can't be stored"),
        (
            pa.date32(),
            pa.array([86_400_001]).view(pa.date64()),
            "has a value that date32.* can't hold .*: round or cast",
        ),
        (TIMESTAMP, pa.array([1], pa.timestamp("ns", "UTC")), "has a value that timestamp.* can't hold"),
        (TIMESTAMP, pa.array([2**62], pa.timestamp("s", "UTC")), "has a value that timestamp.* can't hold"),
        (TEXT, pa.array([b"a\xff"]).view(TEXT), "no valid string"),
        (pa.list_(TEXT), pa.ListArray.from_arrays([0, 1], pa.array([b"\xff"]).view(TEXT)), "no valid list"),
    ],
    ids=str,
)
def test_refuses_what_does_not_fit(kind: pa.DataType, given: pa.Array, match: str) -> None:
    with pytest.raises(InvalidRecordError, match=match):
        write(checks(kind), a=given)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("_headers", pa.array(["a"])),
        ("_partition_id", pa.array(["0"])),
        ("_timestamp", pa.array([5])),
    ],
)
def test_reserved_columns_have_types_too(name: str, given: pa.Array) -> None:
    with pytest.raises(InvalidRecordError, match=f"column '{name}' is .*; it takes "):
        write(checks(TEXT), a=pa.array(["a"]), **{name: given})


def test_reserved_columns_are_the_record_s(tmp_path: object) -> None:
    found = write(
        checks(TEXT),
        a=pa.array(["a", "b"]),
        _headers=pa.array([[("h", b"1")], None], HEADERS),
        _partition_id=pa.array([1, None], pa.int32()),
        _timestamp=pa.array([5, None], TIMESTAMP),
        _offset=pa.array([99, 98]),
        _topic=pa.array([None, "other"]),
    )

    assert found.partition is not None
    assert found.partition.to_pylist() == [1, None]
    assert found.batch.schema.names == ["7", "headers", "timestamp"]
    assert found.batch.column("timestamp").cast(pa.int64()).to_pylist() == [5, NOW_MS * 1000]
    assert found.batch.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}], None]


def struct(inside: list[str | None], *, nulls: list[bool] | None = None) -> pa.Array:
    mask = None if nulls is None else pa.array(nulls)
    return pa.StructArray.from_arrays([pa.array(inside, TEXT)], fields=[pa.field("x", TEXT)], mask=mask)


NOT_NULL_PARTS = [
    (pa.struct([pa.field("x", TEXT, False)]), struct([None]), "a.x"),
    (pa.list_(pa.field("element", TEXT, False)), pa.array([["b", None]]), r"a\[\]"),
    (pa.map_(TEXT, pa.field("value", TEXT, False)), pa.array([[("k", None)]], pa.map_(TEXT, TEXT)), "a.value"),
    (
        pa.map_(TEXT, pa.struct([pa.field("x", TEXT, False)])),
        pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), struct([None])),
        "a.value.x",
    ),
    (
        pa.list_(pa.struct([pa.field("x", TEXT, False)])),
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), struct([None])),
        r"a\[\].x",
    ),
]


@pytest.mark.parametrize(("kind", "given", "path"), NOT_NULL_PARTS, ids=str)
def test_a_null_inside_that_is_declared_not_null_is_refused(kind: pa.DataType, given: pa.Array, path: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"{path} is null in 1 places of column 'a', and is declared NOT NULL"):
        write(checks(kind), a=given)


@pytest.mark.parametrize(("kind", "given", "path"), NOT_NULL_PARTS, ids=str)
def test_a_null_of_other_rows_is_nobody_s(kind: pa.DataType, given: pa.Array, path: str) -> None:
    """Before a slice, or below a null parent."""
    good = pa.array(given.to_pylist(), given.type).slice(1)
    both = pa.concat_arrays([given, pa.nulls(2, given.type)])

    assert write(checks(kind), a=good).batch.num_rows == 0
    assert write(checks(kind), a=both.slice(1)).batch.column("7").null_count == 2


def test_a_null_struct_hides_its_fields() -> None:
    kind = pa.struct([pa.field("x", TEXT, False)])

    found = write(checks(kind), a=struct([None, "b"], nulls=[True, False])).batch.column("7")
    assert found.to_pylist() == [None, {"x": "b"}]


@pytest.mark.parametrize(
    ("rows", "why"),
    [(checks(TEXT, nullable=False), "declared NOT NULL"), (checks(TEXT, key=True), "the key")],
)
def test_a_null_or_missing_value_is_refused(rows: TypedRows, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"null in record 1 of its batch, and is {why}: fill it"):
        write(rows, a=pa.array(["b", None]))
    with pytest.raises(InvalidRecordError, match=f"column 'a' is missing, and is {why}: add it"):
        write(rows, _offset=pa.array([1]))
    with pytest.raises(InvalidRecordError, match="null in record 0"):
        write(rows, a=pa.nulls(2))


def test_a_column_that_may_be_null_may_be_missing() -> None:
    rows = checks(pa.list_(TEXT))

    assert write(rows, _offset=pa.array([1, 2])).batch.column("7").null_count == 2
    assert write(rows, a=pa.nulls(2)).batch.column("7").null_count == 2


@pytest.mark.parametrize(
    ("kind", "values", "keys"),
    [
        (TEXT, ["a", "ü", ""], [b"a", "ü".encode(), b""]),
        (pa.binary(), [b"\xff", b""], [b"\xff", b""]),
        (pa.int16(), [1, -2], [b"\0\1", b"\xff\xfe"]),
        (pa.int32(), [1, -2], [b"\0\0\0\1", b"\xff\xff\xff\xfe"]),
        (pa.int64(), [1, -(2**63)], [b"\0\0\0\0\0\0\0\1", b"\x80\0\0\0\0\0\0\0"]),
    ],
)
def test_keys_are_what_kafka_s_serializers_write(kind: pa.DataType, values: list[Any], keys: list[bytes]) -> None:
    column = pa.array([values[0], *values], kind).slice(1)

    assert write(checks(kind, key=True), a=column).keys.to_pylist() == keys


def test_the_timestamp_is_a_column() -> None:
    found = write(
        checks(TIMESTAMP, time=True), a=pa.array([5, None], TIMESTAMP), _timestamp=pa.array([9, 9], TIMESTAMP)
    )

    assert found.batch.schema.names == ["7", "headers"]
    assert found.batch.column("7").cast(pa.int64()).to_pylist() == [5, NOW_MS * 1000]
    assert found.given is not None
    assert found.given.cast(pa.int64()).to_pylist() == [5, None]


def test_unknown_repeated_and_untyped_columns_are_refused() -> None:
    rows = checks(TEXT)
    with pytest.raises(InvalidRecordError, match="there is no column 'b'; it has a: drop or rename it"):
        write(rows, a=pa.array(["x"]), b=pa.array(["x"]))
    with pytest.raises(InvalidRecordError, match="not key and value"):
        write(rows, value=pa.array([b"x"]))
    with pytest.raises(InvalidRecordError, match="have one name"):
        rows.check_columns(pa.schema([("a", TEXT), ("a", TEXT)]))


def test_the_size_of_a_record_is_that_of_its_values() -> None:
    kind = pa.struct([("x", pa.list_(TEXT)), ("y", pa.map_(TEXT, pa.int64())), ("z", pa.decimal128(5, 2))])
    values = [{"x": ["ab", None, "c"], "y": [("k", 1), ("kk", None)], "z": 1}, None, {"x": None, "y": [], "z": None}]

    assert write(checks(kind), a=pa.array([None, *values], kind).slice(1)).sizes.tolist() == [3 + 3 + 8 + 16, 0, 0]
    with pytest.raises(
        InvalidRecordError, match=r"record 1 of its batch has 1048577 bytes, max\.message\.bytes is 1048576"
    ):
        write(checks(TEXT), a=pa.array(["a", "x" * (2**20 + 1)]))


def test_zero_rows_are_fine() -> None:
    found = write(checks(pa.map_(TEXT, pa.int8())), a=pa.array([], pa.map_(TEXT, pa.int8())))

    assert found.batch.num_rows == 0
    assert checks(TEXT).checksum(found) == 0
    assert np.array_equal(found.sizes, [])

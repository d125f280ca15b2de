"""The checksum of typed records: of values by column, whatever batches, order and layout they have."""

from __future__ import annotations

import struct
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.format.columns.untyped import HEADERS
from pyspark_commitlog.topic.write.checksum import added
from pyspark_commitlog.topic.write.row_bytes import row_bytes
from pyspark_commitlog.topic.write.typed_checksum import checksum, hashes
from tests.property.strategies import kinds, quick, quicker, typed_batches
from tests.support.hashes import ALL, factor, folded, mixed, of_bytes
from tests.support.typed_rows import batch_of_columns, batch_of_kinds


def is_plain(kind: pa.DataType) -> bool:
    """Return whether Python has all values of a type."""
    return "date" not in str(kind) and "timestamp" not in str(kind)


def fresh(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in buffers of their own: nothing before the first, nothing under a null."""
    own = [each.take(pa.array(range(len(each)), pa.int32())) for each in rows.columns]
    return pa.RecordBatch.from_arrays(own, schema=rows.schema)


@quick
@given(typed_batches, st.data())
def test_it_is_the_sum_over_any_batches(rows: pa.RecordBatch, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, rows.num_rows))

    parts = (rows.slice(0, cut), rows.slice(cut))
    assert added(*(checksum(part, part.column("timestamp")) for part in parts)) == checksum(
        rows, rows.column("timestamp")
    )


@quick
@given(typed_batches)
def test_it_is_of_values_and_not_of_their_layout(rows: pa.RecordBatch) -> None:
    again = fresh(rows)

    assert np.array_equal(hashes(rows, None), hashes(again, None))
    assert np.array_equal(row_bytes(rows.columns, rows.num_rows), row_bytes(again.columns, rows.num_rows))


@quicker
@given(typed_batches, st.randoms(use_true_random=False))
def test_the_order_of_columns_does_not_count(rows: pa.RecordBatch, random: object) -> None:
    names = list(rows.schema.names)
    random.shuffle(names)  # type: ignore[attr-defined]

    assert checksum(rows.select(names), None) == checksum(rows, None)


@quick
@given(kinds.filter(is_plain), st.integers(0, 2**32))
def test_each_other_value_gives_another_hash(kind: pa.DataType, seed: int) -> None:
    rows = batch_of_kinds(seed, [kind], 60)
    texts, found = [repr(value) for value in rows.column("100").to_pylist()], hashes(rows, None).tolist()

    by_text = dict(zip(texts, found, strict=True))
    assert [by_text[text] for text in texts] == found
    assert len(set(by_text.values())) == len(by_text)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [None, 0, -1, 1]),
        (pa.bool_(), [None, False, True]),
        (pa.float64(), [None, 0.0, -0.0, 1.0]),
        (pa.string(), [None, "", "\0", "\0\0"]),
        (pa.list_(pa.int64()), [None, [], [None], [0], [None, None], [0, None], [None, 0], [0, 0]]),
        (pa.list_(pa.string()), [None, [], [None], [""], ["", ""], ["a", "b"], ["b", "a"], ["ab"]]),
        (pa.list_(pa.list_(pa.int8())), [None, [], [None], [[]], [[], []], [[None]], [[1], [2]], [[1, 2]]]),
        (
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
            [
                None,
                {"a": None, "b": None},
                {"a": 0, "b": None},
                {"a": None, "b": 0},
                {"a": 1, "b": 2},
                {"a": 2, "b": 1},
            ],
        ),
        (pa.struct([("a", pa.struct([("b", pa.int8())]))]), [None, {"a": None}, {"a": {"b": None}}, {"a": {"b": 0}}]),
        (
            pa.map_(pa.string(), pa.string()),
            [None, [], [("a", None)], [("a", "")], [("", "a")], [("a", "b")], [("b", "a")]],
        ),
        (pa.decimal128(38, 2), [None, 0, 1, -1]),
    ],
)
def test_values_that_are_alike_differ(kind: pa.DataType, values: list[object]) -> None:
    column = pa.array(values, pa.int64()).cast(kind) if pa.types.is_decimal(kind) else pa.array(values, kind)
    rows = batch_of_columns({"7": column, "timestamp": pa.array([0] * len(values), pa.timestamp("us", "UTC"))})

    assert len(set(hashes(rows, None).tolist())) == len(values)


# --- as FORMAT.md says ------------------------------------------------------------------------------------------


def word_of(number: int) -> int:
    """N of FORMAT.md."""
    return folded((number & ALL).to_bytes(8, "little")) * factor(37) + factor(38)


def of_value(value: Any, kind: pa.DataType) -> int:
    """C of FORMAT.md."""
    if value is None:
        return 0
    if pa.types.is_struct(kind):
        parts = (of_value(value[field.name], field.type) * factor(2**37 + at) for at, field in enumerate(kind))
        return mixed(1 + sum(parts) & ALL)
    if pa.types.is_map(kind):
        as_list = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return of_value([{"key": key, "value": item} for key, item in value], as_list)
    if pa.types.is_list(kind):
        parts = (of_value(each, kind.value_type) * factor(2**36 + at) for at, each in enumerate(value))
        return mixed(1 + len(value) + sum(parts) & ALL)
    if isinstance(value, str | bytes):
        return of_bytes(value.encode() if isinstance(value, str) else value)
    if pa.types.is_floating(kind):
        return word_of(int.from_bytes(struct.pack("<d", value), "little"))
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale, Context(prec=40))) & (2**128 - 1)
        return word_of(unscaled & ALL) + word_of(unscaled >> 64) * factor(2**37)
    return word_of(int(value))


@quicker
@given(kinds.filter(is_plain), st.integers(0, 2**32))
def test_it_is_what_the_format_says(kind: pa.DataType, seed: int) -> None:
    rows = batch_of_kinds(seed, [kind, pa.int8()], 20)
    given_times = pa.array([None, 5, -7, 2**60] * 5, pa.timestamp("us", "UTC"))

    expected = []
    for at, row in enumerate(rows.drop_columns(["timestamp"]).to_pylist()):
        total = of_value(row["100"], kind) * factor(100) + of_value(row["101"], pa.int8()) * factor(101)
        time = (None, 5, -7, 2**60)[at % 4]
        expected.append(mixed(total + (0 if time is None else word_of(time) * factor(2**35)) & ALL))
    assert hashes(rows, given_times).tolist() == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, 0),
        ([], factor(34)),
        ([("h", b"1")], mixed(of_bytes(b"h") + of_bytes(b"1") * factor(35) & ALL) * factor(2**33) + 2 * factor(34)),
    ],
)
def test_headers_count_as_in_other_topics(headers: list[Any] | None, expected: int) -> None:
    columns = {"7": pa.array([None, 1]), "headers": pa.array([headers, None], HEADERS)}
    rows = batch_of_columns({**columns, "timestamp": pa.array([0, 0], pa.timestamp("us", "UTC"))})

    assert hashes(rows, None).tolist()[0] == mixed(expected * factor(2**34) & ALL)


def test_a_declared_timestamp_counts_if_it_was_given() -> None:
    rows = batch_of_columns({"7": pa.array([5, 6], pa.timestamp("us", "UTC"))}, time=7)

    assert hashes(rows, pa.array([5, None], pa.timestamp("us", "UTC"))).tolist() == [
        mixed(word_of(5) * factor(7) & ALL),
        0,
    ]
    assert hashes(rows, None).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2)),
    ],
)
def test_a_widened_column_has_the_same_hash(narrow: pa.DataType, wide: pa.DataType) -> None:
    rows = batch_of_kinds(5, [narrow], 50)
    widened = batch_of_columns({"100": rows.column("100").cast(wide), "timestamp": rows.column("timestamp")})

    assert np.array_equal(hashes(rows, None), hashes(widened, None))


def test_two_columns_that_change_places_differ() -> None:
    time = pa.array([0], pa.timestamp("us", "UTC"))
    one, two = pa.array([1]), pa.array([2])

    assert checksum(batch_of_columns({"7": one, "8": two, "timestamp": time}), None) != checksum(
        batch_of_columns({"7": two, "8": one, "timestamp": time}), None
    )

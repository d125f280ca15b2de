"""The checksum of typed records: of values by column, whatever batches, order and layout they have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.topic.write.checksum import added
from pyspark_commitlog.topic.write.row_bytes import row_bytes
from pyspark_commitlog.topic.write.typed_checksum import checksum, hashes
from tests.property.strategies import quick, quicker
from tests.property.test_typed_frames import batches, kinds
from tests.support.typed_rows import batch_of_columns, batch_of_kinds


def fresh(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in buffers of their own: nothing before the first, nothing under a null."""
    own = [each.take(pa.array(range(len(each)), pa.int32())) for each in rows.columns]
    return pa.RecordBatch.from_arrays(own, schema=rows.schema)


@quick
@given(batches, st.data())
def test_it_is_the_sum_over_any_batches(rows: pa.RecordBatch, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, rows.num_rows))

    parts = (rows.slice(0, cut), rows.slice(cut))
    assert added(*(checksum(part, part.column("timestamp")) for part in parts)) == checksum(
        rows, rows.column("timestamp")
    )


@quick
@given(batches)
def test_it_is_of_values_and_not_of_their_layout(rows: pa.RecordBatch) -> None:
    again = fresh(rows)

    assert np.array_equal(hashes(rows, None), hashes(again, None))
    assert np.array_equal(row_bytes(rows.columns, rows.num_rows), row_bytes(again.columns, rows.num_rows))


@quicker
@given(batches, st.randoms(use_true_random=False))
def test_the_order_of_columns_does_not_count(rows: pa.RecordBatch, random: object) -> None:
    names = list(rows.schema.names)
    random.shuffle(names)  # type: ignore[attr-defined]

    assert checksum(rows.select(names), None) == checksum(rows, None)


@quick
@given(kinds.filter(lambda kind: "date" not in str(kind) and "timestamp" not in str(kind)), st.integers(0, 2**32))
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


def test_two_columns_that_change_places_differ() -> None:
    time = pa.array([0], pa.timestamp("us", "UTC"))
    one, two = pa.array([1]), pa.array([2])

    assert checksum(batch_of_columns({"7": one, "8": two, "timestamp": time}), None) != checksum(
        batch_of_columns({"7": two, "8": one, "timestamp": time}), None
    )

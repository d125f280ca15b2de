"""How a column is stored: what is chosen, its widths, and that nothing is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import storing
from pyspark_commitlog.format.columns.storing import (
    DELTA,
    DICTIONARY,
    REFERENCE,
    StoredColumn,
    Storing,
    restore,
    store,
    stored_type,
)

MIN64, MAX64 = -(2**63), 2**63 - 1
ROWS = 1000


@pytest.fixture(autouse=True)
def narrow_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few numbers narrowed as many are."""
    monkeypatch.setattr(storing, "_FEW_ROWS", 0)


def stored(column: pa.Array) -> StoredColumn:
    """Return a column as it is stored, once it is seen to be what it was, a slice of it too."""
    for part in (column, pa.concat_arrays([column.slice(0, 1), column]).slice(1), column.slice(len(column) // 2)):
        found = store(part, 0)
        how, width = ("", 0) if found.storing is None else (found.storing.how, found.storing.width)
        assert found.column.type == stored_type(column.type, how, width)
        again = restore(_decoded(found.column), column.type, found.storing, found.dictionary)
        again.validate(full=True)
        assert again.equals(part)
        assert again.null_count == part.null_count
    return store(column, 0)


def _decoded(column: pa.Array) -> pa.Array:
    """Return a column as a message decodes to it: in buffers of its own."""
    batch = pa.RecordBatch.from_arrays([column], ["column"])
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema).column(0)


def way(column: pa.Array) -> tuple[str, int]:
    found = stored(column)
    return ("plain", 0) if found.storing is None else (found.storing.how, found.storing.width)


def zigzag(first: int, last: int, rows: int = ROWS) -> list[int]:
    """Return numbers that go to and fro, so that their differences are no smaller than they are."""
    return [first, last] * (rows // 2)


# --- integers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), zigzag(MIN64, MIN64 + 255), (REFERENCE, 1)),
        (pa.int64(), zigzag(MAX64 - 255, MAX64), (REFERENCE, 1)),
        (pa.int64(), zigzag(-1, 255), (REFERENCE, 2)),
        (pa.int64(), zigzag(0, 2**16 - 1), (REFERENCE, 2)),
        (pa.int64(), zigzag(0, 2**16), (REFERENCE, 4)),
        (pa.int64(), zigzag(-(2**31), 2**31 - 1), (REFERENCE, 4)),
        (pa.int64(), zigzag(0, 2**32), ("plain", 0)),
        (pa.int64(), zigzag(MIN64, MAX64), ("plain", 0)),
        (pa.int32(), zigzag(-(2**31), 2**31 - 1), ("plain", 0)),
        (pa.int32(), zigzag(-(2**31), -(2**31) + 2**16 - 1), (REFERENCE, 2)),
        (pa.int32(), zigzag(0, 2**16), ("plain", 0)),
        (pa.int16(), zigzag(-(2**15), -(2**15) + 255), (REFERENCE, 1)),
        (pa.int16(), zigzag(-(2**15), 2**15 - 1), ("plain", 0)),
        (pa.int16(), zigzag(0, 256), ("plain", 0)),
        (pa.int8(), [0] * ROWS, ("plain", 0)),
        (pa.int64(), [7] * ROWS, (REFERENCE, 1)),
        (pa.int64(), [MIN64], (REFERENCE, 1)),
        (pa.int64(), [MAX64], (REFERENCE, 1)),
        (pa.int64(), [], ("plain", 0)),
        (pa.int64(), [None] * ROWS, ("plain", 0)),
        (pa.int64(), [MIN64, None, MIN64 + 255], (REFERENCE, 1)),
        (pa.int64(), [None, MAX64, None], (REFERENCE, 1)),
        (pa.int64(), [MIN64, None, MAX64], ("plain", 0)),
    ],
)
def test_integers_take_the_bytes_of_their_spread(
    kind: pa.DataType, values: Sequence[int | None], expected: tuple[str, int]
) -> None:
    assert way(pa.array(values, kind)) == expected


@pytest.mark.parametrize(
    ("kind", "numbers", "expected"),
    [
        (pa.int64(), np.arange(300) * 10**6, (DELTA, 1)),
        (pa.int64(), MIN64 + np.arange(300) * 10**6, (DELTA, 1)),
        (pa.int64(), MAX64 - np.arange(300) * 10**6, (DELTA, 1)),
        (pa.int64(), np.cumsum(np.arange(300) % 2 * 255), (DELTA, 1)),
        (pa.int64(), np.cumsum(np.arange(300) % 2 * 256), (REFERENCE, 2)),
        (pa.int64(), np.cumsum(np.arange(3000) % 2 * 65535), (DELTA, 2)),
        (pa.int64(), np.cumsum(np.arange(3000) % 2 * (2**32 - 1)), (DELTA, 4)),
        (pa.int64(), np.cumsum(np.arange(3000) % 2 * 2**32), ("plain", 0)),
        (pa.int64(), np.array([0, 2**62, 2**62 + 1, MAX64]), ("plain", 0)),
        (pa.int64(), np.array([MIN64, 0, MAX64]), ("plain", 0)),
        (pa.int64(), np.array([MIN64, -1]), (DELTA, 1)),
        (pa.int64(), np.array([-1, MIN64]), (DELTA, 1)),
        (pa.int64(), np.array([MIN64, 0]), ("plain", 0)),
        (pa.int32(), np.arange(300) * 2**20, (DELTA, 1)),
        (pa.int32(), np.array([-(2**31), -1]), (DELTA, 1)),
        (pa.int32(), np.array([-(2**31), 0]), ("plain", 0)),
        (pa.int16(), np.arange(300) * 100, (DELTA, 1)),
        (pa.int16(), np.array([-(2**15), -1, -(2**15)]), ("plain", 0)),
        (pa.int64(), np.arange(200), (REFERENCE, 1)),
    ],
)
def test_differences_are_stored_if_they_take_less(kind: pa.DataType, numbers: Any, expected: tuple[str, int]) -> None:
    assert way(pa.array(numbers, kind)) == expected


def test_numbers_with_a_null_have_no_differences() -> None:
    assert way(pa.array(range(0, 10**6, 1000))) == (DELTA, 1)
    assert way(pa.array([None, *range(0, 10**6, 1000)])) == (REFERENCE, 4)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_timestamps_are_integers(kind: pa.DataType) -> None:
    microseconds = pa.array(np.arange(ROWS) * 1_000_000, pa.int64())

    assert way(microseconds.view(kind)) == (DELTA, 1)
    assert way(pa.array([MIN64, None, MAX64], pa.int64()).view(kind)) == ("plain", 0)
    assert way(
        pa.array([dt.datetime(1, 1, 1, tzinfo=dt.UTC), None, dt.datetime(9999, 12, 31, tzinfo=dt.UTC)], kind)
    ) == ("plain", 0)


def test_dates_are_integers() -> None:
    """Those before 1582, and before 1, too."""
    assert way(pa.array([dt.date(1, 1, 1), None, dt.date(1, 12, 31)])) == (REFERENCE, 2)
    assert way(pa.array([dt.date(1582, 10, 4), dt.date(1582, 10, 15)])) == (REFERENCE, 1)
    assert way(pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)])) == (DELTA, 1)
    assert way(pa.array([-(2**31), 2**31 - 1, 0], pa.int32()).view(pa.date32())) == ("plain", 0)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, None, -0.0, float("inf")]),
        pa.array([True, None]),
        pa.array([[1], None], pa.list_(pa.int64())),
        pa.array([1, None], pa.int64()).cast(pa.decimal128(38, 0)),
        pa.array([{"a": 1}, None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_plain(column: pa.Array) -> None:
    assert way(column) == ("plain", 0)


def test_few_numbers_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their entry in the header takes as much as they do."""
    monkeypatch.undo()
    assert [way(pa.array([2**60 + n for n in range(rows)]))[0] for rows in (1, 15, 16)] == ["plain", "plain", REFERENCE]


# --- dictionaries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["click", None, "view"] * ROWS, (DICTIONARY, 1)),
        ([str(n % 256).rjust(20) for n in range(4000)], (DICTIONARY, 1)),
        ([str(n % 257).rjust(20) for n in range(4000)], (DICTIONARY, 2)),
        ([str(n % 1000 + n // 2048 * 64_000).rjust(20) for n in range(65_536)], (DICTIONARY, 2)),
        ([str(n).rjust(20) for n in range(4000)], ("plain", 0)),
        (["x" * 9] * 20, ("plain", 0)),
        (["x" * 9] * 100, (DICTIONARY, 1)),
        ([""] * ROWS, (DICTIONARY, 1)),
        ([None] * ROWS, ("plain", 0)),
        ([], ("plain", 0)),
        (["one"], ("plain", 0)),
        ([None], ("plain", 0)),
        (["x" * 10**6] * 2, (DICTIONARY, 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_texts_take_a_dictionary_if_that_is_smaller(
    kind: pa.DataType, values: list[str | None], expected: tuple[str, int]
) -> None:
    assert way(pa.array(values, kind)) == expected


def test_a_dictionary_says_its_message_and_what_it_expands_to() -> None:
    found = store(pa.array(["ab", "c", None] * 200), 5)

    assert found.storing == Storing(DICTIONARY, 1, 5, 600 + 4 * 601)
    assert found.dictionary is not None
    assert found.dictionary.to_pylist() == [b"ab", b"c"]
    assert found.column.slice(0, 3).to_pylist() == [0, 1, None]


def test_values_under_nulls_do_not_count() -> None:
    """Their bytes are not in what the dictionary expands to."""
    column = pa.array(["ab", "c" * 1000, "d"] * 200)
    validity = pa.array([True, False, True] * 200).buffers()[1]
    hidden = pa.Array.from_buffers(pa.string(), 600, [validity, *column.buffers()[1:]])

    assert way(hidden) == (DICTIONARY, 1)
    assert store(hidden, 0).storing == Storing(DICTIONARY, 1, 0, 600 + 4 * 601)


# --- what can't be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "how", "width"),
    [
        (pa.int64(), DICTIONARY, 1),
        (pa.list_(pa.string()), DICTIONARY, 1),
        (pa.string(), REFERENCE, 1),
        (pa.float64(), DELTA, 1),
        (pa.bool_(), REFERENCE, 1),
        (pa.decimal128(5, 2), REFERENCE, 1),
        (pa.int8(), REFERENCE, 1),
        (pa.int16(), DELTA, 2),
        (pa.int32(), REFERENCE, 4),
        (pa.date32(), DELTA, 4),
    ],
    ids=str,
)
def test_a_type_has_its_ways(kind: pa.DataType, how: str, width: int) -> None:
    with pytest.raises(CorruptionError, match=f"can't be stored by {how} in {width} bytes"):
        stored_type(kind, how, width)


@pytest.mark.parametrize("said", [599, 601, 0])
def test_a_dictionary_that_expands_to_something_else_is_refused(said: int) -> None:
    indices, values = pa.array([0] * 100, pa.uint8()), pa.array([b"xx"])

    with pytest.raises(CorruptionError, match=f"expands to 604 bytes, the frame says {said}"):
        restore(indices, pa.string(), Storing(DICTIONARY, 1, 0, said), values)
    assert restore(indices, pa.string(), Storing(DICTIONARY, 1, 0, 604), values).to_pylist() == ["xx"] * 100


def test_an_index_beyond_the_dictionary_is_refused() -> None:
    for values in ([], [b"a"], [b"x" * 10**6]):
        with pytest.raises(CorruptionError, match=f"beyond the {len(values)} values"):
            restore(
                pa.array([0] * 100 + [1], pa.uint8()),
                pa.string(),
                Storing(DICTIONARY, 1, 0, 9),
                pa.array(values, pa.binary()),
            )

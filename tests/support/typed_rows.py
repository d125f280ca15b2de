"""Rows of typed topics with any values: nulls over bytes, slices, extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.format.columns.typed import frame_schema
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP

Mask = npt.NDArray[np.bool_]
_TEXTS = ("", "a", "click", "ünïcödé", "x" * 300, "\0", "0", "view")
_HALF = 0.5


def column(rng: np.random.Generator, kind: pa.DataType, rows: int, nulls: float = 0.3) -> pa.Array:
    """Return a column with any values; a null one may have bytes, elements or fields."""
    mask: Mask = rng.random(rows) < nulls
    if pa.types.is_struct(kind):
        parts = [column(rng, field.type, rows, nulls) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(mask))
    if pa.types.is_list(kind):
        ends, total = _ends(rng, rows)
        return pa.ListArray.from_arrays(ends, column(rng, kind.value_type, total, nulls), kind, mask=pa.array(mask))
    if pa.types.is_map(kind):
        ends, total = _ends(rng, rows)
        keys = column(rng, kind.key_type, total, 0)
        items = column(rng, kind.item_type, total, nulls)
        return pa.MapArray.from_arrays(ends, keys, items, kind, mask=pa.array(mask))
    full = _values(rng, kind, rows)
    validity = pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, rows, [validity, *full.buffers()[1:]], int(mask.sum()))


def _ends(rng: np.random.Generator, rows: int) -> tuple[pa.Array, int]:
    ends = np.concatenate(([0], np.cumsum(rng.integers(0, 4, rows)))).astype(np.int32)
    return pa.array(ends), int(ends[-1])


def _values(rng: np.random.Generator, kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        pool = [*_TEXTS, *map(str, range(rows))] if rng.random() < _HALF else _TEXTS
        return pa.array([pool[at].encode() for at in rng.integers(0, len(pool), rows)], pa.binary()).view(kind)
    if pa.types.is_boolean(kind):
        return pa.array(rng.random(rows) < _HALF)
    if pa.types.is_floating(kind):
        return pa.array(rng.choice([0.0, -0.0, 1.5, -np.inf, 3e38, rng.random()], rows), kind)
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        numbers = (min(max(int(n) ** 3, -most), most) for n in rng.integers(-(10**13), 10**13, rows))
        words = b"".join(n.to_bytes(16, "little", signed=True) for n in numbers)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(words)])
    bits = kind.bit_width
    return pa.array(_integers(rng, bits, rows), f"int{bits}").view(kind)


def _integers(rng: np.random.Generator, bits: int, rows: int) -> npt.NDArray[np.int64]:
    """Return integers of a random spread around a random one, ascending in a half of the draws."""
    most = 2 ** (bits - 1)
    spread = min(2 ** int(rng.integers(0, bits)), most - 1)
    first = int(rng.integers(-most, most - spread))
    numbers = rng.integers(first, first + spread, rows, endpoint=True)
    return np.sort(numbers) if rng.random() < _HALF else numbers


def batch_of_kinds(
    seed: int, kinds: Sequence[pa.DataType], rows: int, *, first: int = 0, nulls: float = 0.3, headers: bool = False
) -> pa.RecordBatch:
    """Return typed rows with a column of each type, ids from 100 on, as a slice that begins at row `first`."""
    rng, total = np.random.default_rng(seed), first + rows + 2
    columns = {str(100 + at): column(rng, kind, total, nulls) for at, kind in enumerate(kinds)}
    if headers:
        columns["headers"] = header_column(rng, total)
    columns["timestamp"] = pa.array(rng.integers(0, 2**50, total)).view(TIMESTAMP)
    return batch_of_columns(columns).slice(first, rows)


def header_column(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return headers, some null or empty."""
    some = (None, [], [("h", b"1"), ("h", None)], [("", b"")])
    return pa.array([some[at] for at in rng.integers(0, len(some), rows)], HEADERS)


def batch_of_columns(
    columns: Mapping[str, pa.Array], *, key: int | None = None, time: int | None = None
) -> pa.RecordBatch:
    """Return rows of a typed topic; `columns` by id, then `headers` and `timestamp`, if there are any."""
    fields = [pa.field(name, each.type) for name, each in columns.items() if name.isdigit()]
    schema = frame_schema(fields, key, time, headers="headers" in columns)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)

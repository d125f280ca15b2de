"""Tests on frames: those that no row of it passes are skipped, of the others rows are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.order import is_text, null_mask, numbers_of
from pyspark_commitlog.format.columns.statistics import Statistics
from pyspark_commitlog.format.columns.typed import Coded
from pyspark_commitlog.format.columns.untyped import OFFSET_DELTA, Ints, deltas_of
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.topic.read.filter.row_filter import EVERY_INTEGER, FieldTests
from pyspark_commitlog.topic.read.filter.spans import Passing, Spans, common

Mask = npt.NDArray[np.bool_]
#: Ranges that are compared one by one; more are searched.
_FEW = 4
_ALL_DECIMAL_DIGITS = 38
TIMESTAMP_FIELD = "timestamp"
COMMON_FIELDS = ("key", TIMESTAMP_FIELD)
US_PER_MS = 1000


class Selected(NamedTuple):
    """Offsets of the rows that pass, and which rows they are; None if all."""

    offsets: Ints
    kept: pa.BooleanArray | None


def select(
    payload: Payload, frame: Frame, base_offset: int, start: int, end: int, tests: FieldTests
) -> Selected | None:
    """Return the rows of a verified frame that pass, with offsets in [start, end); None if there are none.

    Raises:
        CorruptionError: the frame contradicts itself.
    """
    if not common(tests.offsets, ((base_offset, base_offset + frame.last_offset_delta + 1),)):
        return None
    fields = undecided(tests.fields, _statistics(payload, frame, tests.fields), frame.last_offset_delta + 1)
    if fields is None:
        return None
    offsets = _offsets(payload, base_offset, frame.last_offset_delta)
    mask: Mask = (offsets >= start) & (offsets < end)
    if tests.offsets != EVERY_INTEGER:
        mask &= within(tests.offsets, offsets)
    if fields and mask.any():
        mask &= _fields(fields, payload, len(offsets))
    if mask.all() and len(mask):
        return Selected(offsets, None)
    return Selected(offsets[mask], pa.array(mask)) if mask.any() else None


def _statistics(payload: Payload, frame: Frame, names: Collection[str]) -> dict[str, Statistics]:
    """Statistics of a frame's columns; of an untyped one only its header's times."""
    found = frame_rows.statistics(payload, names) if names else {}
    if TIMESTAMP_FIELD not in found and frame.delete_horizon_ms is None:
        low, high = frame.base_timestamp * US_PER_MS, frame.max_timestamp * US_PER_MS + US_PER_MS - 1
        found[TIMESTAMP_FIELD] = Statistics(low, high, 0)
    return found


def undecided(
    tests: Mapping[str, Passing], statistics: Mapping[str, Statistics], rows: int
) -> dict[str, Passing] | None:
    """Return the tests that statistics do not show true of all rows; None if one is of none (pure)."""
    left = {}
    for name, passing in tests.items():
        found = statistics.get(name)
        verdict = None if found is None else _verdict(passing, found, rows)
        if verdict is False:
            return None
        if verdict is None:
            left[name] = passing
    return left


def _verdict(passing: Passing, statistics: Statistics, rows: int) -> bool | None:
    """Whether all rows pass, or none; None if it takes a look."""
    low, high, nulls = statistics
    answers: set[bool | None] = {passing.null} if nulls else set()
    if nulls < rows:
        answers.add(_of_range(passing.spans, low, high))
    return answers.pop() if len(answers) == 1 else None


def _of_range(spans: Spans, low: Any, high: Any) -> bool | None:
    meets = [span for span in spans if (low is None or low < span[1]) and (high is None or span[0] <= high)]
    if not meets:
        return False
    within_one = any(low is not None and high is not None and start <= low and high < end for start, end in meets)
    return True if within_one else None


def _offsets(payload: Payload, base: int, delta: int) -> Ints:
    if not payload.identity.is_sparse:
        return np.arange(base, base + delta + 1)
    return deltas_of(frame_rows.decode(payload, [OFFSET_DELTA]), base, delta) + base


def _fields(passing: Mapping[str, Passing], payload: Payload, rows: int) -> Mask:
    """Return which rows pass the tests of their columns; one that the frame lacks is null."""
    mask = np.ones(rows, np.bool_)
    distinct = frame_rows.dictionaries(payload, [name for name, values in passing.items() if not values.null])
    if not all(value_mask(passing[name], values).any() for name, values in distinct.items()):
        return np.zeros(rows, np.bool_)
    columns = frame_rows.coded(payload, tuple(passing))
    for name, values in passing.items():
        column = columns.get(name)
        if column is None:
            mask &= values.null
            continue
        found = _coded_mask(values, column)
        if len(found) != rows:
            raise CorruptionError(f"the frame holds {len(found)} rows, expected {rows}")
        mask &= found
    return mask


def decoded_mask(tests: FieldTests, batch: pa.RecordBatch | None, offsets: Ints) -> Mask:
    """Return which rows pass of a frame that is decoded, with the columns of the tests."""
    mask = within(tests.offsets, offsets)
    for name, passing in tests.fields.items():
        assert batch is not None
        if name in COMMON_FIELDS:
            mask &= value_mask(passing, frame_rows.common_column(batch, name))
        elif name in batch.schema.names:
            mask &= value_mask(passing, batch.column(name))
        else:
            mask &= passing.null
    return mask


def _coded_mask(passing: Passing, column: Coded) -> Mask:
    if column.indices is None:
        return value_mask(passing, column.values)
    among = value_mask(passing, column.values)
    indices, null = column.indices, null_mask(column.indices)
    numbers = numbers_of(indices)
    if null is not None:
        numbers = np.where(null, 0, numbers)
        among = among if len(among) else np.zeros(1, np.bool_)
    try:
        mask: Mask = among[numbers]
    except IndexError as error:
        raise CorruptionError(f"an index leads beyond the {len(among)} values of its dictionary") from error
    return _with_nulls(mask, null, passing)


def value_mask(passing: Passing, column: pa.Array) -> Mask:
    """Return which values of a column pass a test."""
    if pa.types.is_nested(column.type) or not passing.spans:
        mask = np.full(len(column), bool(passing.spans))
    elif is_text(column.type):
        mask = _texts(passing.spans, column.view(pa.binary()))
    elif pa.types.is_decimal(column.type):
        mask = _decimals(passing.spans, column)
    else:
        mask = within(passing.spans, numbers_of(column))
    return _with_nulls(mask, null_mask(column), passing)


def _with_nulls(mask: Mask, null: Mask | None, passing: Passing) -> Mask:
    if null is not None:
        mask = mask | null if passing.null else mask & ~null
    return mask


def within(spans: Spans, values: Ints) -> Mask:
    """Return which integers lie in ranges."""
    limits = np.iinfo(values.dtype)
    clipped = [(max(start, limits.min), min(end - 1, limits.max)) for start, end in spans]
    inside = [(first, last) for first, last in clipped if first <= last]
    if len(inside) > _FEW:
        firsts, lasts = (np.array(edges, values.dtype) for edges in zip(*inside, strict=True))
        at = np.searchsorted(firsts, values, side="right") - 1
        return (at >= 0) & (values <= lasts[at])
    mask = np.zeros(len(values), np.bool_)
    for first, last in inside:
        mask |= _range_mask(values, first, last, limits)
    return mask


def _range_mask(values: Ints, first: int, last: int, limits: Any) -> Mask:
    if first == last:
        return np.equal(values, first)
    if first == limits.min:
        return values <= last
    above: Mask = values >= first
    return above if last == limits.max else above & (values <= last)


def _texts(spans: Spans, column: pa.Array) -> Mask:
    single = [start[1] for start, end in spans if end == (0, start[1] + b"\0")]
    mask = np.zeros(len(column), np.bool_)
    if single:
        found = pc.equal(column, single[0]) if len(single) == 1 else pc.is_in(column, pa.array(single, pa.binary()))
        mask |= _as_mask(found)
    for start, end in spans:
        if end == (0, start[1] + b"\0"):
            continue
        inside = _as_mask(pc.greater_equal(column, start[1])) if start[1] else np.ones(len(column), np.bool_)
        mask |= inside if end[0] else inside & _as_mask(pc.less(column, end[1]))
    return mask


def _decimals(spans: Spans, column: pa.Array) -> Mask:
    kind = pa.decimal128(_ALL_DECIMAL_DIGITS, column.type.scale)
    most = 10**_ALL_DECIMAL_DIGITS - 1
    mask = np.zeros(len(column), np.bool_)
    for start, end in spans:
        inside = np.ones(len(column), np.bool_)
        if start > -most:
            inside &= _as_mask(pc.greater_equal(column, _decimal(start, kind)))
        if end <= most:
            inside &= _as_mask(pc.less(column, _decimal(end, kind)))
        mask |= inside
    return mask


def _decimal(unscaled: int, kind: pa.DataType) -> pa.Scalar:
    data = unscaled.to_bytes(16, "little", signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def _as_mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
    return mask

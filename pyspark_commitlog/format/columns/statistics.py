"""Statistics of a typed frame's columns: the header `statistics`. Pure.

JSON, field name -> [lowest, highest, nulls]. Values are integers or bytes, as `order` has them: integers as numbers,
those of decimals as text, bytes in hexadecimal. Of bytes a prefix bounds the lowest, and one rounded up the highest;
null if there is none, or no value. They bound the values, and need not occur.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns.order import double_key, is_text, null_mask, numbers_of

#: Rows below which reading a frame costs less than its statistics take.
MIN_ROWS = 256
#: Bytes of a prefix, and of the header.
PREFIX_BYTES, MAX_BYTES = 32, 512 * 1024
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=2 * PREFIX_BYTES)]
_Bound = _Int64 | _Text | None
Row = tuple[_Bound, _Bound, _Int64]
_ROWS = msgspec.json.Decoder(dict[str, Row])
#: Lowest and highest value in a header.
Ends = tuple[_Bound, _Bound]


class Statistics(NamedTuple):
    """Bounds of a column's values, both included, and its nulls; None if a bound is unknown, or there is no value."""

    low: Any
    high: Any
    nulls: int


def encode(rows: Mapping[str, Row]) -> str:
    """Return the header's text."""
    return msgspec.json.encode(rows).decode()


def parse(text: str, schema: pa.Schema, names: Collection[str] | None = None) -> dict[str, Statistics]:
    """Return the statistics of a frame of this schema; of fields in `names`, None: all.

    Raises:
        CorruptionError: the text is not of such a frame.
    """
    if len(text) > MAX_BYTES:
        raise CorruptionError(f"the header statistics has {len(text)} characters, expected {MAX_BYTES} at most")
    try:
        rows = _ROWS.decode(text)
        return {
            name: _parsed(schema.field(name).type, row) for name, row in rows.items() if names is None or name in names
        }
    except (ValueError, KeyError) as error:
        raise CorruptionError(f"the header statistics does not parse ({error})") from error


def _parsed(kind: pa.DataType, row: Row) -> Statistics:
    low, high, nulls = row
    if nulls < 0 or pa.types.is_nested(kind):
        raise ValueError(f"a column of type {kind} has no {row}")
    return Statistics(_point(kind, low), _point(kind, high), nulls)


def _point(kind: pa.DataType, bound: _Bound) -> Any:
    if bound is None:
        return None
    if isinstance(bound, str):
        if is_text(kind):
            return 0, bytes.fromhex(bound)
        if pa.types.is_decimal(kind):
            return int(bound)
    elif not is_text(kind) and not pa.types.is_decimal(kind):
        return bound
    raise ValueError(f"{bound!r} bounds no column of type {kind}")


def row_of(column: pa.Array, values: pa.Array | None = None, ends: tuple[int, int] | None = None) -> Row | None:
    """Return a column's row of the header; None of few rows, and of a list, map or struct.

    Args:
        values: its distinct ones, if they are known.
        ends: its lowest and highest integer, if they are.
    """
    if pa.types.is_nested(column.type) or len(column) < MIN_ROWS:
        return None
    nulls: int = column.null_count
    if nulls == len(column):
        return None, None, nulls
    return *(ends or _ends(column if values is None else values)), nulls


def _ends(values: pa.Array) -> Ends:
    kind = values.type
    if is_text(kind):
        low, high = pc.min_max(values.view(pa.binary())).as_py().values()
        return low[:PREFIX_BYTES].hex(), _rounded_up(high)
    if pa.types.is_floating(kind):
        return _float_ends(values)
    if pa.types.is_decimal(kind):
        low, high = pc.min_max(values).as_py().values()
        return _unscaled(low), _unscaled(high)
    low, high = pc.min_max(_integers(values)).as_py().values()
    return int(low), int(high)


def _integers(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_timestamp(kind) else values


def _rounded_up(high: bytes) -> str | None:
    """Return a prefix that is not below a value, rounded up if it was cut."""
    if len(high) <= PREFIX_BYTES:
        return high.hex()
    kept = high[:PREFIX_BYTES].rstrip(b"\xff")
    return (kept[:-1] + bytes((kept[-1] + 1,))).hex() if kept else None


def _float_ends(values: pa.Array) -> Ends:
    null = null_mask(values)
    width = values.type.bit_width // 8
    found = np.frombuffer(values.buffers()[1], f"f{width}", len(values), values.offset * width)
    found = found if null is None else found[~null]
    low, high = float(found.min()), float(found.max())
    if low != low:  # NaN is above all
        low = float(np.fmin.reduce(found))
    return double_key(low), double_key(high)


def _unscaled(value: Decimal) -> str:
    sign, digits, _ = value.as_tuple()
    return "-" * sign + "".join(map(str, digits))


def holds(statistics: Statistics, column: pa.Array) -> bool:
    """Whether statistics are those of a column: its nulls, and bounds of its values."""
    if statistics.nulls != column.null_count:
        return False
    values = column.drop_null()
    if not len(values):
        return True
    low, high = _extremes(values)
    return (statistics.low is None or statistics.low <= low) and (statistics.high is None or high <= statistics.high)


def _extremes(values: pa.Array) -> tuple[Any, Any]:
    kind = values.type
    if is_text(kind):
        low, high = pc.min_max(values.view(pa.binary())).as_py().values()
        return (0, low), (0, high)
    if pa.types.is_decimal(kind):
        low, high = _ends(values)
        return int(str(low)), int(str(high))
    numbers = numbers_of(values)
    return int(numbers.min()), int(numbers.max())

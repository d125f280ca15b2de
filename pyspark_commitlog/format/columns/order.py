"""Order of a column's values, as Spark has it: integers, or bytes.

Booleans are 0 and 1, dates days, times µs, decimals unscaled. A FLOAT or DOUBLE is a key: the bits of the double as an
integer, the lower 63 inverted if negative; −0.0 is 0.0, and NaN, of whatever bits, the one key above infinity's.
Strings and binary are pairs (0, bytes), so that an end of all has its place: (1, b"").
"""

from __future__ import annotations

from struct import pack, unpack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.format.columns.untyped import Ints


class Domain(NamedTuple):
    """First value of a kind of columns, and the end of all values."""

    floor: Any
    ceiling: Any


INTEGERS = Domain(-(2**63), 2**63)
#: More than any unscaled decimal.
DECIMALS = Domain(-(10**38), 10**38)
BYTES = Domain((0, b""), (1, b""))
_LOWER = 2**63 - 1
_NAN = 0x7FF0_0000_0000_0001
DOUBLES = Domain(-0x7FF0_0000_0000_0001, _NAN + 1)


def double_key(value: float) -> int:
    """Return the key of a double."""
    if value != value:
        return _NAN
    bits: int = unpack("<q", pack("<d", value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _LOWER


def is_text(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def numbers_of(column: pa.Array) -> Ints:
    """Return the order of the values of a column, but of decimals and bytes; of any value at a null.

    Integers keep their width.
    """
    kind, rows = column.type, len(column)
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if not rows:
        return np.zeros(0, np.int64)
    width = kind.bit_width // 8
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    values = np.frombuffer(column.buffers()[1], f"{letter}{width}", rows, column.offset * width)
    return _double_keys(values) if letter == "f" else values


def _double_keys(values: np.ndarray[Any, Any]) -> Ints:
    doubles = values.astype(np.float64) + 0.0  # of -0.0, 0.0
    keys: Ints = doubles.view(np.int64)
    keys ^= (keys >> 63) & np.int64(_LOWER)
    nan = np.isnan(doubles)
    if nan.any():
        keys[nan] = _NAN
    return keys


def null_mask(column: pa.Array) -> np.ndarray[Any, Any] | None:
    """Return where a column is null; None if nowhere."""
    return pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None

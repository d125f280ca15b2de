"""How a column of a typed frame is stored: plain, narrowed, or by a dictionary. Pure.

Narrowing writes integers, dates and timestamps in 1, 2 or 4 bytes: minus their minimum (frame of reference), or as
differences of neighbours minus the smallest of those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import CorruptionError

DICTIONARY: Final = "dictionary"
REFERENCE: Final = "reference"
DELTA: Final = "delta"
_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}
#: Rows below which narrowing saves less than its entry in the header takes.
_FEW_ROWS = 16
#: Rows that tell whether a dictionary is worth its making.
_SAMPLE_ROWS = 4096
#: Maximum share of distinct values in the sample, and of a dictionary's bytes next to plain ones.
_MOST_DISTINCT, _MOST_BYTES = 0.75, 0.7
_OFFSET_BYTES = 4
#: Bytes of a dictionary's message besides its values.
_MESSAGE_BYTES = 256
#: Bytes that a dictionary may expand to before its claim is checked.
_SMALL_BYTES = 2**26
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

Numbers = npt.NDArray[Any]


class Storing(NamedTuple):
    """Storing of one column, as its frame's header has it.

    Attributes:
        how: `dictionary`, `reference` or `delta`.
        width: bytes of an index or number.
        first: number of the dictionary's message; else the reference, or the first value.
        second: bytes of the plain column; else 0, or the smallest difference.
    """

    how: Literal["dictionary", "reference", "delta"]
    width: Literal[1, 2, 4]
    first: _Int64
    second: _Int64 = 0


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as it is stored; `dictionary` has its distinct values, `ends` the lowest and highest integer."""

    column: pa.Array
    storing: Storing | None = None
    dictionary: pa.Array | None = None
    ends: tuple[int, int] | None = None


def stored_type(kind: pa.DataType, how: str, width: int) -> pa.DataType:
    """Type of a column's stored form; `how` is empty if plain.

    Raises:
        CorruptionError: a column of this type can't be stored so.
    """
    if not how:
        return pa.binary() if pa.types.is_string(kind) else kind
    numbers = _number_type(kind)
    has_form = _is_text(kind) if how == DICTIONARY else numbers is not None and 8 * width < numbers.bit_width
    if not has_form:
        raise CorruptionError(f"a column of type {kind} can't be stored by {how} in {width} bytes")
    return _UNSIGNED[width]


def store(column: pa.Array, message: int) -> StoredColumn:
    """Return a column in its smallest form; `message` is the next dictionary's number."""
    kind, is_null = column.type, column.null_count == len(column)
    if _is_text(kind):
        values = column.view(pa.binary())
        return StoredColumn(values) if is_null else _by_dictionary(values, message)
    numbers = _number_type(kind)
    if numbers is None or is_null or len(column) < _FEW_ROWS:
        return StoredColumn(column)
    return _narrowed(column, column.view(numbers))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _number_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_signed_integer(kind):
        return kind if kind.bit_width > 8 else None
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else None


def _by_dictionary(column: pa.Array, message: int) -> StoredColumn:
    sample = column.slice(0, _SAMPLE_ROWS)
    if pc.count_distinct(sample).as_py() > _MOST_DISTINCT * len(sample):
        return StoredColumn(column)
    encoded = column.dictionary_encode()
    values, rows = encoded.dictionary, len(column)
    width = _width(len(values) - 1) or 4
    plain = _bytes(column)
    if _bytes(values) + _MESSAGE_BYTES + width * rows > _MOST_BYTES * plain:
        return StoredColumn(column)
    return StoredColumn(encoded.indices.cast(_UNSIGNED[width]), Storing(DICTIONARY, width, message, plain), values)


def _bytes(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0) + _OFFSET_BYTES * (len(column) + 1)


def _width(most: int) -> Literal[1, 2, 4] | None:
    widths: tuple[Literal[1, 2, 4], ...] = (1, 2, 4)
    return next((width for width in widths if most < 1 << 8 * width), None)


def _narrowed(column: pa.Array, integers: pa.Array) -> StoredColumn:
    least, most = (int(number) for number in pc.min_max(integers).as_py().values())
    if integers.null_count:
        integers = pc.fill_null(integers, pa.scalar(least, integers.type))
    numbers = integers.to_numpy()
    size = numbers.dtype.itemsize
    width = _width(most - least) or size
    stored = None if column.null_count or width == 1 else _differences(numbers, most - least, width)
    if stored is None and width >= size:
        stored = StoredColumn(column)
    if stored is None:
        small = (numbers - numbers.dtype.type(least)).astype(f"u{width}")
        stored = StoredColumn(_with_nulls(small, column), Storing(REFERENCE, width, least))
    return replace(stored, ends=(least, most))


def _differences(numbers: Numbers, spread: int, width: int) -> StoredColumn | None:
    if len(numbers) <= 1 or spread >= 1 << (8 * numbers.dtype.itemsize - 1):
        return None
    differences = np.diff(numbers)
    least = int(differences.min())
    smaller = _width(int(differences.max()) - least)
    if smaller is None or smaller >= width:
        return None
    small = np.zeros(len(numbers), f"u{smaller}")
    small[1:] = differences - numbers.dtype.type(least)
    return StoredColumn(pa.array(small), Storing(DELTA, smaller, int(numbers[0]), least))


def _with_nulls(small: Numbers, column: pa.Array) -> pa.Array:
    mask = None
    if column.null_count:
        mask = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(small, mask=mask)


def restore(
    stored: pa.Array,
    kind: pa.DataType,
    storing: Storing | None,
    dictionary: pa.Array | None,
    kept: pa.BooleanArray | None = None,
) -> pa.Array:
    """Return a column in its own type; `kept` leaves rows out.

    Raises:
        CorruptionError: the stored form contradicts itself.
    """
    if kept is not None and storing is not None and storing.how == DELTA:  # a row is the sum of those before
        return _widened(stored, kind, storing).filter(kept)
    if kept is not None:
        stored = stored.filter(kept)
    if storing is None:
        return stored.view(kind) if pa.types.is_string(kind) else stored
    if storing.how == DICTIONARY:
        assert dictionary is not None
        return _expanded(stored, dictionary, storing, exact=kept is None).view(kind)
    return _widened(stored, kind, storing)


def _expanded(indices: pa.Array, values: pa.Array, storing: Storing, *, exact: bool) -> pa.Array:
    try:
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py() or 0
        if longest * len(indices) > _SMALL_BYTES:
            _check_size(int(pc.sum(lengths.take(indices)).as_py() or 0), len(indices), storing, exact=exact)
        column = values.take(indices)
    except pa.ArrowIndexError as error:
        raise CorruptionError(f"an index leads beyond the {len(values)} values of its dictionary") from error
    _check_size(column.total_values_length, len(indices), storing, exact=exact)
    return column


def _check_size(data: int, rows: int, storing: Storing, *, exact: bool) -> None:
    """Compare what a dictionary expands to, or some rows of it, with its claim, which bounds a frame's memory."""
    size = data + _OFFSET_BYTES * (rows + 1)
    if size > storing.second or (exact and size < storing.second):
        raise CorruptionError(f"a dictionary expands to {size} bytes, the frame says {storing.second}")


def _widened(stored: pa.Array, kind: pa.DataType, storing: Storing) -> pa.Array:
    numbers = _number_type(kind)
    assert numbers is not None
    target = numbers.to_pandas_dtype()
    rows = len(stored)
    small = np.frombuffer(stored.buffers()[1], f"u{storing.width}", rows) if rows else np.zeros(0, target)
    wide = small.astype(target)
    if storing.how == REFERENCE:
        wide += _wrapped(storing.first, target)
    elif rows:
        wide += _wrapped(storing.second, target)
        wide[0] = _wrapped(storing.first, target)
        wide = np.cumsum(wide, dtype=target)
    return pa.Array.from_buffers(kind, rows, [stored.buffers()[0], pa.py_buffer(wide)], stored.null_count)


def _wrapped(number: int, target: Any) -> Any:
    """Return a number of a file, modulo the range of its type."""
    return np.array([number], np.int64).astype(target)[0]

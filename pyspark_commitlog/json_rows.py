"""Declared columns as JSON, as Spark's `to_json` writes them, without loss (pure).

Times are ISO 8601, bytes base64, decimals numbers, and floats that JSON lacks "NaN", "Infinity", "-Infinity". Maps are
objects; keys other than text are the JSON of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

ENCODER = msgspec.json.Encoder(decimal_format="number")
#: Texts of Arrow for floats that JSON lacks.
_NOT_FINITE = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Return an object per row, its columns by name."""
    columns = [json_values(column) for column in batch.columns]
    names = batch.schema.names
    return [ENCODER.encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def json_values(array: pa.Array) -> list[Any]:
    """Return values that `ENCODER` takes."""
    convert = next((convert for is_type, convert in _CONVERSIONS if is_type(array.type)), pa.Array.to_pylist)
    values = convert(array)
    if not array.null_count:
        return values
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    parts = [json_values(part) for part in array.flatten()]
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]


def _lists(array: pa.Array) -> list[Any]:
    return _split(array, array.values)


def _maps(array: pa.Array) -> list[Any]:
    pairs = zip(_split(array, array.keys), _split(array, array.items), strict=True)
    return [dict(zip(map(_name, keys), values, strict=True)) for keys, values in pairs]


def _name(key: Any) -> str:
    return key if isinstance(key, str) else ENCODER.encode(key).decode()


def _split(array: pa.Array, children: pa.Array) -> list[list[Any]]:
    ends = array.offsets.to_pylist()
    values = json_values(children.slice(ends[0], ends[-1] - ends[0]))
    return [values[start - ends[0] : end - ends[0]] for start, end in pairwise(ends)]


def _bytes(array: pa.Array) -> list[Any]:
    return [None if value is None else msgspec.to_builtins(value) for value in array.to_pylist()]


def _floats(array: pa.Array) -> list[Any]:
    """Convert by texts: the shortest, also of 32 bits."""
    texts = array.cast(pa.string()).to_pylist()
    return [None if text is None else _NOT_FINITE.get(text) or float(text) for text in texts]


def _times(array: pa.Array) -> list[Any]:
    """Convert in Arrow: years may have more than four digits."""
    text = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    return list(pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1").to_pylist())


_CONVERSIONS: Iterable[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]]] = (
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
    (pa.types.is_list, _lists),
    (pa.types.is_binary, _bytes),
    (pa.types.is_floating, _floats),
    (pa.types.is_timestamp, _times),
    (pa.types.is_date, _times),
)

"""Parts of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_commitlog.format.schema.topic_schema import Type


def as_lists(column: pa.Array) -> pa.ListArray:
    """Return maps as lists of structs; `MapArray.keys` knows neither slices nor null maps."""
    kind = column.type
    return column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))) if pa.types.is_map(kind) else column


def texts(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the text in a column, at any depth."""
    kind = values.type
    if pa.types.is_string(kind):
        yield values
    elif pa.types.is_struct(kind):
        for part in values.flatten():
            yield from texts(part)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        yield from texts(as_lists(values).flatten())


def null_parts(path: str, kind: Type, values: pa.Array) -> Iterator[tuple[str, int]]:
    """Yield path and number of nulls of a column's parts that are declared NOT NULL and are null."""
    for part, inner, inside, nullable in _parts(path, kind, values):
        if not nullable and inside.null_count:
            yield part, inside.null_count
        yield from null_parts(part, inner, inside)


def _parts(path: str, kind: Type, values: pa.Array) -> list[tuple[str, Type, pa.Array, bool]]:
    """Return (path, type, values, nullable) of a nested column's parts, without those of null parents."""
    if isinstance(kind, str) or not len(values):
        return []
    if kind["type"] == "struct":
        living = values.drop_null() if values.null_count else values
        columns = living.flatten()
        fields: Any = kind["fields"]
        return [
            (f"{path}.{field['name']}", field["type"], part, field["nullable"])
            for field, part in zip(fields, columns, strict=True)
        ]
    if kind["type"] == "array":
        return [(f"{path}[]", kind["elementType"], values.flatten(), kind["containsNull"])]
    keys, items = as_lists(values).flatten().flatten()
    return [
        (f"{path}.key", kind["keyType"], keys, False),
        (f"{path}.value", kind["valueType"], items, kind["valueContainsNull"]),
    ]

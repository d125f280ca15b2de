"""Column types as Arrow types, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.format.schema.types import (
    MAX_DEPTH,
    check_name,
    decimal_parameters,
    depth_error,
    normalize_type,
    refusal,
)

#: Conversions that are kept.
_CACHED = 4096
_ATOMIC: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in _ATOMIC.items()}
#: Other types with the same values.
_SYNONYMS = (
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date64, "date"),
)
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_REMEDIES = (
    (pa.types.is_uint64, "cast it to int64 or decimal128(20, 0)"),
    (pa.types.is_unsigned_integer, "cast it to a larger signed integer"),
    (pa.types.is_float16, "cast it to float32"),
    (pa.types.is_time, "cast it to int64, with a unit in the name"),
    (pa.types.is_duration, "cast it to int64, with a unit in the name"),
    (pa.types.is_interval, "use int64, with a unit in the name"),
    (pa.types.is_union, "use a struct with a field for each of its types"),
    (pa.types.is_null, "cast it to the type of its future values"),
    (pa.types.is_run_end_encoded, "decode it with pyarrow.compute.run_end_decode"),
)


def to_arrow(kind: Type) -> pa.DataType:
    """Return the Arrow type of a checked type, as Spark has it in UTC."""
    atomic = _ATOMIC.get(kind) if isinstance(kind, str) else None
    return atomic if atomic is not None else _parse_arrow(json.dumps(kind))


@lru_cache(_CACHED)
def from_arrow(kind: pa.DataType, name: str) -> Type:
    """Return the type that holds an Arrow type's values.

    Args:
        kind: the Arrow type; of a dictionary, that of its values is taken.
        name: the column's name, for messages.

    Raises:
        ConfigError: the type, or one inside it, can't be stored.
    """
    return normalize_type(_json(kind, name, 0), name)


@lru_cache(_CACHED)
def _parse_arrow(text: str) -> pa.DataType:
    return _arrow(json.loads(text))


def _arrow(kind: Type) -> pa.DataType:
    if isinstance(kind, str):
        parameters = decimal_parameters(kind)
        return pa.decimal128(*parameters) if parameters else _ATOMIC[kind]
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow(kind["elementType"]), nullable=kind["containsNull"]))
    if kind["type"] == "map":
        return pa.map_(
            pa.field("key", _arrow(kind["keyType"]), nullable=False),
            pa.field("value", _arrow(kind["valueType"]), nullable=kind["valueContainsNull"]),
        )
    fields = kind["fields"]
    return pa.struct([pa.field(each["name"], _arrow(each["type"]), nullable=each["nullable"]) for each in fields])


def _json(kind: pa.DataType, path: str, depth: int) -> Type:
    if isinstance(kind, pa.BaseExtensionType):
        raise refusal(path, f"the extension type {kind}", f"cast it to its storage type, {kind.storage_type}")
    if pa.types.is_dictionary(kind):
        return _json(kind.value_type, path, depth)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    nested = _nested_parser(kind)
    if nested is not None:
        if depth == MAX_DEPTH:
            raise depth_error(path)
        return nested(kind, path, depth + 1)
    name = _NAMES.get(kind) or _choose(_SYNONYMS, kind)
    if name is None:
        raise refusal(path, str(kind), _choose(_REMEDIES, kind))
    return name


def _choose(choices: Iterable[tuple[Callable[[pa.DataType], bool], str]], kind: pa.DataType) -> str | None:
    return next((text for holds, text in choices if holds(kind)), None)


def _nested_parser(kind: pa.DataType) -> Callable[[pa.DataType, str, int], Type] | None:
    if pa.types.is_map(kind):
        return _map_json
    if pa.types.is_struct(kind):
        return _struct_json
    return _list_json if any(holds(kind) for holds in _LISTS) else None


def _list_json(kind: pa.DataType, path: str, depth: int) -> Type:
    element = _json(kind.value_type, f"{path}.element", depth)
    return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}


def _map_json(kind: pa.DataType, path: str, depth: int) -> Type:
    return {
        "type": "map",
        "keyType": _json(kind.key_type, f"{path}.key", depth),
        "valueType": _json(kind.item_type, f"{path}.value", depth),
        "valueContainsNull": kind.item_field.nullable,
    }


def _struct_json(kind: pa.DataType, path: str, depth: int) -> Type:
    return {"type": "struct", "fields": [_field_json(field, path, depth) for field in kind]}


def _field_json(field: pa.Field, path: str, depth: int) -> dict[str, Any]:
    name = field_name(field, f"column {path!r}")
    return {"name": name, "type": _json(field.type, f"{path}.{name}", depth), "nullable": field.nullable}


def field_name(field: pa.Field, owner: str) -> str:
    """Return the name of an Arrow field, if it can be a column's."""
    try:
        return check_name(field.name, owner)
    except UnicodeDecodeError:
        raise ConfigError(f"{owner}: a field has a name that is no UTF-8; rename it") from None

"""Column types in Spark's JSON form: checks and normal form. No Arrow, no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.topic_schema import Type

#: Types without parameters.
ATOMIC = (
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
#: Types whose values each type takes besides its own.
WIDENED: Mapping[str, Sequence[str]] = {
    "short": ("byte",),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "double": ("float",),
}
MAX_PRECISION = 38
#: Precision and scale of a decimal without any.
DEFAULT_DECIMAL = (10, 0)
#: Levels of arrays, maps and structs inside each other.
MAX_DEPTH = 8
#: Types that are not stored, by the first words of their names, and what to use instead.
REMEDIES = {
    "char": "use string, and check the length before the write",
    "geography": "use binary, with ST_AsBinary and ST_GeogFromWKB",
    "geometry": "use binary, with ST_AsBinary and ST_GeomFromWKB",
    "interval": "use long, with a unit in the name",
    "null": "cast it to the type of its future values",
    "object": "use binary, or a struct of its fields",
    "string collate": "use string, and collate in the query",
    "time": "use long, with a unit in the name, or timestamp_ntz",
    "udt": "use the type that it is stored as, its sqlType()",
    "varchar": "use string, and check the length before the write",
    "variant": "use string, with to_json and parse_json",
    "void": "cast it to the type of its future values",
}
_SUPPORTED = f"use one of {', '.join(ATOMIC)}, decimal(p,s), array, map, struct"
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)")
#: Field metadata in which Spark keeps the collations of strings, by path.
_COLLATIONS = "__COLLATIONS"


def normalize_type(kind: object, column: str) -> Type:
    """Return a type in its one spelling, without metadata.

    Args:
        kind: the type, in Spark's JSON form.
        column: the column's name, for messages.

    Raises:
        ConfigError: the type, or one inside it, can't be stored.
    """
    return _normalize(kind, column, 0)


def check_name(name: object, owner: str) -> str:
    """Return the name of a column or field, if it can be one."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{owner}: a field has the name {name!r}, it must be text of at least one character")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{owner}: field {name!r} has a name that is no valid Unicode; rename it") from None
    return name


def check_metadata(metadata: object, path: str) -> None:
    """Refuse a field whose metadata gives its strings a collation."""
    collations = metadata.get(_COLLATIONS) if isinstance(metadata, Mapping) else None
    if collations:
        found = sorted(map(str, collations.values())) if isinstance(collations, Mapping) else [str(collations)]
        raise refusal(path, f"string collate {found[0].rpartition('.')[2]}")


def refusal(path: str, name: str, remedy: str | None = None) -> ConfigError:
    """Return the error of a type that can't be stored.

    Args:
        path: the column, and the fields inside it.
        name: the type.
        remedy: what to do; by default that of `REMEDIES`.
    """
    return ConfigError(f"column {path!r} is {name}, which can't be stored: {remedy or _remedy(name)}")


def depth_error(path: str) -> ConfigError:
    """Return the error of a type nested too deeply."""
    return ConfigError(
        f"column {path!r} has more than {MAX_DEPTH} levels of arrays, maps and structs: flatten it, or store the inner "
        "ones as string, with to_json"
    )


def as_nullable(kind: Type) -> Type:
    """Return a checked type with every element, value and field nullable."""
    if isinstance(kind, str):
        return kind
    changed = dict(kind)
    for key in ("elementType", "keyType", "valueType"):
        if key in changed:
            changed[key] = as_nullable(changed[key])
    for key in ("containsNull", "valueContainsNull"):
        if key in changed:
            changed[key] = True
    if "fields" in changed:
        changed["fields"] = [
            {**field, "type": as_nullable(field["type"]), "nullable": True} for field in changed["fields"]
        ]
    return changed


def decimal_parameters(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal, None of other types."""
    if kind == "decimal":
        return DEFAULT_DECIMAL
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def is_wider(wide: Type, narrow: Type) -> bool:
    """Whether a type takes all values of another one, exactly."""
    if not isinstance(wide, str) or not isinstance(narrow, str):
        return False
    if narrow in WIDENED.get(wide, ()):
        return True
    whole, part = decimal_parameters(wide), decimal_parameters(narrow)
    if whole is None or part is None:
        return False
    return whole != part and whole[1] >= part[1] and whole[0] - whole[1] >= part[0] - part[1]


def _normalize(kind: object, path: str, depth: int) -> Type:
    if isinstance(kind, str):
        return _atomic(kind, path)
    if not isinstance(kind, Mapping):
        raise refusal(path, repr(kind))
    name = str(kind.get("type"))
    nested = _NESTED.get(name)
    if nested is None:
        raise refusal(path, name)
    if depth == MAX_DEPTH:
        raise depth_error(path)
    return nested(kind, path, depth + 1)


def _atomic(name: str, path: str) -> str:
    if name in ATOMIC:
        return name
    parameters = decimal_parameters(name)
    if parameters is None:
        raise refusal(path, name)
    precision, scale = parameters
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise refusal(
            path,
            name,
            f"its precision must be 1 to {MAX_PRECISION}, its scale 0 to the precision; cast it to such a decimal, or "
            "to double or string",
        )
    return f"decimal({precision},{scale})"


def _array(kind: Mapping[str, Any], path: str, depth: int) -> Type:
    element = _normalize(kind.get("elementType"), f"{path}.element", depth)
    return {"type": "array", "elementType": element, "containsNull": _flag(kind, "containsNull")}


def _map(kind: Mapping[str, Any], path: str, depth: int) -> Type:
    key = _normalize(kind.get("keyType"), f"{path}.key", depth)
    value = _normalize(kind.get("valueType"), f"{path}.value", depth)
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": _flag(kind, "valueContainsNull")}


def _struct(kind: Mapping[str, Any], path: str, depth: int) -> Type:
    fields = kind.get("fields")
    if not isinstance(fields, Sequence) or isinstance(fields, str) or not fields:
        raise ConfigError(f"column {path!r} is a struct without fields: declare at least one, or use another type")
    normalized = [_struct_field(field, path, depth) for field in fields]
    seen: dict[str, str] = {}
    for field in normalized:
        name = field["name"]
        if name.lower() in seen:
            raise ConfigError(
                f"column {path!r}: fields {seen[name.lower()]!r} and {name!r} differ only in case, which Spark "
                "ignores; rename one"
            )
        seen[name.lower()] = name
    return {"type": "struct", "fields": normalized}


def _struct_field(field: object, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(field, Mapping):
        raise refusal(path, f"a struct with the field {field!r}", "describe a field by name, type and nullable")
    name = check_name(field.get("name"), f"column {path!r}")
    inner = f"{path}.{name}"
    check_metadata(field.get("metadata"), inner)
    kind = _normalize(field.get("type"), inner, depth)
    return {"name": name, "type": kind, "nullable": _flag(field, "nullable"), "metadata": {}}


def _flag(kind: Mapping[str, Any], key: str) -> bool:
    return bool(kind.get(key, True))


def _remedy(name: str) -> str:
    words = name.lower()
    return next((REMEDIES[start] for start in REMEDIES if re.match(rf"{start}(?!\w)", words)), _SUPPORTED)


_NESTED: Mapping[str, Callable[[Mapping[str, Any], str, int], Type]] = {
    "array": _array,
    "map": _map,
    "struct": _struct,
}

"""Columns of a declared schema: DDL, a Spark or Arrow schema, or a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.format.schema.arrow_types import field_name, from_arrow, to_arrow
from pyspark_commitlog.format.schema.ddl import parse_ddl
from pyspark_commitlog.format.schema.schema_change import SchemaChange
from pyspark_commitlog.format.schema.topic_schema import Field, TopicSchema, Type
from pyspark_commitlog.format.schema.types import as_nullable, check_metadata, check_name, normalize_type

#: Metadata of a field in which Spark keeps its comment.
_COMMENT = "comment"


def declared_fields(schema: object) -> tuple[Field, ...]:
    """Return the columns of a declared schema, their types checked.

    Args:
        schema: a DDL string, a Spark StructType, an Arrow schema, or an object with one of the latter two as `schema`,
            such as a DataFrame.

    Raises:
        UsageError: it is none of these.
        ConfigError: it has a type that can't be stored.
    """
    fields = _fields(schema)
    if fields is None:
        fields = _fields(getattr(schema, "schema", None), of_text=False)
    if fields is None:
        raise UsageError(
            f"schema: it is of type {type(schema).__name__}, it must be a DDL string, a Spark StructType, an Arrow "
            "schema or a DataFrame; pass one of these"
        )
    return fields


def declared_change(
    schema: object = None,
    add: object = None,
    drop: Sequence[str] | str = (),
    rename: Mapping[str, str] | None = None,
    widen: Mapping[str, object] | None = None,
) -> SchemaChange | None:
    """Return a declared change of columns, None if there is none; see `Topic.alter`.

    Raises:
        UsageError, ConfigError: see `declared_fields`; or both `schema` and changes were given.
    """
    asked = {"add": add is not None, "drop": drop, "rename": rename, "widen": widen}
    others = [name for name, value in asked.items() if value]
    if schema is None and not others:
        return None
    if schema is not None and others:
        raise UsageError(f"schema= says all columns, {others[0]}= changes some: give one of them")
    return SchemaChange(
        declared=None if schema is None else declared_fields(schema),
        add=() if add is None else declared_fields(add),
        drop=(drop,) if isinstance(drop, str) else tuple(drop),
        rename=_names(rename),
        widen=_types(_names(widen)),
    )


def _types(widen: Mapping[str, object]) -> dict[str, Type]:
    return {name: declared_type(name, kind) for name, kind in widen.items()}


def _names(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise UsageError(f"{given!r:.80} is no mapping: give names, and what each becomes")
    return dict(given or {})


def declared_type(column: str, kind: object) -> Type:
    """Return a column's type, given as DDL, a Spark DataType or an Arrow type.

    Raises:
        ConfigError: it is none of these, or can't be stored.
    """
    fields = parse_ddl(f"c {kind}") if isinstance(kind, str) and kind.strip() else ()
    if len(fields) == 1 and fields[0] == Field("c", fields[0].type):
        return fields[0].type
    if isinstance(kind, pa.DataType):
        return from_arrow(kind, column)
    json_value = None if isinstance(kind, type) else getattr(kind, "jsonValue", None)
    if not callable(json_value):
        raise ConfigError(f"column {column!r} has the type {kind!r:.80}; give one as text, such as BIGINT")
    return normalize_type(json_value(), column)


def arrow_schema(schema: TopicSchema) -> pa.Schema:
    """Return a topic's columns as readers get them: nullable throughout."""
    return pa.schema([pa.field(each.name, to_arrow(as_nullable(each.field.type))) for each in schema.columns])


def _fields(schema: object, of_text: bool = True) -> tuple[Field, ...] | None:
    if isinstance(schema, str) and of_text:
        return parse_ddl(schema)
    if isinstance(schema, pa.Schema):
        return tuple(_arrow_field(field) for field in schema)
    json_value = None if isinstance(schema, type) else getattr(schema, "jsonValue", None)
    return _spark_fields(json_value()) if callable(json_value) else None


def _spark_fields(json: object) -> tuple[Field, ...]:
    if not isinstance(json, Mapping) or json.get("type") != "struct":
        kind = json.get("type") if isinstance(json, Mapping) else json
        raise ConfigError(f"schema: it is the Spark type {kind}, it must be a StructType; wrap it into one as a field")
    return tuple(_spark_field(field) for field in json["fields"])


def _spark_field(field: Mapping[str, Any]) -> Field:
    name = check_name(field["name"], "schema")
    check_metadata(field["metadata"], name)
    comment = field["metadata"].get(_COMMENT)
    return Field(
        name,
        normalize_type(field["type"], name),
        bool(field["nullable"]),
        comment if isinstance(comment, str) else None,
    )


def _arrow_field(field: pa.Field) -> Field:
    name = field_name(field, "schema")
    comment = (field.metadata or {}).get(_COMMENT.encode())
    return Field(name, from_arrow(field.type, name), field.nullable, comment and comment.decode(errors="replace"))

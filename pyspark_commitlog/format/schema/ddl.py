"""Columns of a DDL string such as `user STRING NOT NULL, tags ARRAY<STRING>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.ddl_tokens import EXPECTED, spell_ddl
from pyspark_commitlog.format.schema.topic_schema import Field, Type
from pyspark_commitlog.format.schema.types import DEFAULT_DECIMAL, check_name, normalize_type

if TYPE_CHECKING:
    from sqlglot import exp

#: Bytes of a DDL string.
MAX_BYTES = 64 * 1024
#: Types by their names in the parser's tree; one that is not here is refused.
_KINDS = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


def parse_ddl(text: str) -> tuple[Field, ...]:
    """Return the columns of a DDL string, as Spark's `StructType.fromDDL` does.

    Raises:
        ConfigError: the text is no such string, or has a type that can't be stored.
    """
    size = len(text.encode(errors="replace"))
    if size > MAX_BYTES:
        raise ConfigError(
            f"schema: the DDL has {size} bytes, at most {MAX_BYTES} are parsed; pass a StructType instead"
        )
    columns = _tree(spell_ddl(text)).args["expressions"]
    if len(columns) == 1 and type(columns[0]).__name__ == "DataType":
        columns = _struct_columns(columns[0])
    return tuple(_check_field(_field(column)) for column in columns)


def _tree(spelled: str) -> exp.Expr:
    """Parse the columns as those of one struct: there, no name is a keyword."""
    from sqlglot import Dialect, exp
    from sqlglot.errors import SqlglotError

    try:
        trees = Dialect.get_or_raise("spark").parse_into(exp.DataType, f"STRUCT<{spelled}>")
    except (SqlglotError, ValueError, RecursionError):
        raise _shape_error() from None
    if len(trees) != 1 or trees[0] is None:
        raise _shape_error()
    _args(trees[0], "DataType", "this", "expressions", "nested")
    return trees[0]


def _struct_columns(node: exp.Expr) -> list[exp.Expr]:
    """Return the columns of `struct<…>`, the spelling of `StructType.simpleString`."""
    args = _args(node, "DataType", "this", "expressions", "nested")
    if args["this"].name != "STRUCT" or not args.get("expressions"):
        raise _shape_error()
    columns: list[exp.Expr] = args["expressions"]
    return columns


def _check_field(field: Field) -> Field:
    name = check_name(field.name, "schema")
    return replace(field, type=normalize_type(field.type, name))


def _field(node: exp.Expr) -> Field:
    args = _args(node, "ColumnDef", "this", "kind", "constraints")
    nullable, comment = True, None
    for each in args.get("constraints") or ():
        kind = _args(each, "ColumnConstraint", "kind")["kind"]
        if type(kind).__name__ == "CommentColumnConstraint":
            comment = _text(_args(kind, "CommentColumnConstraint", "this")["this"], "Literal", "is_string")
        else:
            _args(kind, "NotNullColumnConstraint")
            nullable = False
    return Field(_text(args["this"], "Identifier", "quoted"), _json(args["kind"]), nullable, comment)


def _json(node: exp.Expr) -> Type:
    args = _args(node, "DataType", "this", "expressions", "nested")
    name, inner = str(args["this"].name), args.get("expressions") or []
    if name == "ARRAY" and len(inner) == 1:
        return {"type": "array", "elementType": _json(inner[0])}
    if name == "MAP" and len(inner) == 2:
        return {"type": "map", "keyType": _json(inner[0]), "valueType": _json(inner[1])}
    if name == "STRUCT":
        return {"type": "struct", "fields": [_field_json(each) for each in inner]}
    if name == "DECIMAL" and len(inner) <= 2:
        return _decimal(inner)
    if name not in _KINDS or inner:
        raise _shape_error(f"{name or 'a type'} with {len(inner)} types or parameters")
    return _KINDS[name]


def _decimal(parameters: Sequence[exp.Expr]) -> Type:
    numbers = [int(_text(_args(each, "DataTypeParam", "this")["this"], "Literal")) for each in parameters]
    precision, scale = (*numbers, *DEFAULT_DECIMAL[len(numbers) :])
    return f"decimal({precision},{scale})"


def _field_json(node: exp.Expr) -> dict[str, Any]:
    field = _field(node)
    return {"name": field.name, "type": field.type, "nullable": field.nullable}


def _text(node: exp.Expr, kind: str, *flags: str) -> str:
    return str(_args(node, kind, "this", *flags)["this"])


def _args(node: exp.Expr, kind: str, *allowed: str) -> dict[str, Any]:
    """Return a node's arguments, if it is of this kind and has no others."""
    args: dict[str, Any] = getattr(node, "args", {})
    if type(node).__name__ != kind or any(value for key, value in args.items() if key not in allowed):
        raise _shape_error()
    return args


def _shape_error(part: str = "a part") -> ConfigError:
    return ConfigError(f"schema: the DDL has {part} that can't be in a list of columns; {EXPECTED}")

"""Schema of a typed topic in its journal's entries: checked, cached, in a side file if large. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated, Any

from msgspec import Meta

from pyspark_commitlog.errors import ConfigError, CorruptionError
from pyspark_commitlog.format.entry import Json, to_json_bytes
from pyspark_commitlog.format.schema.topic_schema import (
    FORMER_BYTES,
    MAX_COLUMNS,
    Column,
    ColumnTable,
    FormerName,
    TopicSchema,
    read_columns,
)
from pyspark_commitlog.format.schema.types import normalize_type
from pyspark_commitlog.format.shape import Row, Shape, check, checked_json, damage
from pyspark_commitlog.topic.state.side_files import TABLE_BYTES, Side, named_side

#: Kind of a side file with columns.
COLUMNS = "columns"
#: Schemas kept parsed, of `TABLE_BYTES` of JSON at most.
_KEPT = 128
ColumnId = Annotated[int, Meta(ge=1, lt=2**31)]
ColumnName = Annotated[str, Meta(min_length=1, max_length=4096)]
Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class ColumnRow(Row):
    """Row of `state.schema.columns`."""

    id: ColumnId
    name: ColumnName
    type: object
    nullable: bool
    comment: str | None
    since: Version = 1


class FormerNameRow(Row):
    """Row of `state.schema.former`."""

    name: ColumnName
    id: ColumnId
    version: Version


ColumnRows = Annotated[tuple[ColumnRow, ...], Meta(min_length=1, max_length=MAX_COLUMNS)]


class TopicSchemaShape(Shape):
    """`state.schema` of a typed topic."""

    version: Version
    columns: ColumnRows | Side
    key: ColumnId | None
    timestamp: ColumnId | None
    former: Annotated[tuple[FormerNameRow, ...], Meta(max_length=FORMER_BYTES)] = ()


def check_schema(schema: Mapping[str, Any], where: str) -> None:
    """Check `state.schema` of an entry.

    Raises:
        CorruptionError: it is damaged.
    """
    try:
        parse_schema(schema)
    except CorruptionError as error:
        raise CorruptionError(f"{where}: {error}") from error


def parse_schema(schema: Mapping[str, Any], read: Callable[[Json], Sequence[Column]] | None = None) -> TopicSchema:
    """Parse and check `state.schema`; `read` reads a side file of columns."""
    parsed = _parsed(to_json_bytes(schema))
    if read is None or not isinstance(parsed.columns, ColumnTable):
        return parsed
    named = dict(parsed.columns.named)
    return replace(parsed, columns=ColumnTable(named, partial(read, named)))


def refuse_to_read(named: Json) -> Sequence[Column]:
    """Refuse to read a side file of columns."""
    raise AssertionError(f"the columns in {named['file']} are for a topic's handle to read")


@lru_cache(_KEPT)
def _parsed(data: bytes) -> TopicSchema:
    schema: Json = checked_json(data, dict[str, Any], "state.schema")
    shape = check(schema, TopicSchemaShape, "state.schema")
    former = tuple(FormerName(each.name, each.id, each.version) for each in shape.former)
    if isinstance(shape.columns, Side):
        named = schema["columns"]
        table = ColumnTable(named, partial(refuse_to_read, named))
        return TopicSchema(shape.version, table, shape.key, shape.timestamp, former)
    _check_columns(shape.columns, "state.schema")
    ids = {column.id for column in shape.columns}
    for role, named in (("key", shape.key), ("timestamp", shape.timestamp)):
        if named is not None and named not in ids:
            raise damage("state.schema", role, named, f"one of {sorted(ids)}")
    return TopicSchema(shape.version, read_columns(schema["columns"]), shape.key, shape.timestamp, former)


def parse_columns(data: bytes, where: str) -> tuple[Column, ...]:
    """Parse and check a side file of columns."""
    rows = checked_json(data, ColumnRows, where)
    _check_columns(check(rows, ColumnRows, where), where)
    return read_columns(rows)


def _check_columns(rows: Sequence[ColumnRow], where: str) -> None:
    ids = {column.id for column in rows}
    if len(ids) < len(rows):
        raise damage(where, "the ids of the columns", sorted(ids), f"{len(rows)} ids, each once")
    for column in rows:
        try:
            normalize_type(column.type, column.name)
        except ConfigError as error:
            raise damage(where, f"the type of column {column.name!r}", column.type, str(error)) from error


def loaded_schema(schema: TopicSchema | None) -> TopicSchema | None:
    """Return a schema with its columns, read from their side file if they are in one."""
    return schema if schema is None else replace(schema, columns=tuple(schema.columns))


def place_schema(
    schema: TopicSchema | None, sequence: int, write_id: str
) -> tuple[TopicSchema | None, dict[str, bytes]]:
    """Move columns above `TABLE_BYTES` to a side file of an entry, unless they are in one.

    Returns:
        The schema for the entry's state, and the side file.
    """
    if schema is None or isinstance(schema.columns, ColumnTable):
        return schema, {}
    data = to_json_bytes(schema.rows)
    if len(data) <= TABLE_BYTES:
        return schema, {}
    columns = schema.columns
    table = ColumnTable(named_side(COLUMNS, data, sequence, write_id), lambda: columns)
    return replace(schema, columns=table), {COLUMNS: data}

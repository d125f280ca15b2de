"""Changes of a topic's schema, by column id. Pure.

A column may be added (nullable), dropped, renamed, moved, widened, and lose its NOT NULL. Nothing else, as frames of
before stay as they are, and running readers and writers go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.simple_string import simple_string
from pyspark_commitlog.format.schema.topic_schema import (
    FORMER_BYTES,
    Column,
    Field,
    FormerName,
    TopicSchema,
    Type,
    check_names,
    draw_ids,
)
from pyspark_commitlog.format.schema.types import as_nullable, decimal_parameters, is_wider


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of columns, which are named as before it.

    Attributes:
        declared: all columns afterwards, in order, those that are there by their names; excludes the other changes.
        add: new columns, after the others.
        drop: columns to drop.
        rename: name -> new name.
        widen: name -> type.
    """

    declared: tuple[Field, ...] | None = None
    add: tuple[Field, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, Type] = field(default_factory=dict)


def changed_schema(schema: TopicSchema, change: SchemaChange, seed: str) -> TopicSchema:
    """Return a schema after a change, itself if there is none; new ids are drawn by `seed`.

    Raises:
        ConfigError: the change is not allowed, or makes no schema.
    """
    planned = _planned(schema, change)
    check_names([each.name for _, each in planned])
    added = [each.name for column_id, each in planned if column_id is None]
    drawn = dict(zip(added, draw_ids(added, seed, _used_ids(schema)), strict=True))
    after = tuple(_since(schema, Column(column_id or drawn[each.name], each)) for column_id, each in planned)
    _check_dropped(schema, after, added)
    if after == tuple(schema.columns):
        return schema
    return replace(schema, version=schema.version + 1, columns=after, former=_former_names(schema, after))


def plan_merge(schema: TopicSchema, fields: Sequence[Field], *, is_running: bool) -> SchemaChange:
    """Return the change by which a schema takes a writer's columns: adds and widens.

    `is_running`: the writer may have begun before an earlier change, so its former names stay what they are.
    """
    known = {each.name: schema.column(each.name) for each in fields}
    return SchemaChange(
        add=tuple(
            replace(each, type=as_nullable(each.type), nullable=True)
            for each in fields
            if known[each.name] is None and not (is_running and schema.former_name(each.name))
        ),
        widen={
            each.name: each.type
            for each in fields
            if (column := known[each.name]) is not None and is_widening(column.field.type, each.type)
        },
    )


def is_widening(before: Type, after: Type) -> bool:
    """Whether a column's type may become another one; scales stay, as checksums are of unscaled numbers (R6)."""
    if not is_wider(after, before) or not isinstance(before, str) or not isinstance(after, str):
        return False
    one, other = decimal_parameters(before), decimal_parameters(after)
    return one is None or other is None or one[1] == other[1]


def describe_change(schema: TopicSchema, version: int) -> str:
    """Describe what changed in a schema since an earlier version."""
    names = {column.id: column.name for column in schema.columns}
    before = {each.id: each.name for each in reversed(schema.former) if each.version > version}  # the oldest
    parts = [f"{name} was dropped" for column_id, name in before.items() if column_id not in names]
    parts += [_describe_column(column, before.get(column.id)) for column in schema.columns if column.since > version]
    return "; ".join(parts) or "the columns were moved"


def _describe_column(column: Column, before: str | None) -> str:
    renamed = "" if before is None else f"{before} is "
    return f"{renamed}{column.name} {simple_string(column.field.type)} since version {column.since}"


#: A column as planned: its id, None of a new one.
_Planned = tuple[int | None, Field]


def _used_ids(schema: TopicSchema) -> list[int]:
    return [column.id for column in schema.columns] + [each.id for each in schema.former]


def _planned(schema: TopicSchema, change: SchemaChange) -> list[_Planned]:
    if change.declared is not None:
        ids = schema.ids
        return [(ids.get(each.name), each) for each in change.declared]
    _check_edits(schema, change)
    kept = [column for column in schema.columns if column.name not in change.drop]
    return [
        *((column.id, _edited_field(column.field, change)) for column in kept),
        *((None, new) for new in change.add),
    ]


def _edited_field(before: Field, change: SchemaChange) -> Field:
    name, kind = change.rename.get(before.name, before.name), change.widen.get(before.name, before.type)
    return replace(before, name=name, type=kind)


def _check_edits(schema: TopicSchema, change: SchemaChange) -> None:
    names, changed = schema.ids, {*change.rename, *change.widen}
    for name in (*change.drop, *changed):
        if name not in names:
            raise ConfigError(f"there is no column {name!r}; it has {', '.join(names)}")
    if both := changed.intersection(change.drop):
        raise ConfigError(f"column {min(both)!r} can't be dropped and changed at once")
    for name in [each.name for each in change.add]:
        if name in names and name not in {*change.drop, *change.rename}:
            raise ConfigError(f"there is a column {name!r} already")


def _since(schema: TopicSchema, column: Column) -> Column:
    """Return a column with the version of its present form, if that may follow the one before."""
    before = schema.by_id(column.id)
    if before is None:
        if not column.field.nullable:
            raise ConfigError(f"column {column.name!r} is NOT NULL: rows of before have none, so declare it nullable")
        return replace(column, since=schema.version + 1)
    _check_kept(schema, before, column.field)
    return before if before.field == column.field else replace(column, since=schema.version + 1)


def _check_kept(schema: TopicSchema, before: Column, after: Field) -> None:
    name, kind = before.name, before.field.type
    if before.field.nullable and not after.nullable:
        raise ConfigError(f"column {name!r} can't become NOT NULL: rows of before may have none")
    if _admits(after.type, kind):
        return
    if before.id in (schema.key, schema.timestamp):
        raise ConfigError(f"column {name!r} is the {_role(schema, before)}: its type can't be changed")
    if not is_widening(kind, after.type):
        raise ConfigError(
            f"column {name!r} is {simple_string(kind)} and can't become {simple_string(after.type)}: whole numbers "
            "widen up to bigint, float to double, decimals to more digits at the same scale. Add a column of that type"
        )


def _admits(after: Type, before: Type) -> bool:
    """Whether a type is another one, or that with less NOT NULL inside."""
    if as_nullable(after) != as_nullable(before):
        return False
    return all(may_be_null or not could for may_be_null, could in zip(_nulls(after), _nulls(before), strict=True))


def _nulls(kind: Type) -> Iterator[bool]:
    """Yield whether each place inside a type may be null."""
    if isinstance(kind, str):
        return
    yield from (bool(kind[key]) for key in ("containsNull", "valueContainsNull") if key in kind)
    inner = [kind[key] for key in ("elementType", "keyType", "valueType") if key in kind]
    for each in kind.get("fields", ()):
        yield bool(each["nullable"])
        inner.append(each["type"])
    for part in inner:
        yield from _nulls(part)


def _check_dropped(schema: TopicSchema, after: Sequence[Column], added: Iterable[str]) -> None:
    kept, lower = {column.id for column in after}, {name.lower(): name for name in added}
    for column in schema.columns:
        if column.id in kept:
            continue
        if column.id in (schema.key, schema.timestamp):
            raise ConfigError(f"column {column.name!r} is the {_role(schema, column)}, and can't be dropped")
        spelled = lower.get(column.name.lower(), column.name)
        if spelled != column.name:
            raise ConfigError(f"column {spelled!r} is column {column.name!r} but for case: spell it so, or rename it")


def _role(schema: TopicSchema, column: Column) -> str:
    return "key" if column.id == schema.key else "timestamp"


def _former_names(schema: TopicSchema, after: Sequence[Column]) -> tuple[FormerName, ...]:
    ids = {column.name: column.id for column in after}
    ended = {name: column_id for name, column_id in schema.ids.items() if ids.get(name) != column_id}
    former = [each for each in schema.former if each.name not in {*ids, *ended}]
    former += [FormerName(name, ended[name], schema.version + 1) for name in ended if name not in ids]
    while sum(len(each.name.encode()) for each in former) > FORMER_BYTES:
        del former[0]
    return tuple(former)

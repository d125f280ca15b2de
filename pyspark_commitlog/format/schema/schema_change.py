"""Changes of a topic's schema, by column id. Pure.

A column may be added (nullable), dropped, renamed, moved, widened, and lose its NOT NULL. Nothing else, as frames of
before stay as they are, and running readers and writers go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    if change.declared is None:
        kept, added = _edited(schema, change), change.add
    else:
        kept = [Column(known.id, each) for each in change.declared if (known := schema.column(each.name))]
        added = tuple(each for each in change.declared if schema.column(each.name) is None)
    check_names([column.name for column in kept] + [each.name for each in added])
    taken = [column.id for column in schema.columns] + [each.id for each in schema.former]
    ids = draw_ids([each.name for each in added], seed, taken)
    new = {each.name: Column(column_id, each) for column_id, each in zip(ids, added, strict=True)}
    for column in new.values():
        if not column.field.nullable:
            raise ConfigError(f"column {column.name!r} is NOT NULL: rows of before have none, so declare it nullable")
    old = {column.name: column for column in kept}
    order = [*old, *new] if change.declared is None else [each.name for each in change.declared]
    after = tuple(_since(schema, old.get(name) or new[name]) for name in order)
    _check_dropped(schema, after, new)
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
    since = [each for each in schema.former if each.version > version]
    before = {each.id: f"{each.name} is " for each in reversed(since)}  # the oldest name
    gone = {each.id: each.name for each in reversed(since) if each.id not in names}
    parts = [f"{name} was dropped" for name in gone.values()]
    parts += [
        f"{before.get(column.id, '')}{column.name} {simple_string(column.field.type)} since version {column.since}"
        for column in schema.columns
        if column.since > version
    ]
    return "; ".join(parts) or "the columns were moved"


def _edited(schema: TopicSchema, change: SchemaChange) -> list[Column]:
    for each in change.add:
        if schema.column(each.name) is not None and each.name not in (*change.drop, *change.rename):
            raise ConfigError(f"there is a column {each.name!r} already")
    for name in (*change.drop, *change.rename, *change.widen):
        if schema.column(name) is None:
            raise ConfigError(f"there is no column {name!r}; it has {', '.join(schema.names)}")
    for name in change.drop:
        if name in change.rename or name in change.widen:
            raise ConfigError(f"column {name!r} can't be dropped and changed at once")
    return [
        replace(
            column,
            field=replace(
                column.field,
                name=change.rename.get(column.name, column.name),
                type=change.widen.get(column.name, column.field.type),
            ),
        )
        for column in schema.columns
        if column.name not in change.drop
    ]


def _since(schema: TopicSchema, column: Column) -> Column:
    """Return a column with the version of its present form, if that may follow the one before."""
    before = schema.by_id(column.id)
    if before is None:
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
    if isinstance(after, str) or isinstance(before, str):
        return after == before
    return as_nullable(after) == as_nullable(before) and all(_flags(after, before))


def _flags(after: Type, before: Type) -> list[bool]:
    """Return for each place inside a nested type whether it may be null afterwards, or may not be before."""
    if isinstance(after, str) or isinstance(before, str):
        return []
    places = [(after, before, key) for key in ("containsNull", "valueContainsNull") if key in after]
    inner = [(after[key], before[key]) for key in ("elementType", "keyType", "valueType") if key in after]
    for one, other in zip(after.get("fields", ()), before.get("fields", ()), strict=True):
        places.append((one, other, "nullable"))
        inner.append((one["type"], other["type"]))
    found = [bool(one[key] or not other[key]) for one, other, key in places]
    return found + [flag for one, other in inner for flag in _flags(one, other)]


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
    names, present = {column.id: column.name for column in after}, {column.name for column in after}
    ended = [
        FormerName(column.name, column.id, schema.version + 1)
        for column in schema.columns
        if names.get(column.id) != column.name
    ]
    again = present | {each.name for each in ended}
    former = [each for each in schema.former if each.name not in again]
    former += [each for each in ended if each.name not in present]
    while sum(len(each.name.encode()) for each in former) > FORMER_BYTES:
        del former[0]
    return tuple(former)

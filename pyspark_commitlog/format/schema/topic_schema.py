"""Schema of a typed topic, as its journal has it. No I/O, no Arrow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, overload

from pyspark_commitlog.errors import ConfigError

#: A type in Spark's JSON form: a name such as `long` or `decimal(10,2)`, or an object of an array, map or struct.
Type: TypeAlias = "str | Mapping[str, Any]"

#: Columns with a meaning of their own; refused as names of declared ones.
RESERVED = (
    "_topic",
    "_partition_id",
    "_offset",
    "_timestamp",
    "_timestampType",
    "_key",
    "_headers",
    "_tombstone",
)
#: Types of a key column: their bytes are those of Kafka's serializers.
KEY_TYPES = ("string", "binary", "short", "integer", "long")
TIMESTAMP_TYPE = "timestamp"
MAX_COLUMNS = 1000
#: Maximum of columns times partitions: a write task holds rows of each partition, which cost by columns.
MAX_CELLS = 500_000
#: Bytes of the former names that a schema keeps; older ones are forgotten.
FORMER_BYTES = 8192
#: Characters of a column's name.
MAX_NAME = 255
#: Bits of a column id.
_ID_BITS = 31


@dataclass(frozen=True, slots=True)
class Field:
    """A declared column."""

    name: str
    type: Type
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column under its id, which no other column of the topic ever has.

    `since`: version of the schema that gave it its present form.
    """

    id: int
    field: Field
    since: int = 1

    @property
    def name(self) -> str:
        """Current name."""
        return self.field.name

    @property
    def stored_name(self) -> str:
        """Name in frames: the id in decimal."""
        return str(self.id)


def read_columns(rows: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    """Parse a table of columns."""
    return tuple(Column(row[0], Field(*row[1:5]), *row[5:]) for row in rows)


@dataclass(frozen=True, slots=True)
class FormerName:
    """A name that a column had before schema `version`; its id is no column's if it was dropped."""

    name: str
    id: int
    version: int


class ColumnTable(Sequence[Column]):
    """Columns in a side file, read when first asked for.

    `named` is the entry's reference to it.
    """

    def __init__(self, named: Mapping[str, Any], read: Callable[[], Sequence[Column]]) -> None:
        self.named, self._read = named, read
        self._columns: tuple[Column, ...] | None = None

    @property
    def every(self) -> tuple[Column, ...]:
        """All columns."""
        if self._columns is None:
            self._columns = tuple(self._read())
        return self._columns

    @overload
    def __getitem__(self, index: int) -> Column: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Column]: ...

    def __getitem__(self, index: int | slice) -> Column | Sequence[Column]:
        return self.every[index]

    def __len__(self) -> int:
        return len(self.every)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ColumnTable):
            return self.named == other.named or self.every == other.every
        return isinstance(other, tuple) and self.every == other

    def __hash__(self) -> int:
        return hash(self.every)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.every,)


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """Columns of a typed topic.

    Attributes:
        version: counts changes, from 1.
        columns: a tuple, or a `ColumnTable`.
        key, timestamp: ids of the columns that are the records' key and timestamp.
        former: names that running writers may still give, the oldest first.
    """

    version: int
    columns: Sequence[Column]
    key: int | None = None
    timestamp: int | None = None
    former: tuple[FormerName, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def ids(self) -> dict[str, int]:
        """Column ids by name."""
        return {column.name: column.id for column in self.columns}

    def ids_for_writer(self, began: int) -> dict[str, int]:
        """Return column ids by name, with the names that a writer may give that began under an earlier version.

        Ids of dropped columns are among them.
        """
        return {**{each.name: each.id for each in self.former if each.version > began}, **self.ids}

    def column(self, name: str) -> Column | None:
        """Column by name."""
        return next((column for column in self.columns if column.name == name), None)

    def former_name(self, name: str) -> FormerName | None:
        """Former name of a column, or of a dropped one."""
        return next((each for each in self.former if each.name == name), None)

    def by_id(self, column_id: int | None) -> Column | None:
        """Column by id."""
        return next((column for column in self.columns if column.id == column_id), None)

    def to_json(self) -> dict[str, Any]:
        """JSON form of `state.schema`."""
        columns = self.columns.named if isinstance(self.columns, ColumnTable) else self.rows
        former = {"former": [[each.name, each.id, each.version] for each in self.former]} if self.former else {}
        return {"version": self.version, "columns": columns, "key": self.key, "timestamp": self.timestamp, **former}

    @property
    def rows(self) -> list[list[Any]]:
        """JSON form of the columns."""
        return [
            [
                *(column.id, column.name, column.field.type, column.field.nullable, column.field.comment),
                *([column.since] if column.since > 1 else []),
            ]
            for column in self.columns
        ]


@dataclass(frozen=True, slots=True)
class Declaration:
    """Columns that a new topic is given, their types checked.

    `key` and `timestamp` name those that are the records' key and timestamp.
    """

    fields: tuple[Field, ...]
    key: str | None = None
    timestamp: str | None = None


def declare(declaration: Declaration, seed: str) -> TopicSchema:
    """Return a new topic's schema; its ids are drawn by `seed`, which no other call has.

    Raises:
        ConfigError: the columns make no schema.
    """
    fields, key, timestamp = declaration.fields, declaration.key, declaration.timestamp
    check_names([field.name for field in fields])
    ids = draw_ids([field.name for field in fields], seed)
    columns = tuple(Column(column_id, field) for column_id, field in zip(ids, fields, strict=True))
    schema = TopicSchema(1, columns)
    key_column, time_column = _role_column(schema, "key", key), _role_column(schema, "timestamp", timestamp)
    if key_column is not None and key_column.field.type not in KEY_TYPES:
        raise ConfigError(
            f"key column {key!r} is {_spelled(key_column.field.type)}: a key is one of {', '.join(KEY_TYPES)}; for "
            "more columns, add one that joins them"
        )
    if time_column is not None and time_column.field.type != TIMESTAMP_TYPE:
        raise ConfigError(
            f"timestamp column {timestamp!r} is {_spelled(time_column.field.type)}, expected {TIMESTAMP_TYPE}: cast it"
        )
    if key is not None and key == timestamp:
        raise ConfigError(f"column {key!r} can't be both key and timestamp")
    key_id, time_id = (None if column is None else column.id for column in (key_column, time_column))
    return TopicSchema(1, columns, key_id, time_id)


def check_partitions(schema: TopicSchema | None, partitions: int) -> None:
    """Refuse a typed topic with too many columns for its partitions.

    Raises:
        ConfigError: columns times partitions are above `MAX_CELLS`.
    """
    if schema is not None and len(schema.columns) * partitions > MAX_CELLS:
        raise ConfigError(
            f"schema: {len(schema.columns)} columns in {partitions} partitions are "
            f"{len(schema.columns) * partitions:,} slices in each write task, at most {MAX_CELLS:,} are allowed: have "
            "fewer columns, or fewer partitions"
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that make no schema.

    Raises:
        ConfigError: there are none or too many, or one is reserved or there twice but for case.
    """
    if not names:
        raise ConfigError("schema: it has no column; declare at least one")
    if len(names) > MAX_COLUMNS:
        raise ConfigError(f"schema: it has {len(names)} columns, at most {MAX_COLUMNS} can be declared")
    reserved = {name.lower() for name in RESERVED}
    seen: dict[str, str] = {}
    for name in names:
        if not _is_name(name):
            raise ConfigError(f"schema: {name!r:.80} is no column name: it takes 1 to {MAX_NAME} characters of text")
        if name.lower() in reserved:
            raise ConfigError(f"schema: column {name!r} has a name that the log uses itself; rename it")
        if seen.get(name.lower()) == name:
            raise ConfigError(f"schema: there are two columns {name!r}; rename one")
        if name.lower() in seen:
            raise ConfigError(
                f"schema: columns {seen[name.lower()]!r} and {name!r} differ only in case, which Spark "
                "ignores: rename one"
            )
        seen[name.lower()] = name


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str) and 1 <= len(name) <= MAX_NAME and not any("\ud800" <= each <= "\udfff" for each in name)
    )


def _role_column(schema: TopicSchema, role: str, name: str | None) -> Column | None:
    if name is None:
        return None
    column = schema.column(name)
    if column is None:
        raise ConfigError(f"{role} column {name!r} is not among the columns {', '.join(schema.names)}")
    return column


def draw_ids(names: Sequence[str], seed: str, taken: Collection[int] = ()) -> list[int]:
    """Return an id for each name, none of them `taken`."""
    ids = dict.fromkeys(taken)
    for name in names:
        drawn = (_drawn(f"{seed} {attempt} {name}") for attempt in count())
        ids[next(each for each in drawn if each not in ids)] = None
    return list(ids)[len(ids) - len(names) :]


def _drawn(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    drawn: int = int.from_bytes(digest[:8]) % (2**_ID_BITS - 1) + 1
    return drawn


def _spelled(kind: Type) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])

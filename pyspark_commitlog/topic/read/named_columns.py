"""Columns that readers name: those of untyped topics, declared ones, and the common ones of all topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import SchemaChangedError, UsageError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, TIMESTAMP, Ints
from pyspark_commitlog.format.frame import MAX_ROWS
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.topic.read.reader import Rows

#: Schemas of topics by name; None of untyped ones.
Schemas = Mapping[str, TopicSchema | None]
#: Columns of untyped topics, as of Spark's Kafka source.
UNTYPED = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS),
    ]
)
#: Columns of all topics, typed or not.
COMMON = pa.schema(
    [
        pa.field("_topic", pa.string()),
        pa.field("_partition_id", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", TIMESTAMP),
        pa.field("_timestampType", pa.int32()),
        pa.field("_key", pa.binary()),
        pa.field("_headers", HEADERS),
    ]
)
#: All columns but the common ones.
STAR = "*"


class NamedColumns:
    """Columns of a reader's rows, in order.

    `ids` has the ids of declared columns, by typed topic and name.
    """

    def __init__(self, schema: pa.Schema, ids: Mapping[str, Mapping[str, int]]) -> None:
        self.schema, self._ids = schema, ids
        self._untyped = _stored(schema.names, None)
        self._typed = {topic: _stored(schema.names, found) for topic, found in ids.items()}

    def select(self, names: Iterable[str]) -> NamedColumns:
        """Return some of the columns, in the order of `names`; none if it is empty."""
        return NamedColumns(pa.schema([self.schema.field(name) for name in names]), self._ids)

    def stored(self, topic: str) -> tuple[str, ...]:
        """Columns to decode of a topic's frames."""
        return self._typed.get(topic, self._untyped)

    def batch(self, topic: str, partition: int, rows: Rows) -> pa.RecordBatch:
        """Return rows with these columns; stored ones are not copied."""
        if not self.schema.names:
            return pa.record_batch([pa.nulls(rows.count)], names=[""]).select([])  # an empty batch has no count
        ids = self._ids.get(topic)
        arrays = [
            _cast(_common(_plain(field.name), topic, partition, rows), field.type)
            if ids is None or field.name in COMMON.names
            else self._declared(topic, partition, field, rows)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _declared(self, topic: str, partition: int, field: pa.Field, rows: Rows) -> pa.Array:
        stored = str(self._ids[topic].get(field.name))
        if rows.batch is None or stored not in rows.batch.schema.names:  # another topic's, or younger than the frame
            return pa.nulls(rows.count, field.type)
        column = rows.batch.column(stored)
        if (row := _first_wider(column, field.type)) is not None:
            raise SchemaChangedError(
                f"topic {topic!r} partition {partition} offset {rows.offset_of(row)}: column {field.name!r} is "
                f"{column.type} by now, and its value is none of {field.type}, which it was when this reader began: "
                f"start the reader again, to read it as {column.type}"
            )
        return column if column.type == field.type else column.cast(field.type, safe=False)


def _first_wider(column: pa.Array, kind: pa.DataType) -> int | None:
    """Return the first row whose value a type can't hold, of a column that may have been widened since."""
    if column.type == kind or pa.types.is_nested(kind) or _holds_all(kind, column.type):
        return None
    if pa.types.is_decimal(kind):
        most = Decimal((0, (9,) * kind.precision, -kind.scale))
        differs = pc.greater(pc.abs(column), pa.scalar(most, pa.decimal128(38, kind.scale)))
    else:
        differs = pc.not_equal(column, column.cast(kind, safe=False).cast(column.type, safe=False))
        if pa.types.is_floating(kind):
            differs = pc.and_(differs, pc.invert(pc.is_nan(column)))
    row = int(pc.index(differs, True).as_py())
    return None if row < 0 else row


def _holds_all(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a number type takes all values of another one of its kind."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision >= other.precision)
    return bool(kind.bit_width >= other.bit_width)


def _stored(names: Iterable[str], ids: Mapping[str, int] | None) -> tuple[str, ...]:
    """Return the fields of frames that columns need; `ids` is None of an untyped topic."""
    if ids is None:
        wanted = {_plain(name) for name in names} & set(SCHEMA.names)
    else:
        wanted = {str(ids[name]) for name in names if name in ids}
        wanted |= {_plain(name) for name in names if name in COMMON.names} & set(SCHEMA.names)
    return tuple(sorted(wanted))


def _plain(name: str) -> str:
    return "partition" if name == "_partition_id" else name.removeprefix("_")


def _common(name: str, topic: str, partition: int, rows: Rows) -> pa.Array:
    count = rows.count
    if name == "topic":
        return _repeated(topic, max(count, MAX_ROWS)).slice(0, count)
    if name == "partition":
        return pa.array(np.full(count, partition, np.int32))
    if name == "timestampType":
        return pa.array(np.full(count, rows.log_append_time, np.int32))
    if name == "offset":
        return pa.array(offsets_of(rows), pa.int64())
    assert rows.batch is not None
    return frame_rows.common_column(rows.batch, name)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


@lru_cache(maxsize=16)
def _repeated(topic: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), count)


def offsets_of(rows: Rows) -> Ints:
    """Offset of every row."""
    if rows.offsets is not None:
        return rows.offsets
    return np.arange(rows.first_offset, rows.first_offset + rows.count)


def as_names(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return an argument `columns` as names."""
    return (STAR,) if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


def name_columns(columns: Sequence[str] | None, schemas: Schemas) -> NamedColumns:
    """Return the columns of a reader of some topics (pure).

    Args:
        columns: names in order, `*` for all but the common ones; None: these.
        schemas: of the topics; a column that one lacks is null for its records.

    Raises:
        UsageError: an unknown or repeated name, or one that means several things.
    """
    asked = as_names(columns)
    typed = {topic: schema for topic, schema in schemas.items() if schema is not None}
    if len(typed) < len(schemas) and typed and not set(asked) <= set(COMMON.names):
        untyped = min(schemas.keys() - typed.keys())
        raise UsageError(
            f"topic {min(typed)!r} is typed and topic {untyped!r} is not: read them apart, or name only columns of "
            f"both: {', '.join(COMMON.names)}"
        )
    own = list(dict.fromkeys(name for schema in typed.values() for name in schema.names)) if typed else UNTYPED.names
    names = [each for name in asked for each in (own if name == STAR else [name])]
    unknown = set(names) - {*own, *COMMON.names}
    if unknown or not names or len(set(names)) < len(names):
        raise UsageError(
            f"columns={list(asked)} is not allowed: it takes any of {', '.join((*own, *COMMON.names))}, each once"
        )
    fields = [_field(name, typed) for name in names]
    return NamedColumns(pa.schema(fields), {topic: schema.ids for topic, schema in typed.items()})


def check_untyped(schemas: Schemas, call: str, instead: str) -> None:
    """Refuse a call that is for keys and values, if a topic is typed."""
    typed = [topic for topic, schema in schemas.items() if schema is not None]
    if typed:
        raise UsageError(f"topic {min(typed)!r} is typed, {call} is for topics of keys and values: {instead}")


def _field(name: str, typed: Mapping[str, TopicSchema]) -> pa.Field:
    if name in COMMON.names or not typed:
        return (COMMON if name in COMMON.names else UNTYPED).field(name)
    columns = ((topic, schema.column(name)) for topic, schema in typed.items())
    kinds = [(topic, to_arrow(as_nullable(column.field.type))) for topic, column in columns if column is not None]
    (owner, kind), *others = kinds
    for topic, other in others:
        if other != kind:
            raise UsageError(
                f"column {name!r} is {kind} in topic {owner!r} and {other} in topic {topic!r}: read them apart"
            )
    return pa.field(name, kind)

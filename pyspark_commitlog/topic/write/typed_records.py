"""Record checks against a typed topic's schema, column by column."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import ConfigError, InvalidRecordError
from pyspark_commitlog.format.columns.nested import null_parts, texts
from pyspark_commitlog.format.columns.typed import frame_schema, key_bytes
from pyspark_commitlog.format.schema.arrow_types import from_arrow, to_arrow
from pyspark_commitlog.format.schema.topic_schema import RESERVED, Column, TopicSchema
from pyspark_commitlog.format.schema.types import as_nullable, is_wider
from pyspark_commitlog.storage.shared.caches import Reported
from pyspark_commitlog.topic.write.records import (
    Records,
    TopicLimits,
    check_sizes,
    check_type,
    headers_of,
    narrowed,
    partitions_of,
    stamped,
)
from pyspark_commitlog.topic.write.row_bytes import row_bytes
from pyspark_commitlog.topic.write.typed_checksum import checksum

#: Reserved columns that a write takes, and the untyped ones that have their types; the log assigns the others.
_TAKEN = {"_headers": "headers", "_partition_id": "partition", "_timestamp": "timestamp"}
#: Ids of dropped columns that this process warned of.
_warned = Reported()
logger = logging.getLogger("pyspark_commitlog.topic")


class TypedRows:
    """Checks of one typed topic's records.

    A writer that began under version `began` of the schema may give a column by a name that it had since.
    """

    def __init__(self, topic: str, schema: TopicSchema, limits: TopicLimits, began: int = 0) -> None:
        self._topic, self._declared, self._limits = topic, schema, limits
        self._ids, self._columns = schema.ids_for_writer(began), {column.id: column for column in schema.columns}
        self._kinds = {column.id: to_arrow(as_nullable(column.field.type)) for column in schema.columns}
        fields = [pa.field(column.stored_name, self._kinds[column.id]) for column in schema.columns]
        self._schema = frame_schema(fields, schema.key, schema.timestamp, headers=True)
        self._key, self._time = schema.by_id(schema.key), schema.by_id(schema.timestamp)

    def check_columns(self, schema: pa.Schema) -> None:
        """Check the names and types of a writer's columns."""
        if len(set(schema.names)) < len(schema.names):
            raise InvalidRecordError(
                f"topic {self._topic!r}: some of the columns {schema.names} have one name; rename them"
            )
        if "value" in schema.names and "value" not in self._ids:
            raise InvalidRecordError(
                f"topic {self._topic!r} is typed: it takes the columns {', '.join(self._declared.names)}, not key and "
                "value. Select them, for example with from_json(CAST(value AS STRING), …)"
            )
        for field in schema:
            self._check_field(field)
        given = self._names_by_id(schema.names)
        for column in self._declared.columns:
            if column.id not in given and not self._may_be_null(column):
                raise InvalidRecordError(
                    f"topic {self._topic!r}: column {column.name!r} is missing, and is {self._why_needed(column)}: add "
                    "it"
                )

    def _names_by_id(self, names: Sequence[str]) -> dict[int, str]:
        """Return the names that a writer gives columns by, by id."""
        found = dict[int, str]()
        for name in names:
            column_id = self._ids.get(name)
            if column_id is None:  # reserved
                continue
            if column_id in found:
                raise InvalidRecordError(
                    f"topic {self._topic!r}: columns {found[column_id]!r} and {name!r} are one column, which was "
                    "renamed: drop one"
                )
            found[column_id] = name
        return found

    def _check_field(self, field: pa.Field) -> None:
        if field.name in _TAKEN:
            check_type(self._topic, field, _TAKEN[field.name])
        if field.name in RESERVED:
            return
        if field.name not in self._ids:
            raise InvalidRecordError(
                f"topic {self._topic!r}: there is no column {field.name!r}; it has {', '.join(self._declared.names)}: "
                "drop or rename it"
            )
        column = self._columns.get(self._ids[field.name])
        if column is None:
            if _warned.is_new(self._ids[field.name]):
                logger.warning("topic %r: column %r was dropped: its values are not written", self._topic, field.name)
            return
        if pa.types.is_null(field.type):
            return
        wanted = as_nullable(column.field.type)
        try:
            given = as_nullable(from_arrow(field.type, field.name))
        except ConfigError as error:
            raise InvalidRecordError(f"topic {self._topic!r}: {error}") from error
        if given != wanted and not is_wider(wanted, given):
            raise InvalidRecordError(
                f"topic {self._topic!r}: column {field.name!r} is {field.type}, declared is "
                f"{self._kinds[column.id]}: cast it"
            )

    def _may_be_null(self, column: Column) -> bool:
        return column.field.nullable and column is not self._key

    def _why_needed(self, column: Column) -> str:
        return "the key" if column is self._key else "declared NOT NULL"

    def prepare(self, batch: pa.RecordBatch, now_ms: int) -> Records:
        """Return the checked rows of a batch.

        Raises:
            InvalidRecordError: a value does not fit its column, or a record the topic's limits.
        """
        rows, limits = batch.num_rows, self._limits
        given = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        names = self._names_by_id(batch.schema.names)
        arrays = {
            column.id: self._column(column, given.get(names.get(column.id, "")), rows)
            for column in self._declared.columns
        }
        keys = pa.nulls(rows, pa.binary())
        if self._key is not None:
            keys = key_bytes(arrays[self._key.id])
        times = given.get("_timestamp") if self._time is None else arrays[self._time.id]
        stamps, asked = stamped(times, rows, limits, now_ms)
        headers = headers_of(given.get("_headers"), rows, limits.topic)
        sizes = row_bytes([*arrays.values(), headers], rows)
        check_sizes(sizes, limits)
        if self._time is not None:
            arrays[self._time.id] = stamps
        ordered = [*arrays.values(), headers, *([stamps] if self._time is None else [])]
        checked = pa.RecordBatch.from_arrays(ordered, schema=self._schema)
        return Records(checked, keys, partitions_of(given.get("_partition_id"), limits), sizes, asked)

    def _column(self, column: Column, given: pa.Array | None, rows: int) -> pa.Array:
        kind = self._kinds[column.id]
        if given is None or pa.types.is_null(given.type):
            given = pa.nulls(rows, kind)
        elif given.type != kind:
            given = self._cast(column, given, kind)
        if given.null_count and not self._may_be_null(column):
            row = int(pc.index(given.is_null(), True).as_py())
            raise InvalidRecordError(
                f"topic {self._topic!r}: column {column.name!r} is null in record {row} of its batch, and is "
                f"{self._why_needed(column)}: fill it, or leave the record out. Nothing staged"
            )
        try:
            # a nested slice would be validated with all that it is cut from
            for part in texts(given) if pa.types.is_nested(kind) else (given,):
                part.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(
                f"topic {self._topic!r}: column {column.name!r} is no valid {kind} ({error}); declare it binary if it "
                "holds other text than UTF-8. Nothing staged"
            ) from error
        for place, nulls in null_parts(column.name, column.field.type, given):
            raise InvalidRecordError(
                f"topic {self._topic!r}: {place} is null in {nulls} places of column {column.name!r}, and is declared "
                "NOT NULL. Nothing staged"
            )
        return given

    def _cast(self, column: Column, given: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return narrowed(column.name, given, kind, self._topic)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(
                f"topic {self._topic!r}: column {column.name!r} is {given.type}, and has a value that {kind} can't "
                f"hold ({error}): round or cast it. Nothing staged"
            ) from error

    def checksum(self, records: Records) -> int:
        """Checksum of checked records; see `topic.write.typed_checksum`."""
        return checksum(records.batch, records.given)

"""Record checks against a topic's schema and limits (Kafka's `LogValidator`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, TIMESTAMP, Ints, instants
from pyspark_commitlog.format.frame import MAX_RECORD_BYTES
from pyspark_commitlog.topic.write.checksum import checksum
from pyspark_commitlog.topic.write.row_bytes import row_bytes

#: Limit of 32-bit offsets, bytes.
MAX_COLUMN_BYTES = 2**31 - 1
_TEXT = "a string or binary column"
_MS_US = 1000
#: Columns of the source that the log assigns; ignored, as by Spark's `KafkaWriter`.
_IGNORED = ("offset", "timestampType")


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of a topic's records, in bytes and ms."""

    topic: str
    partitions: int
    max_message_bytes: int
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    compacted: bool = False

    @classmethod
    def of(cls, topic: str, partitions: int, config: TopicConfig) -> TopicLimits:
        """Build from a topic's config."""
        return cls(
            topic=topic,
            partitions=partitions,
            max_message_bytes=config.number("max.message.bytes"),
            log_append_time=config.text("message.timestamp.type") == "LogAppendTime",
            before_max_ms=config.number("message.timestamp.before.max.ms"),
            after_max_ms=config.number("message.timestamp.after.max.ms"),
            compacted=config.has_policy("compact"),
        )


@dataclass(frozen=True, slots=True)
class Records:
    """Checked rows, with their keys, explicit partitions (int32, nullable) and bytes.

    `given` are the timestamps not stamped here, else null; None if all were.
    """

    batch: pa.RecordBatch
    keys: pa.BinaryArray
    partition: pa.Array | None
    sizes: Ints
    given: pa.Array | None


class UntypedRows:
    """Checks of one untyped topic's records."""

    def __init__(self, limits: TopicLimits) -> None:
        self._limits = limits

    def check_columns(self, schema: pa.Schema) -> None:
        """Check the names and types of a writer's columns."""
        check_columns(self._limits.topic, schema)

    def prepare(self, batch: pa.RecordBatch, now_ms: int) -> Records:
        """Return the checked rows of a batch; see `prepare`."""
        return prepare(batch, self._limits, now_ms)

    def checksum(self, records: Records) -> int:
        """Checksum of checked records; see `topic.write.checksum`."""
        return checksum(records.batch, records.given)


def check_columns(topic: str, schema: pa.Schema) -> None:
    """Check the names and types of a writer's columns."""
    if "value" not in schema.names:
        raise InvalidRecordError(
            f"topic {topic!r}: there is no 'value' column among {schema.names}; "
            "select what shall be written, for example to_json(struct(*)) AS value"
        )
    if len(set(schema.names)) < len(schema.names):
        raise InvalidRecordError(f"topic {topic!r}: some of the columns {schema.names} have one name; rename them")
    for field in schema:
        if field.name in _IGNORED:
            continue
        if field.name not in _ALLOWED:
            raise InvalidRecordError(
                f"topic {topic!r}: unknown column {field.name!r}; a record has {', '.join(_ALLOWED)}: "
                "put anything else into the value"
            )
        check_type(topic, field, field.name)


def check_type(topic: str, field: pa.Field, column: str) -> None:
    """Check that a field has a type of the untyped `column`."""
    checks, expected = _ALLOWED[column]
    if not any(check(field.type) for check in checks):
        raise InvalidRecordError(f"topic {topic!r}: column {field.name!r} is {field.type}; it takes {expected}")


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text_type(kind: pa.DataType) -> bool:
    kind = _decoded(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    if _is_text_type(kind):
        return True
    kind = _decoded(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)


def _is_headers(kind: pa.DataType) -> bool:
    if not any(check(kind) for check in _LISTS):
        return False
    if pa.types.is_null(kind.value_type):  # of array()
        return True
    if not pa.types.is_struct(kind.value_type) or [field.name for field in kind.value_type] != ["key", "value"]:
        return False
    key, value = (field.type for field in kind.value_type)
    return _is_text_type(key) and _is_bytes(value)


#: A literal NULL has a type of its own, and stands for a column without values.
_ALLOWED: Mapping[str, tuple[tuple[Callable[[pa.DataType], bool], ...], str]] = {
    "key": ((_is_bytes, pa.types.is_null), _TEXT),
    "value": ((_is_bytes, pa.types.is_null), _TEXT),
    "headers": ((_is_headers, pa.types.is_null), "array<struct<key string, value binary>>"),
    "timestamp": ((pa.types.is_timestamp, pa.types.is_null), "a timestamp column"),
    "partition": ((pa.types.is_integer, pa.types.is_null), "an int column"),
    "topic": ((_is_text_type,), "a string column"),
}


def prepare(batch: pa.RecordBatch, limits: TopicLimits, now_ms: int) -> Records:
    """Return the checked rows of a batch.

    A missing or null timestamp becomes `now_ms`, by the write task's clock.

    Raises:
        InvalidRecordError: a record is too large, its timestamp out of bounds, its partition unknown, a header keyless,
            or the record keyless in a compacted topic.
    """
    rows = batch.num_rows
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    if limits.compacted:
        _check_keys(columns.get("key"), rows, limits)
    timestamp, given = stamped(columns.get("timestamp"), rows, limits, now_ms)
    arrays = [
        _bytes("key", columns.get("key"), rows, limits.topic),
        _bytes("value", columns["value"], rows, limits.topic),
        headers_of(columns.get("headers"), rows, limits.topic),
        timestamp,
    ]
    sizes = row_bytes(arrays[:3], rows)  # key, value, headers
    check_sizes(sizes, limits)
    partition = partitions_of(columns.get("partition"), limits)
    return Records(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), arrays[0], partition, sizes, given)


def _check_keys(column: pa.Array | None, rows: int, limits: TopicLimits) -> None:
    missing = rows if column is None else column.null_count
    if missing:
        raise InvalidRecordError(
            f"topic {limits.topic!r} has cleanup.policy=compact, and {missing} of {rows} records have no key: give "
            "each one. Nothing staged"
        )


def _bytes(name: str, column: pa.Array | None, rows: int, topic: str) -> pa.Array:
    if column is None:
        return pa.nulls(rows, pa.binary())
    return narrowed(name, column, pa.binary(), topic)


def narrowed(name: str, column: pa.Array, kind: pa.DataType, topic: str) -> pa.Array:
    """Cast a column to a type with 32-bit offsets; slices of one above 2 GiB are copied."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):  # of views Arrow decodes none
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(kind))
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        if column.nbytes <= MAX_COLUMN_BYTES:
            return column.take(pa.array(np.arange(len(column)))).cast(kind)
        raise InvalidRecordError(
            f"topic {topic!r}: column {name!r} has {column.nbytes} bytes in {len(column)} records, at most "
            f"{MAX_COLUMN_BYTES} can be taken at once: write them in smaller batches, and store a value that is larger "
            "elsewhere. Nothing staged"
        ) from error


def headers_of(column: pa.Array | None, rows: int, topic: str) -> pa.Array:
    """Return checked headers, null if there is no column."""
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(rows, HEADERS)
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        column = _of_views(column)
    column = narrowed("headers", column, HEADERS, topic)
    if column.null_count < rows:
        pairs = column.flatten()
        if pairs.null_count or pairs.field(0).null_count or not _is_text(pairs.field(0)):
            raise InvalidRecordError(
                f"topic {topic!r}: a record's headers hold a null, or one whose key is null or no UTF-8: leave it out, "
                "or give it a key (its value may be null). Nothing staged"
            )
    return column


def _of_views(column: pa.Array) -> pa.Array:
    """Return list views as lists; Arrow's cast miscounts null views."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))
    return pa.LargeListArray.from_arrays(ends, column.flatten(), mask=column.is_null())


def _is_text(keys: pa.StringArray) -> bool:
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def stamped(column: pa.Array | None, rows: int, limits: TopicLimits, now_ms: int) -> tuple[pa.Array, pa.Array | None]:
    """Return timestamps (µs), checked and stamped if null, and those given (None: none)."""
    given = _given_timestamps(column, limits)
    return _timestamps(given, rows, limits, now_ms), given


def _given_timestamps(column: pa.Array | None, limits: TopicLimits) -> pa.Array | None:
    if column is None or limits.log_append_time or pa.types.is_null(column.type):
        return None
    # Any time zone names the same instants; naive ones of pandas and Arrow are UTC by convention.
    return column if column.type == TIMESTAMP else _microseconds(column, limits)


def _timestamps(given: pa.Array | None, rows: int, limits: TopicLimits, now_ms: int) -> pa.Array:
    now = pa.scalar(now_ms * _MS_US, TIMESTAMP)
    if given is None:
        return pa.repeat(now, rows)
    column = given.fill_null(now) if given.null_count else given
    if rows:
        _check_times(column, limits, now_ms)
    return column


def _microseconds(column: pa.Array, limits: TopicLimits) -> pa.Array:
    try:
        return column.cast(TIMESTAMP, safe=column.type.unit != "ns")
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(
            f"topic {limits.topic!r}: a timestamp is out of range ({error}); nothing staged"
        ) from error


def _check_times(column: pa.Array, limits: TopicLimits, now_ms: int) -> None:
    times = instants(column)
    earliest, latest = int(times.min()) // _MS_US, int(times.max()) // _MS_US
    floor = max(0, now_ms - limits.before_max_ms)
    if earliest < floor:
        reason = "message.timestamp.before.max.ms" if earliest >= 0 else "no timestamp before 1970"
        raise InvalidRecordError(
            f"topic {limits.topic!r}: a record's timestamp {earliest} ms is below {floor} ms ({reason}); nothing staged"
        )
    if latest > now_ms + limits.after_max_ms:
        raise InvalidRecordError(
            f"topic {limits.topic!r}: a record's timestamp {latest} ms is more than {limits.after_max_ms} ms ahead of "
            f"the clock ({now_ms} ms); correct it or raise message.timestamp.after.max.ms. Nothing staged"
        )


def check_sizes(sizes: Ints, limits: TopicLimits) -> None:
    """Refuse a record above the topic's limit."""
    largest = int(sizes.max()) if len(sizes) else 0
    if largest > MAX_RECORD_BYTES:
        raise InvalidRecordError(
            f"topic {limits.topic!r}: record {int(sizes.argmax())} of its batch has {largest} bytes, a record can have "
            f"{MAX_RECORD_BYTES}: store the value elsewhere. Nothing staged"
        )
    if largest > limits.max_message_bytes:
        raise InvalidRecordError(
            f"topic {limits.topic!r}: record {int(sizes.argmax())} of its batch has {largest} bytes, "
            f"max.message.bytes is {limits.max_message_bytes}: raise it for the topic, or store the value elsewhere. "
            "Nothing staged"
        )


def partitions_of(column: pa.Array | None, limits: TopicLimits) -> pa.Array | None:
    """Return checked explicit partitions; None if there are none."""
    if column is None or column.null_count == len(column):
        return None
    bounds = pc.min_max(column).as_py()
    for partition in (bounds["min"], bounds["max"]):
        if not 0 <= partition < limits.partitions:
            raise InvalidRecordError(
                f"topic {limits.topic!r}: partition {partition} does not exist; it has 0 to {limits.partitions - 1}"
            )
    return column.cast(pa.int32())

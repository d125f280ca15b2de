"""Columns of a typed topic, encoded to and decoded from Arrow messages.

The record's value is a schema message, whose fields are named by column ids; messages of one column each, the
dictionaries; and the RecordBatch message. Common fields are `headers`, `timestamp` if no declared column is the
record's timestamp, and `offsetDelta` of sparse frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import arrow_metadata, messages, statistics
from pyspark_commitlog.format.columns.messages import MessageSchema
from pyspark_commitlog.format.columns.order import is_text
from pyspark_commitlog.format.columns.statistics import Statistics
from pyspark_commitlog.format.columns.storing import DICTIONARY, Storing, restore, store, stored_type
from pyspark_commitlog.format.columns.untyped import HEADERS, OFFSET_DELTA, SPARSE_SCHEMA, TIMESTAMP
from pyspark_commitlog.format.schema.arrow_types import from_arrow, to_arrow
from pyspark_commitlog.format.schema.topic_schema import KEY_TYPES, MAX_COLUMNS

TIME_NAME, HEADERS_NAME = "timestamp", "headers"
#: Members of a schema's metadata: the ids of the columns that are the key and the timestamp, empty if none.
_KEY, _TIME = b"key", b"timestamp"
#: Types of the fields that have no column id.
_COMMON = {HEADERS_NAME: HEADERS, TIME_NAME: TIMESTAMP, OFFSET_DELTA: SPARSE_SCHEMA.field(OFFSET_DELTA).type}
#: Fields without statistics.
_UNTOLD = (OFFSET_DELTA, HEADERS_NAME)
#: Maximum of fields in a frame.
MAX_FIELDS = MAX_COLUMNS + len(_COMMON)
#: Schemas, and their stored forms, kept.
_KEPT = 128
_DICTIONARIES = MessageSchema(pa.schema([pa.field("values", pa.binary())]), ("values",))
_Storings = dict[str, Storing]
_STORINGS = msgspec.json.Decoder(_Storings)


def frame_schema(
    columns: Iterable[pa.Field], key: int | None, timestamp: int | None, *, headers: bool = False
) -> pa.Schema:
    """Return the schema of a typed topic's rows.

    Args:
        columns: fields named by column ids.
        key, timestamp: ids of the columns that are the records' key and timestamp.
    """
    fields = list(columns)
    fields += [pa.field(HEADERS_NAME, HEADERS)] if headers else []
    fields += [pa.field(TIME_NAME, TIMESTAMP)] if timestamp is None else []
    metadata = {_KEY: b"%d" % key if key else b"", _TIME: b"%d" % timestamp if timestamp else b""}
    return pa.schema(fields, metadata)


def is_typed(schema: pa.Schema) -> bool:
    """Whether rows are those of a typed topic."""
    return schema.metadata is not None and _TIME in schema.metadata


def time_name(schema: pa.Schema) -> str:
    """Name of the field that is the record's timestamp."""
    named = (schema.metadata or {}).get(_TIME, b"")
    return named.decode() if named else TIME_NAME


def key_name(schema: pa.Schema) -> str:
    """Name of the field that is the record's key; empty if none."""
    named: bytes = (schema.metadata or {}).get(_KEY, b"")
    return named.decode()


def key_bytes(column: pa.Array) -> pa.BinaryArray:
    """Return a key column's bytes as Kafka's serializers write them.

    Strings are UTF-8, numbers big-endian in 2, 4 or 8 bytes (`StringSerializer`, `ShortSerializer`,
    `IntegerSerializer`, `LongSerializer`).
    """
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.view(pa.binary())
    size, rows = column.type.bit_width // 8, len(column)
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy().astype(f">i{size}")
    ends = np.arange(rows + 1, dtype=np.int32) * size
    data = pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(numbers.tobytes())])
    return pc.if_else(column.is_valid(), data, pa.scalar(None, pa.binary())) if column.null_count else data


class TypedMessages(NamedTuple):
    """A frame's messages, and the texts of its headers `columns` and `statistics`, None of few rows."""

    value: pa.Buffer
    columns: str
    statistics: str | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    """Stored form of rows of one schema."""

    logical: pa.Schema
    head: bytes
    stored: MessageSchema
    is_sparse: bool


def encode(batch: pa.RecordBatch, compression: str) -> TypedMessages:
    """Return rows of a `frame_schema` as messages."""
    batch = _without_null_headers(batch)
    storings: _Storings = {}
    bounds: dict[str, statistics.Row] = {}
    arrays, dictionaries = [], list[pa.Array]()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        stored = store(column, len(dictionaries))
        arrays.append(stored.column)
        if stored.storing is not None:
            storings[name] = stored.storing
        if stored.dictionary is not None:
            dictionaries.append(stored.dictionary)
        row = statistics.row_of(column, stored.dictionary, stored.ends) if name not in _UNTOLD else None
        if row is not None:
            bounds[name] = row
    form = _form(batch.schema.serialize().to_pybytes(), _kinds(storings))
    parts = [form.head]
    for values in dictionaries:
        rows = pa.RecordBatch.from_arrays([values], schema=_DICTIONARIES.schema)
        parts.append(messages.encode(rows, _DICTIONARIES, compression))
    rows = pa.RecordBatch.from_arrays(arrays, schema=form.stored.schema)
    parts.append(messages.encode(rows, form.stored, compression))
    value, columns = pa.py_buffer(b"".join(parts)), msgspec.json.encode(storings).decode()
    return TypedMessages(value, columns, statistics.encode(bounds) if bounds else None)


def _without_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index(HEADERS_NAME)
    unused = at >= 0 and batch.column(at).null_count == batch.num_rows
    return batch.drop_columns([HEADERS_NAME]) if unused else batch


def _kinds(storings: Mapping[str, Storing]) -> tuple[tuple[str, str, int], ...]:
    return tuple((name, storing.how, storing.width) for name, storing in storings.items())


@lru_cache(_KEPT)
def _form(head: bytes, kinds: tuple[tuple[str, str, int], ...]) -> _Form:
    """Return the stored form of a schema message's rows.

    Raises:
        CorruptionError: the message is no schema of a typed frame.
    """
    try:
        logical = pa.ipc.read_schema(pa.py_buffer(head))
        _check_schema(logical)
        by_name = {name: (how, width) for name, how, width in kinds}
        if not by_name.keys() <= set(logical.names):
            raise CorruptionError(f"the header columns names {sorted(by_name)}, the schema {logical.names}")
        fields = [pa.field(field.name, stored_type(field.type, *by_name.get(field.name, ("", 0)))) for field in logical]
        stored = MessageSchema(pa.schema(fields), (time_name(logical), OFFSET_DELTA))
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"the frame's schema does not parse ({error})") from error
    return _Form(logical, head, stored, OFFSET_DELTA in logical.names)


def _check_schema(schema: pa.Schema) -> None:
    if not is_typed(schema) or len(set(schema.names)) < len(schema.names) or len(schema) > MAX_FIELDS:
        raise CorruptionError(f"{len(schema)} fields with the metadata {schema.metadata} are no frame's")
    for field in schema:
        if field.type != (_COMMON.get(field.name) or _column_type(field)):
            raise CorruptionError(f"no typed frame has a field {field.name!r} of type {field.type}")
    if schema.field(time_name(schema)).type != TIMESTAMP:
        raise CorruptionError(f"the timestamp is the field {schema.field(time_name(schema))}")
    if (key := key_name(schema)) and from_arrow(schema.field(key).type, key) not in KEY_TYPES:
        raise CorruptionError(f"the key is the field {schema.field(key)}")


def _column_type(field: pa.Field) -> pa.DataType:
    """Return the type of a declared column that is like a field's."""
    if not (field.name.isascii() and field.name.isdigit()):
        raise CorruptionError(f"the field {field.name!r} is named by no column id")
    return to_arrow(from_arrow(field.type, field.name))


@dataclass(frozen=True, slots=True)
class _Parsed:
    form: _Form
    storings: _Storings
    dictionaries: Sequence[pa.Buffer]
    rows: pa.Buffer
    key: tuple[bytes, tuple[tuple[str, str, int], ...]]


def _parse(value: pa.Buffer, columns: str, *, sparse: bool) -> _Parsed:
    try:
        storings = _STORINGS.decode(columns)
    except ValueError as error:
        raise CorruptionError(f"the header columns does not parse ({error})") from error
    key = (schema_bytes(value), _kinds(storings))
    form, end = _form(*key), len(key[0])
    if form.is_sparse != sparse:
        raise CorruptionError(f"{OFFSET_DELTA} is a column of sparse frames only, and of each of them")
    numbers = [storing.first for storing in storings.values() if storing.how == DICTIONARY]
    if sorted(numbers) != list(range(len(numbers))):
        raise CorruptionError(f"dictionaries are numbered {sorted(numbers)}, expected each of 0 to {len(numbers) - 1}")
    parts = []
    for _ in numbers:
        start, end = end, end + arrow_metadata.message_bytes(value, end)
        parts.append(value.slice(start, end - start))
    return _Parsed(form, storings, parts, value.slice(end), key)


def decoded_bytes(value: pa.Buffer, columns: str, *, sparse: bool = False) -> int:
    """Return the decoded size of a frame's columns, checking rows, without decoding them."""
    parsed = _parse(value, columns, sparse=sparse)
    return _checked_size(parsed, parsed.form.logical.names)


def _checked_size(parsed: _Parsed, names: Iterable[str]) -> int:
    """Return the bytes that columns take while they are decoded: stored, and in their own types."""
    size, rows = arrow_metadata.checked_size(parsed.rows, parsed.form.stored.shape)
    for name in names:
        storing = parsed.storings.get(name)
        if storing is None:
            continue
        if storing.how != DICTIONARY:
            size += (parsed.form.logical.field(name).type.bit_width // 8 - storing.width) * rows
        elif storing.second < 0:
            raise CorruptionError(f"the dictionary of column {name} expands to {storing.second} bytes")
        else:
            size += arrow_metadata.checked_bytes(parsed.dictionaries[storing.first], _DICTIONARIES.shape)
            size += storing.second
    if size > arrow_metadata.MAX_DECODED_BYTES:
        raise CorruptionError(f"the frame decodes to {size} bytes, expected {arrow_metadata.MAX_DECODED_BYTES} at most")
    return size


def decode(
    value: pa.Buffer,
    columns: str,
    names: Sequence[str] | None = None,
    *,
    sparse: bool = False,
    kept: pa.BooleanArray | None = None,
) -> pa.RecordBatch:
    """Return the rows of a frame, or those that are `kept`.

    Only the columns in `names` (None: all) are decompressed; `timestamp` is the record's, declared or not. Those that
    the frame lacks are left out; without any, the timestamp stands for them.
    """
    parsed, stored = _stored(value, columns, names, sparse=sparse)
    if kept is not None and len(kept) != stored.num_rows:
        raise CorruptionError(f"the frame holds {stored.num_rows} rows, expected {len(kept)}")
    logical = parsed.form.logical
    arrays = []
    for name in stored.schema.names:
        storing, column = parsed.storings.get(name), stored.column(name)
        arrays.append(restore(column, logical.field(name).type, storing, _dictionary(parsed, storing), kept))
    fields = [logical.field(name) for name in stored.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, logical.metadata))


def _stored(
    value: pa.Buffer, columns: str, names: Sequence[str] | None, *, sparse: bool
) -> tuple[_Parsed, pa.RecordBatch]:
    """Return columns in the form in which they are stored."""
    parsed = _parse(value, columns, sparse=sparse)
    present = _present(parsed.form.logical, names)
    _checked_size(parsed, present)
    return parsed, messages.decode(parsed.rows, parsed.form.stored, parsed.key, None if names is None else present)


def _dictionary(parsed: _Parsed, storing: Storing | None) -> pa.Array | None:
    if storing is None or storing.how != DICTIONARY:
        return None
    return messages.decode(parsed.dictionaries[storing.first], _DICTIONARIES, DICTIONARY).column(0)


def parse_statistics(value: pa.Buffer, text: str, names: Collection[str] | None = None) -> dict[str, Statistics]:
    """Return a frame's statistics by field, of those in `names`, None: all.

    `key` and `timestamp` are the records', declared or not.

    Raises:
        CorruptionError: they are not of this frame's columns.
    """
    logical = _form(schema_bytes(value), ()).logical
    if names is None:
        return statistics.parse(text, logical)
    alias = {name: stored for name, stored in _aliases(logical).items() if name in names}
    if (key := alias.get(_KEY.decode())) and not is_text(logical.field(key).type):  # ordered by its bytes
        del alias[_KEY.decode()]
    found = statistics.parse(text, logical, {*names, *alias.values()})
    return {**found, **{name: found[stored] for name, stored in alias.items() if stored in found}}


def _aliases(logical: pa.Schema) -> dict[str, str]:
    return {_KEY.decode(): key_name(logical), TIME_NAME: time_name(logical)}


class Coded(NamedTuple):
    """A column's values; of a dictionary its distinct ones, and each row's index among them."""

    values: pa.Array
    indices: pa.Array | None = None


def coded(value: pa.Buffer, columns: str, names: Sequence[str], *, sparse: bool) -> dict[str, Coded]:
    """Return columns without expanding dictionaries; without those that the frame lacks."""
    parsed, stored = _stored(value, columns, names, sparse=sparse)
    logical = parsed.form.logical
    found = {}
    for name in stored.schema.names:
        storing, column = parsed.storings.get(name), stored.column(name)
        dictionary = _dictionary(parsed, storing)
        if dictionary is None:
            found[name] = Coded(restore(column, logical.field(name).type, storing, None))
        else:
            found[name] = Coded(dictionary, column)
    alias = _aliases(logical)
    return {name: found[stored] for name in names if (stored := alias.get(name, name)) in found}


def dictionaries(value: pa.Buffer, columns: str, names: Sequence[str], *, sparse: bool) -> dict[str, pa.Array]:
    """Return the distinct values, nulls left out, of columns that are stored by dictionaries."""
    parsed = _parse(value, columns, sparse=sparse)
    alias = _aliases(parsed.form.logical)
    found = {name: _dictionary(parsed, parsed.storings.get(alias.get(name, name))) for name in names}
    return {name: distinct for name, distinct in found.items() if distinct is not None}


def described(value: pa.Buffer, columns: str, *, sparse: bool) -> dict[str, str]:
    """Return a frame's columns, by id: the type, and what it is stored by if not plainly."""
    parsed = _parse(value, columns, sparse=sparse)
    storings = parsed.storings
    return {
        field.name: f"{field.type}, {storings[field.name].how}" if field.name in storings else str(field.type)
        for field in parsed.form.logical
    }


def schema_bytes(value: pa.Buffer) -> bytes:
    """Return the schema message at the start of a frame's value."""
    head: bytes = value.slice(0, arrow_metadata.message_bytes(value, 0)).to_pybytes()
    return head


def _present(logical: pa.Schema, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(logical.names)
    alias = _aliases(logical)
    asked = {alias.get(name, name) for name in names}
    return tuple(name for name in logical.names if name in asked) or (alias[TIME_NAME],)

"""Records of typed topics as dicts: their values checked one by one, then gathered into Arrow columns."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from math import isinf
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.typed import key_bytes
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.simple_string import simple_string
from pyspark_commitlog.format.schema.topic_schema import TopicSchema, Type
from pyspark_commitlog.format.schema.types import as_nullable, decimal_parameters
from pyspark_commitlog.model import as_whole

HeaderList = list[tuple[str, bytes | None]]
#: Values of a record's columns, in the order of the schema.
Row = tuple[Any, ...]
#: Returns a value as Arrow takes it, which nobody else can change.
Convert = Callable[[Any], Any]

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_HOLDERS = (list, tuple, dict)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US = timedelta(microseconds=1)


class SentRecord(NamedTuple):
    """Arguments of `send`, checked.

    `value`: bytes, None, or of a typed topic first a dict, then a row of `columns`. `size`: bytes that the buffer
    counts. `is_stamped`: a timestamp was given, else it is the time of the call.
    """

    value: Any
    key: bytes | None
    headers: HeaderList | None
    timestamp_us: int
    partition: int | None
    size: int
    is_stamped: bool
    columns: RowValues | None = None


class RowValues:
    """Declared columns of a topic's records, as Python values."""

    def __init__(self, topic: str, schema: TopicSchema, began: int = 0) -> None:
        self._topic, self.names = topic, schema.names
        self._known = frozenset(schema.names)
        now, ids = {column.id: column.name for column in schema.columns}, schema.ids_for_writer(began)
        self._former = {name: now.get(column_id) for name, column_id in ids.items() if name not in self._known}
        self._kinds = [to_arrow(as_nullable(column.field.type)) for column in schema.columns]
        self._columns = [
            (column.name, _convert(column.field.type, column.name), column.field.nullable and column.id != schema.key)
            for column in schema.columns
        ]
        key, time = schema.by_id(schema.key), schema.by_id(schema.timestamp)
        self.key, self.timestamp = (None if column is None else column.name for column in (key, time))

    def row(self, record: Mapping[str, Any]) -> Row:
        """Return a record's values.

        Raises:
            InvalidRecordError: names the column that is unknown, missing, or whose value does not fit.
        """
        get = record.get if self._known.issuperset(record) else self._named_now(record).get
        try:
            return tuple([_value(name, get(name), convert, nullable) for name, convert, nullable in self._columns])
        except _ValueMismatchError as error:
            raise InvalidRecordError(f"topic {self._topic!r}: column {error}") from None

    def _named_now(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record whose names are of before a change by the present ones, without dropped columns."""
        unknown = [repr(name) for name in record if name not in self._known and name not in self._former]
        if unknown:
            raise InvalidRecordError(
                f"topic {self._topic!r}: there is no column {', '.join(unknown)}; it has {', '.join(self.names)}. What "
                "the log adds goes by arguments: headers, timestamp, partition"
            )
        present = [(self._former.get(name, name), value) for name, value in record.items()]
        named = {name: value for name, value in present if name is not None}
        if len(named) < sum(name is not None for name, _ in present):
            raise InvalidRecordError(
                f"topic {self._topic!r}: two of {', '.join(map(repr, record))} are one column, which was renamed: "
                "leave one out"
            )
        return named

    def key_of(self, row: Row) -> bytes | None:
        """Return the bytes of a record's key."""
        if self.key is None:
            return None
        at = self.names.index(self.key)
        key: bytes = key_bytes(pa.array([row[at]], self._kinds[at]))[0].as_py()
        return key

    def arrays(self, rows: Sequence[Row]) -> dict[str, pa.Array]:
        """Return the columns of records."""
        columns = zip(self.names, zip(*rows, strict=True), self._kinds, strict=True)
        return {name: pa.array(values, kind) for name, values, kind in columns}


def value_bytes(values: Iterable[Any]) -> int:
    """Return the bytes that a row's values take, with all that they hold."""
    return sum(
        [sys.getsizeof(value) + (value_bytes(_parts(value)) if type(value) in _HOLDERS else 0) for value in values]
    )


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


class _ValueMismatchError(Exception):
    """A value that does not fit its column; names the place in it."""


def _refuse(path: str, value: object, kind: Type, expected: str) -> NoReturn:
    raise _ValueMismatchError(
        f"{path!r} is {reprlib.repr(value)} ({type(value).__name__}), declared is {simple_string(kind)}: it takes "
        f"{expected}"
    )


def _value(path: str, value: Any, convert: Convert, nullable: bool) -> Any:
    if value is not None:
        return convert(value)
    if not nullable:
        raise _ValueMismatchError(f"{path!r} is missing or None, and is the key or declared NOT NULL: give it a value")
    return None


def _convert(kind: Type, path: str) -> Convert:
    """Return the conversion of a type's values."""
    if not isinstance(kind, str):
        return {"array": _array, "map": _map, "struct": _struct}[kind["type"]](kind, path)
    if kind in _BITS:
        return _integer(kind, path)
    if kind in ("float", "double"):
        return _real(kind, path)
    if decimal_parameters(kind) is not None:
        return _decimal(kind, path)
    return _OTHERS[kind](path)


def _integer(kind: str, path: str) -> Convert:
    most = 2 ** (_BITS[kind] - 1) - 1

    def convert(value: Any) -> int:
        number = value if type(value) is int else as_whole(value)
        if number is None or not -most - 1 <= number <= most:
            _refuse(path, value, kind, f"whole numbers of {-most - 1} to {most}")
        return number

    return convert


def _real(kind: str, path: str) -> Convert:
    most = _LARGEST_FLOAT if kind == "float" else sys.float_info.max

    def convert(value: Any) -> float:
        whole = None if isinstance(value, float) else as_whole(value)
        if whole is None and not isinstance(value, float | np.floating):
            _refuse(path, value, kind, "numbers, not bool or Decimal")
        if whole is not None and (abs(whole) > most or int(float(whole)) != whole):
            _refuse(path, value, kind, "whole numbers that it can hold exactly")
        number = float(value)
        if abs(number) > most and not isinf(number):
            _refuse(path, value, kind, f"numbers up to {most}, or infinity")
        return number

    return convert


def _decimal(kind: str, path: str) -> Convert:
    precision, scale = decimal_parameters(kind) or (0, 0)
    unit, exactly = Decimal(1).scaleb(-scale), Context(precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Decimal:
        number = value if isinstance(value, Decimal) else as_whole(value)
        if number is None:
            _refuse(path, value, kind, "Decimal or int")
        try:
            exact = Decimal(number).quantize(unit, context=exactly)
        except DecimalException:
            exact = Decimal("NaN")
        if not exact.is_finite():
            _refuse(path, value, kind, "numbers that it can hold exactly: round it")
        return exact

    return convert


def _boolean(path: str) -> Convert:
    def convert(value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            _refuse(path, value, "boolean", "True or False")
        return bool(value)

    return convert


def _string(path: str) -> Convert:
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            _refuse(path, value, "string", "str")
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(path, value, "string", "text that UTF-8 can hold")
        return value

    return convert


def _binary(path: str) -> Convert:
    def convert(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            _refuse(path, value, "binary", "bytes")
        return bytes(value)

    return convert


def _date(path: str) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, date) or isinstance(value, datetime):
            _refuse(path, value, "date", "datetime.date")
        return value.toordinal() - _EPOCH_DAY

    return convert


def _timestamp(path: str) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            _refuse(path, value, "timestamp", "datetime with a time zone, as in tzinfo=UTC")
        return int((value - _EPOCH) // _US)

    return convert


def _timestamp_ntz(path: str) -> Convert:
    epoch = _EPOCH.replace(tzinfo=None)

    def convert(value: Any) -> int:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            _refuse(path, value, "timestamp_ntz", "datetime without a time zone")
        return int((value - epoch) // _US)

    return convert


_OTHERS: Mapping[str, Callable[[str], Convert]] = {
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}


def _array(kind: Mapping[str, Any], path: str) -> Convert:
    place, nullable = f"{path}.element", kind["containsNull"]
    element = _convert(kind["elementType"], place)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | np.ndarray):
            _refuse(path, value, kind, "list or tuple")
        return [_value(place, each, element, nullable) for each in value]

    return convert


def _map(kind: Mapping[str, Any], path: str) -> Convert:
    names, nullable = (f"{path}.key", f"{path}.value"), kind["valueContainsNull"]
    key, item = _convert(kind["keyType"], names[0]), _convert(kind["valueType"], names[1])

    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, Mapping | list | tuple) or any(
            type(pair) not in (tuple, list) or len(pair) != 2 for pair in pairs
        ):
            _refuse(path, value, kind, "dict, or list of pairs")
        return [(_value(names[0], k, key, False), _value(names[1], v, item, nullable)) for k, v in pairs]

    return convert


def _struct(kind: Mapping[str, Any], path: str) -> Convert:
    fields = [
        (each["name"], f"{path}.{each['name']}", _convert(each["type"], f"{path}.{each['name']}"), each["nullable"])
        for each in kind["fields"]
    ]
    known = {name for name, *_ in fields}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not known.issuperset(value):
            _refuse(path, value, kind, "dict of its fields")
        return {name: _value(place, value.get(name), part, nullable) for name, place, part, nullable in fields}

    return convert

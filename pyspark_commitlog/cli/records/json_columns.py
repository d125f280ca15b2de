"""JSON as values of declared columns, by the schema (pure)."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import partial
from typing import Any

from pyspark_commitlog.cli.records.lines import is_utf8
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.schema.simple_string import simple_string
from pyspark_commitlog.format.schema.topic_schema import Type
from pyspark_commitlog.format.schema.types import MAX_PRECISION, decimal_parameters

#: Returns what `pa.array` takes for a JSON value at a path, which is not null.
Convert = Callable[[Any, str], Any]
_INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
#: Of a value in an error.
_SHOWN = 60


class _MisfitError(ValueError):
    """A value is none of its type."""


def converter(kind: Type, *, nullable: bool) -> Convert:
    """Return the conversion of a column's values.

    It raises InvalidRecordError, which names the path, the value and the type.
    """
    convert = _of_type(kind)

    def checked(value: Any, path: str) -> Any:
        if value is None:
            if not nullable:
                raise InvalidRecordError(f"column {path!r} is missing or null, and must have a value")
            return None
        try:
            return convert(value, path)
        except InvalidRecordError:
            raise
        except (ValueError, ArithmeticError) as error:
            shown = json.dumps(value, default=str)[:_SHOWN]
            why = f": {error}" if isinstance(error, _MisfitError) else ""
            raise InvalidRecordError(f"column {path!r} is {shown}, declared is {simple_string(kind)}{why}") from None

    return checked


def _of_type(kind: Type) -> Convert:
    if not isinstance(kind, str):
        return _NESTED[kind["type"]](kind)
    if kind in _INTEGERS:
        return partial(_integer, bits=_INTEGERS[kind])
    parameters = decimal_parameters(kind)
    return _ATOMIC[kind] if parameters is None else partial(_decimal, precision=parameters[0], scale=parameters[1])


def _integer(value: Any, _: str, *, bits: int) -> int:
    if type(value) is not int:
        raise _MisfitError("give a whole number")
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise _MisfitError(f"it takes {bits} bits")
    return value


def _float(value: Any, _: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _MisfitError(f"give a number, or one of {', '.join(_NOT_FINITE)} as text")
    number = float(value)
    if isinstance(value, Decimal) and math.isinf(number):
        raise _MisfitError("it is too large")
    return number


def _decimal(value: Any, _: str, *, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool | float) or not isinstance(value, int | str | Decimal):
        raise _MisfitError("give a number, or text of one")
    with localcontext(prec=2 * MAX_PRECISION):
        try:
            number = Decimal(value)
            rounded = number.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            raise _MisfitError("it does not fit") from None
    if rounded != number or len(rounded.as_tuple().digits) > precision:
        raise _MisfitError("it does not fit")
    return rounded


def _boolean(value: Any, _: str) -> bool:
    if not isinstance(value, bool):
        raise _MisfitError("give true or false")
    return value


def _text(value: Any, _: str) -> str:
    if not isinstance(value, str) or not is_utf8(value):
        raise _MisfitError("give text")
    return value


def _binary(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_text(value, path), validate=True)
    except binascii.Error as error:
        raise _MisfitError(f"give base64 ({error})") from None


def _date(value: Any, path: str) -> date:
    try:
        return date.fromisoformat(_text(value, path))
    except ValueError:
        raise _MisfitError("give a date as 2026-01-31") from None


def _time(value: Any, path: str) -> datetime:
    try:
        return datetime.fromisoformat(_text(value, path))
    except ValueError:
        raise _MisfitError("give a time as 2026-01-31T12:00:00Z") from None


def _instant(value: Any, path: str) -> int:
    at = _time(value, path)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _US


def _local_time(value: Any, path: str) -> int:
    at = _time(value, path)
    if at.tzinfo is not None:
        raise _MisfitError("give a time without a zone")
    return (at.replace(tzinfo=UTC) - _EPOCH) // _US


def _array(kind: Mapping[str, Any]) -> Convert:
    element = converter(kind["elementType"], nullable=kind["containsNull"])

    def convert(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _MisfitError("give a list")
        return [element(each, f"{path}[]") for each in value]

    return convert


def _map(kind: Mapping[str, Any]) -> Convert:
    keys = converter(kind["keyType"], nullable=False)
    values = converter(kind["valueType"], nullable=kind["valueContainsNull"])
    is_text = kind["keyType"] in ("string", "binary", "date", "timestamp", "timestamp_ntz")

    def convert(value: Any, path: str) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _MisfitError("give an object")
        return [
            (keys(name if is_text else _parsed(name), f"{path}.key"), values(each, f"{path}.value"))
            for name, each in value.items()
        ]

    return convert


def _parsed(name: str) -> Any:
    """Return a map's key that is JSON in a text."""
    try:
        return json.loads(name, parse_float=Decimal)
    except ValueError:
        return name  # NaN, for one


def _struct(kind: Mapping[str, Any]) -> Convert:
    fields = {field["name"]: converter(field["type"], nullable=field["nullable"]) for field in kind["fields"]}

    def convert(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _MisfitError("give an object")
        if unknown := sorted(value.keys() - fields.keys()):
            raise _MisfitError(f"it has no field {unknown[0]!r}")
        return {name: field(value.get(name), f"{path}.{name}") for name, field in fields.items()}

    return convert


_ATOMIC: Mapping[str, Convert] = {
    "boolean": _boolean,
    "float": _float,
    "double": _float,
    "string": _text,
    "binary": _binary,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
}
_NESTED: Mapping[str, Callable[[Mapping[str, Any]], Convert]] = {"array": _array, "map": _map, "struct": _struct}

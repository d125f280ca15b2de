"""Decode JSON that others may have written, checked against declared types.

msgspec checks types, ranges and lengths in C, before allocation. Undeclared members are ignored: releases of one format
version may add some; required ones are features. See docs/explanation/design/validated-json.md.
"""

from __future__ import annotations

import re
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pyspark_commitlog.errors import CorruptionError

_Kind = TypeVar("_Kind")
_PLACE = re.compile(r"^(?P<expected>.*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_SHOWN, _MANY = 80, 20
_making = Lock()
_MAKING_SECONDS = 1.0

#: Offsets, lengths, sequences, times in ms.
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: The same, or -1 for none.
OrNone = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
#: A record's timestamp in ms; may lie before 1970.
Timestamp = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: A CRC-32C as a number.
Crc = Annotated[int, Meta(ge=0, le=2**32 - 1)]
CrcText = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
#: An id, part of a path; "" in journals without topic.
Id = Annotated[str, Meta(pattern="^[0-9a-zA-Z-]{0,64}$")]
TopicName = Annotated[str, Meta(pattern=r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$")]
#: Marks of a history, and of a position in one (`format.lineage`).
Marks = Annotated[str, Meta(pattern="^(?:[A-Za-z0-9+/]{8})*$")]
Position = Annotated[str, Meta(pattern="^(|[1-9][0-9]{0,18}:([A-Za-z0-9+/]{8})+)$")]
Text = Annotated[str, Meta(max_length=4096)]


class Shape(msgspec.Struct, rename="camel"):
    """JSON object; its members are the fields in camelCase."""


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """JSON array with one member per field; trailing defaults may be missing."""


def decode(data: bytes, kind: Any, where: str) -> Any:
    """Return JSON decoded as `kind`, else raise `CorruptionError`."""
    try:
        return _decoder(kind).decode(data)
    except (ValueError, RecursionError) as error:
        raise _damage(error, lambda: msgspec.json.decode(data), where) from error


def checked_json(data: bytes, kind: Any, where: str) -> Any:
    """Return JSON of this shape as lists and mappings; raises like `decode`."""
    value = decode(data, object, where)
    check(value, kind, where)
    return value


def check(value: object, kind: type[_Kind], where: str) -> _Kind:
    """Return decoded JSON converted to `kind`; raises like `decode`."""
    _decoder(kind)  # type: ignore[arg-type]  # see there
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError) as error:
        raise _damage(error, lambda: value, where) from error


def damage(where: str, field: str, value: object, expected: str) -> CorruptionError:
    """Error for a wrong value of the right shape."""
    return CorruptionError(f"{where}: {field} is {_abbreviate(value)}, expected {expected}; restore the file")


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a shape; made under a lock.

    While msgspec first inspects a struct, other threads crash if they decode with the partial result. The wait is
    bounded: a forked child may lack the holder.
    """
    alone = _making.acquire(timeout=_MAKING_SECONDS)
    try:
        return msgspec.json.Decoder(kind)
    finally:
        if alone:
            _making.release()


def _damage(error: Exception, value: Any, where: str) -> CorruptionError:
    if not isinstance(error, msgspec.ValidationError):
        return CorruptionError(f"{where}: is no JSON ({error}); restore the file")
    parts = _PLACE.match(str(error))
    assert parts is not None
    path, expected = parts["path"] or "$", parts["expected"].replace("`", "")
    try:
        content = f" is {_abbreviate(_at(value(), path))},"
    except (ValueError, LookupError, TypeError, RecursionError):  # a part of a mapping, or of no JSON
        content = ":"
    return CorruptionError(f"{where}: {path}{content} {expected[:1].lower()}{expected[1:]}; restore the file")


def _at(value: Any, path: str) -> Any:
    for name, number in _STEP.findall(path):
        if not name and not number:
            raise LookupError(path)
        value = value[name] if name else value[int(number)]
    return value


def _abbreviate(value: object) -> str:
    many = isinstance(value, (dict, list, tuple)) and len(value) > _MANY
    text = f"{type(value).__name__} of {len(value)} items" if many else repr(value)  # type: ignore[arg-type]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

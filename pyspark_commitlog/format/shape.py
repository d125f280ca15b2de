"""JSON that others may have written: decoded, and checked against a declaration of what it may be.

A shape is a ``Shape`` or any other type that msgspec knows: types, ranges, lengths and texts are checked in C, before
anything is made of the values, and nothing is allocated by a number that a file claims. Members that a shape does not
declare are passed over: another release of this format version may write more; what a reader has to know is a feature
of the entry (``readFeatures``). docs/explanation/design/validated-json.md has why msgspec.
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

#: A number from 0 to what 64 bits hold: offsets, lengths, sequences, times in ms.
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: The same, or -1 for none.
OrNone = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
#: A timestamp of a record, in ms: before 1970, too.
Timestamp = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: A CRC-32C as a number.
Crc = Annotated[int, Meta(ge=0, le=2**32 - 1)]
CrcText = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
#: An id, which becomes a part of a path; "" in journals that are of no topic.
Id = Annotated[str, Meta(pattern="^[0-9a-zA-Z-]{0,64}$")]
TopicName = Annotated[str, Meta(pattern=r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$")]
#: Marks of a history, and of a position in one (``format.lineage``).
Marks = Annotated[str, Meta(pattern="^(?:[A-Za-z0-9+/]{8})*$")]
Position = Annotated[str, Meta(pattern="^(|[1-9][0-9]{0,18}:([A-Za-z0-9+/]{8})+)$")]
Text = Annotated[str, Meta(max_length=4096)]


class Shape(msgspec.Struct, rename="camel"):
    """An object of JSON; its members are named as here, in camelCase."""


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An array of JSON with a member for each field and no more; those with a default may be missing at its end."""


def decode(data: bytes, kind: Any, where: str) -> Any:
    """Return what JSON says.

    Raises:
        CorruptionError: it is no JSON, or not of that shape; names file, field, what was found and what was expected.
    """
    try:
        return _decoder(kind).decode(data)
    except (ValueError, RecursionError) as error:
        raise _damage(error, lambda: msgspec.json.decode(data), where) from error


def checked_json(data: bytes, kind: Any, where: str) -> Any:
    """Return what JSON says, as lists and mappings, if it is of that shape; raises as ``decode`` does."""
    value = decode(data, object, where)
    check(value, kind, where)
    return value


def check(value: object, kind: type[_Kind], where: str) -> _Kind:
    """Return what decoded JSON says; raises as ``decode`` does."""
    _decoder(kind)  # type: ignore[arg-type]  # see there
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError) as error:
        raise _damage(error, lambda: value, where) from error


def damage(where: str, field: str, value: object, expected: str) -> CorruptionError:
    """Return the error for a value that is wrong though its shape is right."""
    return CorruptionError(f"{where}: {field} is {_abbreviate(value)}, expected {expected}; restore the file")


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a shape; they are made one at a time.

    While msgspec looks at a struct for the first time, what it has found so far is there for other threads, which crash
    when they decode with it. Nobody waits for long: a forked child may have the lock of a thread that it has not.
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

"""Tokens of a condition, and its literals, as Spark's SQL has them. Pure.

Not of a parser for all of SQL: the type of a literal decides what it compares with, `1.0` other than `1e0`, and such
parsers' trees lose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from struct import pack, unpack
from typing import Any, NoReturn

from pyspark_commitlog.errors import UsageError

#: Bytes of a condition, and its literals.
MAX_BYTES, MAX_LITERALS = 64 * 1024, 10_000
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<suffix>[A-Za-z_][A-Za-z0-9_]*)?
    | (?P<prefix>[rRxX]?)'(?P<text>(?:[^']|'')*)'
    | `(?P<quoted>(?:[^`]|``)+)`
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign><=>|<=|>=|<>|!=|==|[=<>!(),+]|-(?!-))
    """,
    re.VERBOSE,
)
_INTEGERS = {"Y": 8, "S": 16, "": 32, "L": 64}
_MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal.

    Attributes:
        kind: null, boolean, integer, decimal, float, double, string, binary, date, timestamp or timestamp_ntz.
        value: of dates and times the text between the quotes.
        text: as it was given.
    """

    kind: str
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class ConditionToken:
    """Part of a condition.

    Attributes:
        kind: name, word, sign, number or string.
        value: of words upper case.
    """

    kind: str
    value: Any
    text: str


def refuse(text: str, why: str) -> NoReturn:
    """Raise the error of a part of a condition."""
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    raise UsageError(f"the filter has {shown!r}: {why}")


def tokens(condition: str) -> Iterator[ConditionToken]:
    """Yield the tokens of a condition.

    Raises:
        UsageError: it is too long, or has a part that is no token.
    """
    size = len(condition.encode(errors="replace"))
    if size > MAX_BYTES:
        raise UsageError(f"the filter has {size} bytes, at most {MAX_BYTES} are taken: join a table of the values")
    position = 0
    while position < len(condition):
        match = _TOKEN.match(condition, position)
        if match is None:
            refuse(condition[position:], "no filter goes on so; put the rest in .where()")
        position = match.end()
        if match["space"] is None:
            yield _token(match)


def _token(match: re.Match[str]) -> ConditionToken:
    text = match[0]
    if match["number"] is not None:
        return ConditionToken("number", _number(match["number"], (match["suffix"] or "").upper(), text), text)
    if match["text"] is not None:
        return ConditionToken("string", _string(match["prefix"].upper(), match["text"], text), text)
    if match["quoted"] is not None:
        return ConditionToken("name", match["quoted"].replace("``", "`"), text)
    if match["word"] is not None:
        return ConditionToken("word", text.upper(), text)
    return ConditionToken("sign", {"==": "=", "<>": "!="}.get(text, text), text)


def _string(prefix: str, inner: str, text: str) -> Literal:
    if "${" in inner:
        refuse(text, "Spark would replace a variable there; put this part in .where()")
    if prefix == "X":
        if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", inner):
            refuse(text, "write binary as X'0aff', two digits a byte")
        return Literal("binary", bytes.fromhex(inner), text)
    if prefix == "R" and "'" in inner:
        refuse(text, "a raw string has no quote inside")
    if not prefix and "\\" in inner:
        refuse(text, r"what a backslash means depends on Spark's settings; write r'a\b'")
    if not inner.isprintable() and any("\ud800" <= each <= "\udfff" for each in inner):
        refuse(text, "it is no Unicode")
    return Literal("string", inner.replace("''", "'"), text)


def _number(digits: str, suffix: str, text: str) -> Literal:
    """Return a literal in the type that Spark gives it."""
    is_plain, has_exponent = digits.isdigit(), "e" in digits.lower()
    if is_plain and suffix in _INTEGERS:
        return _integer(int(digits), suffix, text)
    if suffix == "BD" or (not suffix and not has_exponent):
        return _decimal(digits, text)
    if suffix == "F":
        return Literal("float", _single(digits, text), text)
    if suffix not in ("D", ""):
        refuse(text, "there is no such number; quote a name that begins with a digit by `")
    value = float(digits)
    if value in (float("inf"), 0.0) and Decimal(digits) != value:
        refuse(text, "it is out of the range of DOUBLE")
    return Literal("double", value, text)


def _integer(value: int, suffix: str, text: str) -> Literal:
    if value < 1 << (_INTEGERS[suffix] - 1) or (not suffix and value < 1 << 63):
        return Literal("integer", value, text)
    if suffix:
        refuse(text, "it is out of the range of its type; leave the letter out")
    return _decimal(str(value), text)


def _decimal(digits: str, text: str) -> Literal:
    value = Decimal(digits)
    _, figures, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if exponent > 0 or max(len(figures), -exponent) > _MAX_DIGITS:
        refuse(text, f"a decimal has up to {_MAX_DIGITS} digits, and no exponent above 0")
    return Literal("decimal", value, text)


def _single(digits: str, text: str) -> float:
    """Return the nearest FLOAT."""
    double = float(digits)
    bits: int = unpack("<q", pack("<d", double))[0]
    if not bits % 2**28 and bits % 2**29:
        refuse(text, "it is half-way between two FLOATs; write one of them, as a double: 0.5D")
    try:
        single: float = unpack("<f", pack("<f", double))[0]
    except OverflowError:
        refuse(text, "it is out of the range of FLOAT")
    if not single and double:
        refuse(text, "it is out of the range of FLOAT")
    return single

"""Tokens of DDL: the checks that precede a parser's, and one spelling for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.types import refusal

#: Types by their words in DDL, upper case.
WORDS: Mapping[str, str] = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "BYTE": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "ARRAY": "array",
    "MAP": "map",
    "STRUCT": "struct",
}
EXPECTED = "declare columns as in \"user STRING NOT NULL COMMENT 'login', tags ARRAY<STRING>\""
#: Brackets inside each other: more than types may have, less than a parser's stack bears.
_MAX_BRACKETS = 32
_NAME = "a name (in backquotes, unless it is of the letters A to Z, digits and _)"
_SUFFIX = "NOT NULL, COMMENT or a comma"
_NESTED = ("array", "map", "struct")
#: Types that have a bracket.
_OPENING = {"<": _NESTED, "(": ("decimal",)}
_PAIRS = {">": "<", ")": "("}
#: Spark's, which are not Python's.
_BLANKS = r"\ \t\n\r\f\x0b\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_TOKEN = re.compile(
    rf"""(?P<blank>[{_BLANKS}]+|--(?:\\\n|[^\r\n])*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<mark>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"""\\.|''|\"\"""", re.DOTALL)
_PARAMETER = re.compile(r"[0-9]{1,9}")
#: Words that Spark takes as numbers.
_NUMBER = re.compile(r"\d+(?:E\d+)?(?:BD|[DFLSY])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """Token of DDL.

    Attributes:
        kind: quoted, text, word, mark, or end.
    """

    kind: str
    text: str
    position: int

    @property
    def keyword(self) -> str:
        """Upper case of a word, empty of other tokens."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """Name that a word or quoted token is."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def spell_ddl(text: str) -> str:
    """Return DDL with quoted names, upper case types and no comments in it.

    Raises:
        ConfigError: a column does not have the shape `name TYPE [NOT NULL] [COMMENT 'text']`.
    """
    speller = _Speller()
    run: list[Token] = []
    for token in _tokens(text):
        if token.kind in ("mark", "end") and token.text != ":":
            speller.add(run, token)
            run = []
        else:
            run.append(token)
    if speller.colon is not None and _ends_in_comment(text):
        raise token_error(speller.colon, "a type, or a new line after the comment at the end")
    return " ".join(speller.spelled)


def _ends_in_comment(text: str) -> bool:
    """Whether the end is in a comment: Spark reads columns with a colon as a struct's, and then misses its `>`."""
    position, last = 0, ""
    while position < len(text) and (match := _TOKEN.match(text, position)) is not None:
        position, last = match.end(), match[0]
    return last.startswith("--")


def token_error(token: Token, expected: str) -> ConfigError:
    """Return the error of a token that does not belong at its position."""
    found = f"{token.text!r} at character {token.position + 1}" if token.text else "the end"
    return ConfigError(f"schema: the DDL has {found}, but {expected} was expected; {EXPECTED}")


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise token_error(Token("", text[position], position), f"a type, {_NAME}, or one of < > ( ) , :")
        if match.lastgroup != "blank":
            yield Token(str(match.lastgroup), match[0], position)
        position = match.end()
    yield Token("end", "", position)


class _Speller:
    """Spells the tokens between two marks, whose place it checks.

    Attributes:
        spelled: the tokens so far.
        colon: the first between a name at the top and its type, if any.
    """

    def __init__(self) -> None:
        self.spelled: list[str] = []
        self.colon: Token | None = None
        #: Open brackets: the type before each <, and (.
        self._opened: list[str] = []
        self._column = ""
        self._before = ","

    def add(self, run: Sequence[Token], mark: Token) -> None:
        """Add the tokens before a mark, and the mark."""
        if self._opened[-1:] == ["("]:
            self._add_parameter(run, mark)
        elif self._before in _PAIRS:
            self._add_suffix(run, mark)
        else:
            self._add_column(run, mark)
        self.spelled.append(mark.text)
        self._close(mark)
        self._before = mark.text

    def _add_parameter(self, run: Sequence[Token], mark: Token) -> None:
        first = run[0] if run else mark
        if not _PARAMETER.fullmatch(first.text):
            raise token_error(first, "a number")
        if len(run) > 1:
            raise token_error(run[1], "a comma or )")
        self.spelled.append(first.text)

    def _add_suffix(self, run: Sequence[Token], mark: Token) -> None:
        head, suffix = _split(run)
        if head or mark.text in _OPENING:
            raise token_error(head[0] if head else mark, _SUFFIX)
        self.spelled += suffix

    def _add_column(self, run: Sequence[Token], mark: Token) -> None:
        head, suffix = _split(run)
        if not head:
            raise token_error(run[0] if run else mark, "a column or type")
        named = self._is_named(head, mark)
        if named:
            self.spelled.append(_quote_name(head[0]))
            self._column = head[0].name
        words = self._after_name(head) if named else head
        if not words:
            raise token_error(mark, "a type")
        self.spelled += [_type_word(self._column, words, mark), *suffix]
        if mark.text in _OPENING:
            self._opened.append("(" if mark.text == "(" else words[0].keyword)

    def _after_name(self, head: Sequence[Token]) -> Sequence[Token]:
        """Return a column's tokens without its name, and a colon after it."""
        if head[1].text != ":":
            return head[1:]
        if not self._opened and self.colon is None:
            self.colon = head[1]
        return head[2:]

    def _is_named(self, head: Sequence[Token], mark: Token) -> bool:
        """Return whether a name precedes the type, as it must in a struct and at the top."""
        if not self._opened:
            around = head[0].keyword == "STRUCT" and mark.text == "<" and len(head) == 1 and not self.spelled
            required = not around
        else:
            required = self._opened[-1] == "STRUCT"
        if required and len(head) == 1:
            raise token_error(mark, "a type")
        return required

    def _close(self, mark: Token) -> None:
        if len(self._opened) > _MAX_BRACKETS:
            raise ConfigError(f"schema: the DDL has more than {_MAX_BRACKETS} brackets inside each other; flatten it")
        if mark.text in _PAIRS:
            opened = self._opened.pop() if self._opened else ""
            if not opened or (opened == "(") != (mark.text == ")"):
                raise token_error(mark, f"a {_PAIRS[mark.text]} before it")
        if mark.kind == "end" and self._opened:
            raise token_error(mark, ")" if self._opened[-1] == "(" else ">")


def _split(run: Sequence[Token]) -> tuple[Sequence[Token], list[str]]:
    """Split off `NOT NULL` and `COMMENT 'text'`."""
    head, suffix = run, list[str]()
    if len(head) > 1 and head[-1].kind == "text" and head[-2].keyword == "COMMENT":
        head, suffix = head[:-2], ["COMMENT", _escape_quotes(head[-1].text)]
    if [token.keyword for token in head[-2:]] == ["NOT", "NULL"]:
        head, suffix = head[:-2], ["NOT", "NULL", *suffix]
    return head, suffix


def _type_word(column: str, words: Sequence[Token], mark: Token) -> str:
    """Return the word of a type, which must be the only one and have its brackets."""
    first, *others = words
    if first.kind != "word":
        raise token_error(first, "a type")
    kind = WORDS.get(first.keyword, "")
    if not kind or [word.keyword for word in others[:1]] == ["COLLATE"]:
        raise refusal(column, " ".join([first.text, *(word.text for word in others if kind)]))
    if others:
        raise token_error(others[0], _SUFFIX)
    if kind in _NESTED and mark.text != "<":
        raise token_error(mark, "<")
    if mark.text in _OPENING and kind not in _OPENING[mark.text]:
        raise token_error(mark, _SUFFIX)
    return first.keyword


def _quote_name(token: Token) -> str:
    if token.kind == "quoted":
        return token.text
    if token.kind != "word" or _NUMBER.fullmatch(token.text):
        raise token_error(token, _NAME)
    return f"`{token.text}`"


def _escape_quotes(text: str) -> str:
    """Return a literal with doubled quotes as escaped ones, which the parser knows."""
    quote, body = text[0], text[1:-1]
    return quote + _ESCAPE.sub(lambda found: found[0].replace(quote * 2, f"\\{quote}"), body) + quote

"""Conditions in SQL, parsed to tests of one column each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.topic.read.filter.tokens import MAX_LITERALS, ConditionToken, Literal, refuse, tokens

#: Words that no column has without backticks.
_WORDS = frozenset(["AND", "BETWEEN", "CASE", "CAST", "ELSE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL",
                    "OR", "RLIKE", "SELECT", "TRUE"])  # fmt: skip
_TIMES = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}
_CONSTANTS = {"TRUE": ("boolean", True), "FALSE": ("boolean", False), "NULL": ("null", None)}
_FLIPPED = {"=": "=", "<=>": "<=>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_DEPTH = 32
#: Conditions kept: each poll has one.
_KEPT = 16
_REST = "a filter is comparisons of one column with literals, joined by AND; put the rest in .where()"
_END = ConditionToken("end", "", "")


@dataclass(frozen=True, slots=True)
class Test:
    """Test of one column.

    Attributes:
        operator: `=`, `<=>`, `<`, `<=`, `>`, `>=`, `IN`, `BETWEEN`, `IS NULL`, or `IS TRUE` of a column alone.
        negated: whether NOT stands before it.
    """

    __test__ = False  # for pytest

    column: str
    operator: str
    literals: tuple[Literal, ...] = ()
    negated: bool = False


@lru_cache(_KEPT)
def parse_condition(condition: str) -> tuple[Test, ...]:
    """Return the tests of a condition, all of which must be true.

    Raises:
        UsageError: it is no condition, or one that can't be a filter.
    """
    parser = _Parser([*tokens(condition), _END])
    tests = parser.conjunction(0)
    parser.finish()
    count = sum(len(test.literals) for test in tests)
    if count > MAX_LITERALS:
        raise UsageError(f"the filter has {count} literals, at most {MAX_LITERALS} are taken: join a table of them")
    return tests


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, given: Sequence[ConditionToken]) -> None:
        self._tokens, self._at = given, 0

    @property
    def _next(self) -> ConditionToken:
        return self._tokens[self._at]

    def _advance(self) -> ConditionToken:
        token = self._next
        self._at += token is not _END
        return token

    def _takes(self, *values: str) -> bool:
        """Take these words or signs, if they come next."""
        following = self._tokens[self._at : self._at + len(values)]
        taken = all(
            token.kind in ("word", "sign") and token.value == value
            for token, value in zip(following, values, strict=False)
        )
        taken = taken and len(following) == len(values)
        self._at += len(values) * taken
        return taken

    def _fail(self, expected: str) -> NoReturn:
        token = self._next
        if token is _END:
            raise UsageError(f"the filter ends where {expected} is expected")
        refuse(token.text, f"{expected} is expected there; {_REST}")

    def finish(self) -> None:
        """Refuse what follows."""
        if self._next is not _END:
            self._fail("AND or the end")

    def conjunction(self, depth: int) -> tuple[Test, ...]:
        """Parse tests joined by AND."""
        tests = self._negation(depth)
        while self._takes("AND"):
            tests += self._negation(depth)
        return tests

    def _negation(self, depth: int) -> tuple[Test, ...]:
        if depth > _MAX_DEPTH:
            raise UsageError(f"the filter has more than {_MAX_DEPTH} brackets or NOT inside each other")
        if self._takes("NOT") or self._takes("!"):
            tests = self._negation(depth + 1)
            if len(tests) > 1:
                refuse("NOT", "it stands before several tests; give each its own, or put the rest in .where()")
            return (replace(tests[0], negated=not tests[0].negated),)
        if self._takes("("):
            tests = self.conjunction(depth + 1)
            if not self._takes(")"):
                self._fail("AND or )")
            return tests
        return (self._test(),)

    def _test(self) -> Test:
        literal = self._literal()
        if literal is not None:
            operator = self._operator()
            if operator is None:
                self._fail("a comparison")
            return _comparison(self._column(), _FLIPPED[operator], literal)
        column = self._column()
        operator = self._operator()
        if operator is not None:
            return _comparison(column, operator, self._operand())
        if self._takes("IS"):
            negated = self._takes("NOT")
            if not self._takes("NULL"):
                self._fail("NULL (for IS TRUE, write <=> TRUE)")
            return Test(column, "IS NULL", negated=negated)
        negated = self._takes("NOT")
        if self._takes("IN", "("):
            return Test(column, "IN", self._list(), negated)
        if self._takes("BETWEEN"):
            low = self._operand()
            if not self._takes("AND"):
                self._fail("AND")
            return Test(column, "BETWEEN", (low, self._operand()), negated)
        if negated:
            self._fail("IN or BETWEEN")
        return Test(column, "IS TRUE")

    def _operator(self) -> str | None:
        token = self._next
        return str(self._advance().value) if token.kind == "sign" and token.value in _FLIPPED else None

    def _column(self) -> str:
        token = self._next
        if token.kind != "name" and (token.kind != "word" or token.value in _WORDS):
            self._fail("a column")
        self._advance()
        if self._next.kind == "sign" and self._next.value == "(":
            refuse(f"{token.text}(", f"functions are not taken; {_REST}")
        return str(token.value) if token.kind == "name" else token.text

    def _list(self) -> tuple[Literal, ...]:
        found = [self._operand()]
        while self._takes(","):
            found.append(self._operand())
        if not self._takes(")"):
            self._fail(", or )")
        return tuple(found)

    def _operand(self) -> Literal:
        found = self._literal()
        if found is None:
            self._fail("a literal")
        return found

    def _literal(self) -> Literal | None:
        token, following = self._next, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.kind == "sign" and token.value in ("-", "+") and following.kind == "number":
            self._advance()
            return _signed(token, self._advance().value)
        if token.kind in ("number", "string"):
            found: Literal = self._advance().value
            return found
        if token.kind == "word" and token.value in _TIMES and following.kind == "string":
            self._advance()
            return _time(token, self._advance())
        if token.kind == "word" and token.value in _CONSTANTS:
            self._advance()
            kind, value = _CONSTANTS[token.value]
            return Literal(kind, value, token.text)
        return None


def _signed(sign: ConditionToken, number: Literal) -> Literal:
    return number if sign.value == "+" else replace(number, value=-number.value, text=f"-{number.text}")


def _time(word: ConditionToken, token: ConditionToken) -> Literal:
    text = f"{word.text} {token.text}"
    if token.value.kind != "string":
        refuse(text, "write the date or time in plain quotes")
    return Literal(_TIMES[word.value], token.value.value, text)


def _comparison(column: str, operator: str, literal: Literal) -> Test:
    if operator == "!=":
        return Test(column, "=", (literal,), negated=True)
    return Test(column, operator, (literal,))

"""A filter of JSON values by a path, such as `$.user.city = Berlin` (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark_commitlog.errors import UsageError

# python-jsonpath and jmespath were weighed: their conditions stand within the path, with quotes, and compare floats;
# which column of a typed topic a path begins with would still be ours to find.

#: A step of a path: a member's name, an index, or None for all.
Step = str | int | None

_STEP = re.compile(r"\.(\*|[^\s.\[\]=<>!]+)|\[(?:(\*)|(-?\d{1,9})|'([^']*)'|\"([^\"]*)\")\]")
_OPERATOR = re.compile(r"\s*(==|=|!=|<=|>=|<|>|contains\s)\s*")
_EXAMPLES = "use $.user.city = Berlin, $.items[*].price > 9.5, $['a name'] contains x, or $.error alone"


def _is_less(value: Any, other: Any) -> bool:
    return _are_comparable(value, other) and bool(_exact(value) < _exact(other))


def _is_greater(value: Any, other: Any) -> bool:
    return _is_less(other, value)


def _is_equal(value: Any, other: Any) -> bool:
    return isinstance(value, bool) is isinstance(other, bool) and bool(_exact(value) == _exact(other))


def _are_comparable(value: Any, other: Any) -> bool:
    return (_is_number(value) and _is_number(other)) or (isinstance(value, str) and isinstance(other, str))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _exact(value: Any) -> Any:
    """Return a binary float as the decimal that is written for it."""
    return Decimal(repr(value)) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Operand:
    """Right side of a comparison: a JSON value, and the text without quotes that equals it."""

    value: Any
    text: str | None

    def is_any(self, compare: Callable[[Any, Any], bool], value: Any) -> bool:
        """Whether a value compares to the JSON value, or to the text."""
        return compare(value, self.value) or (self.text is not None and compare(value, self.text))


_COMPARISONS: Mapping[str, Callable[[Operand, Any], bool]] = {
    "=": lambda operand, value: operand.is_any(_is_equal, value),
    "!=": lambda operand, value: not operand.is_any(_is_equal, value),
    "<": lambda operand, value: operand.is_any(_is_less, value),
    ">": lambda operand, value: operand.is_any(_is_greater, value),
    "<=": lambda operand, value: operand.is_any(_is_less, value) or operand.is_any(_is_equal, value),
    ">=": lambda operand, value: operand.is_any(_is_greater, value) or operand.is_any(_is_equal, value),
    "contains": lambda operand, value: isinstance(value, str) and (operand.text or str(operand.value)) in value,
}


@dataclass(frozen=True, slots=True)
class JsonFilter:
    """A path, and what one of its values must be; without an operator any value but null will do."""

    steps: tuple[Step, ...]
    operator: str = ""
    operand: Operand = Operand(None, None)

    @property
    def column(self) -> str | None:
        """The first member; None if all are looked at."""
        return self.steps[0] if self.steps and isinstance(self.steps[0], str) else None

    def matches(self, value: Any) -> bool:
        """Whether a JSON value meets it."""
        found = values_at(value, self.steps)
        if not self.operator:
            return any(each is not None for each in found)
        compare = _COMPARISONS[self.operator]
        return any(compare(self.operand, each) for each in found)


def parse_json_filter(text: str) -> JsonFilter:
    """Parse a path, and perhaps an operator and a value.

    The path is `$`, then `.name`, `['name']`, `[0]`, `[*]` or `.*`; operators are = != < <= > >= and contains. A value
    without quotes that is a number, true, false or null also equals that text.

    Raises:
        UsageError: it is none.
    """
    rest = text.strip()
    if not rest.startswith("$"):
        raise UsageError(f"JSON path {text}: it begins with $: {_EXAMPLES}")
    rest, steps = rest[1:], list[Step]()
    while step := _STEP.match(rest):
        steps.append(_step(step))
        rest = rest[step.end() :]
    if not rest.strip():
        return JsonFilter(tuple(steps))
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise UsageError(f"JSON path {text}: {rest.strip()!r} is no step and no comparison: {_EXAMPLES}")
    name = operator[1].strip()
    return JsonFilter(tuple(steps), "=" if name == "==" else name, _operand(rest[operator.end() :]))


def _step(found: re.Match[str]) -> Step:
    name, every, index, *quoted = found.groups()
    if every or name == "*":
        return None
    return int(index) if index else next(each for each in (name, *quoted) if each is not None)


def _operand(text: str) -> Operand:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return Operand(text[1:-1], None)
    try:
        value = parse_json(text)
    except ValueError:
        return Operand(text, None)
    return Operand(value, None if isinstance(value, str) else text)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; numbers keep their digits.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def values_at(value: Any, steps: Sequence[Step]) -> list[Any]:
    """Return the values at a path: several if it has `[*]`, none if a member is missing."""
    found = [value]
    for step in steps:
        found = [each for node in found for each in _children(node, step)]
    return found


def _children(node: Any, step: Step) -> Sequence[Any]:
    if isinstance(node, dict):
        if step is None:
            return list(node.values())
        return [node[step]] if isinstance(step, str) and step in node else []
    if not isinstance(node, list | tuple):
        return []
    if isinstance(step, int):
        return [node[step]] if -len(node) <= step < len(node) else []
    return node if step is None else []

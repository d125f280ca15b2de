"""The list of mutants: what the files here say, where each applies, and the table in docs/explanation/guards.md. Runs nothing."""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PACKAGE = "pyspark_commitlog"
_Span = tuple[int, int]
DOCUMENT = REPOSITORY / "docs/explanation/guards.md"

_HEAD = """# Guards, and the tests that hold them

Each line is a guard of the code: a comparison, a bound, an order, an fsync, a second look. `make mutants` takes them out
one at a time, in a copy, and runs the test that stands beside it: the test must fail. The list is
[tests/mutants](../../tests/mutants/README.md), this table is made of it.
"""


class NotApplicableError(ValueError):
    """A mutant does not fit the code: its place or its text is not there, or not once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard, and what takes it out.

    Attributes:
        room: the file of the list, without its suffix.
        guard: what the guard does, one line.
        rule: the rule or invariant of ARCHITECTURE.md that it serves, or the document that says it; may be empty.
        at: ``module:qualname``, the module without ``pyspark_commitlog.``; a function, a class, or a module's constant.
        text: what stands there exactly once.
        put: what stands there instead.
        red: the test that must fail, a pytest node id below ``tests/``.
    """

    room: str
    guard: str
    rule: str
    at: str
    text: str
    put: str
    red: str

    @property
    def path(self) -> str:
        """Return the module's file, below the repository."""
        return f"{PACKAGE}/{self.at.partition(':')[0].replace('.', '/')}.py"

    @property
    def node_id(self) -> str:
        """Return the test's pytest node id, below the repository."""
        return f"tests/{self.red}"

    def applied(self, source: str) -> str:
        """Return a module's source with the guard taken out.

        Raises:
            NotApplicableError: the place or the text is not there, or the text not exactly once, or nothing changes.
            SyntaxError: what comes of it is no Python.
        """
        (start, end), (outer, outer_end) = _span(source, self.at.partition(":")[2])
        found = source[start:end].count(self.text)
        if found != 1:
            raise NotApplicableError(f"{self.at} has {self.text!r} {found} times, expected once")
        if self.text == self.put:
            raise NotApplicableError(f"{self.at}: {self.text!r} is replaced by itself")
        position = source.index(self.text, start)
        rest = position + len(self.text)
        changed = textwrap.dedent(source[outer:position] + self.put + source[rest:outer_end])
        compile(changed, self.path, "exec", dont_inherit=True)
        return source[:position] + self.put + source[rest:]


def _span(source: str, qualname: str) -> tuple[_Span, _Span]:
    """Return where a definition begins and ends in a module's source, in characters, and the outermost one around it."""
    places, names = _places(source), qualname.split(".")
    for count, name in enumerate(names, 1):
        found = places.get(".".join(names[:count]), [])
        if len(found) != 1:
            raise NotApplicableError(f"{qualname}: {name} is defined {len(found)} times, expected once")
    return places[qualname][0], places[names[0]][0]


@cache  # a module has many guards
def _places(source: str) -> dict[str, list[_Span]]:
    """Return where each name of a module is defined."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    found: dict[str, list[_Span]] = {}

    def walk(body: Sequence[ast.stmt], above: str) -> None:
        for node in _each(body):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            for name in _names(node):
                found.setdefault(above + name, []).append((starts[first - 1], starts[node.end_lineno or first]))
                walk(getattr(node, "body", []), f"{above}{name}.")

    walk(ast.parse(source).body, "")
    return found


def _each(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of the blocks in it, without those of definitions."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _each(getattr(node, name, []))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def load(directory: Path = HERE) -> list[Mutant]:
    """Return all mutants, room by room.

    Raises:
        ValueError: an entry lacks a key, or has one that is not known; or two guards have the same words.
    """
    expected = {field.name for field in fields(Mutant)} - {"room"}
    mutants = []
    for path in sorted(directory.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            if set(entry) | {"rule"} != expected:
                raise ValueError(f"{path.name}: {entry} must have the keys {sorted(expected)}")
            mutants.append(Mutant(room=path.stem, **{"rule": "", **entry}))
    words = [mutant.guard for mutant in mutants]
    if twice := {each for each in words if words.count(each) > 1}:
        raise ValueError(f"described twice: {sorted(twice)}")
    return mutants


def document(mutants: Sequence[Mutant]) -> str:
    """Return the text of docs/explanation/guards.md."""
    lines = [_HEAD]
    for room in dict.fromkeys(mutant.room for mutant in mutants):
        lines += [f"## {room}\n", "| guard | where | rule | test |", "|---|---|---|---|"]
        for mutant in mutants:
            if mutant.room == room:
                cells = (mutant.guard, f"`{mutant.at}`", mutant.rule, f"`{mutant.red}`")
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)

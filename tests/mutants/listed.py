"""The list of mutants: what the files here say, and where each applies. Runs nothing."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.changes import NotApplicableError, Place, changed

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PACKAGE = "pyspark_commitlog"
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_KEYS = {"guard", "rule", "red"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard, and the change that takes it out.

    Attributes:
        room: the file of the list, without its suffix.
        at: `module:qualname`, the module without `pyspark_commitlog.`; a function, a class, or a module's constant.
        change: see `tests.mutants.changes`.
        guard: what the guard does, one line.
        red: the test that must fail, a pytest node id below `tests/`.
        rule: the rule or invariant of ARCHITECTURE.md that it serves, or the document that says it; may be empty.
    """

    room: str
    at: str
    change: str
    guard: str
    red: str
    rule: str = ""

    @property
    def path(self) -> str:
        """Return the module's file, below the repository."""
        return f"{PACKAGE}/{self.at.partition(':')[0].replace('.', '/')}.py"

    @property
    def node_id(self) -> str:
        """Return the test's pytest node id, below the repository."""
        return f"tests/{self.red}"

    def check(self, source: str) -> None:
        """Check that the change fits the module's source.

        Raises:
            NotApplicableError: the definition or the node is not there, or nothing changes.
            SyntaxError: what comes of the definition is no Python.
        """
        text = ast.unparse(ast.fix_missing_locations(changed(self._place(_parsed(source)).node, self.change)))
        if "nonlocal " not in text:  # that needs the function around it
            compile(text, self.path, "exec", dont_inherit=True)

    def applied(self, source: str) -> str:
        """Return a module's source, without its comments, with the guard taken out.

        Raises:
            NotApplicableError: as `check`.
            SyntaxError: what comes of it is no Python.
        """
        module = ast.parse(source)
        place = self._place(module)
        place.put(changed(place.node, self.change))
        text = ast.unparse(module)
        compile(text, self.path, "exec", dont_inherit=True)
        return text

    def _place(self, module: ast.Module) -> Place:
        return _definition(module, self.at.partition(":")[2])


@cache  # a module has many guards
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _definition(tree: ast.AST, qualname: str) -> Place:
    """Return the place of a definition in a module, or in a part of one.

    Raises:
        NotApplicableError: it is not there, or more than once.
    """
    place = None
    for name in qualname.split("."):
        found = [each for each in _definitions(tree if place is None else place.node) if name in _names(each.node)]
        if len(found) != 1:
            raise NotApplicableError(f"{qualname}: {name} is defined {len(found)} times, expected once")
        place = found[0]
    assert place is not None
    return place


def _definitions(tree: ast.AST) -> Iterator[Place]:
    """Yield the places of the statements of a definition, those in its blocks included, not those of definitions in it."""
    for field in ("body", "handlers", "orelse", "finalbody"):
        for index, node in enumerate(getattr(tree, field, [])):
            yield Place(tree, field, index)
            if not isinstance(node, _Definition):
                yield from _definitions(node)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, _Definition):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def load(directory: Path = HERE) -> list[Mutant]:
    """Return all mutants, room by room.

    Raises:
        ValueError: an entry lacks a key, or has one that is not known; or two guards have the same words, or are one.
    """
    mutants = []
    for path in sorted(directory.glob("*.toml")):
        for module, guards in tomllib.loads(path.read_text()).items():
            for key, entry in guards.items():
                if set(entry) | {"rule"} != _KEYS:
                    raise ValueError(f"{path.name}: {module}, {key!r}: {entry} must have the keys {sorted(_KEYS)}")
                name, _, change = key.partition(": ")
                mutants.append(Mutant(path.stem, f"{module}:{name}", change, **entry))
    _check_distinct([mutant.guard for mutant in mutants], "described")
    _check_distinct([f"{mutant.at} {mutant.change}" for mutant in mutants], "listed")
    return mutants


def _check_distinct(words: Sequence[str], how: str) -> None:
    if twice := {each for each in words if words.count(each) > 1}:
        raise ValueError(f"{how} twice: {sorted(twice)}")

"""From a module of the package to its tests: the tables in tests/README.md, made from the code and the list of guards.

    .venv/bin/python -m tests.modules --docs        # write them

A module's rules are those (I1, R5, …, of ARCHITECTURE.md) that its text or one of its guards cites. Its tests are the
files whose tests fail without one of its guards, most guards first, then those named like it, then those that import
it. Where there are none of these, the table names the modules that use it, and its room's directory of tests.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.mutants.listed import PACKAGE, REPOSITORY, Mutant, load

TESTS = REPOSITORY / "tests"
DOCUMENT = TESTS / "README.md"
BEGIN, END = "<!-- modules -->\n", "<!-- /modules -->\n"
#: Test files that a module's line names at most.
MOST = 6
#: Where the tests of a room run it as its users do, in processes or in Spark.
ROOMS = ("cli", "consumer", "groups", "producer", "spark")
_RULE = re.compile(r"\b([IR])(\d{1,2})\b")


@cache
def modules() -> list[Path]:
    """Return the files of the package that hold code, below it, room by room."""
    package = REPOSITORY / PACKAGE
    files = [path for path in package.rglob("*.py") if ast.parse(path.read_text()).body[1:]]
    return sorted((path.relative_to(package) for path in files), key=lambda path: (path.parent, path.name))


def rules_of(path: Path, guards: Sequence[Mutant]) -> list[str]:
    """Return the rules that a module's text and its guards cite, invariants first."""
    text = (REPOSITORY / PACKAGE / path).read_text() + " ".join(guard.rule for guard in guards)
    return [
        kind + number for kind, number in sorted(set(_RULE.findall(text)), key=lambda rule: (rule[0], int(rule[1])))
    ]


def tests_of(path: Path, guards: Sequence[Mutant]) -> list[str]:
    """Return the files, below tests/, that guard a module, most guards first, then those that import it."""
    guarding = [name for name, _ in Counter(guard.red.partition("::")[0] for guard in guards).most_common()]
    room = path.parts[0] if path.parts[0] in ROOMS else ""
    named = [file for file in _imports() if _is_named_like(Path(file), path.stem, room)]
    importing = [file for file, names in _imports().items() if _dotted(path) in names]
    return list(dict.fromkeys([*guarding, *named, *importing]))


def users_of(path: Path) -> list[str]:
    """Return the modules of the package that import a module."""
    return [f"{user}" for user in modules() if _dotted(path) in _imports_of(REPOSITORY / PACKAGE / user)]


def _is_named_like(file: Path, stem: str, room: str) -> bool:
    """Return whether a file of tests has a module's name, in its room's directory or in one that is of no room."""
    names = {f"test_{stem}", f"test_{room}_{stem}", f"test_{stem}_command"}
    return file.stem in names and file.parts[0] in {room, *(_directories() - set(ROOMS))}


def _directories() -> set[str]:
    return {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))}


@cache
def _imports() -> dict[str, set[str]]:
    """Return what each file of tests imports, by its path below tests/."""
    return {str(path.relative_to(TESTS)): _imports_of(path) for path in sorted(TESTS.rglob("test_*.py"))}


@cache
def _imports_of(path: Path) -> set[str]:
    return set(_imported(ast.parse(path.read_text())))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _dotted(path: Path) -> str:
    return ".".join((PACKAGE, *path.with_suffix("").parts)).removesuffix(".__init__")


def document() -> str:
    """Return the tables: rules and tests of each module, and how many places of which files cite a rule."""
    guards = load()
    lines = ["| module | rules | tests |", "|---|---|---|"]
    for path in modules():
        own = [guard for guard in guards if guard.path == f"{PACKAGE}/{path}"]
        lines.append(f"| `{path}` | {', '.join(rules_of(path, own))} | {_tests_cell(path, own)} |")
    lines += ["", "| rule | tests that cite it |", "|---|---|"]
    for rule, files in sorted(_citing().items(), key=lambda item: (item[0][0], int(item[0][1:]))):
        lines.append(f"| {rule} | {_listed(files)} |")
    return "\n".join(lines) + "\n"


def _tests_cell(path: Path, guards: Sequence[Mutant]) -> str:
    if tests := tests_of(path, guards):
        return _listed(tests[:MOST]) + (f", {len(tests) - MOST} more" if len(tests) > MOST else "")
    room = f"`{path.parts[0]}/`, " if path.parts[0] in ROOMS else ""
    return f"{room}by {_listed(users_of(path))}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _citing() -> dict[str, list[str]]:
    """Return the files of tests that cite each rule, below tests/."""
    files: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for kind, number in sorted(set(_RULE.findall(path.read_text()))):
            files.setdefault(kind + number, []).append(str(path.relative_to(TESTS)))
    return files


def written(text: str) -> str:
    """Return a text of the document with the tables of today."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + document() + END + rest.partition(END)[2]


def write() -> None:
    """Put the tables of today into the document."""
    DOCUMENT.write_text(written(DOCUMENT.read_text()))


if __name__ == "__main__":
    write() if "--docs" in sys.argv else print(document())

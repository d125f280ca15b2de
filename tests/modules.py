"""Print the modules of the package, or the rules of some and the tests that guard or import them.

    .venv/bin/python -m tests.modules            # each module with the first line of its docstring, room by room
    .venv/bin/python -m tests.modules FILE…      # the rules and tests of a module, and how to run the tests

A module's rules are those (I1, R5, …, of ARCHITECTURE.md) that its text or one of its guards (tests/mutants) cites. The
tests that guard it are the files whose tests fail without one of its guards, most guards first, then those that bear its
name. Without these, those that import it are run, else its room's directory of tests, else the tests of its users.
"""

from __future__ import annotations

import argparse
import ast
import re
import signal
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from tests.mutants.listed import PACKAGE, REPOSITORY, Mutant, load

TESTS = REPOSITORY / "tests"
#: Rooms whose tests run it as its users do, in processes or in Spark.
ROOMS = ("cli", "consumer", "groups", "producer", "spark")
#: A rule or invariant of ARCHITECTURE.md.
RULE = re.compile(r"\b([IR])(\d{1,2})\b")


# ---- what is known of a module ----


@cache
def modules() -> list[Path]:
    """Return the files of the package that hold code, below it, room by room."""
    package = REPOSITORY / PACKAGE
    files = [path for path in package.rglob("*.py") if ast.parse(path.read_text()).body[1:]]
    return sorted((path.relative_to(package) for path in files), key=lambda path: (path.parent, path.name))


def module_of(name: str) -> Path | None:
    """Return the module of a file, by its path below the package, the repository or the file system."""
    package = REPOSITORY / PACKAGE
    paths = [(base / name).resolve() for base in (Path.cwd(), REPOSITORY, package)]
    below = [path.relative_to(package) for path in paths if path.is_relative_to(package)]
    return next((path for path in below if path in modules()), None)


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    told = ast.get_docstring(ast.parse((REPOSITORY / PACKAGE / path).read_text()))
    return (told or "").partition("\n")[0]


def guards_of(path: Path) -> list[Mutant]:
    """Return the guards of a module that tests/mutants lists."""
    return [guard for guard in _guards() if guard.path == f"{PACKAGE}/{path}"]


@cache
def _guards() -> list[Mutant]:
    return load()


def rules_of(path: Path) -> list[str]:
    """Return the rules that a module's text and its guards cite, invariants first."""
    text = (REPOSITORY / PACKAGE / path).read_text() + " ".join(guard.rule for guard in guards_of(path))
    return [kind + number for kind, number in sorted(set(RULE.findall(text)), key=lambda rule: (rule[0], int(rule[1])))]


def guarding(path: Path) -> list[str]:
    """Return the files, below tests/, that guard a module: most guards first, then those named like it."""
    failing = [name for name, _ in Counter(guard.red.partition("::")[0] for guard in guards_of(path)).most_common()]
    room = path.parts[0] if path.parts[0] in ROOMS else ""
    named = [file for file in _imports() if _is_named_like(Path(file), path.stem, room)]
    return list(dict.fromkeys([*failing, *named]))


def importing(path: Path) -> list[str]:
    """Return the files, below tests/, that import a module."""
    return [file for file, names in _imports().items() if _dotted(path) in names]


def users_of(path: Path) -> list[str]:
    """Return the modules of the package that import a module."""
    return [f"{user}" for user in modules() if _dotted(path) in _imports_of(REPOSITORY / PACKAGE / user)]


def _is_named_like(file: Path, stem: str, room: str) -> bool:
    """Return whether a file of tests has a module's name, in its room's directory or in one that is of no room."""
    names = {f"test_{stem}", f"test_{room}_{stem}", f"test_{stem}_command"}
    return file.stem in names and file.parts[0] in {room, *(_directories() - set(ROOMS))}


@cache
def _directories() -> set[str]:
    return {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))}


@cache
def _imports() -> dict[str, set[str]]:
    """Return the names that each file of tests imports, by its path below tests/."""
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


# ---- what is printed ----


def listing() -> str:
    """Return each module with the first line of its docstring, an empty line between rooms."""
    rooms = []
    for _, files in groupby(modules(), key=lambda path: path.parent):
        lines = {str(path): first_line(path) for path in files}
        width = max(map(len, lines))
        rooms.append("\n".join(f"{path:<{width}}  {line}" for path, line in lines.items()))
    return "\n\n".join(rooms)


def description(path: Path) -> str:
    """Return the rules of a module, the tests that guard it and those that import it; without any, its users."""
    first = guarding(path)
    others = [file for file in importing(path) if file not in first]
    lines = {
        "rules": rules_of(path), "guarded by": first, "imported by": others,
        "used by": [] if first or others else users_of(path),
    }  # fmt: skip
    return "\n".join(
        [f"{path}  {first_line(path)}", *(_paragraph(name, words) for name, words in lines.items() if words)]
    )


def _paragraph(name: str, words: Sequence[str]) -> str:
    return textwrap.fill(
        ", ".join(words), 120, initial_indent=f"  {name}: ", subsequent_indent="    ", break_on_hyphens=False
    )


def to_run(path: Path) -> list[str]:
    """Return the tests that pytest runs for a module: its guards, else those that import it, its room's, its users'."""
    if tests := guarding(path) or importing(path):
        return tests
    if path.parts[0] in _directories():
        return [path.parts[0]]
    return list(dict.fromkeys(test for user in users_of(path) for test in to_run(Path(user))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the modules, or what guards those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.modules", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="a module, below the package or the repository")
    named = {name: module_of(name) for name in parser.parse_args(arguments).files}
    if unknown := [name for name, path in named.items() if path is None]:
        parser.error(f"no module of {PACKAGE} with code: {', '.join(unknown)}; without arguments all are listed")
    paths = list(dict.fromkeys(path for path in named.values() if path is not None))
    if not paths:
        print(listing())
        return
    for path in paths:
        print(description(path) + "\n")
    tests = dict.fromkeys(f"tests/{test}" for path in paths for test in to_run(path))
    print(".venv/bin/python -m pytest", *tests)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a traceback
    main()

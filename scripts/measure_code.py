"""Measures the package's code: lengths, complexity, names, imports, documentation, and the words of README.

    .venv/bin/python scripts/measure_code.py               # `make check` prints this; it judges nothing
    .venv/bin/python scripts/measure_code.py --docs        # rewrite the last column of the document's table
    .venv/bin/python scripts/measure_code.py --docs --before 1b36093     # measure that commit, for the column before

Complexity is one more than the decisions: branches, loops, ``except``, ``assert``, ``and``, ``or``, comprehensions and
their conditions. A room is a directory of the package. A name occurs twice if two classes, or two files other than
``__init__.py``, have it. Lines are duplicates if ``WINDOW`` of them in a row stand in another place too; imports,
comments, docstrings and blank lines do not count.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "pyspark_commitlog"
DOCUMENT = REPOSITORY / "docs" / "explanation" / "code-measures.md"
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"
WINDOW = 6
#: Names that say nothing about what they hold.
VAGUE = ("found", "each", "told")  # codespell:ignore told
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = ast.If | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.match_case | ast.Assert


def main() -> None:
    """Print the table, or rewrite the document's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="rewrite the table of the document")
    parser.add_argument("--before", metavar="COMMIT", help="measure the column before at this commit")
    args = parser.parse_args()
    before = measured_at(args.before) if args.before else kept(DOCUMENT.read_text())
    lines = table(before, measures(REPOSITORY))
    if args.docs:
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), lines))
    else:
        print("\n".join(aligned(lines)))


# ---- the table ----


def table(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the lines of a Markdown table of both (pure)."""
    rows = [f"| {name} | {before.get(name, '')} | {value} |" for name, value in after.items()]
    return ["| | before | after |", "|---|---:|---:|", *rows]


def kept(document: str) -> dict[str, str]:
    """Return the column before of a document's table (pure)."""
    rows = [[cell.strip() for cell in line.split("|")] for line in _between(document).splitlines()[2:]]
    return {row[1]: row[2] for row in rows}


def replaced(document: str, lines: Sequence[str]) -> str:
    """Return a document with other lines in its table's place (pure)."""
    return document.replace(BEGIN + _between(document) + END, BEGIN + "\n".join(lines) + "\n" + END)


def _between(document: str) -> str:
    return document.partition(BEGIN)[2].partition(END)[0]


def aligned(lines: Sequence[str]) -> list[str]:
    """Return the rows of a table for a terminal (pure)."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if not line.startswith("|--")]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [f"{name:<{widths[0]}}  {old:>{widths[1]}}  {new:>{widths[2]}}" for name, old, new in rows]


# ---- the measures ----


@dataclass(frozen=True)
class Module:
    """A file of the package: its path below the package, its text."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """Return the dotted name that imports use."""
        parts = (PACKAGE, *self.path.with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        return str(self.path.parent)

    @property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]


def measured_at(commit: str) -> dict[str, str]:
    """Return the measures of a commit."""
    archive = subprocess.run(["git", "-C", REPOSITORY, "archive", commit], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as directory, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
        return measures(Path(directory))


def measures(root: Path) -> dict[str, str]:
    """Return what a source tree comes to, by name."""
    package = root / PACKAGE
    modules = [Module(path.relative_to(package), path.read_text()) for path in sorted(package.rglob("*.py"))]
    lengths = [node.end_lineno - node.lineno + 1 for module in modules for node in module.functions if node.end_lineno]
    complexities = [complexity(function) for module in modules for function in module.functions]
    classes = _twice(
        node.name for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    )
    files = _twice(module.path.name for module in modules if module.path.name != "__init__.py")
    rooms = Counter(module.room for module in modules)
    room, largest = rooms.most_common(1)[0]
    arrows = imports(modules)
    duplicates, lines = repeated(modules)
    return {
        "files": f"{len(modules)}",
        "lines of a file: p50 / p90 / max": spread([module.text.count("\n") for module in modules]),
        "functions": f"{len(lengths):,}",
        "lines of a function: p50 / p90 / max": spread(lengths),
        "complexity of a function: p50 / p90 / max": spread(complexities),
        "functions of a complexity above 10": f"{sum(each > 10 for each in complexities)}",
        "class names that occur twice": f"{len(classes)}",
        "file names that occur twice": f"{len(files)}",
        "rooms": f"{len(rooms)}",
        "files of the largest room": f"{largest} ({room}/)",
        "arrows between rooms": f"{len(between_rooms(arrows))}",
        "arrows within log/, a directory as one": f"{len(between_parts(arrows, 'log'))}",
        "circles of imports": f"{len(circles(arrows))}",
        "public names that are documented": f"{documented(modules):.1%}",
        f"lines that stand twice, {WINDOW} or more in a row": f"{duplicates} of {lines:,}",
        **{f"functions with a variable `{name}`": f"{count}" for name, count in vague(modules).items()},
        "words of README": f"{len((root / 'README.md').read_text().split()):,}",
        "lines of README": f"{len((root / 'README.md').read_text().splitlines())}",
    }


def spread(values: Sequence[int]) -> str:
    """Return median, 90th percentile and largest of values (pure)."""
    ordered = sorted(values)
    return " / ".join(f"{ordered[round(share * (len(ordered) - 1))]}" for share in (0.5, 0.9, 1))


def complexity(function: Function) -> int:
    """Return one more than the decisions of a function, without those of functions inside it (pure)."""
    count, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Function | ast.ClassDef):
            count += _decisions(node)
            waiting += ast.iter_child_nodes(node)
    return count


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return 1 + len(node.ifs) if isinstance(node, ast.comprehension) else int(isinstance(node, _BRANCHES))


def _twice(names: Iterator[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def documented(modules: Sequence[Module]) -> float:
    """Return the share of public modules, classes, functions and methods, but for tests, with a docstring (pure)."""
    nodes = [node for module in modules for node in _public(module.tree)]
    return sum(ast.get_docstring(node) is not None for node in nodes) / len(nodes)


def _public(node: ast.Module | ast.ClassDef) -> Iterator[ast.Module | ast.ClassDef | Function]:
    yield node
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child)
        elif isinstance(child, Function) and not child.name.startswith(("_", "test_")) and not _is_overload(child):
            yield child


def _is_overload(function: Function) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "overload" for node in function.decorator_list)


def vague(modules: Sequence[Module]) -> dict[str, int]:
    """Return how many functions have a variable or argument of each name in ``VAGUE`` (pure)."""
    counts = dict.fromkeys(VAGUE, 0)
    for function in (function for module in modules for function in module.functions):
        nodes = list(ast.walk(function))
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        for name in names & set(VAGUE):
            counts[name] += 1
    return counts


# ---- imports ----


def imports(modules: Sequence[Module]) -> set[tuple[Module, Module]]:
    """Return which modules import which, at any place of the file (pure)."""
    by_name = {module.name: module for module in modules}
    return {
        (module, by_name[target])
        for module in modules
        for node in ast.walk(module.tree)
        for target in _targets(node, by_name)
        if target != module.name
    }


def _targets(node: ast.AST, known: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if target := next((name for name in (whole, node.module) if name in known), ""):
                yield target


def between_rooms(arrows: set[tuple[Module, Module]]) -> set[tuple[str, str]]:
    """Return which rooms import which (pure)."""
    return {(module.room, target.room) for module, target in arrows if module.room != target.room}


def between_parts(arrows: set[tuple[Module, Module]], room: str) -> set[tuple[str, str]]:
    """Return which parts of a room, its files and its directories, import which (pure)."""
    inside = [(m.path.parts, t.path.parts) for m, t in arrows if m.path.parts[0] == room == t.path.parts[0]]
    return {(module[1], target[1]) for module, target in inside if module[1] != target[1]}


def circles(arrows: set[tuple[Module, Module]]) -> list[frozenset[str]]:
    """Return the largest sets of modules that all import each other, at some remove (pure)."""
    reached: dict[str, set[str]] = {}
    for module, target in arrows:
        reached.setdefault(module.name, set()).add(target.name)

    def everything(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(reached.get(start, ()))
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting += reached.get(name, ())
        return seen

    below = {name: everything(name) for name in reached}
    sets = {frozenset(other for other in below[name] if name in below.get(other, ())) for name in below}
    return [names for names in sets if len(names) > 1]


# ---- duplicates ----


def repeated(modules: Sequence[Module]) -> tuple[int, int]:
    """Return how many lines of code stand in another place too, and how many there are (pure)."""
    places: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    codes = [list(_code(module)) for module in modules]
    for number, code in enumerate(codes):
        for first in range(len(code) - WINDOW + 1):
            places.setdefault(tuple(code[first : first + WINDOW]), []).append((number, first))
    twice = {
        (number, line)
        for starts in places.values()
        if len(starts) > 1
        for number, first in starts
        for line in range(first, first + WINDOW)
    }
    return len(twice), sum(map(len, codes))


def _code(module: Module) -> Iterator[str]:
    """Yield the lines of code, without their indentation."""
    skipped: set[int] = set()
    for node in ast.walk(module.tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if (text or isinstance(node, ast.Import | ast.ImportFrom)) and node.end_lineno is not None:
            skipped.update(range(node.lineno, node.end_lineno + 1))
    for number, line in enumerate(module.text.splitlines(), 1):
        if number not in skipped and (code := line.partition("  #")[0].strip()) and not code.startswith("#"):
            yield code


if __name__ == "__main__":
    main()

"""Measures what makes the code hard to read, and holds each figure to the best one so far.

    .venv/bin/python scripts/measure_code.py               # print the table
    .venv/bin/python scripts/measure_code.py --check       # as `make check`: no figure may be worse than the document's
    .venv/bin/python scripts/measure_code.py --docs        # rewrite the document's table, unless a figure is worse

Complexity is one more than the decisions: branches, loops, `except`, `assert`, `and`, `or`, comprehensions and
their conditions. A room is a directory of the package. Arrows are counted as the innermost room that holds both ends
sees them: `topic/read` and `topic/state` are two rooms for each other, and one, `topic`, for `storage`. A package's
`__init__` hands out what is in the rooms below it: that is no arrow. A name occurs twice if two classes, or two files
other than `__init__.py`, have it. Lines are duplicates if `WINDOW` of them in a row stand in another place too;
imports, comments, docstrings and blank lines do not count. Lines of code are those but for comments, docstrings and
blank ones.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "pyspark_commitlog"
DOCUMENT = REPOSITORY / "docs" / "explanation" / "code-measures.md"
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"
WINDOW = 6
#: Adverbs, pronouns and participles, which say nothing as a name of their own.
VAGUE = frozenset((REPOSITORY / "scripts" / "vague_names.txt").read_text().split())
#: What of docs/ is written for users: its first page, and directories.
FOR_USERS = ("README.md", "tutorials", "how-to", "reference")
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = ast.If | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.match_case | ast.Assert


@dataclass(frozen=True)
class Figure:
    """A figure, where it is to go, and whether it may get worse: what features and a manual add to is not held."""

    value: int
    goal: int
    held: bool = True


def main() -> int:
    """Print the table, check the document's, or rewrite it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where a figure is worse than the document's")
    parser.add_argument("--docs", action="store_true", help="rewrite the table of the document")
    args = parser.parse_args()
    document, figures = DOCUMENT.read_text(), measures(REPOSITORY)
    before = kept(document)
    lines = table(figures)
    print("\n".join(aligned(lines)))
    if not (args.check or args.docs):
        return 0
    for name, was in worse(before, figures).items():
        print(f"{name}: {figures[name].value:,}, and was {was:,}: it only goes down", file=sys.stderr)
    if worse(before, figures):
        return 1
    if args.docs:
        DOCUMENT.write_text(replaced(document, lines))
    elif replaced(document, lines) != document:
        print(f"{DOCUMENT.name} is of another state: run scripts/measure_code.py --docs", file=sys.stderr)
        return 1
    return 0


# ---- the table ----


def table(figures: Mapping[str, Figure]) -> list[str]:
    """Return the lines of a Markdown table (pure)."""
    rows = [f"| {name} | {each.value:,} | {each.goal:,} |" for name, each in figures.items()]
    return ["| | now | goal |", "|---|---:|---:|", *rows]


def kept(document: str) -> dict[str, int]:
    """Return the figures of a document's table (pure)."""
    rows = [[cell.strip() for cell in line.split("|")] for line in _between(document).splitlines()[2:]]
    return {row[1]: int(row[2].replace(",", "")) for row in rows}


def worse(before: Mapping[str, int], figures: Mapping[str, Figure]) -> dict[str, int]:
    """Return which figures beyond their goal are worse than before, and what they were (pure)."""
    held = {name: each.value for name, each in figures.items() if each.held and each.value > each.goal}
    return {name: before[name] for name, value in held.items() if value > before.get(name, value)}


def replaced(document: str, lines: Sequence[str]) -> str:
    """Return a document with other lines in its table's place (pure)."""
    return document.replace(BEGIN + _between(document) + END, BEGIN + "\n".join(lines) + "\n" + END)


def _between(document: str) -> str:
    return document.partition(BEGIN)[2].partition(END)[0]


def aligned(lines: Sequence[str]) -> list[str]:
    """Return the rows of a table for a terminal (pure)."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if not line.startswith("|--")]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:>{widths[2]}}" for name, value, goal in rows]


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


def measures(root: Path) -> dict[str, Figure]:
    """Return what a source tree comes to, by name."""
    package = root / PACKAGE
    modules = [Module(path.relative_to(package), path.read_text()) for path in sorted(package.rglob("*.py"))]
    functions = [function for module in modules for function in module.functions]
    classes = [node for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    files = [module.path.name for module in modules if module.path.name != "__init__.py"]
    arrows = imports(modules)
    code = sum(sum(1 for _ in _code(module, with_imports=True)) for module in modules)
    pages = (path for path in (root / "docs").rglob("*.md") if path.name != DOCUMENT.name)
    docs = {path: len(path.read_text().split()) for path in pages}
    mutants = sum(path.read_text().count("\n") for path in (root / "tests" / "mutants").glob("*.toml"))
    return {
        "class names that occur twice": Figure(_twice(node.name for node in classes), 1),
        "file names that occur twice": Figure(_twice(iter(files)), 6),
        "functions whose name says nothing": Figure(_vague(functions), 0),
        "classes whose name says nothing": Figure(_vague(classes), 0),
        "files of the fullest room": Figure(max(Counter(module.room for module in modules).values()), 14),
        "lines of the longest file": Figure(max(module.text.count("\n") for module in modules), 450),
        "lines of the longest function": Figure(max(map(_lines, functions), default=0), 60),
        "functions of a complexity above 10": Figure(sum(complexity(each) > 10 for each in functions), 40),
        "broad `except`": Figure(sum(map(broad, modules)), 30),
        "arrows between rooms, one level at a time": Figure(len(by_level(arrows)), 110),
        "rooms that import each other, in pairs": Figure(len(mutual(between_rooms(arrows))), 0),
        "circles of imports": Figure(len(circles(arrows)), 0),
        f"lines that stand twice, {WINDOW} or more in a row": Figure(repeated(modules), 0),
        "public names without a docstring": Figure(undocumented(modules), 0),
        "words of docstrings per 100 lines of code": Figure(100 * docstring_words(modules) // max(1, code), 140),
        "words in docs/": Figure(sum(docs.values()), 50_000, held=False),
        "words in docs/ that are not for users": Figure(sum(docs.values()) - _for_users(docs, root), 25_000),
        "lines of tests/mutants/*.toml": Figure(mutants, 4_000, held=False),
        "lines of code": Figure(code, 35_500, held=False),
    }


def _lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _for_users(docs: Mapping[Path, int], root: Path) -> int:
    return sum(words for path, words in docs.items() if path.relative_to(root / "docs").parts[0] in FOR_USERS)


def _vague(nodes: Sequence[Function | ast.ClassDef]) -> int:
    return sum(node.name.strip("_").lower() in VAGUE for node in nodes)


def broad(module: Module) -> int:
    """Return how many handlers catch every exception, or nearly so (pure)."""
    caught = [node.type for node in ast.walk(module.tree) if isinstance(node, ast.ExceptHandler)]
    names = {"Exception", "BaseException"}
    return sum(each is None or (isinstance(each, ast.Name) and each.id in names) for each in caught)


def docstring_words(modules: Sequence[Module]) -> int:
    """Return the words of all docstrings (pure)."""
    nodes = (node for module in modules for node in ast.walk(module.tree))
    owners = (node for node in nodes if isinstance(node, Function | ast.ClassDef | ast.Module))
    return sum(len((ast.get_docstring(node) or "").split()) for node in owners)


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


def _twice(names: Iterator[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def undocumented(modules: Sequence[Module]) -> int:
    """Return how many public modules, classes, functions and methods have no docstring (pure).

    Tests need none, nor does a method that overrides one of the package: it has that of its base.
    """
    classes: dict[str, list[ast.ClassDef]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    overriding = {id(method) for same in classes.values() for each in same for method in _overrides(each, classes)}
    public = (node for module in modules for node in _public(module.tree))
    return sum(ast.get_docstring(node) is None and id(node) not in overriding for node in public)


def _overrides(node: ast.ClassDef, classes: Mapping[str, Sequence[ast.ClassDef]]) -> Iterator[Function]:
    inherited = {method.name for base in _bases(node, classes) for method in base.body if isinstance(method, Function)}
    yield from (method for method in node.body if isinstance(method, Function) and method.name in inherited)


def _bases(node: ast.ClassDef, classes: Mapping[str, Sequence[ast.ClassDef]]) -> Iterator[ast.ClassDef]:
    names = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    for base in (each for name in names for each in classes.get(name, ()) if each is not node):
        yield base
        yield from _bases(base, classes)


def _public(node: ast.Module | ast.ClassDef) -> Iterator[ast.Module | ast.ClassDef | Function]:
    yield node
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child)
        elif isinstance(child, Function) and not child.name.startswith(("_", "test_")) and not _is_overload(child):
            yield child


def _is_overload(function: Function) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "overload" for node in function.decorator_list)


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
    return {(module.room, target.room) for module, target in _across(arrows)}


def by_level(arrows: set[tuple[Module, Module]]) -> set[tuple[str, str]]:
    """Return which rooms import which, each as the innermost room that holds both sees it (pure)."""
    return {_apart(module.path.parts[:-1], target.path.parts[:-1]) for module, target in _across(arrows)}


def _across(arrows: set[tuple[Module, Module]]) -> Iterator[tuple[Module, Module]]:
    for module, target in arrows:
        hands_out = module.path.name == "__init__.py" and target.path.is_relative_to(module.path.parent)
        if module.room != target.room and not hands_out:
            yield module, target


def _apart(room: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, str]:
    differs = (depth for depth, (one, two) in enumerate(zip(room, other, strict=False)) if one != two)
    shared = next(differs, min(len(room), len(other)))
    return "/".join(room[: shared + 1]) or ".", "/".join(other[: shared + 1]) or "."


def mutual(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of rooms that import each other (pure)."""
    return [(room, other) for room, other in arrows if room < other and (other, room) in arrows]


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


def repeated(modules: Sequence[Module]) -> int:
    """Return how many lines of code stand in another place too (pure)."""
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
    return len(twice)


def _code(module: Module, *, with_imports: bool = False) -> Iterator[str]:
    """Yield the lines of code, without their indentation."""
    left_out = () if with_imports else ast.Import | ast.ImportFrom
    skipped: set[int] = set()
    for node in ast.walk(module.tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if (text or isinstance(node, left_out)) and node.end_lineno is not None:
            skipped.update(range(node.lineno, node.end_lineno + 1))
    for number, line in enumerate(module.text.splitlines(), 1):
        if number not in skipped and (code := line.partition("  #")[0].strip()) and not code.startswith("#"):
            yield code


if __name__ == "__main__":
    sys.exit(main())

"""The documents: pages and links can be followed, names of code exist, README stays one screen to the first success."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

import pyspark_commitlog
from pyspark_commitlog.format.paths import TopicPaths

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(REPOSITORY.glob("docs/*/**/*.md"))
DOCUMENTS = [*sorted(REPOSITORY.glob("*.md")), *sorted(REPOSITORY.glob("docs/**/*.md"))]


def slug(title: str) -> str:
    """Return the anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def links(page: Path) -> list[str]:
    """Return where a page links to, but for other sites and what stands in code."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: os.path.relpath(page, REPOSITORY))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in map(slug, titles), link


def test_the_index_names_every_page() -> None:
    index = REPOSITORY / "docs/README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert len(PAGES) > 30
    assert set(PAGES) - named == set()


def test_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 150


# --- names of code in ARCHITECTURE.md -----------------------------------------------------------------------

ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text()
_STEP = re.compile(r"^\| \d+ \| `([\w.]+)` \|", re.MULTILINE)
_PLACES = re.compile(r"^\| R\d+ [^|]*\| ([^|]*) \|", re.MULTILINE)


def test_a_newcomer_s_walk_leads_to_ten_functions_that_say_what_they_do() -> None:
    steps = _STEP.findall(ARCHITECTURE)
    assert len(steps) == 10
    for step in steps:
        function = resolve_name(f"pyspark_commitlog.{step}")
        assert function.__doc__, step


@cache
def _modules() -> dict[str, set[str]]:
    """Return what each module of the package defines, by its path; methods as ``Class.method`` too."""
    package = Path(pyspark_commitlog.__file__).parent

    def names(body: Sequence[ast.stmt], above: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield above + node.name
                yield from names(node.body, f"{node.name}.")

    return {
        f"{path.relative_to(package)}": set(names(ast.parse(path.read_text()).body)) for path in package.rglob("*.py")
    }


def _exists(name: str) -> bool:
    """Return whether a file, ``module.function``, ``Class.method`` or function is in the package."""
    if name.endswith(".py"):
        return any(f"/{path}".endswith(f"/{name}") for path in _modules())
    first, _, rest = name.rpartition(".")
    in_module = any(f"/{path}".endswith(f"/{first}.py") and rest in defined for path, defined in _modules().items())
    return in_module or any(name in defined for defined in _modules().values())


def test_the_places_of_rules_exist() -> None:
    """In the table of rules, the second column; words that are no path and no name of two parts are prose."""
    places = [name for cell in _PLACES.findall(ARCHITECTURE) for name in re.findall(r"`([\w/]+\.\w+)`", cell)]
    assert len(places) > 30
    assert [name for name in places if not _exists(name)] == []


def test_the_files_that_architecture_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    assert [name for name in named if not _exists(name)] == []


def test_the_format_names_every_place_of_a_topic() -> None:
    """What is not named there, a stranger takes for garbage."""
    text = (REPOSITORY / "FORMAT.md").read_text().partition("\n## Names\n")[2].partition("\n## ")[0]
    places = [name for name, what in vars(TopicPaths).items() if isinstance(what, property) and name != "home"]
    assert len(places) >= 8
    paths = TopicPaths("t", "id")
    below = {getattr(paths, name).removeprefix(f"{paths.home}/") for name in places}
    assert [place for place in sorted(below) if not re.search(rf"[ /]{place}[/ ]", text)] == []

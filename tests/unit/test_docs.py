"""The documents: pages and links can be followed, names of code exist, README stays one screen to the first success."""

from __future__ import annotations

import os
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from pyspark_commitlog.format.paths import TopicPaths
from tests.modules import RULE
from tests.mutants.listed import load

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "pyspark_commitlog"
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


def test_a_newcomer_s_walk_leads_to_ten_functions_that_say_what_they_do() -> None:
    steps = _STEP.findall(ARCHITECTURE)
    assert len(steps) == 10
    for step in steps:
        function = resolve_name(f"pyspark_commitlog.{step}")
        assert function.__doc__, step


def test_every_rule_is_cited_by_tests_and_every_rule_that_is_cited_is_there() -> None:
    """Invariants as `- **I1** …`, rules as rows of a table that say what breaks without them."""
    rules = re.findall(r"^(?:- \*\*(I\d+)\*\* |\| (R\d+) [^|]+ \| [^|]+ \|$)", ARCHITECTURE, re.MULTILINE)
    named = [invariant or rule for invariant, rule in rules]
    assert named == [*(f"I{number}" for number in range(1, 9)), *(f"R{number}" for number in range(1, 16))]
    cited = {path: _cited(path.read_text()) for path in REPOSITORY.glob("tests/**/*.py")}
    listed = {rule for guard in load() for rule in _cited(guard.rule)}
    assert set(named) - listed.union(*(cited[path] for path in cited if path.name.startswith("test_"))) == set()
    for path in PACKAGE.rglob("*.py"):
        cited[path] = _cited(path.read_text())
    assert {str(path): unknown for path, rules in cited.items() if (unknown := rules - set(named))} == {}
    assert listed <= set(named)


def _cited(text: str) -> set[str]:
    return {kind + number for kind, number in RULE.findall(text)}


def test_the_files_that_architecture_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    assert len(named) > 20
    assert [name for name in named if not any((base / name).is_file() for base in (PACKAGE, REPOSITORY))] == []


def test_every_room_is_named_and_every_file_beside_them() -> None:
    rooms = ARCHITECTURE.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(?:\w+/)?(\w+)/`", rooms))
    assert named == {path.name for path in PACKAGE.rglob("*/") if "__" not in path.name}
    beside = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert beside == set(re.findall(r"`(\w+\.py)`", rooms))


def test_the_format_names_every_place_of_a_topic() -> None:
    """What is not named there, a stranger takes for garbage."""
    text = (REPOSITORY / "FORMAT.md").read_text().partition("\n## Names\n")[2].partition("\n## ")[0]
    places = [name for name, what in vars(TopicPaths).items() if isinstance(what, property) and name != "home"]
    assert len(places) >= 8
    paths = TopicPaths("t", "id")
    below = {getattr(paths, name).removeprefix(f"{paths.home}/") for name in places}
    assert [place for place in sorted(below) if not re.search(rf"[ /]{place}[/ ]", text)] == []

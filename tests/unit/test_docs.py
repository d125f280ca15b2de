"""The documents: every page can be found, every link leads somewhere, README stays one screen to the first success."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

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

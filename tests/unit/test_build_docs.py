"""The manual's pages: where they are in the site, where their links lead, and that its navigation has all of them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.scripts import script_module

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script as a module."""
    return script_module("build_docs")


@pytest.mark.parametrize(
    ("source", "page"),
    [
        ("docs/README.md", "index.md"),
        ("README.md", "start.md"),
        ("ARCHITECTURE.md", "architecture.md"),
        ("docs/how-to/replay.md", "how-to/replay.md"),
        ("docs/images/a.svg", "images/a.svg"),
        ("examples/demo.py", "files/examples/demo.py"),
    ],
)
def test_a_file_has_one_place_in_the_site(build: ModuleType, source: str, page: str) -> None:
    assert build.page_of(source) == page


def test_the_targets_of_links_are_paths_in_the_repository(build: ModuleType) -> None:
    text = "[a](../reference/sql.md#x) ![b](../images/b.svg) [c](https://example.com/d) [d](#here) [e](../../FORMAT.md)"
    assert build.linked(text, "docs/how-to/replay.md") == ["docs/reference/sql.md", "docs/images/b.svg", "FORMAT.md"]


@pytest.mark.parametrize(
    ("source", "link", "there"),
    [
        ("docs/how-to/replay.md", "[a](retention.md)", "[a](retention.md)"),
        ("docs/how-to/replay.md", "[a](../../FORMAT.md#names)", "[a](../format.md#names)"),
        ("docs/how-to/replay.md", "[`x`](../../examples/demo.py)", "[`x`](../files/examples/demo.py)"),
        ("docs/README.md", "[a](../README.md)", "[a](start.md)"),
        ("examples/README.md", "[`x`](demo.py), [a](data/README.md)", "[`x`](files/examples/demo.py), [a](flights.md)"),
        ("README.md", "[a](docs/README.md#explanation)", "[a](index.md#explanation)"),
        ("README.md", "[a](docs/how-to/sail.md)", "[a](how-to/sail.md)"),
        ("docs/README.md", "![a](images/a.svg)", "![a](images/a.svg)"),
        ("README.md", "[a](https://example.com) [b](#start)", "[a](https://example.com) [b](#start)"),
    ],
)
def test_links_lead_to_the_same_files_in_the_site(build: ModuleType, source: str, link: str, there: str) -> None:
    assert build.with_links(link, source, set()) == there


def test_of_a_link_to_what_the_site_does_not_have_the_text_is_left(build: ModuleType) -> None:
    text = "the books in [`notebooks/`](notebooks), [tests](tests/README.md)"
    assert build.with_links(text, "README.md", {"notebooks", "tests/README.md"}) == "the books in `notebooks/`, tests"


def pages_in(navigation: list[object]) -> list[str]:
    """Return the pages of a navigation of MkDocs, in order (pure)."""
    pages: list[str] = []
    for entry in navigation:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            pages += pages_in(value) if isinstance(value, list) else [value]
    return pages


def config() -> dict[str, Any]:
    """Return the configuration of the site."""
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    return found


def test_search_without_a_server_has_its_script_here() -> None:
    """The plugin would load it from elsewhere, unless it is named."""
    assert "offline" in config()["plugins"]
    (script,) = config()["extra"]["polyfills"]
    assert "iframe-worker" in script
    assert (REPOSITORY / "docs" / script).is_file()


def test_the_navigation_has_every_page_once(build: ModuleType) -> None:
    navigation = config()["nav"]
    docs = (path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("docs/**/*.md"))
    assert sorted(pages_in(navigation)) == sorted(map(build.page_of, {*build.DOCUMENTS, *docs}))


def test_language_models_are_given_all_pages(build: ModuleType) -> None:
    text = build.llms_txt(config())
    assert text.startswith("# pyspark-commitlog\n\n> Kafka's commit log without brokers")
    assert "\n## How-to\n\n- [Move from Kafka's connector](how-to/from-kafka.md)\n" in text
    assert build.linked(text, "llms.txt") == pages_in(config()["nav"])[1:]  # all but this list for people


def test_every_document_of_the_site_exists(build: ModuleType) -> None:
    assert [source for source in build.DOCUMENTS if not (REPOSITORY / source).is_file()] == []


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ('<script src="https://cdn.example.com/a.js"></script>', ["https://cdn.example.com/a.js"]),
        ("<link href=//fonts.example.com/b.css rel=stylesheet>", ["//fonts.example.com/b.css"]),
        ('<link rel="preconnect" href="https://fonts.example.com">', ["https://fonts.example.com"]),
        ('<img alt="" src="http://example.com/c.png">', ["http://example.com/c.png"]),
        ("@font-face { src: url(https://fonts.example.com/d.woff2) }", ["https://fonts.example.com/d.woff2"]),
        ('@import "https://example.com/e.css";', ["https://example.com/e.css"]),
        ('<a href="https://example.com">there</a> <script src="assets/a.js"></script>', []),
        ('<link rel="stylesheet" href="assets/b.css"> <link rel="canonical" href="https://example.com">', []),
    ],
)
def test_what_a_page_loads_from_other_hosts_is_found(build: ModuleType, text: str, loaded: list[str]) -> None:
    assert build.foreign(text) == loaded

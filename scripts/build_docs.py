"""Builds the manual, a site over the pages of docs/, in build/site: `make docs`, `make docs-serve`.

The pages link to files outside docs/, which a site can't show from where they are. So they are gathered first: pages
keep their paths, other documents become pages, and other files, as examples, are copied and linked as they are.
The site has the pages in Markdown, too, which `llms.txt` lists; Zensical makes that itself from 0.1.1 on.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES, SITE = REPOSITORY / "build" / "pages", REPOSITORY / "build" / "site"
ZENSICAL = (sys.executable, "-m", "zensical")
#: Documents outside docs/, and the pages that they are in the site.
DOCUMENTS = {
    "docs/README.md": "index.md",
    "README.md": "start.md",
    "ARCHITECTURE.md": "architecture.md",
    "FORMAT.md": "format.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/data/README.md": "flights.md",
}
#: Where copies of other files are.
FILES = "files"
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
_LINKED_TEXT = re.compile(r"\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
#: What a page loads by itself, other than what it links to, from another host.
_FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?((?:https?:)?//[^"'\s>]+)|"""
    r"""<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon))[^>]*\shref=["']?((?:https?:)?//[^"'\s>]+)|"""
    r"""(?:@import\s+|\burl\()["']?((?:https?:)?//[^"')\s]+)"""
)


def page_of(source: str) -> str:
    """Return where a file of the repository is in the site (pure)."""
    if source in DOCUMENTS:
        return DOCUMENTS[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else f"{FILES}/{source}"


def linked(text: str, source: str) -> list[str]:
    """Return the files that a page links to, as paths in the repository (pure)."""
    return [_target(source, match[1]) for match in _LINK.finditer(text)]


def with_links(text: str, source: str, absent: set[str]) -> str:
    """Return a page whose links are those of the site (pure); of a link to what the site lacks the text is left."""
    home = PurePosixPath(page_of(source)).parent

    def moved(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        return match[1] if target in absent else f"[{match[1]}]({relpath(page_of(target), home)}{match[3] or ''})"

    return _LINKED_TEXT.sub(moved, text)


def _target(source: str, link: str) -> str:
    return normpath(PurePosixPath(source).parent / link)


def is_absent(target: str) -> bool:
    """Return whether the site lacks what a page links to: directories, and pages of other documents."""
    is_page = target in DOCUMENTS or target.startswith("docs/")
    return (REPOSITORY / target).is_dir() or (target.endswith(".md") and not is_page)


def llms_txt(config: dict[str, Any]) -> str:
    """Return the contents of the manual for language models, as llmstxt.org has it (pure)."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for part in config["nav"]:
        for title, inside in part.items() if isinstance(part, dict) else ():
            lines += ["", f"## {title}", "", *(f"- [{name}]({page})" for name, page in _pages(inside))]
    return "\n".join(lines) + "\n"


def _pages(navigation: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in navigation:
        for title, inside in entry.items():
            if isinstance(inside, list):
                yield from _pages(inside)
            else:
                yield title, inside


def foreign(text: str) -> list[str]:
    """Return what a page or a style sheet loads from other hosts (pure)."""
    return ["".join(groups) for groups in _FOREIGN.findall(text)]


def gather() -> None:
    """Copy all pages, and the files that they link to, to `PAGES`."""
    docs = (path.relative_to(REPOSITORY).as_posix() for path in sorted(REPOSITORY.glob("docs/**/*.md")))
    for source in dict.fromkeys([*DOCUMENTS, *docs]):
        text = (REPOSITORY / source).read_text()
        targets = set(linked(text, source))
        absent = set(filter(is_absent, targets))
        _write(page_of(source), with_links(text, source, absent).encode())
        for target in targets - absent:
            if not target.endswith(".md"):
                _write(page_of(target), (REPOSITORY / target).read_bytes())
    for asset in (REPOSITORY / "docs" / "assets").iterdir():
        _write(f"assets/{asset.name}", asset.read_bytes())


def _write(page: str, content: bytes) -> None:
    """Write a file below `PAGES`, unless it is there: a server that watches it renders what changes."""
    place = PAGES / page
    place.parent.mkdir(parents=True, exist_ok=True)
    if not (place.is_file() and place.read_bytes() == content):
        place.write_bytes(content)


def serve() -> int:
    """Serve the site on this machine, and gather pages again while they are written; return the exit code."""
    gather()
    with subprocess.Popen([*ZENSICAL, "serve"], cwd=REPOSITORY) as server:
        try:
            while server.poll() is None:
                time.sleep(1)
                gather()
        except KeyboardInterrupt:
            server.terminate()
    return server.returncode


def build() -> int:
    """Build the site, without any warning, of which no page loads anything from elsewhere; return the exit code."""
    shutil.rmtree(PAGES, ignore_errors=True)
    gather()
    if code := subprocess.run([*ZENSICAL, "build", "--clean", "--strict"], cwd=REPOSITORY, check=False).returncode:
        return code
    shutil.copytree(PAGES, SITE, ignore=_all_but_pages, dirs_exist_ok=True)
    (SITE / "llms.txt").write_text(llms_txt(yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())))
    files = [path for path in SITE.rglob("*") if path.suffix in {".html", ".css"}]
    found = {f"{path.relative_to(SITE)}: {url}" for path in files for url in foreign(path.read_text())}
    for line in sorted(found):
        print(f"loads from another host: {line}", file=sys.stderr)
    return 1 if found else 0


def _all_but_pages(directory: str, names: list[str]) -> list[str]:
    """Return what `llms.txt` does not link to."""
    return [name for name in names if not (name.endswith(".md") or Path(directory, name).is_dir())]


def main() -> int:
    """Build the site, or serve it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve the site on this machine instead")
    return serve() if parser.parse_args().serve else build()


if __name__ == "__main__":
    sys.exit(main())

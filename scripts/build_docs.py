"""Builds the manual, a site over the pages of docs/, in build/site: `make docs`, `make docs-serve`.

The pages link to files outside docs/, which a site can't show from where they are. So they are gathered first: pages
keep their paths, documents at the top become pages, and other files, as examples, are copied and linked as they are.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES, SITE = REPOSITORY / "build" / "pages", REPOSITORY / "build" / "site"
#: Documents outside docs/, and the pages that they are in the site.
DOCUMENTS = {
    "docs/README.md": "index.md",
    "README.md": "start.md",
    "ARCHITECTURE.md": "architecture.md",
    "FORMAT.md": "format.md",
    "CHANGELOG.md": "changelog.md",
}
#: Where copies of other files are.
FILES = "files"
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
_LINKED_TEXT = re.compile(r"\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def page_of(source: str) -> str:
    """Return where a file of the repository is in the site (pure)."""
    if source in DOCUMENTS:
        return DOCUMENTS[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else f"{FILES}/{source}"


def linked(text: str, source: str) -> list[str]:
    """Return the files that a page links to, as paths in the repository (pure)."""
    return [_target(source, match[1]) for match in _LINK.finditer(text)]


def with_links(text: str, source: str, directories: set[str]) -> str:
    """Return a page whose links are those of the site (pure); of a link to a directory its text is left."""
    home = PurePosixPath(page_of(source)).parent

    def moved(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        if target in directories:
            return match[1]
        return f"[{match[1]}]({relpath(page_of(target), home)}{match[3] or ''})"

    return _LINKED_TEXT.sub(moved, text)


def _target(source: str, link: str) -> str:
    return normpath(PurePosixPath(source).parent / link)


def gather() -> None:
    """Copy all pages, and what they link to, to `PAGES`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    docs = [path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("docs/**/*.md")]
    for source in dict.fromkeys([*DOCUMENTS, *docs]):
        text = (REPOSITORY / source).read_text()
        targets = {target for target in linked(text, source) if target not in DOCUMENTS}
        directories = {target for target in targets if (REPOSITORY / target).is_dir()}
        _write(PAGES / page_of(source), with_links(text, source, directories))
        for target in targets - directories:
            if not target.endswith(".md") or not target.startswith("docs/"):
                _copy(REPOSITORY / target, PAGES / page_of(target))


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def main() -> int:
    """Build the site, or serve it while pages are written; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve the site on this machine instead")
    args = parser.parse_args()
    gather()
    command = ["serve"] if args.serve else ["build", "--clean", "--strict"]
    return subprocess.run([sys.executable, "-m", "zensical", *command], cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

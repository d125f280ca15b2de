"""Writes the tables of docs/reference that the code has already, between the marks of each page.

.venv/bin/python scripts/generate_reference.py             # rewrite the pages
.venv/bin/python scripts/generate_reference.py --check     # as `make check`: fail if a page is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from pyspark_commitlog.config import DAY_MS, HOUR_MS, KEYS, LONG_MAX, Key  # noqa: E402

BEGIN, END = "<!-- generated -->\n", "<!-- /generated -->\n"
ESCAPED_BAR = r"\|"
_MS = {"d": DAY_MS, "h": HOUR_MS, "min": 60_000, "s": 1000}
_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
Rows = Iterator[Sequence[str]]


def main() -> int:
    """Rewrite the pages, or name those that are stale; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    check = parser.parse_args().check
    stale = []
    for name, generate in PAGES.items():
        page = REPOSITORY / "docs" / "reference" / name
        before, _, rest = page.read_text().partition(BEGIN)
        written, mark, after = rest.partition(END)
        lines = "".join(f"{line}\n" for line in generate())
        if not mark:
            sys.exit(f"{page} lacks the marks {BEGIN.strip()} and {END.strip()}")
        if written != lines:
            stale.append(name)
            if not check:
                page.write_text(before + BEGIN + lines + END + after)
    if check and stale:
        print(f"stale: {', '.join(stale)}: run scripts/generate_reference.py", file=sys.stderr)
    return int(check and bool(stale))


def table(head: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the lines of a Markdown table (pure)."""
    for row in (head, ["---" for _ in head], *rows):
        yield f"| {' | '.join(cell.replace('|', ESCAPED_BAR) for cell in row)} |"


# ---- topic-configs.md ----


def configs() -> Iterator[str]:
    """Yield the table of topic configs."""
    rows = ((f"`{key.name}`", readable(key), allowed(key), key.doc) for key in KEYS.values())
    return table(("config", "default", "takes", "meaning"), rows)


def readable(key: Key) -> str:
    """Return a default, with its unit if it is a round number of a larger one (pure)."""
    if key.default == str(LONG_MAX):
        return "no limit"
    units = _MS if key.name.endswith(".ms") else _BYTES if key.name.endswith(("bytes", "size")) else {}
    number = int(key.default) if units else 0
    rounded = (f" ({number // size} {unit})" for unit, size in units.items() if number >= size and number % size == 0)
    return f"{key.default}{next(rounded, '')}"


def allowed(key: Key) -> str:
    """Return what a config takes (pure)."""
    if key.choices:
        choices = ", ".join(f"`{choice}`" for choice in key.choices)
        return f"{choices}; several with commas" if key.several else choices
    return f"{key.minimum} or more" if key.maximum is None else f"{key.minimum} to {key.maximum}"


PAGES: dict[str, Callable[[], Iterator[str]]] = {"topic-configs.md": configs}


if __name__ == "__main__":
    sys.exit(main())

"""`make check` refuses the words that CONTRIBUTING.md has plainer ones for: red on what README once said, green on all now."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: Lines of a former README.
BEFORE = Path(__file__).with_name("words_before.txt")
WORDS = dict(line.split("->") for line in (REPOSITORY / "scripts" / "words.txt").read_text().splitlines())


def refused(path: Path) -> list[str]:
    """Return the words that the check refuses in a file, in order."""
    config = ["--toml", str(REPOSITORY / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *config, str(path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    found = re.findall(r": (.*?) ==> ", done.stdout)
    assert done.returncode == (65 if found else 0)
    return [word.lower() for word in found]


def test_a_former_readme_is_refused(tmp_path: Path) -> None:
    """All of these words stand there; so do "is behind" and "people who", which pass."""
    file = tmp_path / "README.md"
    file.write_text(BEFORE.read_text())
    assert set(refused(file)) == {"anew", "behind", "border", "tells", "told", "who"}


def test_every_word_of_the_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("".join(f"This {word} that.\n{word.capitalize()} it.\n" for word in WORDS))
    assert refused(file) == [each for word in WORDS for each in (word, word)]


@pytest.mark.parametrize(
    "line",
    [
        "People who wait for somebody who may write.",
        "How far behind it is, and what is left behind; two batches behind.",
        "The flag `thinned` and ``whoever``.",
        "a_told = untold(1)  # codespell:ignore told",
    ],
)
def test_what_is_plain_is_not_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"{line}\n")
    assert refused(file) == []


def test_contributing_has_the_list() -> None:
    rows = [f"| `{word}` | {plainer.strip(' ,')} |" for word, plainer in WORDS.items()]
    assert "\n".join(rows) in (REPOSITORY / "CONTRIBUTING.md").read_text()


def test_the_phrases_of_the_list_are_words_of_the_pattern() -> None:
    """A phrase that the pattern does not know as one word would never be found."""
    pattern = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["codespell"]["regex"]
    assert [word for word in WORDS if re.fullmatch(pattern, word) is None] == []

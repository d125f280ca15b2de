"""The Dockerfile, read as Docker reads it: what it copies, which image and user, and that its extras are there."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """Instructions and their arguments, without comments, with continued lines joined."""
    lines = [line for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = [line.partition(" ") for line in joined.splitlines() if line]
    return [(name, arguments) for name, _, arguments in pairs]


def test_the_image_has_a_version(instructions: list[tuple[str, str]]) -> None:
    images = [arguments for name, arguments in instructions if name == "FROM"]
    assert [image for image in images if not re.fullmatch(r"[a-z]+:\d[\w.-]*", image)] == []
    (version,) = re.findall(r"python:(\d+\.\d+)-", images[-1])
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    assert f"Python :: {version}" in setup["metadata"]["classifiers"]


def test_what_is_copied_is_what_make_package_builds_and_is_not_ignored(instructions: list[tuple[str, str]]) -> None:
    assert [arguments.split()[0] for name, arguments in instructions if name in ("COPY", "ADD")] == ["dist/*.whl"]
    assert "scripts/build_package.py" in (REPOSITORY / "Makefile").read_text()
    ignored = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == ["*", "!dist", "dist/*", "!dist/*.whl"]


def test_it_installs_extras_that_there_are(instructions: list[tuple[str, str]]) -> None:
    (extras,) = re.findall(
        r"\[([a-z0-9,]+)\]", " ".join(arguments for name, arguments in instructions if name == "RUN")
    )
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    assert set(extras.split(",")) <= set(setup["options.extras_require"])


def test_the_command_is_run_by_a_user_without_rights(instructions: list[tuple[str, str]]) -> None:
    names = [name for name, _ in instructions]
    given = dict(instructions)
    assert given["USER"].isdigit()
    assert int(given["USER"]) > 0
    assert f"--uid {given['USER']}" in given["RUN"]
    assert json.loads(given["ENTRYPOINT"]) == ["commitlog"]
    assert names.index("USER") > max(position for position, name in enumerate(names) if name == "RUN")


def test_lists_of_packages_are_not_kept(instructions: list[tuple[str, str]]) -> None:
    fetching = [arguments for name, arguments in instructions if name == "RUN" and "apt-get" in arguments]
    assert fetching
    assert all("--no-install-recommends" in each and "rm -rf /var/lib/apt/lists/*" in each for each in fetching)
    assert all("--no-cache-dir" in arguments for name, arguments in instructions if "pip install" in arguments)

"""The tests' own order: README.md names every directory and module, no name stands twice, harnesses are no test files."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests import modules

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_readme_has_every_directory() -> None:
    named = set(re.findall(r"`(\w+)/`", modules.DOCUMENT.read_text().partition("\n\n`make test-fast`")[0]))
    assert named == {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith("_")}


def test_readme_has_the_rules_and_tests_of_every_module() -> None:
    """Else: ``python -m tests.modules --docs``."""
    text = modules.DOCUMENT.read_text()
    assert text == modules.written(text)
    assert len(modules.modules()) > 150
    for path in modules.modules():
        assert f"| `{path}` |" in text


def test_a_guard_s_tests_come_before_those_that_only_import_its_module() -> None:
    guards = [guard for guard in modules.load() if guard.at.startswith("journal.putting:")]
    files = modules.tests_of(Path("journal/putting.py"), guards)
    most = Counter(guard.red.partition("::")[0] for guard in guards).most_common(1)[0][0]
    assert files[0] == most
    assert "R5" in modules.rules_of(Path("journal/putting.py"), guards)


def test_no_file_of_tests_has_the_name_of_another() -> None:
    names = Counter(path.name for path in FILES if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_several_files_need_is_in_none_that_holds_tests() -> None:
    ours = (path for path in TESTS.parent.glob("benchmarks/**/*.py") if "/." not in str(path.relative_to(TESTS.parent)))
    inside = [*FILES, *ours]  # not what `make bench-peers` fetches
    assert [str(path) for path in inside if any(".test_" in name for name in imported(path))] == []


def test_the_fixture_world_is_defined_once() -> None:
    defining = [
        str(path.relative_to(TESTS)) for path in FILES if re.search(r"^def world\(", path.read_text(), re.MULTILINE)
    ]
    assert defining == ["conftest.py"]

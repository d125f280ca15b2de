"""The tests' own order: README.md names every directory and module, no name stands twice, harnesses are no test files."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests import modules, slowest
from tests.support import steps

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_readme_has_every_directory() -> None:
    named = set(re.findall(r"`(\w+)/`", (TESTS / "README.md").read_text().partition("\n\n`make test-fast`")[0]))
    assert named == {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith("_")}


def test_without_arguments_every_module_is_listed_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    modules.main([])
    rooms = [room.splitlines() for room in capsys.readouterr().out.split("\n\n")]
    assert [line.split()[0] for room in rooms for line in room] == [str(path) for path in modules.modules()]
    assert len(modules.modules()) > 150
    for room in rooms:
        assert len({Path(line.split()[0]).parent for line in room}) == 1
    lines = dict(line.split(maxsplit=1) for room in rooms for line in room)
    assert lines["format/paths.py"] == "Names of everything below a root, built and parsed in one place."


def test_files_are_described_by_their_rules_and_tests(capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever way a file is named; the command at the end runs what guards any of them, most guards first."""
    path = Path("journal/putting.py")
    modules.main(["pyspark_commitlog/journal/putting.py", str(TESTS.parent / "pyspark_commitlog/format/varint.py")])
    described, other, command = capsys.readouterr().out.split("\n\n")
    assert described.startswith(f"{path}  Put an entry until its outcome is certain")
    assert "R5" in modules.rules_of(path)
    assert f"rules: {', '.join(modules.rules_of(path))}\n" in described
    most = Counter(guard.red.partition("::")[0] for guard in modules.guards_of(path)).most_common(1)[0][0]
    assert f"guarded by: {most}" in described
    assert other.startswith("format/varint.py")
    assert command.startswith(f".venv/bin/python -m pytest tests/{most} ")
    assert "tests/unit/test_varint.py" in command.split()
    assert all((TESTS.parent / file).is_file() for file in command.split()[3:])


def test_tests_that_only_import_a_module_come_after_its_guards() -> None:
    path = Path("topic/maintain/retention.py")
    guards, _, imports = modules.description(path).partition("imported by: ")
    only = set(modules.importing(path)) - set(modules.guarding(path))
    assert only
    assert all(file in imports and file not in guards for file in only)
    assert all(file in guards and file not in imports for file in modules.guarding(path))


@pytest.mark.parametrize("name", ["consumer/guard.py", "topic/segments/new_segment.py"])
def test_a_module_without_tests_of_its_own_is_run_by_its_room_s_or_by_its_users(name: str) -> None:
    path = Path(name)
    assert modules.guarding(path) == modules.importing(path) == []
    users = {test for user in modules.users_of(path) for test in modules.to_run(Path(user))}
    assert users != set()
    assert set(modules.to_run(path)) == ({"consumer"} if path.parts[0] == "consumer" else users)


def test_there_is_something_to_run_for_every_module() -> None:
    assert [path for path in modules.modules() if not modules.to_run(path)] == []


def test_a_file_that_is_no_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        modules.main(["topic/topic_log.py", "topic/no_such.py"])
    assert ended.value.code == 2
    assert "no module of pyspark_commitlog with code: topic/no_such.py" in capsys.readouterr().err


def test_the_slowest_are_printed_after_the_seconds_of_each_directory(tmp_path: Path) -> None:
    report = tmp_path / "run.xml"
    cases = [
        ("tests.unit.test_varint", "test_a[x]", 1.5),
        ("tests.crash.test_faults.TestB", "test_b", 30.25),
        ("tests.unit.test_tests", "test_files_are_described_by_their_rules_and_tests", 2000),
    ]
    written = "".join(f'<testcase classname="{of}" name="{name}" time="{time}"/>' for of, name, time in cases)
    report.write_text(f"<testsuites><testsuite>{written}</testsuite></testsuites>")
    total, *directories, empty, first, second, third = list(slowest.summary(report))
    assert total == "3 tests, 2,032 s in all processes together\n"
    assert directories == ["  2,002 s  unit/", "     30 s  crash/"]
    assert empty == ""
    assert first.splitlines() == [
        " 2000.0 s  unit/test_tests.py::test_files_are_described_by_their_rules_and_tests",
        "           Whichever way a file is named; the command at the end runs what guards any of them, most guards first.",
    ]
    assert second.startswith("   30.2 s  crash/test_faults.py::test_b")
    assert third.startswith("    1.5 s  unit/test_varint.py::test_a[x]")


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


def test_every_case_of_a_slow_test_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    for commit in range(3):
        monkeypatch.setattr(steps, "_commits", lambda commit=commit: commit)
        played.append([case for case in range(7) if steps.is_in_turn("a_test", case, every=3)])
    assert sorted(case for turn in played for case in turn) == list(range(7))
    assert all(played)


def test_slow_tests_take_turns_by_their_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SECONDS", tmp_path / "seconds.txt")
    steps.SECONDS.write_text("  1.2 tests/a.py::test_b\n 63.0 tests/a.py::TestC::test_d\n  3.0 tests/e.py::test_f\n")
    assert steps.turns.__wrapped__() == {
        "tests/a.py::test_b": 3,
        "tests/a.py::TestC::test_d": 12,
        "tests/e.py::test_f": 6,
    }


@pytest.mark.parametrize("every", range(1, steps.TURNS + 1))
def test_a_case_whose_turn_it_is_begins_at_each_step_in_time(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = set()
    for commit in range(steps.STEPS * every):
        monkeypatch.setattr(steps, "_commits", lambda commit=commit: commit)
        if steps.is_in_turn("a_test", 0, every=every):
            begun.add(steps.first_step(steps.STEPS, "a scene"))
    assert begun == set(range(1, steps.STEPS + 1))


def test_the_tests_whose_seconds_are_known_exist() -> None:
    assert len(steps.turns()) > 400
    for test in steps.turns():
        file, name, *_ = test.split("::")
        assert name in (TESTS.parent / file).read_text(), test


def test_seconds_are_those_of_all_cases(tmp_path: Path) -> None:
    report = tmp_path / "run.xml"
    cases = [
        ("tests.unit.test_tests", "test_x[a]", 0.7), ("tests.unit.test_tests", "test_x[b]", 0.6),
        ("tests.unit.test_tests.TestY", "test_z", 2), ("tests.unit.test_tests", "test_short", 1), ("", "no file", 9),
    ]  # fmt: skip
    lines = (f'<testcase classname="{group}" name="{name}" time="{seconds}"/>' for group, name, seconds in cases)
    report.write_text(f"<testsuite>{''.join(lines)}</testsuite>")
    file = "tests/unit/test_tests.py"
    assert list(slowest.seconds_of_tests(report)) == [f"  2.0 {file}::TestY::test_z", f"  1.3 {file}::test_x"]

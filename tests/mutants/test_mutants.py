"""The list of guards fits the code, and every one of them is held by its test."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.changes import NotApplicableError
from tests.mutants.listed import REPOSITORY, Mutant, load
from tests.mutants.running import Copy, Outcome, not_green, not_green_of, run_all, verdict

MUTANTS = load()
SOURCE = """
LIMIT = 3

class A:
    def f(self):
        return 1 < 2

    def g(self):
        def inner():
            return 1 < 2
        return inner() or 1 < 2
"""


def mutant(**changed: str) -> Mutant:
    """Return a mutant of SOURCE."""
    given = {"room": "r", "at": "m:A.f", "change": "Compare 1: <=", "guard": "g", "red": "t.py::test_a"}
    return Mutant(**{**given, **changed})


# --- the list ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: f"{each.room}: {each.guard}")
@pytest.mark.each_commit
def test_the_change_that_takes_a_guard_out_fits_its_code(each: Mutant) -> None:
    each.check(_source(each.path))


@cache  # a module holds many guards
def _source(path: str) -> str:
    return (REPOSITORY / path).read_text()


def test_the_tests_that_hold_guards_exist() -> None:
    split = [(each.red, each.red.partition("[")[0].split("::")) for each in MUTANTS]
    assert [red for red, (module, *names) in split if not set(names) <= _names(module)] == []


@cache  # a module holds many guards
def _names(module: str) -> set[str]:
    """Return what a test's module defines, and the contract of storages: a class inherits tests from there."""
    path = REPOSITORY / "tests" / module
    trees = (
        ast.parse(each.read_text()) for each in (path, *REPOSITORY.glob("pyspark_commitlog/testing/contract_*.py"))
    )
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.nightly
def test_each_guard_is_held_by_its_test() -> None:
    alive = [result for result in run_all(MUTANTS, 2) if result.outcome is not Outcome.KILLED]
    assert alive == []


# --- the harness ------------------------------------------------------------------------------------------


def test_a_guard_is_taken_out_of_the_definition_that_is_named_only() -> None:
    plain = ast.unparse(ast.parse(SOURCE))
    assert mutant().applied(SOURCE) == plain.replace("1 < 2", "1 <= 2", 1)
    inner = mutant(at="m:A.g.inner").applied(SOURCE)
    assert "def inner():\n            return 1 <= 2" in inner
    assert inner.count("<=") == 1
    assert mutant(at="m:LIMIT", change="Constant 1: 4").applied(SOURCE) == plain.replace("3", "4")


@pytest.mark.parametrize(
    "changed",
    [{"at": "m:A.h"}, {"at": "m:B"}, {"change": "Compare 2: <="}, {"change": "Compare 1: <"}],
    ids=["no such function", "no such class", "no such node", "nothing changes"],
)
def test_a_mutant_that_does_not_fit_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(NotApplicableError):
        mutant(**changed).check(SOURCE)


def test_a_mutant_that_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError, match="not properly in loop"):
        mutant(change="Return 1: continue").applied(SOURCE)


def phase(name: str = "call", outcome: str = "passed", *raised: str, test: str = "t.py::test_a") -> dict[str, Any]:
    """Return how a phase of a test ended."""
    return {"test": test, "phase": name, "outcome": outcome, "raised": list(raised), "message": "why"}


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([phase(), phase("call", "failed", "AssertionError")], Outcome.KILLED),
        ([phase("call", "failed", "KeyError", "Exception")], Outcome.KILLED),
        ([phase("setup"), phase()], Outcome.SURVIVED),
        ([phase(), phase("teardown", "failed", "AssertionError")], Outcome.SURVIVED),
        ([phase("setup", "failed", "AssertionError")], Outcome.BROKEN),
        ([phase("call", "failed", "ModuleNotFoundError", "ImportError")], Outcome.BROKEN),
        ([phase("call", "failed", "UnboundLocalError", "NameError")], Outcome.BROKEN),
        ([phase("call", "failed", "SyntaxError")], Outcome.BROKEN),
        ([], Outcome.BROKEN),
        (None, Outcome.HUNG),
    ],
)
def test_only_a_test_that_ran_and_failed_kills(phases: list[dict[str, Any]] | None, expected: Outcome) -> None:
    assert verdict(phases)[0] is expected


def test_a_test_that_was_not_seen_green_is_named() -> None:
    passed = [phase(test="t.py::test_a[1]"), phase(test="t.py::test_a[2]"), phase(test="t.py::test_b")]
    assert not_green(passed, ["t.py::test_a", "t.py::test_b"]) == {}
    assert not_green(passed, ["t.py::test"]) == {"t.py::test": "it did not run"}
    skipped = phase("setup", "skipped", test="t.py::test_c")
    one = phase("call", "failed", "AssertionError", test="t.py::test_a[2]")
    assert not_green([*passed, skipped, one], ["t.py::test_a", "t.py::test_b", "t.py::test_c"]) == {
        "t.py::test_a": "why",
        "t.py::test_c": "why",
    }
    assert not_green(None, ["t.py::test_a"]) == {"t.py::test_a": "they took too long together"}


def test_a_test_that_is_not_there_is_named_and_hides_no_other() -> None:
    class Tests(Copy):
        def __init__(self) -> None:
            self.there = ["t.py::test_a", "t.py::test_b", "t.py::test_c", "t.py::test_d"]

        def run(self, node_ids: Sequence[str], timeout: float) -> list[dict[str, Any]] | None:
            return [phase(test=each) for each in node_ids] if set(node_ids) <= set(self.there) else []

    tests = Tests()
    assert not_green_of(tests, []) == {}
    assert not_green_of(tests, tests.there) == {}
    assert not_green_of(tests, [*tests.there, "t.py::test_d[1]"]) == {"t.py::test_d[1]": "it did not run"}


def test_a_list_with_a_wrong_key_or_the_same_guard_twice_is_refused(tmp_path: Path) -> None:
    entry = '["m"]\n"A.f: Compare 1: <=" = { guard = "g", red = "t.py::test_a" }\n'
    (tmp_path / "room.toml").write_text(entry)
    assert load(tmp_path) == [Mutant("room", "m:A.f", "Compare 1: <=", "g", "t.py::test_a")]
    other = tmp_path / "other.toml"
    other.write_text(entry.replace("<=", "<"))
    with pytest.raises(ValueError, match="described twice"):
        load(tmp_path)
    other.write_text(entry.replace('"g"', '"h"'))
    with pytest.raises(ValueError, match="listed twice"):
        load(tmp_path)
    other.write_text(entry.replace("red", "test"))
    with pytest.raises(ValueError, match="must have the keys"):
        load(tmp_path)

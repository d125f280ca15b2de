"""What `scripts/measure_code.py` says of a small package, and what it writes into the document."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import script_module

DECIDES = """
def decides(found, given):
    if found and given or not found:
        return [each for each in given if each]
    def inner(given):
        return 1 if given else 2
    return inner(found)
"""
SIX = "".join(f"{name} = {number}\n" for number, name in enumerate("abcdef"))


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return script_module("measure_code")


def source_tree(path: Path, **files: str) -> Path:
    """Write files of a package, `log__read` for `log/read.py`, and a README."""
    for name, text in files.items():
        file = path / "pyspark_commitlog" / (name.strip("_").replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (path / "README.md").write_text("three words here\n")
    return path


def test_complexity_counts_decisions_and_leaves_out_functions_inside(measure: ModuleType) -> None:
    outer, inner = measure.Module(Path("a.py"), DECIDES).functions
    assert measure.complexity(outer) == 6, "1 + if + and + or + comprehension + its condition"
    assert measure.complexity(inner) == 2, "1 + the conditional expression"


def values(measure: ModuleType, root: Path) -> dict[str, int]:
    """Return the figures of a source tree."""
    return {name: figure.value for name, figure in measure.measures(root).items()}


def test_names_that_occur_twice_or_say_nothing_are_counted(measure: ModuleType, tmp_path: Path) -> None:
    one = "class Read:\n    def _again(self): pass\n\nclass Left: pass\n"
    found = values(
        measure, source_tree(tmp_path, log__read=one, spark__read="class Read: pass\ndef read_again(): pass\n")
    )
    assert (found["class names that occur twice"], found["file names that occur twice"]) == (1, 1)
    assert (found["functions whose name says nothing"], found["classes whose name says nothing"]) == (1, 1)


def test_the_largest_are_found(measure: ModuleType, tmp_path: Path) -> None:
    found = values(measure, source_tree(tmp_path, a=DECIDES, log__b=SIX, log__c="def f():\n    pass\n"))
    assert found["files of the fullest room"] == 2
    assert found["lines of the longest file"] == 7
    assert found["lines of the longest function"] == 6


def test_handlers_that_catch_everything_are_counted(measure: ModuleType, tmp_path: Path) -> None:
    handlers = ("except Exception:", "except BaseException as error:", "except:", "except OSError:")
    text = "".join(f"try: pass\n{handler} pass\n" for handler in handlers)
    assert values(measure, source_tree(tmp_path, a=text))["broad `except`"] == 3


def test_arrows_and_circles_of_imports_are_found(measure: ModuleType, tmp_path: Path) -> None:
    package = "pyspark_commitlog"
    root = source_tree(
        tmp_path,
        log__read__a=f"from {package}.log.state import b\nfrom {package}.storage import disk\ndef f(): pass\n",
        log__state=f"def g():\n    from {package}.log.read import a\n",
        storage__disk="import pyarrow\n",
    )
    found = values(measure, root)
    # log/read -> log, log -> log/read, log/read -> storage
    assert found["arrows between rooms, one level at a time"] == 3
    assert found["rooms that import each other, in pairs"] == 1
    assert found["circles of imports"] == 1


def test_rooms_within_another_are_one_for_those_outside(measure: ModuleType, tmp_path: Path) -> None:
    package = "pyspark_commitlog"
    both = f"from {package}.storage import disk\n"
    root = source_tree(
        tmp_path,
        log__read__a=both + f"from {package}.log.state import b\n",
        log__state__b=both,
        log__init=f"from {package}.log.read.a import f\n",
        storage__disk=f"def g():\n    from {package}.log.state import b\n",
    )
    (root / package / "log" / "init.py").rename(root / package / "log" / "__init__.py")
    found = values(measure, root)
    # log -> storage, storage -> log, log/read -> log/state; log hands out what is in log/read
    assert found["arrows between rooms, one level at a time"] == 3
    assert found["rooms that import each other, in pairs"] == 1, "log/state and storage"


def test_docstrings_are_weighed_against_the_code(measure: ModuleType, tmp_path: Path) -> None:
    text = '"""M."""\ndef f(): pass\ndef g():\n    """Two words."""\ndef _h(): pass\nclass A:\n    """A."""\n'
    found = values(measure, source_tree(tmp_path, a=text))
    assert found["public names without a docstring"] == 1
    assert found["lines of code"] == 4
    assert found["words of docstrings per 100 lines of code"] == 100


def test_words_for_users_are_told_apart(measure: ModuleType, tmp_path: Path) -> None:
    root = source_tree(tmp_path, a=SIX)
    for name, text in {"how-to/a.md": "one two", "explanation/b.md": "three"}.items():
        (root / "docs" / name).parent.mkdir(parents=True)
        (root / "docs" / name).write_text(text)
    found = values(measure, root)
    assert (found["words in docs/"], found["words in docs/ that are not for users"]) == (3, 1)


def test_lines_that_stand_twice_are_counted_in_both_places(measure: ModuleType, tmp_path: Path) -> None:
    found = values(measure, source_tree(tmp_path, a=SIX + "def f(): pass\n", b=f"# other\nx = 1\n{SIX}"))
    assert found["lines that stand twice, 6 or more in a row"] == 12


def test_a_figure_that_is_worse_is_refused_and_a_better_one_is_written(
    measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "measures.md"
    document.write_text(f"# Title\n{measure.BEGIN}{measure.END}more\n")
    monkeypatch.setattr(measure, "DOCUMENT", document)
    figures = {"a": measure.Figure(1_005, 0), "b": measure.Figure(1, 9, held=False)}
    monkeypatch.setattr(measure, "measures", lambda root: figures)

    def run(argument: str) -> int:
        monkeypatch.setattr("sys.argv", ["measure_code.py", argument])
        return int(measure.main())

    assert run("--docs") == 0
    text = document.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("more\n")
    assert measure.kept(text) == {"a": 1_005, "b": 1}
    assert run("--check") == 0
    figures["a"] = measure.Figure(1_006, 0)
    capsys.readouterr()
    assert (run("--docs"), run("--check")) == (1, 1)
    assert "a: 1,006, and was 1,005" in capsys.readouterr().err
    assert document.read_text() == text
    figures |= {"a": measure.Figure(3, 0), "b": measure.Figure(2, 9, held=False)}
    assert run("--check") == 1, "the document is of another state"
    assert run("--docs") == 0
    assert run("--check") == 0


def test_a_method_needs_no_docstring_where_it_overrides_one_of_the_package(measure: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pyspark_commitlog").mkdir()
    base = '"""a."""\nclass Base:\n    """b."""\n    def f(self):\n        """c."""\n'
    below = '"""d."""\nclass Below(base.Base[int]):\n    """e."""\n    def f(self): ...\n    def g(self): ...\n'
    for name, text in (("base", base), ("below", below)):
        (tmp_path / "pyspark_commitlog" / f"{name}.py").write_text(text)
    assert measure.measures(tmp_path)["public names without a docstring"].value == 1, "g"

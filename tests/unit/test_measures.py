"""What ``scripts/measure_code.py`` says of a small package, and what it writes into the document."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "measure_code.py"
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
    spec = importlib.util.spec_from_file_location("measure_code", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def source_tree(path: Path, **files: str) -> Path:
    """Write files of a package, ``log__read`` for ``log/read.py``, and a README."""
    for name, text in files.items():
        file = path / "pyspark_commitlog" / (name.strip("_").replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (path / "README.md").write_text("three words here\n")
    return path


def test_complexity_counts_decisions_and_leaves_out_functions_inside(measure: ModuleType, tmp_path: Path) -> None:
    found = measure.measures(source_tree(tmp_path, a=DECIDES))
    # decides: 1 + if + and + or + comprehension + its condition; inner: 1 + the conditional expression
    assert found["complexity of a function: p50 / p90 / max"] == "2 / 6 / 6"
    assert found["lines of a function: p50 / p90 / max"] == "2 / 6 / 6"


def test_variables_and_arguments_that_say_nothing_are_counted_once_a_function(
    measure: ModuleType, tmp_path: Path
) -> None:
    found = measure.measures(source_tree(tmp_path, a=DECIDES))
    assert [found[f"functions with a variable `{name}`"] for name in ("found", "each", "told")] == ["1", "1", "0"]


def test_names_that_occur_twice_are_counted(measure: ModuleType, tmp_path: Path) -> None:
    one = "class Read:\n    def f(self): pass\n\nclass Other: pass\n"
    found = measure.measures(source_tree(tmp_path, log__read=one, spark__read="class Read: pass\n"))
    assert (found["class names that occur twice"], found["file names that occur twice"]) == ("1", "1")


def test_arrows_and_circles_of_imports_are_found(measure: ModuleType, tmp_path: Path) -> None:
    package = "pyspark_commitlog"
    root = source_tree(
        tmp_path,
        log__read__a=f"from {package}.log.state import b\nfrom {package}.storage import disk\ndef f(): pass\n",
        log__state=f"def g():\n    from {package}.log.read import a\n",
        storage__disk="import pyarrow\n",
    )
    found = measure.measures(root)
    # log/read -> log, log -> log/read, log/read -> storage
    assert found["arrows between rooms"] == "3"
    assert found["arrows within log/, a directory as one"] == "2"
    assert found["circles of imports"] == "1"


def test_public_names_without_a_docstring_are_found(measure: ModuleType, tmp_path: Path) -> None:
    text = '"""M."""\ndef f(): pass\ndef g():\n    """G."""\ndef _h(): pass\nclass A:\n    """A."""\n'
    assert measure.measures(source_tree(tmp_path, a=text))["public names that are documented"] == "75.0%"


def test_lines_that_stand_twice_are_counted_in_both_places(measure: ModuleType, tmp_path: Path) -> None:
    found = measure.measures(source_tree(tmp_path, a=SIX + "def f(): pass\n", b=f"# other\nx = 1\n{SIX}"))
    assert found["lines that stand twice, 6 or more in a row"] == "12 of 14"


def test_the_document_keeps_its_column_before(measure: ModuleType) -> None:
    document = f"# Title\n{measure.BEGIN}{measure.END}more\n"
    first = measure.replaced(document, measure.table({}, {"a": "1", "b": "2 / 3"}))
    assert measure.kept(first) == {"a": "", "b": ""}
    second = measure.replaced(document, measure.table({"a": "9"}, {"a": "1"}))
    third = measure.replaced(second, measure.table(measure.kept(second), {"a": "5"}))
    assert "| a | 9 | 5 |" in third
    assert third.startswith("# Title\n")
    assert third.endswith("more\n")

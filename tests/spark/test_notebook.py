"""The notebooks run from top to bottom, and carry nothing of the machine where they were written."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.spark.conftest import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
FIRST = "01-quickstart.ipynb"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=pytest.mark.each_commit if path.name == FIRST else pytest.mark.nightly)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # this Python, whatever kernel is installed for the user
    client.execute(env=dict(os.environ))
    for cell in notebook.cells:
        if cell.source.endswith(".live()"):
            (live,) = cell.outputs
            assert "<td>orders</td>" in live.data["text/html"], "the view was not drawn again"
            assert "<svg" in live.data["text/html"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert not re.search(r"/(home|root|Users|work)/", path.read_text())


def test_there_is_a_notebook() -> None:
    assert FIRST in [path.name for path in NOTEBOOKS]

"""Threads of an embedder, which Python did not start: a Spark Connect server without a JVM, say, reads on such."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.foreign import RECORDS, ROUNDS


def play(*command: str, root: Path | str = "") -> subprocess.CompletedProcess[str]:
    """Run Python so that memory which was freed is overwritten: using it ends in a signal, not in luck."""
    told = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONFAULTHANDLER": "1"}
    return subprocess.run(
        [sys.executable, *command, str(root)], env=told, capture_output=True, text=True, timeout=120, check=False
    )


def test_everything_that_reads_may_run_on_threads_that_python_did_not_start(tmp_path: Path) -> None:
    done = play("-m", "tests.support.foreign", root=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(2 * ROUNDS * RECORDS)] * 3

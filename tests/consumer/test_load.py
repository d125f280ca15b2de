"""A short run of the load benchmark: many consumers of several processes, one writer, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "consumers.py"


@pytest.mark.parametrize(
    ("args", "copies"),
    [("--consumers 50", 50), ("--consumers 50 --groups 5 --partitions 20 --records-as objects", 5)],
)
def test_every_consumer_gets_all_of_its_partitions(tmp_path: Path, args: str, copies: int) -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "5", "--root", str(tmp_path / "root"), *args.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["handed out"] == copies * found["written"] > 0

"""The load benchmark, short and whole: many consumers of several processes, one producer, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "consumers.py"


@pytest.mark.parametrize(
    ("args", "copies"),
    [
        ("--consumers 50", 50),
        ("--consumers 50 --groups 5 --partitions 20 --records-as objects", 5),
        ("--consumers 50 --groups 5 --members --partitions 20 --records-as objects", 5),
    ],
)
def test_every_consumer_gets_all_of_its_partitions(tmp_path: Path, args: str, copies: int) -> None:
    found = load(tmp_path, f"--seconds 5 {args}")
    assert found["handed out"] == copies * found["written"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("args", "copies"),
    [("", 1000), ("--groups 10 --members --partitions 100 --records-as objects", 10)],
    ids=["each for itself", "members of ten groups"],
)
def test_a_thousand_consumers_for_a_minute(tmp_path: Path, args: str, copies: int) -> None:
    found = load(tmp_path, f"--consumers 1000 --seconds 60 --rate 10000 {args}")
    assert found["handed out"] == copies * found["written"]
    assert found["written"] > 590_000, "the rate was kept"


def load(tmp_path: Path, args: str) -> dict[str, Any]:
    """Run it; what came wrong is an error."""
    command = [sys.executable, str(SCRIPT), "--root", str(tmp_path / "root"), *args.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["wrong"] == []
    return found

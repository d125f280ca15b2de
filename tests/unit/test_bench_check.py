"""`make bench-check` names the ratios that fell below those that are kept, and judges nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def results(path: Path, *rows: tuple[str, str, float], records: int = 100, **more: object) -> Path:
    """Write a file as `make bench` does: the machine, then (work, unit, ratio to a peer) of each row."""
    lines: list[dict[str, object]] = [{"cores": 2, "records": records}]
    lines += [{"work": work, "peer": "Parquet", "unit": unit, "ratio": ratio, **more} for work, unit, ratio in rows]
    lines.append({"work": "alone", "peer": "", "unit": "ms", "ratio": None})
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def report(run: Path, kept: Path, *more: str) -> list[str]:
    command = [sys.executable, "benchmarks/check.py", "--run", str(run), "--results", str(kept), *more]
    env = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_ratio_that_fell_is_named_with_the_newest_that_is_kept(tmp_path: Path) -> None:
    """Of records/s less is worse, of milliseconds more; sessions that older results do not name are the first."""
    kept = results(
        tmp_path / "kept" / "a.jsonl", ("write", "records/s", 1.0), ("find", "ms", 1.0), ("read", "records/s", 2.0)
    )
    results(tmp_path / "kept" / "b.jsonl", ("write", "records/s", 9.0), ("other", "ms", 1.0))  # by name the older one
    run = results(
        tmp_path / "run.jsonl", ("write", "records/s", 0.8), ("find", "ms", 1.2), ("read", "records/s", 1.9), ("new", "ms", 5.0),
        session="configured",
    )  # fmt: skip
    assert report(run, kept.parent) == [
        "fell: write, Parquet: ours / peer 0.80, in results/a.jsonl 1.00 (records/s)",
        "fell: find, Parquet: ours / peer 1.20, in results/a.jsonl 1.00 (ms)",
        "2 of 3 ratios fell by more than 10%; 1 rows are in no results",
    ]
    assert report(run, kept.parent, "--tolerance", "0.5") == [
        "0 of 3 ratios fell by more than 50%; 1 rows are in no results"
    ]


def test_other_numbers_of_records_and_other_sessions_are_not_compared(tmp_path: Path) -> None:
    kept = results(tmp_path / "kept" / "a.jsonl", ("write", "records/s", 1.0), records=200)
    results(tmp_path / "kept" / "b.jsonl", ("write", "records/s", 1.0), session="as it comes")
    run = results(tmp_path / "run.jsonl", ("write", "records/s", 0.1))
    assert report(run, kept.parent) == ["0 of 0 ratios fell by more than 10%; 1 rows are in no results"]


def test_the_results_that_are_kept_can_be_compared() -> None:
    kept = REPOSITORY / "benchmarks" / "results"
    run = max(kept.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    assert report(run, kept)[-1].endswith("; 0 rows are in no results")

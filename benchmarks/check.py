"""`make bench-check`: measures the main rows, and reports ratios that fell below what `benchmarks/results` holds.

    python benchmarks/check.py [--tolerance 0.1] [--run FILE] [--results DIR] [--only write,read,…]

A row is compared with the newest results that hold it, of the same number of records and the same session. It fell if
its ratio is worse by more than the tolerance. `--run` judges a file of rows that was measured before. This is a
report: it ends with 0 whatever it finds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import machine
from compare import BETTER_IF_MORE
from rows import MAIN
from session import CONFIGURED

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
WORK = HERE.parent / "build" / "bench"
RECORDS = 4_000_000
#: What a row is known by: work, peer, session, records.
Key = tuple[str, str, str, int]


def main() -> None:
    """Measure, unless a file is given; print what fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tolerance", type=float, default=0.1, help="how much worse a ratio may be (default: 0.1)")
    parser.add_argument("--run", type=Path, metavar="FILE", help="rows that were measured before")
    parser.add_argument("--only", default=",".join(MAIN), help=f"rows to measure (default: {','.join(MAIN)})")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what to compare with")
    args = parser.parse_args()
    lines = args.run.read_text().splitlines() if args.run else measured(args.only)
    kept = [(path.stem, path.read_text().splitlines()) for path in newest_first(args.results)]
    for line in report(ratios(lines), held(kept), args.tolerance):
        print(line)


def measured(only: str) -> list[str]:
    """Run the rows in the first session, and return the lines that were kept of them."""
    target = WORK / f"{machine.commit()}.jsonl"
    before = len(target.read_text().splitlines()) if target.exists() else 0
    command = [sys.executable, str(HERE / "run.py"), "--alone", "--session", CONFIGURED, "--only", only]
    subprocess.run([*command, "--work", str(WORK), "--records", str(RECORDS)], check=True)
    return target.read_text().splitlines()[before:]


def newest_first(directory: Path) -> list[Path]:
    """Return the files of results, those first that were last added; without a clone's history by name."""
    command = ["git", "-C", str(directory), "log", "--diff-filter=A", "--format=", "--name-only", "--relative", "."]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        names = []
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return sorted(directory.glob("*.jsonl"), key=lambda path: (order.get(path.name, len(order)), path.name))


def ratios(lines: Sequence[str]) -> dict[Key, tuple[str, float]]:
    """Return unit and ratio of every row of a file that has a peer; the last one of a row counts (pure)."""
    records, known = 0, {}
    for line in map(json.loads, lines):
        records = line.get("records", records)  # of the line before the rows, which describes the machine
        if line.get("ratio") is not None:
            known[line["work"], line["peer"], line.get("session") or CONFIGURED, records] = (
                line["unit"],
                line["ratio"],
            )
    return known


def held(kept: Sequence[tuple[str, Sequence[str]]]) -> dict[Key, tuple[str, float]]:
    """Return the name of the results that hold a row, and its ratio there: of the first that do (pure)."""
    known: dict[Key, tuple[str, float]] = {}
    for name, lines in kept:
        for key, (_, ratio) in ratios(lines).items():
            known.setdefault(key, (name, ratio))
    return known


def report(
    rows: Mapping[Key, tuple[str, float]], kept: Mapping[Key, tuple[str, float]], tolerance: float
) -> Iterator[str]:
    """Yield a line for every row that fell, and one for all (pure)."""
    fell, compared = 0, 0
    for key, (unit, ratio) in rows.items():
        if key not in kept:
            continue
        compared += 1
        name, before = kept[key]
        worse = before / ratio if unit in BETTER_IF_MORE else ratio / before
        if worse > 1 + tolerance:
            fell += 1
            yield f"fell: {key[0]}, {key[1]}: ours / peer {ratio:.2f}, in results/{name}.jsonl {before:.2f} ({unit})"
    rest = len(rows) - compared
    yield f"{fell} of {compared} ratios fell by more than {tolerance:.0%}; {rest} rows are in no results"


if __name__ == "__main__":
    main()

"""Where a run's time goes: seconds by directory, and the slowest tests with what each is for, for tests/README.md.

    make test ARGS=--junitxml=run.xml
    .venv/bin/python -m tests.slowest run.xml

Seconds are those of a test with its fixtures, as pytest's report has them; a file's first test has the session that all of
the file share. What a test is for is the first line of its docstring, or its file's.
"""

from __future__ import annotations

import ast
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENT = REPOSITORY / "tests/README.md"
COUNT = 50
BEGIN, END = "<!-- slowest -->\n", "<!-- /slowest -->\n"


def purpose(path: Path, name: str) -> str:
    """Return what a test is for."""
    module = ast.parse(path.read_text())
    tests = (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == name)
    told = next((ast.get_docstring(node) for node in tests if ast.get_docstring(node)), None)
    return (told or ast.get_docstring(module) or "").partition("\n")[0].replace("|", "\\|")


def table(report: Path) -> str:
    """Return the slowest tests of a JUnit report as a Markdown table, with the time of all tests above it."""
    cases = list(ET.parse(report).iter("testcase"))
    slowest = sorted(cases, key=lambda case: -float(case.attrib["time"]))[:COUNT]
    lines = [
        f"{len(cases):,} tests, {sum(float(case.attrib['time']) for case in cases):,.0f} s in two processes together:",
        f"{by_directory(cases)}.\n",
        "| s | test | what it is for |",
        "|---:|---|---|",
    ]
    for case in slowest:
        file, name = case.attrib["classname"].replace(".", "/"), case.attrib["name"]
        while not (REPOSITORY / f"{file}.py").is_file():  # a class in it
            file = file.rpartition("/")[0]
        file += ".py"
        told = purpose(REPOSITORY / file, name.partition("[")[0])
        lines.append(f"| {float(case.attrib['time']):.1f} | `{file.removeprefix('tests/')}::{name}` | {told} |")
    return "\n".join(lines) + "\n"


def by_directory(cases: Sequence[ET.Element]) -> str:
    """Return the seconds of each directory of tests, most first."""
    seconds = Counter[str]()
    for case in cases:
        seconds[case.attrib["classname"].split(".")[1]] += float(case.attrib["time"])
    return ", ".join(f"{name} {took:,.0f} s" for name, took in seconds.most_common())


def put(report: Path) -> None:
    """Put the table of a report between the two marks of the document."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(before + BEGIN + table(report) + END + after)


if __name__ == "__main__":
    put(Path(sys.argv[1]))

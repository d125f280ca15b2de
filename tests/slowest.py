"""Print where a run's time went: seconds by directory, then the slowest tests with what each is for.

    make test ARGS=--junitxml=run.xml
    .venv/bin/python -m tests.slowest run.xml

Seconds are those of a test with its fixtures, as pytest's report has them; a file's first test has the session that all of
the file share. What a test is for is the first line of its docstring, or its file's.

With `--write`, and a report of `make test ARGS="--each-turn --junitxml=run.xml"`, it writes `tests/seconds.txt` instead:
the seconds of each test with all its cases, of those that take more than one.
"""

from __future__ import annotations

import argparse
import ast
import signal
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.steps import SECONDS

REPOSITORY = Path(__file__).resolve().parents[1]
#: Number of tests that are printed.
COUNT = 50


def summary(report: Path) -> Iterator[str]:
    """Yield the lines of a JUnit report's summary: the total, each directory's seconds, the slowest tests."""
    cases = _cases(report)
    by_directory = Counter[str]()
    for case in cases:
        by_directory[case.attrib["classname"].split(".")[1]] += float(case.attrib["time"])
    yield f"{len(cases):,} tests, {by_directory.total():,.0f} s in all processes together\n"
    for name, seconds in by_directory.most_common():
        yield f"{seconds:7,.0f} s  {name}/"
    yield ""
    for case in sorted(cases, key=lambda case: -float(case.attrib["time"]))[:COUNT]:
        file, name = file_of(case.attrib["classname"]), case.attrib["name"]
        test = f"{file.relative_to(REPOSITORY / 'tests')}::{name}"
        yield f"{float(case.attrib['time']):7.1f} s  {test}\n           {purpose(file, name.partition('[')[0])}"


def seconds_of_tests(report: Path) -> Iterator[str]:
    """Yield a line for each test that takes more than a second with all its cases."""
    seconds = Counter[str]()
    for case in _cases(report):
        classname, name = case.attrib["classname"], case.attrib["name"].partition("[")[0]
        file = file_of(classname).relative_to(REPOSITORY)
        group = classname[len(".".join(file.with_suffix("").parts)) + 1 :]
        seconds["::".join(filter(None, [str(file), group, name]))] += float(case.attrib["time"])
    return (f"{taken:5.1f} {test}" for test, taken in sorted(seconds.items()) if taken > 1)


def _cases(report: Path) -> list[ET.Element]:
    """Return a report's cases, but for files that did not import, which have no class name."""
    return [case for case in ET.parse(report).iter("testcase") if case.attrib["classname"]]


def file_of(classname: str) -> Path:
    """Return the file of a report's class name, which may end with a class in it."""
    file = classname.replace(".", "/")
    while not (REPOSITORY / f"{file}.py").is_file():
        file = file.rpartition("/")[0]
    return REPOSITORY / f"{file}.py"


def purpose(path: Path, name: str) -> str:
    """Return what a test is for."""
    module = ast.parse(path.read_text())
    tests = (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == name)
    told = next((ast.get_docstring(node) for node in tests if ast.get_docstring(node)), None)
    return (told or ast.get_docstring(module) or "").partition("\n")[0]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a traceback
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--write", action="store_true", help="write tests/seconds.txt")
    asked = parser.parse_args()
    if asked.write:
        SECONDS.write_text("".join(f"{line}\n" for line in seconds_of_tests(asked.report)))
    else:
        print(*summary(asked.report), sep="\n")

"""Pages of the manual as programs: their blocks one after the other, next to the output that the page shows of each.

Blocks of Python share their names, blocks of `sh` run in the same directory, and a `text` block is what the one before
it prints. There `…` stands for anything in a line, and a line of it alone for any lines. A block with a title is a file
of that name; a `diff` with one shows lines of that file, next to those that they replace.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.commands import REPOSITORY, write_program

HOW_TO = REPOSITORY / "docs" / "how-to"
TUTORIALS = REPOSITORY / "docs" / "tutorials"
#: Without Spark: seconds each.
PLAIN = ("backup", "full-disk", "groups", "query-engines", "retention", "upgrade")
#: With Spark: up to a minute each.
WITH_SPARK = ("backfill", "change-data-capture", "fan-out", "new-in-spark", "partitions", "replay")
#: Of docs/tutorials, with Spark: up to two minutes each.
WALKED = ("coming-from-kafka", "exactly-once", "first-topic", "first-typed-topic")
_BLOCK = re.compile(r'^```(python|sh|text|diff|csv)(?: title="([\w.-]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
#: Ends the output of a block.
_END = "\x1e"
_BEGIN = f"""
import subprocess as _subprocess, sys as _sys
def _end():
    print({_END!r}, end="", flush=True)
def _sh(script, number=int(_sys.argv[1])):
    _sys.stdout.flush()
    _subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, pass_fds=[number])
def _file(name, code):
    with open(name, "w") as file:
        file.write(code)
"""


@dataclass(frozen=True)
class Step:
    """A block that runs, or is the file of a name, and the output that the page shows of it, if it does."""

    language: str
    code: str
    shown: str | None = None
    title: str = ""


def steps_of(text: str) -> list[Step]:
    """Return the blocks of a page that run, or are files (pure)."""
    steps: list[Step] = []
    for language, title, code in _BLOCK.findall(text):
        if language == "diff":
            check_diff(code, next(step.code for step in steps if step.title == title))
        elif language != "text":
            steps.append(Step(language, code, title=title))
        else:
            assert steps[-1].shown is None, f"two outputs after each other: {code}"
            steps[-1] = replace(steps[-1], shown=code)
    return steps


def check_diff(diff: str, code: str) -> None:
    """Refuse a diff whose new side is not in a file, or whose old side is no Python in its place (pure)."""
    old, new = ("".join(line[1:] + "\n" for line in diff.splitlines() if line[0] in signs) for signs in (" -", " +"))
    assert code.count(new) == 1, f"not in the file:\n{new}"
    compile(code.replace(new, old), "the old side", "exec")


def program_of(steps: list[Step], home: Path) -> str:
    """Return the steps as one program of Python, with the page's directories below `home` (pure)."""
    program = _BEGIN + "".join(f"{_statements(step)}_end()\n" for step in steps)
    return re.sub(r"(?<![\w.])/(data|backup)/", rf"{home}/\1/", program)


def _statements(step: Step) -> str:
    if step.title:
        return f"_file({step.title!r}, {step.code!r})\n"
    return f"_sh({step.code!r})\n" if step.language == "sh" else step.code


def is_as_shown(output: str, shown: str) -> bool:
    """Return whether a block printed what its page shows; blanks count as one (pure)."""
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    pattern = "".join("(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in lines)
    printed = "".join(" ".join(line.split()) + "\n" for line in output.splitlines())
    return re.fullmatch(pattern, printed) is not None


def run(page: Path, home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Run a page, and compare what each block prints with what the page shows."""
    steps = steps_of(page.read_text())
    assert steps, f"{page.name} has nothing to run"
    for directory in ("data", "backup", "commands"):
        (home / directory).mkdir()
    number = write_program(home / "commands")
    (home / "commands" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "commands" / "python").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program_of(steps, home), f"{number}"],
        pass_fds=[number],
        cwd=home,
        env={
            **env,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(home / "commands"), env["PATH"]]),
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    *outputs, rest = done.stdout.split(_END)
    assert (len(outputs), rest) == (len(steps), "")
    for step, output in zip(steps, outputs, strict=True):
        assert step.shown is None or is_as_shown(output, step.shown), f"{step.code}\nprinted:\n{output}"

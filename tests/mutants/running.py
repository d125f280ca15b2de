"""Running mutants: each in a copy of the package and its tests, with one test, in a fork of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from tests.mutants.changes import NotApplicableError
from tests.mutants.listed import PACKAGE, REPOSITORY, Mutant

#: How long one test may take, in seconds; what takes longer counts as not killed.
TIMEOUT = 300
#: Copied; all else in the repository is reached by a link.
_COPIED = (PACKAGE, "tests")
_LEFT_OUT = (".git", ".venv", ".venv-compat", ".venv-connect", ".hypothesis", ".pytest_cache")
#: Who raises one of these did not check anything: the mutant is no Python that runs.
_BROKEN = {"ImportError", "SyntaxError", "NameError"}


class Outcome(Enum):
    """What became of a mutant; all but `KILLED` are faults."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    NOT_GREEN = "NOT GREEN without it"
    BROKEN = "BROKEN"
    HUNG = "HUNG"
    NOT_APPLICABLE = "DOES NOT APPLY"


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant's outcome, why (one line), and the seconds it took."""

    mutant: Mutant
    outcome: Outcome
    why: str = ""
    seconds: float = 0.0


class Copy:
    """A copy of the package and its tests, in which one file at a time may be changed."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._report = directory, directory / "report.json"
        self._forks: subprocess.Popen[bytes] | None = None
        for entry in REPOSITORY.iterdir():
            target = directory / entry.name
            if entry.name in _COPIED:
                shutil.copytree(entry, target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
            elif entry.name not in _LEFT_OUT:
                target.symlink_to(entry)

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Take a guard out, for a while."""
        path = self._directory / mutant.path
        before = path.read_text()
        changed = mutant.applied(before)
        try:
            self._write(path, changed)
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, source: str) -> None:
        """Write a module. What was compiled goes: within a second, another text of the same length looks the same."""
        path.write_text(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def run(self, node_ids: Sequence[str], timeout: float) -> list[dict[str, Any]] | None:
        """Run tests and return what `tests.mutants.report` wrote, one per phase; None when they took too long."""
        self._report.unlink(missing_ok=True)
        arguments = ["-q", "-p", "tests.mutants.report", "-p", "no:cacheprovider", "--hypothesis-profile", "long"]
        arguments += ["--timeout=0", "-p", "no:xdist", *node_ids]  # what hangs does not fail by its own doing
        requests, answers = self._server()
        requests.write(json.dumps(arguments).encode() + b"\n")
        group = int(answers.readline())
        ended = bool(select.select([answers], [], [], timeout)[0])
        _end_group(group)
        assert answers.readline() == b"ended\n"
        if not ended:
            return None
        return json.loads(self._report.read_text()) if self._report.exists() else []

    def _server(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return the input and the output of the process that forks for each run, see `forks`."""
        if self._forks is None:
            env = {**os.environ, "PYTHONPATH": str(self._directory), "MUTANTS_REPORT": str(self._report)}
            for name in ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"):  # each run finds the package compiled
                env.pop(name, None)
            self._forks = subprocess.Popen(
                [sys.executable, "-m", "tests.mutants.forks"],
                cwd=self._directory,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # a buffer would take the second answer with the first, and nothing would be left to wait for
            )
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        return self._forks.stdin, self._forks.stdout

    def close(self) -> None:
        """End the process that forks."""
        if self._forks is not None:
            self._forks.communicate()


def _end_group(group: int) -> None:
    """End what a test started and left, and the test itself when it hangs."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def verdict(phases: list[dict[str, Any]] | None) -> tuple[Outcome, str]:
    """Return what the phases of a mutant's test say: only a test that ran, and failed, kills (pure)."""
    if phases is None:
        return Outcome.HUNG, f"longer than {TIMEOUT} s"
    failed = [phase for phase in phases if phase["outcome"] == "failed"]
    ran = [phase for phase in phases if phase["phase"] == "call"]
    if any(phase["phase"] == "setup" for phase in failed):
        return Outcome.BROKEN, "its fixtures failed: " + failed[0]["message"].partition("\n")[0]
    if not ran:
        return Outcome.BROKEN, "no test ran"
    for phase in failed:
        line = f"{phase['raised'][0]}: {phase['message']}".partition("\n")[0]
        if _BROKEN & set(phase["raised"]):
            return Outcome.BROKEN, line
        if phase["phase"] == "call":
            return Outcome.KILLED, line
    return Outcome.SURVIVED, "the test passed" if not failed else "only its teardown failed"


def not_green(phases: list[dict[str, Any]] | None, node_ids: Sequence[str]) -> dict[str, str]:
    """Return those of the tests that did not run, or not pass in all their phases and parameters, and why (pure)."""
    if phases is None:
        return dict.fromkeys(node_ids, "they took too long together")
    passed = [phase["test"] for phase in phases if phase["phase"] == "call" and phase["outcome"] == "passed"]
    bad = {phase["test"]: phase["message"] or phase["outcome"] for phase in phases if phase["outcome"] != "passed"}

    def within(test: str, node_id: str) -> bool:
        return test == node_id or test.startswith((f"{node_id}[", f"{node_id}::"))

    found = {}
    for node_id in node_ids:
        told = [message for test, message in bad.items() if within(test, node_id)]
        if told or not any(within(test, node_id) for test in passed):
            found[node_id] = told[0] if told else "it did not run"
    return found


def not_green_of(copy: Copy, node_ids: Sequence[str]) -> dict[str, str]:
    """Run tests without a mutant; return what `not_green` does.

    A test that is not there ends pytest before it runs any: each half is run by itself then.
    """
    phases = copy.run(node_ids, TIMEOUT + 10 * len(node_ids)) if node_ids else []
    half = len(node_ids) // 2
    if phases == [] and half:
        return not_green_of(copy, node_ids[:half]) | not_green_of(copy, node_ids[half:])
    return not_green(phases, node_ids)


def run_all(mutants: Sequence[Mutant], workers: int) -> Iterator[Result]:
    """Run all tests once without a mutant, then each mutant with its test; yield results as they come."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            path = Path(directory) / str(number)
            path.mkdir()
            copies.put(Copy(path))

        @contextmanager
        def borrowed() -> Iterator[Copy]:
            copy = copies.get()
            try:
                yield copy
            finally:
                copies.put(copy)

        def red_ones(node_ids: list[str]) -> dict[str, str]:
            with borrowed() as copy:
                return not_green_of(copy, node_ids)

        def run(mutant: Mutant) -> Result:
            if mutant.node_id in red:
                return Result(mutant, Outcome.NOT_GREEN, red[mutant.node_id])
            with borrowed() as copy:
                return _run(copy, mutant)

        with ThreadPoolExecutor(workers) as pool:
            node_ids = sorted({mutant.node_id for mutant in mutants})
            red = dict(pair for found in pool.map(red_ones, _parts(node_ids, workers)) for pair in found.items())
            yield from pool.map(run, mutants)
        for _ in range(workers):
            copies.get().close()


def _parts(node_ids: Sequence[str], workers: int) -> list[list[str]]:
    """Return the tests in as many parts as there are workers, those of one file together."""
    parts: list[list[str]] = [[] for _ in range(workers)]
    for path in dict.fromkeys(node_id.partition("::")[0] for node_id in node_ids):
        min(parts, key=len).extend(each for each in node_ids if each.partition("::")[0] == path)
    return parts


def _run(copy: Copy, mutant: Mutant) -> Result:
    began = time.monotonic()
    try:
        with copy.changed(mutant):
            outcome, why = verdict(copy.run([mutant.node_id], TIMEOUT))
    except (NotApplicableError, SyntaxError, FileNotFoundError) as error:
        outcome, why = Outcome.NOT_APPLICABLE, str(error)
    return Result(mutant, outcome, why, time.monotonic() - began)

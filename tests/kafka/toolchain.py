"""Java, Kafka's jars and the Python clients: found or fetched once, kept beside this file, ignored by git."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
FETCH_SECONDS = 600
TOOL_SECONDS = 120
LEAST_JAVA = 17
_COMPLETE = "complete"
_PR_SET_PDEATHSIG = 1
TOOL_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class ToolMissingError(Exception):
    """A program that these tests need is not there; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a finished program left behind."""

    returncode: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Kafka, and Kafka's jars."""

    program: str
    jars: Path

    def command(self, main: str, arguments: Sequence[str], flags: Sequence[str] = TOOL_FLAGS) -> list[str]:
        """Return the command line that runs `main`."""
        return [self.program, *flags, "-cp", f"{self.jars}/*", main, *arguments]

    def run(self, main: str, *arguments: str) -> Done:
        """Run one of Kafka's tools to its end; it is killed after `TOOL_SECONDS`."""
        return run(self.command(main, arguments))


def run(command: Sequence[str], *, seconds: int = TOOL_SECONDS, stdin: bytes = b"") -> Done:
    """Run a program to its end; it is killed after `seconds`, and when this process dies."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=seconds, check=False, preexec_fn=die_with_parent()
    )
    return Done(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def die_with_parent() -> Callable[[], None] | None:
    """Return what makes a child end with this process, however that ends; Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask_kernel


def java() -> Java:
    """Return Java with Kafka's jars, fetched by Maven the first time.

    Raises:
        ToolMissingError: no Java, too old a Java, no Maven, or Maven could not fetch.
    """
    home = os.environ.get("JAVA_HOME")
    advice = f"install Java {LEAST_JAVA} or later, and let JAVA_HOME or PATH name it"
    program = _found(f"{home}/bin/java" if home else "java", advice)
    found = re.search(r'version "(\d+)', run([program, "-version"]).stderr)
    if not found or int(found[1]) < LEAST_JAVA:
        raise ToolMissingError(f"Kafka's tests need Java {LEAST_JAVA} or later; {program} is {found and found[1]}.")
    return Java(program, jars(HERE / "pom.xml"))


def jars(pom: Path) -> Path:
    """Return the directory of the jars that a pom names, kept beside it; fetched by Maven the first time.

    Raises:
        ToolMissingError: no Maven, or Maven could not fetch.
    """
    return _cached(".jars", pom, partial(_fetch_jars, pom))


def fetched(pom: Path) -> bool:
    """Return whether `jars` has fetched them before."""
    return (_cache(".jars", pom) / _COMPLETE).exists()


def clients_python(requirements: Path = HERE / "client-requirements.txt") -> Path:
    """Return the Python of an environment that has what a file requires, kept beside it; made by pip the first time.

    Raises:
        ToolMissingError: the environment could not be made.
    """
    return _python(_cached(".clients", requirements, partial(_make_environment, requirements)))


def made_clients_python(requirements: Path) -> Path | None:
    """Return what `clients_python` has made before; None where it has not."""
    directory = _cache(".clients", requirements)
    return _python(directory) if (directory / _COMPLETE).exists() else None


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _found(program: str, advice: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ToolMissingError(f"these tests need `{program}`, which is not there: {advice}.")
    return path


def _cached(kind: str, recipe: Path, make: Callable[[Path], None]) -> Path:
    """Return the directory that `make` fills from `recipe`; made again only when the recipe changes."""
    directory = _cache(kind, recipe)
    complete = directory / _COMPLETE
    if not complete.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        make(directory)
        complete.touch()
    return directory


def _cache(kind: str, recipe: Path) -> Path:
    return recipe.parent / kind / hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]


def _fetch_jars(pom: Path, directory: Path) -> None:
    maven = _found("mvn", "install Maven, it fetches the jars that they need")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}", "-DincludeScope=runtime"]
    _fetch(
        [maven, "--batch-mode", "--quiet", "--file", str(pom), *goal],
        f"Maven could not fetch what {pom} names",
    )


def _make_environment(requirements: Path, directory: Path) -> None:
    _fetch([sys.executable, "-m", "venv", str(directory)], "No environment could be made for Kafka's clients")
    pip = [f"{directory}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _fetch([*pip, "-r", str(requirements)], "pip could not install Kafka's clients")


def _fetch(command: Sequence[str], failure: str) -> None:
    done = run(command, seconds=FETCH_SECONDS)
    if done.returncode != 0:
        said = (done.stdout.decode(errors="replace") + done.stderr).strip().splitlines()
        raise ToolMissingError(f"{failure}: {' | '.join(said[-3:])}")

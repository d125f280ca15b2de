"""Virtual environments as users make them, and programs that run in one without a trace of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Variables that would lead a child to other packages than its environment's.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "SPARK_HOME", "SPARK_CONF_DIR", "QUICK_PYTHON")
_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment."""

    home: Path

    @property
    def bin(self) -> Path:
        return self.home / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = (self.home / "lib").glob("python3*/site-packages")
        return found

    def add_packages(self, *directories: Path) -> None:
        """Have it import what is in other environments' `site-packages` too, unless it has that itself."""
        (self.site_packages / "beside.pth").write_text("".join(f"{directory}\n" for directory in directories))

    def install(self, *requirements: str) -> None:
        """Install with its own pip."""
        self.run(str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)

    def run(self, *command: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
        """Run a command, by default in the environment's directory; return its standard output.

        Raises:
            AssertionError: it failed; with what it said last.
        """
        inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        own = {"PYSPARK_PYTHON": str(self.python), "PATH": f"{self.bin}:{inherited.get('PATH', '')}"}
        done = subprocess.run(
            command, cwd=cwd or self.home, env={**inherited, **own, **(variables or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{(done.stdout + done.stderr)[-5000:]}"
        return done.stdout


@contextmanager
def environment(home: Path, python: str = sys.executable) -> Iterator[Environment]:
    """Make an environment of a Python, and remove it at the end: with PySpark it takes half a gigabyte."""
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(home)], check=True)
    try:
        yield Environment(home)
    finally:
        shutil.rmtree(home)


def own_packages() -> list[Path]:
    """Return the directories of the packages that this process imports."""
    return [Path(path) for path in sys.path if Path(path).name == "site-packages"]

"""What a piece of work takes of memory at its peak, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Address space that the process may take, bytes: what would take more fails instead of taking the machine's memory.
_MOST_SPACE = 6 * 2**30


def run_alone(module: str, *arguments: object) -> str:
    """Run a module in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def peak_of(module: str, task: str, *arguments: object) -> tuple[float, object]:
    """Run `module.task(*arguments)` in a new process; return (by how many MiB its memory grew, what it returned).

    That is resident memory at its peak, less that of the process when it has imported the module.
    """
    printed = run_alone("tests.support.peak", module, task, json.dumps([f"{each}" for each in arguments]))
    grown, result = json.loads(printed.splitlines()[-1])
    return grown, result


def peak_mib() -> float:
    """Return the largest resident memory of this process so far, in MiB.

    Not getrusage's: that is inherited from the process that forked this one, pytest with all it has imported.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _run(module: str, task: str, arguments: list[str]) -> None:
    from importlib import import_module

    import pyarrow as pa

    resource.setrlimit(resource.RLIMIT_AS, (_MOST_SPACE, _MOST_SPACE))
    found = getattr(import_module(module), task)
    pa.array(())  # Arrow imports pandas at its first array, if it is installed
    before = peak_mib()
    result = found(*arguments)
    print(json.dumps([peak_mib() - before, result]))


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))

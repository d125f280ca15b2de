"""`python -m tests.mutants.forks`: a process that has imported what all tests import, and forks for each run of pytest.

A request is a line of JSON, the arguments of a run. Two lines answer: the run's process id, and `ended`. A run has a session of
its own, and nothing of the package or its tests is imported before it begins: these change from one run to the next.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module

import pytest

#: Imported before a run; a second of processor time without.
IMPORTED = (
    "asyncio", "concurrent.futures", "fsspec", "hypothesis.stateful", "msgspec", "multiprocessing", "numpy", "pyarrow.compute",
    "pyarrow.dataset", "pyarrow.parquet", "pytest_timeout", "rich.console", "typer", "xdist",
)  # fmt: skip


def serve() -> list[str]:
    """Return the arguments of a run, in its process; never in this one, which ends with its input."""
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            return list(json.loads(line))
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(pytest.main(serve()))

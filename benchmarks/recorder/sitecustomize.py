"""Imported by every Python that starts with this directory on its path: writes down when, and what it imports.

A line of JSON per event goes to the file that ``TIMELINE`` names: ``timeline.py`` reads it.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import time
from typing import Any

_FILE = os.environ.get("TIMELINE")
#: Imports that take less are left out, seconds.
_LEAST = 0.02


def _began() -> float:
    """Return when this process started, on the clock of ``time.time()``."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as file:
        up = float(file.read().split()[0])
    return time.time() - (up - ticks / os.sysconf("SC_CLK_TCK"))


def _write(event: str, **more: Any) -> None:
    line = {"event": event, "pid": os.getpid(), "parent": os.getppid(), "at": time.time(), **more}
    with open(str(_FILE), "a") as file:
        file.write(json.dumps(line) + "\n")


def _watch_imports() -> None:
    usual = builtins.__import__

    def watched(name: str, *args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return usual(name, *args, **named)
        finally:
            took = time.perf_counter() - began
            if took > _LEAST and (name in ("pyarrow", "pyspark") or name.startswith("pyspark_commitlog")):
                _write("import", name=name, seconds=took)

    builtins.__import__ = watched


if _FILE:
    _write("start", began=_began(), arguments=sys.orig_argv[1:])
    _watch_imports()
    os.register_at_fork(after_in_child=lambda: _write("fork"))

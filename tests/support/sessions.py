"""Processes that lead a session of their own: how tests watch them, and kill all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def session_of(leader: int) -> set[int]:
    """Return the processes of the session that `leader` started (none where there is no /proc)."""
    found = set()
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                found.add(pid)
    return found


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process that leads a session, and all that it started: they may lead groups of their own."""
    left = session_of(process.pid) | ({process.pid} if process.poll() is None else set())
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Return whether the condition came true before the process ended."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.005)
    return condition()

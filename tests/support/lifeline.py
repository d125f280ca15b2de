"""Run a command that dies with the process that started it, however that one dies.

    python -m tests.support.lifeline <parent's process id> <command> [argument …]

The kernel remembers the wish across `exec`, so the command itself needs to know nothing of it. Linux only; elsewhere
the command just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel knew
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

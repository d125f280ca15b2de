"""A user whom the system refuses what the test's own may do: no error is injected."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: `nobody`, by number: it need not have a name here.
_NOBODY = 65_534
_SECONDS = 60


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let everybody read what is below a directory, and nobody write: nobody but root, whom no mode stops."""
    paths = [directory, *sorted(directory.rglob("*"))]
    before = [(path, path.stat().st_mode) for path in paths]
    for path in reversed(paths):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
    finally:
        for path, mode in before:
            path.chmod(mode)


def give(directory: Path) -> None:
    """Let a directory belong, with all in it, to the user that `as_another` is; nothing if the test runs as no root."""
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)


def as_another(act: Callable[[], object]) -> object:
    """Return what a forked child finds that is not root: another user where the test runs as root, else the same.

    `act` returns what JSON can say. What it needs must be imported: another user may not read where that lies.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_SECONDS)
            os.close(reading)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            os.write(writing, json.dumps(act()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
    return json.loads(told)

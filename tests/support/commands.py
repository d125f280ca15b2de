"""`commitlog` in processes of its own that begin in a tenth of a second: each is a fork of one that has imported all it needs.

A command has its own standard input and output, environment, signals, exit code and end, as any process; only the
interpreter's start, and the imports, are the same for all. A test that is about these begins `COMMAND`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import redirect_stderr, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock

from pyspark_commitlog.cli.app import app

REPOSITORY = Path(__file__).resolve().parents[2]
_MAIN = "from pyspark_commitlog.cli import main; main()"
#: The command in an interpreter of its own.
COMMAND = [sys.executable, "-c", _MAIN]
#: What one command or another imports when it runs.
IMPORTED = ("pyarrow.parquet", "rich.progress", "rich.console", "typer.completion")
_FILES = 5


class _Forks:
    """The process that is forked: it begins with the first command, and ends with this one."""

    def __init__(self) -> None:
        self._lock, self._pid = Lock(), 0
        self._socket: socket.socket
        self._process: subprocess.Popen[bytes]

    def begin(self, files: list[int]) -> None:
        """Have a command begin with these files, see `serve`."""
        with self._lock:
            socket.send_fds(self._started(), [b"x"], files)

    def channel(self) -> int:
        """Return the number of the socket that `begin` sends to, for a child that asks for commands."""
        with self._lock:
            return self._started().fileno()

    def _started(self) -> socket.socket:
        if self._pid != os.getpid():  # a fork of this process has its own
            self._start()
            self._pid = os.getpid()
        return self._socket

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        program = f"from tests.support.commands import serve; serve({theirs.fileno()}); {_MAIN}"
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip


_forks = _Forks()


def write_program(directory: Path) -> int:
    """Write `commitlog` for shells, a program that asks for a fork as `run_bytes` does; return the file it needs open."""
    number = _forks.channel()
    program = directory / "commitlog"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -S -E {REPOSITORY}/tests/support/shell_command.py {number} "$@"\n'
    )
    program.chmod(0o755)
    return number


def run_bytes(
    *arguments: str, given: bytes = b"", env: dict[str, str] | None = None, seconds: int = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run `commitlog` with these arguments, and wait for it.

    Args:
        arguments: of the command line.
        given: its standard input.
        env: more of its environment, which else is this process's.
        seconds: after so many it is killed by SIGALRM.
    """
    asked = {"arguments": arguments, "env": {**os.environ, **(env or {})}, "cwd": os.getcwd(), "seconds": seconds}
    answer, told = os.pipe()
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr, TemporaryFile() as request:
        try:
            for file, content in ((stdin, given), (request, json.dumps(asked).encode())):
                file.write(content)
                file.seek(0)
            _forks.begin([stdin.fileno(), stdout.fileno(), stderr.fileno(), request.fileno(), told])
        finally:
            os.close(told)
        with os.fdopen(answer, "rb") as ended:
            code = int(ended.read())
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(["commitlog", *arguments], code, stdout.read(), stderr.read())


def run(*arguments: str, code: int = 0) -> tuple[list[str], str]:
    """Run a command; return the lines of its output, and what it said on stderr."""
    done = run_bytes(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout.decode().splitlines(), done.stderr.decode()


def cat(*arguments: str, code: int = 0) -> bytes:
    """Return the bytes that cat writes."""
    done = run_bytes("cat", *arguments)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout


def completions(*words: str) -> list[str]:
    """Return what a shell offers for the last of the words."""
    told = {
        "_COMMITLOG_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["commitlog", *words]),
        "COMP_CWORD": f"{len(words)}",
    }
    done = run_bytes(env=told)
    assert done.stderr == b""
    return done.stdout.decode().split()


def serve(number: int) -> None:
    """Return in a child for each command that is asked for; never in this process, which ends when nobody can ask.

    A request is five files: the command's standard input, output and error, what is asked as JSON, and a pipe that
    takes the exit code, as `subprocess` has it.
    """
    for module in IMPORTED:
        import_module(module)
    with suppress(SystemExit), redirect_stderr(StringIO()):
        app(["topics", "list", "/there is no root"])  # typer imports more when it reads its first arguments
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for commands
    with socket.socket(fileno=number) as asked:
        while True:
            message, files, _, _ = socket.recv_fds(asked, 1, _FILES)
            if not message:
                os._exit(0)
            if os.fork() == 0:
                break
            for each in files:
                os.close(each)
    _become_command(files)


def _become_command(files: list[int]) -> None:
    """Return in a child that is the command; this process waits for its end, and tells it."""
    *standard, request, told = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(told)
    for number, each in enumerate(standard):
        os.dup2(each, number)
        os.close(each)
    with os.fdopen(request, "rb") as file:
        asked = json.load(file)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    signal.alarm(asked["seconds"])
    sys.argv = ["commitlog", *asked["arguments"]]

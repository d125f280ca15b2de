"""`--watch`: what a command shows, again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from pyspark_commitlog.cli.common.endings import print_lines, stopped_by_signals

Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", help="Show it again every so many seconds, until Ctrl-C.", min=0.2),
]
#: Clears a terminal, and goes to its first line.
_CLEAR = "\x1b[2J\x1b[H"


def show_repeatedly(seconds: float | None, show: Callable[[], int]) -> int:
    """Call `show` once, or every so many seconds until SIGINT or SIGTERM; return its last exit code."""
    if seconds is None:
        return show()
    stop = stopped_by_signals()
    while True:
        if sys.stdout is not None and sys.stdout.isatty():
            typer.echo(_CLEAR, nl=False)
        code = show()
        if stop.wait(seconds):
            return code
        if sys.stdout is not None and not sys.stdout.isatty():
            print_lines([""])

"""What the commands share: the arguments that most of them take, and how errors end them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from pyspark_commitlog.errors import CommitLogError, UsageError
from pyspark_commitlog.topics import CommitLog

Root = Annotated[str, typer.Argument(help="The root: a directory or a file:// URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON objects, one a line.")]


@contextmanager
def opened(root: str) -> Iterator[CommitLog]:
    """Yield the log at a root; an error in the block ends the command: 2 the command line is wrong, 1 all else."""
    try:
        yield CommitLog(root)
    except CommitLogError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        typer.echo(line)


def parse_config(pairs: list[str] | None) -> dict[str, object]:
    """Return what ``--config name=value`` says, given several times.

    Raises:
        UsageError: one has no ``=``.
    """
    config: dict[str, object] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--config {pair}: use name=value")
        config[name.strip()] = value.strip()
    return config


def parse_partitions(pairs: list[str], what: str) -> dict[int, int]:
    """Return partition -> number of ``0:25``, given several times.

    Raises:
        UsageError: one is not two numbers.
    """
    found: dict[int, int] = {}
    for pair in pairs:
        partition, _, number = pair.partition(":")
        try:
            found[int(partition)] = int(number)
        except ValueError:
            raise UsageError(f"{what} {pair}: use partition:offset, as in 0:25") from None
    return found

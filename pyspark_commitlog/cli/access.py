"""``commitlog access ROOT …``: the rules that say who may do what, as ``kafka-acls`` does with allow rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from pyspark_commitlog.access import ALL, Access
from pyspark_commitlog.errors import CommitLogError, UsageError
from pyspark_commitlog.topics import CommitLog

access = typer.Typer(no_args_is_help=True)

Principal = Annotated[str, typer.Argument(help="Who may; * for everybody.")]
What = Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, or admin: all there is.")]
Topic = Annotated[str, typer.Argument(help="A topic, a prefix as in 'orders-*', or * for all.")]


@access.callback()
def _root(
    context: typer.Context, root: Annotated[str, typer.Argument(help="The root: a directory or a file:// URL.")]
) -> None:
    """Show and change who may do what. Who you are is in COMMITLOG_PRINCIPAL."""
    context.obj = root


@contextmanager
def _opened(context: typer.Context) -> Iterator[Access]:
    """Yield the root's rules; an error in the block ends the command."""
    try:
        yield CommitLog(context.obj).access
    except CommitLogError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error


@access.command("list")
def list_rules(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="JSON objects, one a line.")] = False,
) -> None:
    """Show all rules; none: everybody may do everything."""
    with _opened(context) as found:
        for rule in found.rules():
            row = {"principal": rule.principal, "operation": rule.operation.value, "topic": rule.topic}
            typer.echo(json.dumps(row) if as_json else f"{rule.principal} may {rule.operation} {rule.topic}")


@access.command()
def allow(context: typer.Context, principal: Principal, operation: What, topic: Topic = ALL) -> None:
    """Add a rule."""
    with _opened(context) as found:
        found.allow(principal, operation, topic)


@access.command()
def revoke(context: typer.Context, principal: Principal, operation: What, topic: Topic = ALL) -> None:
    """Remove a rule."""
    with _opened(context) as found:
        found.revoke(principal, operation, topic)


@access.command()
def clear(context: typer.Context) -> None:
    """Remove all rules: everybody may do everything again."""
    with _opened(context) as found:
        found.clear()

"""``commitlog access …``: the rules that say who may do what, as ``kafka-acls`` does with allow rules."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pyspark_commitlog.access import ALL
from pyspark_commitlog.cli.shared import AsJson, Root, opened

access = typer.Typer(
    help="Show and change who may do what. Who you are is in COMMITLOG_PRINCIPAL.", no_args_is_help=True
)

Principal = Annotated[str, typer.Argument(help="Who may; * for everybody.")]
What = Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, or admin: all there is.")]
Topic = Annotated[str, typer.Argument(help="A topic, a prefix as in 'orders-*', or * for all.")]


@access.command("list")
def list_rules(root: Root, as_json: AsJson = False) -> None:
    """Show all rules; none: everybody may do everything."""
    with opened(root) as log:
        for rule in log.access.rules():
            row = {"principal": rule.principal, "operation": rule.operation.value, "topic": rule.topic}
            typer.echo(json.dumps(row) if as_json else f"{rule.principal} may {rule.operation} {rule.topic}")


@access.command()
def allow(root: Root, principal: Principal, operation: What, topic: Topic = ALL) -> None:
    """Add a rule."""
    with opened(root) as log:
        log.access.allow(principal, operation, topic)


@access.command()
def revoke(root: Root, principal: Principal, operation: What, topic: Topic = ALL) -> None:
    """Remove a rule."""
    with opened(root) as log:
        log.access.revoke(principal, operation, topic)


@access.command()
def clear(root: Root) -> None:
    """Remove all rules: everybody may do everything again."""
    with opened(root) as log:
        log.access.clear()

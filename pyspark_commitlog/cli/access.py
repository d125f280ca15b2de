"""`commitlog access …`: access rules, as `kafka-acls`' allow rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, opened
from pyspark_commitlog.cli.common.endings import print_lines
from pyspark_commitlog.config import ALL

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog

access = typer.Typer(
    help="Show and change who may do what. Who you are: commitlog --principal NAME, or COMMITLOG_PRINCIPAL.",
    no_args_is_help=True,
)

Principal = Annotated[str, typer.Argument(help="Who may; * for everybody.")]
What = Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, or admin: all there is.")]
Topic = Annotated[str, typer.Argument(help="A topic, a prefix as in 'orders-*', or * for all.")]
AsRules = Annotated[bool, typer.Option("--json", help="Print all rules afterwards, as list --json does.")]


@access.command("list")
def list_rules(root: Root, as_json: AsJson = False) -> None:
    """Show all rules; none: everybody may do everything."""
    with opened(root) as log:
        if as_json:
            _print_rules(log)
        else:
            print_lines(f"{rule.principal} may {rule.operation} {rule.topic}" for rule in log.access.rules())


def _print_rules(log: CommitLog) -> None:
    for rule in log.access.rules():
        row = {"principal": rule.principal, "operation": rule.operation.value, "topic": rule.topic}
        print_lines([json.dumps(row)])


@access.command()
def allow(root: Root, principal: Principal, operation: What, topic: Topic = ALL, as_json: AsRules = False) -> None:
    """Add a rule."""
    with opened(root) as log:
        log.access.allow(principal, operation, topic)
        if as_json:
            _print_rules(log)


@access.command()
def revoke(root: Root, principal: Principal, operation: What, topic: Topic = ALL, as_json: AsRules = False) -> None:
    """Remove a rule."""
    with opened(root) as log:
        log.access.revoke(principal, operation, topic)
        if as_json:
            _print_rules(log)


@access.command()
def clear(root: Root, as_json: AsRules = False) -> None:
    """Remove all rules: everybody may do everything again."""
    with opened(root) as log:
        log.access.clear()
        if as_json:
            _print_rules(log)

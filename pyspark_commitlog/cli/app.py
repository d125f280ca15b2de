"""The commands of `commitlog`: what they take, what they print, how they end.

Exit codes: 0 all is well, 1 something is wrong with a topic or the root, 2 the command line is (`endings.exit_code`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pyspark_commitlog import __version__
from pyspark_commitlog.cli.access import access
from pyspark_commitlog.cli.common.arguments import ask_as
from pyspark_commitlog.cli.common.endings import log_to_stderr, print_lines
from pyspark_commitlog.cli.common.overview import overview
from pyspark_commitlog.cli.common.storage_options import use_storage_options
from pyspark_commitlog.cli.copying import copy
from pyspark_commitlog.cli.doctor import doctor, version
from pyspark_commitlog.cli.exporter import metrics
from pyspark_commitlog.cli.groups import groups
from pyspark_commitlog.cli.maintain import maintain
from pyspark_commitlog.cli.offsets import delete_records, offsets
from pyspark_commitlog.cli.records.cat import cat
from pyspark_commitlog.cli.records.produce import produce
from pyspark_commitlog.cli.replicas import replicas
from pyspark_commitlog.cli.spark import checkpoint, spark_conf
from pyspark_commitlog.cli.topics import topics
from pyspark_commitlog.cli.ui_command import ui
from pyspark_commitlog.cli.verify import dump, probe, verify, void


class _Commands(TyperGroup):
    """The top-level commands; for an unknown one they suggest the subcommands of that name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, or end with a usage error."""
        name = args[0]
        groups = [group for group, command in self.commands.items() if name in getattr(command, "commands", ())]
        if groups and name not in self.commands and not ctx.resilient_parsing:
            suggestions = ", ".join(f"'{group} {name}'" for group in groups)
            ctx.fail(f"No such command {name!r}. Did you mean {suggestions}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(replicas, name="replicas")
app.add_typer(access, name="access")
app.add_typer(checkpoint, name="checkpoint")
app.command()(produce)
app.command()(cat)
app.command()(copy)
app.command()(offsets)
app.command("delete-records")(delete_records)
app.command("spark-conf")(spark_conf)
app.command()(ui)
app.command()(maintain)
app.command()(metrics)
app.command()(doctor)
app.command()(verify)
app.command()(void)
app.command()(probe)
app.command()(dump)
app.command()(version)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"commitlog {__version__}")
        raise typer.Exit


@app.callback()
def _commands(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Log what the library does to stderr; else warnings only.")
    ] = False,
    principal: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who you are, for access rules; wins over COMMITLOG_PRINCIPAL."),
    ] = None,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option for the root's URL, as endpoint_url=…; a secret as NAME=env:VARIABLE or NAME=@FILE. "
            "Several times.",
        ),
    ] = None,
    version_wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kafka's commit log without brokers."""
    ask_as(principal)
    use_storage_options(storage_option)
    log_to_stderr(verbose=verbose)
    if context.invoked_subcommand is None:
        print_lines(overview())

"""The commands of `commitlog`: what they take, what they print, how they end.

Exit codes: 0 all is well, 1 something is wrong with a topic or the root, 2 the command line is (`shared.exit_code`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pyspark_commitlog import __version__
from pyspark_commitlog.cli.access import access
from pyspark_commitlog.cli.checkpoint import checkpoint
from pyspark_commitlog.cli.common.background_catch_up import CatchingUp
from pyspark_commitlog.cli.common.output import (
    dumped_line,
    fault_lines,
    group_maintained_lines,
    maintained_lines,
    void_lines,
)
from pyspark_commitlog.cli.common.shared import (
    AsJson,
    EachAlone,
    Root,
    Topic,
    Topics,
    ask_as,
    complain,
    ended_by_errors,
    log_to_stderr,
    open_parent,
    opened,
    print_lines,
    progress_bars,
    stopped_by_signals,
)
from pyspark_commitlog.cli.common.storage_options import storage_at, use_storage_options
from pyspark_commitlog.cli.copying import copy
from pyspark_commitlog.cli.groups import groups
from pyspark_commitlog.cli.offsets import delete_records, offsets
from pyspark_commitlog.cli.records.cat import cat
from pyspark_commitlog.cli.records.produce import produce
from pyspark_commitlog.cli.replicas import replicas
from pyspark_commitlog.cli.spark_conf import spark_conf
from pyspark_commitlog.cli.topics import topics
from pyspark_commitlog.config import check_interval_ms
from pyspark_commitlog.errors import (
    NotFoundError,
    StorageDeniedError,
    UnsupportedError,
    UsageError,
    fault_of,
)
from pyspark_commitlog.model import Progress
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.maintenance import Failure, Maintenance
    from pyspark_commitlog.api.results import Maintained, MaintainedGroup, TopicReport


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
    no_args_is_help=True,
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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"commitlog {__version__}")
        raise typer.Exit


@app.callback()
def _commands(
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
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kafka's commit log without brokers."""
    ask_as(principal)
    use_storage_options(storage_option)
    log_to_stderr(verbose=verbose)


@app.command()
def maintain(
    root: Root,
    topic: Topics = None,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            help="Seconds from one round to the next; else what log.retention.check.interval.ms says, a default of the "
            "root.",
            min=0.1,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Settle, retain, compact, mend indexes and remove what nothing needs, of all topics, every 5 minutes.

    Safe twice at once and beside readers and writers. SIGTERM and Ctrl-C end it at the next step. With --once
    the exit code is 1 too if another process has held a topic's lock for 10 minutes: nothing is settled then.
    Where the first round can do nothing at all, as without a root or permission, it ends as with --once.
    """
    stop = stopped_by_signals()
    with opened(root) as log:
        from pyspark_commitlog.api.maintenance import Maintenance

        new_round = partial(_MaintainRound, Maintenance(log.root), stop, as_json=as_json)
        last = ends = new_round().run(topic)
        with CatchingUp(new_round().catch_up, stop) as beside:
            while not (once or ends.is_hopeless or stop.is_set()):
                beside.go_on()
                seconds = _pause(log, every)
                if not as_json:
                    complain(f"{last.summary}; the next round begins in {seconds:g} s")
                if not stop.wait(seconds):
                    last = new_round().run(topic)
            if once:
                ends.catch_up()
        raise typer.Exit(ends.code if once or ends.is_hopeless else 0)


def _pause(log: CommitLog, every: float | None) -> float:
    """Return how long to wait for the next round, seconds; without `every` the root's default, asked each time."""
    if every is not None:
        return every
    given: Mapping[str, str] = {}
    with suppress(Exception):  # the next round reports it
        given = log.config.get()
    return check_interval_ms(given) / 1000


#: A process that holds the lock for so long is stopped, or hangs: no step of ours takes it.
_STUCK_MS = 600_000


class _StoppedError(Exception):
    """A signal came: the round ends between two steps."""


class _MaintainRound(EachAlone):
    """One round over topics and groups, reported."""

    def __init__(self, maintenance: Maintenance, stop: threading.Event, *, as_json: bool) -> None:
        super().__init__()
        self._maintenance, self._stop, self._as_json = maintenance, stop, as_json
        self._done, self._mendable = 0, False

    @property
    def summary(self) -> str:
        """Return how many topics were maintained."""
        return f"maintained {counted(self._done, 'topic')}"

    @property
    def is_hopeless(self) -> bool:
        """Return whether no topic was maintained, and no other round will do it: no root, no permission."""
        return self.code > 0 and not self._done and not self._mendable

    def run(self, only: list[str] | None) -> _MaintainRound:
        """Maintain topics, and groups if no topics are named; return this."""
        names = only or self.ask(lambda _: self._maintenance.root.every_name())
        if names is None:
            return self
        with suppress(_StoppedError):
            for ended in self._maintenance.round(names, self._with_progress(names), groups=not only):
                self._tell(ended)
                if self._stop.is_set():
                    break
        return self

    def catch_up(self) -> None:
        """Catch up roots that lagged in the round."""
        self.ask(lambda _: self._maintenance.replicas.catch_up(self._stop.is_set))

    def report_failure(self, error: Exception, what: str = "") -> None:
        """Report a failure, and note whether a round may mend it."""
        super().report_failure(error, what)
        self._mendable = self._mendable or not isinstance(error, NotFoundError | StorageDeniedError | UnsupportedError)

    def _with_progress(self, names: list[str]) -> Iterator[tuple[str, Progress]]:
        for name, show in _progress(names):
            if self._stop.is_set():
                raise _StoppedError
            yield name, partial(self._show, show)

    def _show(self, show: Progress, what: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _StoppedError
        show(what, done, total)

    def _tell(self, ended: Maintained | MaintainedGroup | Failure) -> None:
        from pyspark_commitlog.api.maintenance import Failure
        from pyspark_commitlog.api.results import Maintained

        if isinstance(ended, Failure):
            self.report_failure(ended.error, ended.what)
            return
        if isinstance(ended, Maintained):
            self._done += 1
            if ended.busy_ms >= _STUCK_MS:
                self.found_faults()
            lines = maintained_lines(ended)
        else:
            lines = group_maintained_lines(ended)
        print_lines([json.dumps(asdict(ended))] if self._as_json else lines)


@app.command()
def verify(root: Root, topic: Topics = None, as_json: AsJson = False) -> None:
    """Check every stored byte of all topics, and of groups, against what the entries say; exit code 1 names a fault."""
    with opened(root) as log:
        there = log.root.every_name()  # without a root there is nothing to look at
        each = EachAlone(named=bool(topic))
        if _root_faults(log, as_json=as_json):
            each.found_faults()
        for name, show in _progress(topic or there):
            report = each.ask(partial(_verify_topic, log, show), name)
            if report is None:
                continue
            if report.faults:
                each.found_faults()
            print_lines([json.dumps(asdict(report))] if as_json else fault_lines(report))
        raise typer.Exit(each.code)


def _verify_topic(log: CommitLog, show: Progress, name: str) -> TopicReport:
    return log.topic(name).verify(progress=show)


def _root_faults(log: CommitLog, *, as_json: bool) -> bool:
    """Report the faults of what belongs to no topic: defaults, rules, groups; return whether something is."""
    from pyspark_commitlog.api.verify_root import verify_root

    try:
        report = verify_root(log.root)
        faults, unnamed = report.faults, report.unnamed
    except Exception as error:  # noqa: BLE001 a fault: the topics are checked all the same
        faults, unnamed = (f"error: {fault_of(error, 'the root')}",), ()
    if (faults or unnamed) and as_json:
        print_lines([json.dumps({"topic": None, "faults": faults, "unnamed": unnamed})])
    elif faults or unnamed:
        for fault in (*faults, *(f"nothing refers to {file}" for file in unnamed)):
            complain(fault)
    return bool(faults)


@app.command()
def void(
    root: Root,
    topic: Topic,
    partition: Annotated[int | None, typer.Option(help="Only this partition; with --from and --to.")] = None,
    first: Annotated[int | None, typer.Option("--from", help="The first offset.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="The offset after the last.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also records that can be read.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; otherwise only print what would be lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up records whose bytes are lost, for ever, so that their partition can go on.

    Without a range: all that can't be read. Nothing is changed without --execute.
    """
    with opened(root) as log:
        given = (partition, first, end)
        if None in given and given != (None, None, None):
            raise UsageError("--partition, --from and --to go together")
        ranges = None if partition is None or first is None or end is None else {partition: (first, end)}
        given_up = log.topic(topic).void(ranges, force=force, dry_run=not execute)
        lines = void_lines(topic, given_up, execute=execute)
        print_lines((json.dumps(asdict(lost)) for lost in given_up) if as_json else lines)


@app.command()
def probe(
    path: Annotated[str, typer.Argument(help="Where a root is, or is to be.")],
    as_json: AsJson = False,
) -> None:
    """Try whether a place can hold a log: exit code 1 if it could lose records there. Leaves no files."""
    with ended_by_errors():
        from pyspark_commitlog.storage.local.probe import probe as probe_storage

        findings = probe_storage(storage_at(path))
    for finding in findings:
        mark = "ok" if finding.held else "NO" if finding.safe else "UNSAFE"
        line = f"{mark:<6}  {finding.what:<13}  {finding.told}"  # codespell:ignore told
        print_lines([json.dumps(asdict(finding)) if as_json else line])
    raise typer.Exit(0 if all(finding.safe for finding in findings) else 1)


@app.command()
def dump(
    path: Annotated[str, typer.Argument(help="A file of a root: .log, .chunk, .index, .timeindex or .json.")],
    as_json: AsJson = False,
) -> None:
    """Show what a file holds, a line per frame or entry; exit code 1 if something in it is damaged."""
    damaged = False
    with ended_by_errors():
        try:
            from pyspark_commitlog.topic.damage.dump import dump as dump_file

            for row in dump_file(*open_parent(path)):
                damaged = damaged or "fault" in row
                print_lines([json.dumps(row) if as_json else dumped_line(row)])
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {path}") from None
    raise typer.Exit(1 if damaged else 0)


def _progress(names: list[str]) -> Iterator[tuple[str, Progress]]:
    """Yield the names, each with what shows its progress: a bar on a terminal, gone when all is done."""
    with progress_bars() as bars:
        bar = bars.add_task("")
        for number, name in enumerate(names, 1):

            def show(what: str, done: int, total: int, title: str = f"{name} ({number} of {len(names)})") -> None:
                bars.update(bar, description=f"{title}: {what}", completed=done, total=total)

            yield name, show

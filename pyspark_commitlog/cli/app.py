"""The commands of ``commitlog``: what they take, what they print, how they end.

Exit codes: 0 all is well, 1 something is wrong with a topic or the root, 2 the command line is.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from pyspark_commitlog import __version__
from pyspark_commitlog.cli.access import access
from pyspark_commitlog.cli.cat import cat
from pyspark_commitlog.cli.groups import groups
from pyspark_commitlog.cli.produce import produce
from pyspark_commitlog.cli.records import delete_records, offsets
from pyspark_commitlog.cli.shared import AsJson, Root, Topic, Topics, beside, progress_bars
from pyspark_commitlog.cli.tell import fault_lines, maintained_lines, void_lines
from pyspark_commitlog.cli.topics import topics
from pyspark_commitlog.errors import CommitLogError, UnknownTopicError
from pyspark_commitlog.log.dump import dump as dump_file
from pyspark_commitlog.maintenance import Maintained
from pyspark_commitlog.model import Progress
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.probe import probe as probe_storage
from pyspark_commitlog.topics import CommitLog

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(access, name="access")
app.command()(produce)
app.command()(cat)
app.command()(offsets)
app.command("delete-records")(delete_records)
_errors = Console(stderr=True)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"commitlog {__version__}")
        raise typer.Exit


@app.callback()
def _commands(
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Log what the library does to stderr; else warnings only.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kafka's commit log without brokers."""
    if verbose:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("pyspark_commitlog").setLevel(logging.DEBUG)


@app.command()
def maintain(
    root: Root,
    topic: Topics = None,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    every: Annotated[float, typer.Option(help="Seconds from one round to the next.", min=0.1)] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Settle, retain, compact, mend indexes and remove what nothing needs, of all topics, every 5 minutes.

    Safe twice at once and beside readers and writers. SIGTERM and Ctrl-C end it at the next step.
    """
    stop = _stop_on_signals()
    log = CommitLog(root)
    while True:
        failed = _round(log, topic, stop, as_json=as_json)
        if once or stop.is_set() or stop.wait(every):
            raise typer.Exit(1 if failed and once else 0)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


class _StoppedError(Exception):
    """A signal came; what was being done is left between two steps."""


def _round(log: CommitLog, only: list[str] | None, stop: threading.Event, *, as_json: bool) -> bool:
    """Maintain each topic once; return whether one failed."""
    names, failed = _names(log, only), False
    for name, show in _progress(names or []):

        def progress(what: str, done: int, total: int, show: Progress = show) -> None:
            if stop.is_set():
                raise _StoppedError
            show(what, done, total)

        try:
            _tell(log.maintain(name, progress=progress), as_json=as_json)
        except _StoppedError:
            break
        except CommitLogError as error:
            failed = True
            _complain(f"{name}: error: {error}")
    return failed or names is None


def _tell(done: Maintained, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    else:
        for line in maintained_lines(done):
            typer.echo(line)


@app.command()
def verify(root: Root, topic: Topics = None, as_json: AsJson = False) -> None:
    """Check every stored byte of all topics, and of groups, against what the entries say; exit code 1 names a fault."""
    log, failed = CommitLog(root), False
    names = _names(log, topic)
    if names is None:
        raise typer.Exit(1)
    try:
        log.defaults()
        log.access.rules()
        faults = log.groups.verify()
    except CommitLogError as error:
        faults = (f"error: {error}",)
    for fault in faults:
        failed = True
        _complain(fault)
    for name, show in _progress(names):
        try:
            report = log.verify(name, progress=show)
        except CommitLogError as error:
            if topic or not isinstance(error, UnknownTopicError):  # else it was deleted
                failed = True
                _complain(f"error: {error}")
            continue
        failed = failed or bool(report.faults)
        lines: Iterable[str] = [json.dumps(asdict(report))] if as_json else fault_lines(report)
        for line in lines:
            typer.echo(line)
    raise typer.Exit(1 if failed else 0)


@app.command()
def void(
    root: Root,
    topic: Topic,
    partition: Annotated[int | None, typer.Option(help="Only this partition; with --from and --to.")] = None,
    first: Annotated[int | None, typer.Option("--from", help="The first offset.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="The offset behind the last.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also records that can be read.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without, only tell what would be lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up records whose bytes are lost, for ever, so that their partition can go on.

    Without a range: all that can't be read. Nothing is changed without --execute.
    """
    given = (partition, first, end)
    if None in given and given != (None, None, None):
        _complain("error: --partition, --from and --to go together")
        raise typer.Exit(2)
    ranges = None if partition is None or first is None or end is None else {partition: (first, end)}
    try:
        found = CommitLog(root).void(topic, ranges, force=force, dry_run=not execute)
    except CommitLogError as error:
        _complain(f"error: {error}")
        raise typer.Exit(1) from error
    lines: Iterable[str] = (
        (json.dumps(asdict(each)) for each in found) if as_json else void_lines(topic, found, execute=execute)
    )
    for line in lines:
        typer.echo(line)


def _names(log: CommitLog, only: list[str] | None) -> list[str] | None:
    """Return the topics that are meant; None, told, where there is no root to look in."""
    try:
        return only or log.every_name()
    except CommitLogError as error:
        _complain(f"error: {error}")
        return None


def _complain(told: str) -> None:
    _errors.print(told, markup=False, highlight=False, soft_wrap=True)


@app.command()
def probe(
    path: Annotated[str, typer.Argument(help="Where a root is, or is to be.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON objects, one a line.")] = False,
) -> None:
    """Try whether a place can hold a log: exit code 1 if it could lose records there. Leaves nothing behind."""
    try:
        found = probe_storage(open_storage(path))
    except CommitLogError as error:
        _complain(f"error: {error}")
        raise typer.Exit(1) from error
    for each in found:
        mark = "ok" if each.held else "NO" if each.safe else "UNSAFE"
        typer.echo(json.dumps(asdict(each)) if as_json else f"{mark:<6}  {each.what:<13}  {each.told}")
    raise typer.Exit(0 if all(each.safe for each in found) else 1)


@app.command()
def dump(
    path: Annotated[str, typer.Argument(help="A file of a root: .log, .chunk, .index, .timeindex or .json.")],
) -> None:
    """Show what a file holds, a JSON object per frame or entry; exit code 1 if something in it is damaged."""
    damaged = False
    try:
        for row in dump_file(*beside(path)):
            damaged = damaged or "fault" in row
            typer.echo(json.dumps(row))
    except FileNotFoundError as error:
        _complain(f"error: there is no file {path}")
        raise typer.Exit(1) from error
    except CommitLogError as error:
        _complain(f"error: {error}")
        raise typer.Exit(1) from error
    raise typer.Exit(1 if damaged else 0)


def _progress(names: list[str]) -> Iterator[tuple[str, Progress]]:
    """Yield the names, each with what shows its progress: a bar on a terminal, gone when all is done."""
    with progress_bars() as bars:
        bar = bars.add_task("")
        for number, name in enumerate(names, 1):

            def show(what: str, done: int, total: int, title: str = f"{name} ({number} of {len(names)})") -> None:
                bars.update(bar, description=f"{title}: {what}", completed=done, total=total)

            yield name, show

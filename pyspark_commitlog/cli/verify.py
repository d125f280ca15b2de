"""`commitlog verify`, `void`, `dump` and `probe`: what is stored, and what a place can hold."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import (
    AsJson,
    Root,
    Topic,
    Topics,
    open_parent,
    opened,
)
from pyspark_commitlog.cli.common.endings import (
    EachAlone,
    complain,
    ended_by_errors,
    print_lines,
)
from pyspark_commitlog.cli.common.output import (
    dumped_line,
    fault_lines,
    void_lines,
)
from pyspark_commitlog.cli.common.progress import busy, with_progress
from pyspark_commitlog.cli.common.storage_options import storage_at
from pyspark_commitlog.errors import (
    NotFoundError,
    UsageError,
    fault_of,
)
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.model import Progress

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.results import TopicReport


def verify(root: Root, topic: Topics = None, as_json: AsJson = False) -> None:
    """Check every stored byte of all topics, and of groups, against what the entries say; exit code 1 names a fault."""
    with opened(root) as log:
        there = log.root.every_name()  # without a root there is nothing to look at
        each = EachAlone(named=bool(topic))
        if _root_faults(log, as_json=as_json):
            each.found_faults()
        for name, show in with_progress(topic or there):
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

    failures = Failures()  # of any class: the topics are checked all the same
    faults, unnamed = tuple[str, ...](), tuple[str, ...]()
    with failures.collected():
        report = verify_root(log.root)
        faults, unnamed = report.faults, report.unnamed
    faults += tuple(f"error: {fault_of(error, 'the root')}" for error in failures)
    if (faults or unnamed) and as_json:
        print_lines([json.dumps({"topic": None, "faults": faults, "unnamed": unnamed})])
    elif faults or unnamed:
        for fault in (*faults, *(f"nothing refers to {file}" for file in unnamed)):
            complain(fault)
    return bool(faults)


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
        with busy("looking for records that can't be read"):
            given_up = log.topic(topic).void(ranges, force=force, dry_run=not execute)
        lines = void_lines(topic, given_up, execute=execute)
        print_lines((json.dumps(asdict(lost)) for lost in given_up) if as_json else lines)


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

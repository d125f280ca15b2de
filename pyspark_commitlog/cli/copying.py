"""``commitlog copy``: topics from one root to another."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.shared import AsJson, complain, ended_by_errors, principal, print_lines, progress_bars
from pyspark_commitlog.cli.storage_options import storage_at
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    from pyspark_commitlog.copying.comparison import Compared
    from pyspark_commitlog.copying.copy import Copied


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The root to copy from: a directory or a URL.")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The root to copy to; made if need be.")],
    topic: Annotated[list[str] | None, typer.Argument(help="Topics; all, and access rules, without any.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Copy the offsets of consumer groups, too.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every record of both ends afterwards; exit code 1 if some differ.")
    ] = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-storage-option",
            metavar="NAME=VALUE",
            help="An option for the source's URL, in place of all --storage-option, which are for both. Several times.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics to another root, or bring copies up to date: offsets, timestamps, ids and checkpoints stay valid.

    Interrupted, it goes on when it is run again. Writers and readers of the source may be at work. With the first
    record that somebody writes to a copy it is a topic of its own, and copying to it is refused.
    """
    faults = 0
    with ended_by_errors():
        from pyspark_commitlog.commit_log import CommitLog
        from pyspark_commitlog.copying.copy import compare_topics, copy_topics

        here = CommitLog.on(storage_at(source, source_option), principal())
        there = CommitLog.on(storage_at(destination), principal())
        with progress_bars() as bars:
            bar = bars.add_task("")

            def show(what: str, done: int, total: int) -> None:
                bars.update(bar, description=what, completed=done, total=total)

            copied = copy_topics(here, there, topic, groups=groups, progress=show)
            compared = compare_topics(here, there, topic, progress=show) if verify else ()
        faults = _print(copied, compared, as_json=as_json)
    raise typer.Exit(1 if faults else 0)


def _print(copied: Copied, compared: tuple[Compared, ...], *, as_json: bool) -> int:
    """Print what was done; return the number of faults."""
    if as_json:
        print_lines(json.dumps(asdict(each)) for rows in (copied.topics, copied.groups, compared) for each in rows)
    else:
        print_lines(copied_lines(copied))
        print_lines(f"{each.topic}: {counted(each.records, 'record')} the same in both" for each in compared)
        for each in compared:
            for fault in each.faults:
                complain(f"{each.topic}: {fault}")
    return sum(len(each.faults) for each in compared)


def copied_lines(copied: Copied) -> list[str]:
    """Return what a copy did, a line for each topic and group (pure)."""
    lines = [
        f"{each.topic}: {counted(each.copied, 'offset')} copied, up to entry {each.sequence}" for each in copied.topics
    ]
    if copied.rules:
        lines.append(f"access: {counted(len(copied.rules), 'rule')} added")
    for group in copied.groups:
        lines.append(f"group {group.group}: {counted(group.moved, 'offset')} copied")
        lines += [
            f"group {group.group}: {kept.topic} partition {kept.partition} stays at {kept.offset}, at the source it is "
            f"at {kept.at_source}"
            for kept in group.kept
        ]
    return lines

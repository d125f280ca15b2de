"""`commitlog copy`: topics from one root to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, principal
from pyspark_commitlog.cli.common.endings import complain, complain_of, ended_by_errors, print_lines
from pyspark_commitlog.cli.common.progress import progress_bars
from pyspark_commitlog.cli.common.storage_options import storage_at
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    from pyspark_commitlog.copying.comparison import Compared
    from pyspark_commitlog.copying.copy import Copied
    from pyspark_commitlog.model import Progress


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
    code = 0
    with ended_by_errors():
        from pyspark_commitlog.api.commit_log import CommitLog
        from pyspark_commitlog.copying.copy import compare_topics, copy_what_can_be

        here = CommitLog.on(storage_at(source, source_option), principal()).root
        there = CommitLog.on(storage_at(destination), principal()).root
        with _bar() as show:
            copied, failures = copy_what_can_be(here, there, topic, groups=groups, progress=show)
        _print_copied(copied, as_json=as_json)
        code = max(map(complain_of, failures), default=0)
        if verify:
            names = [each.topic for each in copied.topics]
            with _bar() as show:
                compared = compare_topics(here, there, names, progress=show)
            code = max(code, min(1, _print_compared(compared, as_json=as_json)))
    raise typer.Exit(code)


@contextmanager
def _bar() -> Iterator[Progress]:
    with progress_bars() as bars:
        bar = bars.add_task("")

        def show(what: str, done: int, total: int) -> None:
            bars.update(bar, description=what, completed=done, total=total)

        yield show


def _print_copied(copied: Copied, *, as_json: bool) -> None:
    if as_json:
        print_lines(json.dumps(asdict(each)) for rows in (copied.topics, copied.groups) for each in rows)
    else:
        print_lines(copied_lines(copied))


def _print_compared(compared: tuple[Compared, ...], *, as_json: bool) -> int:
    """Print a comparison; return the number of faults."""
    if as_json:
        print_lines(json.dumps(asdict(each)) for each in compared)
    else:
        print_lines(map(compared_line, compared))
        for each in compared:
            for fault in each.faults:
                complain(f"{each.topic}: {fault}")
    return sum(len(each.faults) for each in compared)


def compared_line(compared: Compared) -> str:
    """Return how much of a topic is the same, and how much compaction took from one side (pure)."""
    alone = f", {counted(compared.superseded, 'record')} at one side alone" if compared.superseded else ""
    return f"{compared.topic}: {counted(compared.records, 'record')} the same in both{alone}"


def copied_lines(copied: Copied) -> list[str]:
    """Return a line per copied topic and group (pure)."""
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

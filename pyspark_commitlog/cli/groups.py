"""`commitlog groups …`: `kafka-consumer-groups`, with its columns and flags.

Exit codes as of the other commands: 1 something is wrong with a group or the root, 2 the command line is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, complete_group, instant_of, open_parent, opened
from pyspark_commitlog.cli.common.endings import EachAlone, complain, complain_of, print_lines
from pyspark_commitlog.cli.common.offsets_file import exported_lines, parse_offsets
from pyspark_commitlog.cli.common.output import described_lines, member_lines, moved_lines, state_lines
from pyspark_commitlog.cli.common.progress import with_progress
from pyspark_commitlog.cli.common.watch import Watch, show_repeatedly
from pyspark_commitlog.errors import CommitLogError, UsageError

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.groups.descriptions import GroupDescription, OffsetReset

groups = typer.Typer(help="Show consumer groups, and move or delete their offsets.", no_args_is_help=True)

Group = Annotated[str | None, typer.Argument(help="The group.", autocompletion=complete_group)]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups of the root.")]
SomeTopics = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or some partitions: flights:0,2. Several times.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="The log start offsets.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="The high watermarks.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", help="This offset.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", help="The first record that is not earlier: 2026-01-31T12:00:00, in UTC, -1h, yesterday."
    ),
]
ShiftBy = Annotated[int | None, typer.Option("--shift-by", help="So many on; back if negative.")]
FromFile = Annotated[
    str | None, typer.Option("--from-file", help="CSV lines: topic,partition,offset; with --all-groups group,topic,…")
]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; otherwise only print what would change.")]


@groups.command("list")
def list_groups(root: Root, as_json: AsJson = False) -> None:
    """Name all groups."""
    with opened(root) as log:
        print_lines(json.dumps({"group": name}) if as_json else name for name in log.groups.list())


@groups.command()
def describe(
    root: Root,
    group: Annotated[
        list[str] | None, typer.Argument(help="Groups; all without any.", autocompletion=complete_group)
    ] = None,
    all_groups: AllGroups = False,
    members: Annotated[bool, typer.Option("--members", help="The members, with what each has.")] = False,
    state: Annotated[bool, typer.Option("--state", help="The state of the groups.")] = False,
    watch: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show how far groups have come in each partition, and how far they lag behind: all groups, or some.

    A group that can't be described stops no other. Exit code 1 then, and where something of one is damaged.
    """
    with opened(root) as log:
        if members and state:
            raise UsageError("give one of --members and --state")
        if group and all_groups:
            raise UsageError("give groups or --all-groups")
        lines = member_lines if members else state_lines if state else described_lines

        def show() -> int:
            each = EachAlone(named=bool(group))
            descriptions = _describe_each(log, group or log.groups.list(), each)
            print_lines(
                (json.dumps(asdict(description)) for description in descriptions) if as_json else lines(descriptions)
            )
            return each.code

        raise typer.Exit(show_repeatedly(watch, show))


def _describe_each(log: CommitLog, names: Sequence[str], each: EachAlone) -> list[GroupDescription]:
    asked = [each.ask(log.groups.describe, name) for name, _ in with_progress(list(names))]
    descriptions = [description for description in asked if description is not None]
    for fault in (fault for description in descriptions for fault in description.faults):
        complain(f"FAULT {fault}")
        each.found_faults()
    return descriptions


@groups.command()
def reset(
    root: Root,
    group: Group = None,
    all_groups: AllGroups = False,
    topic: SomeTopics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics of the group.")] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="What is committed.")] = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: Annotated[str | None, typer.Option("--by-duration", help="So long ago: PT1H, P1DT12H.")] = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would change: the default.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print CSV lines for --from-file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move the offsets of a group, or of all. Nothing is changed without --execute.

    With --all-groups each exported line begins with its group, and a file has those groups moved that it names.
    """
    with opened(root) as log:
        targets = {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-current": to_current,
            "--to-offset": to_offset,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--shift-by": shift_by,
            "--from-file": from_file,
        }
        refuse(
            _group_fault(group, all_groups),
            _scope_fault(topic, all_topics, from_file),
            "give one of --execute and --dry-run" if execute and dry_run else "",
            target_fault(targets),
        )
        names = _select_groups(log, group, all_groups)
        to = named_target(targets)
        filed = None if from_file is None else parse_offsets(_text(from_file), from_file, group)
        partitions = _partitions(topic)
        timestamp = None if to_datetime is None else instant_of("--to-datetime", to_datetime)

        def move(name: str) -> None:
            moved = log.groups.reset(
                name,
                partitions,
                to if filed is None else filed[name],
                offset=to_offset,
                timestamp=timestamp,
                duration=by_duration,
                shift=shift_by,
                dry_run=not execute,
            )
            _print_moved(name, moved, execute=execute, export=export, as_json=as_json, all_groups=all_groups)

        _apply_to_groups(names if filed is None else filed, move, all_groups=all_groups)


def _print_moved(
    name: str, moved: Sequence[OffsetReset], *, execute: bool, export: bool, as_json: bool, all_groups: bool
) -> None:
    if as_json:
        print_lines(json.dumps({"group": name, **asdict(row)}) for row in moved)
    elif export:
        print_lines(exported_lines(moved, name if all_groups else None))
    else:
        print_lines(moved_lines(name, moved, execute=execute))


def refuse(*faults: str) -> None:
    """Refuse a command line with all its faults; empty texts are none."""
    if any(faults):
        raise UsageError("; ".join(filter(None, faults)))


def _group_fault(group: str | None, all_groups: bool) -> str:
    return "give a group or --all-groups" if (group is None) != all_groups else ""


def _scope_fault(topic: list[str] | None, all_topics: bool, from_file: str | None) -> str:
    scopes = (topic is not None) + all_topics + (from_file is not None)
    return "" if scopes == 1 else "give one of --topic, --all-topics and --from-file"


def _select_groups(log: CommitLog, group: str | None, all_groups: bool) -> Sequence[str]:
    refuse(_group_fault(group, all_groups))
    return log.groups.list() if group is None else [group]


def _apply_to_groups(groups: Iterable[str], act: Callable[[str], None], *, all_groups: bool) -> None:
    """Run a command for one group, or for all, where an error stops no other."""
    code = 0
    for name in groups:
        try:
            act(name)
        except (CommitLogError, OSError) as error:
            if isinstance(error, BrokenPipeError) or not all_groups:
                raise
            code = max(code, complain_of(error, f"group {name}"))
    if code:
        raise typer.Exit(code)


def target_fault(given: Mapping[str, object]) -> str:
    """Fault of the flags that name a target, if not exactly one (pure)."""
    flags = [flag for flag, value in given.items() if value is not None and value is not False]
    return "" if len(flags) == 1 else f"give exactly one of {', '.join(given)}; given: {', '.join(flags) or 'none'}"


def named_target(given: Mapping[str, object]) -> str | None:
    """Return `earliest`, `latest` or `current`, if given (pure)."""
    return next((name for name in ("earliest", "latest", "current") if given.get(f"--to-{name}")), None)


def _partitions(topics: list[str] | None) -> dict[str, list[int]] | list[str] | None:
    if topics is None or not any(":" in topic for topic in topics):
        return topics
    partitions: dict[str, list[int]] = {}
    for topic in topics:
        name, _, numbers = topic.partition(":")
        try:
            partitions.setdefault(name, []).extend(int(number) for number in numbers.split(","))
        except ValueError:
            raise UsageError(f"--topic {topic}: use name:0,1 for all topics if you do for one") from None
    return partitions


def chosen_partitions(topics: list[str] | None) -> dict[str, list[int] | None] | None:
    """Return topic -> partitions of `--topic`, None for all of a topic, or of all topics."""
    chosen = _partitions(topics)
    if chosen is None or isinstance(chosen, dict):
        return None if chosen is None else dict(chosen)
    return dict.fromkeys(chosen)


def _text(path: str) -> str:
    """Read a file named on the command line."""
    storage, name = open_parent(path)
    try:
        return storage.read(name).decode("utf-8-sig")  # as spreadsheets write it
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text of lines topic,partition,offset") from None


@groups.command()
def delete(
    root: Root,
    group: Group = None,
    all_groups: AllGroups = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only the offsets of this topic; several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete a group, or all, or offsets of some topics. At once: queries that run no longer commit there."""
    with opened(root) as log:

        def remove(name: str) -> None:
            if topic:
                log.groups.delete_offsets(name, topic)
            else:
                log.groups.delete(name)
            done: dict[str, Any] = {"group": name, "deleted": topic or "all"}
            what = f"its offsets of {', '.join(topic)}" if topic else "the group"
            print_lines([json.dumps(done) if as_json else f"{name}: deleted {what}"])

        _apply_to_groups(_select_groups(log, group, all_groups), remove, all_groups=all_groups)

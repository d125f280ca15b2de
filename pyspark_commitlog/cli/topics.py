"""`commitlog topics …`: `kafka-topics` and `kafka-configs` for topics."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, Topic, Topics, opened, parse_config
from pyspark_commitlog.cli.common.endings import EachAlone, complain, print_lines
from pyspark_commitlog.cli.common.progress import busy
from pyspark_commitlog.cli.common.watch import Watch, show_repeatedly
from pyspark_commitlog.config import MAX_PARTITIONS
from pyspark_commitlog.errors import TopicExistsError, UnknownTopicError, UsageError
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.format.schema.topic_schema import check_partitions
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic_description import topic_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.format.schema.topic_schema import TopicSchema
    from pyspark_commitlog.topic_description import ReplicationDescription

topics = typer.Typer(help="Make, show, alter and delete topics.", no_args_is_help=True)

Config = Annotated[
    list[str] | None, typer.Option("--config", help="A topic config, as in retention.ms=-1. Several times.")
]

AsDescribed = Annotated[bool, typer.Option("--json", help="Print the topic afterwards, as describe --json does.")]


@topics.command()
def create(
    root: Root,
    topic: Annotated[str, typer.Argument(help="Its name.")],
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="How many; they can grow, never shrink.")] = 1,
    replication_factor: Annotated[
        int | None,
        typer.Option(help="On how many of the roots that belong together it lives; else on all, at most 3."),
    ] = None,
    config: Config = None,
    schema: Annotated[
        str | None, typer.Option(help='Declared columns, as in "user STRING NOT NULL, tags ARRAY<STRING>".')
    ] = None,
    schema_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="A Parquet file whose columns are declared.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that is the records' key.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that is the records' timestamp.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it is there.")] = False,
    as_json: AsDescribed = False,
) -> None:
    """Make a topic, and the root with the first."""
    with opened(root) as log:
        given = parse_config(config)
        if replication_factor is not None:
            given["replication.factor"] = replication_factor
        declared = schema if schema_from is None else _schema_of(schema_from, schema)
        try:
            log.create_topic(topic, partitions, given, schema=declared, key=key, timestamp=timestamp)
            outcome = f"created topic {topic} with {counted(partitions, 'partition')}"
        except TopicExistsError:
            if not if_not_exists:
                raise
            outcome = f"topic {topic} is there already"
        _report(log, topic, outcome, as_json=as_json)


def _schema_of(path: str, ddl: str | None) -> pa.Schema:
    """Return the columns of a Parquet file."""
    if ddl is not None:
        raise UsageError("give --schema or --schema-from, not both")
    from pyspark_commitlog.cli.common.parquet import column_schema, opened_parquet

    with opened_parquet(path) as parquet:
        return column_schema(parquet)


def _report(log: CommitLog, topic: str, outcome: str, *, as_json: bool) -> None:
    print_lines([json.dumps(asdict(log.topic(topic).describe())) if as_json else outcome])


@topics.command("list")
def list_topics(root: Root, as_json: AsJson = False) -> None:
    """Name all topics."""
    with opened(root) as log:
        print_lines(json.dumps({"topic": name}) if as_json else name for name in log.topics())


@topics.command()
def describe(
    root: Root,
    topic: Topics = None,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="All configs, those with their default too.")
    ] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only topics with a replica that is not in sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only topics whose leader does not answer.")
    ] = False,
    watch: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show partitions, offsets, segments and replicas of topics, and the configs set for them or for the root.

    A topic that can't be described stops no other. Exit code 1 then, and where partitions can't be settled.
    """
    with opened(root) as log:

        def is_shown(of: ReplicationDescription | None) -> bool:
            return _is_shown(of, under_replicated=under_replicated, unavailable=unavailable)

        def show() -> int:
            each = EachAlone(named=bool(topic))
            for name in topic or log.topics():
                description = each.ask(lambda topic: log.topic(topic).describe(), name)
                if description is None or not is_shown(description.replication):
                    continue
                if description.damaged:
                    each.found_faults()
                print_lines(
                    [json.dumps(asdict(description))] if as_json else topic_lines(description, all_configs=all_configs)
                )
            return each.code

        raise typer.Exit(show_repeatedly(watch, show))


def _is_shown(replication: ReplicationDescription | None, *, under_replicated: bool, unavailable: bool) -> bool:
    if replication is None:
        return not (under_replicated or unavailable)
    return not (
        (under_replicated and not replication.is_under_replicated) or (unavailable and not replication.is_unavailable)
    )


@topics.command()
def alter(
    root: Root,
    topic: Topic,
    partitions: Annotated[int | None, typer.Option("-p", "--partitions", help="Grow to so many.")] = None,
    factor: Annotated[
        int | None, typer.Option("--replication-factor", help="Have it live on so many roots, more or fewer.")
    ] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="Take a config back to its default. Several times.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="All columns afterwards: others are dropped, new ones added.")
    ] = None,
    add: Annotated[str | None, typer.Option(metavar="COLUMNS", help='New columns, as in "country STRING".')] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Drop a column. Several times.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=NAME", help="Rename a column. Several times.")
    ] = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TYPE", help="Widen a column, as in n=BIGINT. Several times.")
    ] = None,
    as_json: AsDescribed = False,
) -> None:
    """Change configs and columns of a topic, add partitions, or have it live on more roots or fewer.

    Several changes are made in this order, one after the other. What can't be is looked for first, and nothing changed.
    """
    with opened(root) as log:
        changed = {**parse_config(config), **dict.fromkeys(delete_config or ())}
        columns = _column_changes(schema, add, drop, rename, widen)
        if not changed and not columns and partitions is None and factor is None:
            raise UsageError(
                "nothing to change: give --partitions, --replication-factor, --config, --delete-config, --schema, "
                "--add, --drop, --rename or --widen"
            )
        if bool(changed or columns) + (partitions is not None) + (factor is not None) > 1:
            _check_changes(log, topic, columns, partitions, factor)
        done = _change(log, topic, changed, columns, partitions, factor)
        _report(log, topic, f"altered topic {topic}: {', '.join(done)}", as_json=as_json)


def _column_changes(
    schema: str | None, add: str | None, drop: list[str] | None, rename: list[str] | None, widen: list[str] | None
) -> dict[str, Any]:
    """Return the arguments of `Topic.alter` that change columns."""
    asked: dict[str, Any] = {"schema": schema, "add": add, "drop": drop}
    for option, pairs in (("rename", rename), ("widen", widen)):
        asked[option] = None if pairs is None else _pairs(option, pairs)
    return {name: value for name, value in asked.items() if value is not None}


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    found = dict[str, str]()
    for text in texts:
        column, _, value = text.partition("=")
        if not (column and value):
            raise UsageError(f"--{option} {text!r}: give a column, =, and what it becomes")
        if column in found:
            raise UsageError(f"--{option} names column {column!r} twice: give it once")
        found[column] = value
    return found


def _check_changes(
    log: CommitLog, topic: str, columns: dict[str, Any], partitions: int | None, factor: int | None
) -> None:
    """Refuse invalid changes before the first of several is made: each of them is an entry of its own.

    Configs and columns come first, and are checked as they are changed.
    """
    from pyspark_commitlog.topic.access import Operation

    if partitions is not None:
        _, state = log.root.topic(topic, Operation.DESCRIBE).newest()
        check_grows(topic, state.partitions, partitions)
        check_partitions(_changed(state.schema, columns), partitions)
    if factor is not None:
        check_factor(sum(root.data for root in log.replicas.describe()), factor)


def _changed(schema: TopicSchema | None, columns: dict[str, Any]) -> TopicSchema | None:
    """Return a schema as it will be, if its change is allowed."""
    from pyspark_commitlog.format.schema.declared import declared_change
    from pyspark_commitlog.format.schema.schema_change import changed_schema

    change = declared_change(**columns)
    return schema if schema is None or change is None else changed_schema(schema, change, "")


def check_grows(topic: str, present: int, partitions: int) -> None:
    """Refuse to grow a topic to no more than it has, or beyond the maximum (pure)."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(f"partitions={partitions} is not allowed: it takes 1 to {MAX_PARTITIONS}")
    if partitions <= present:
        raise UsageError(f"topic {topic!r} has {present} partitions; {partitions} would not add any")


def check_factor(roots: int, factor: int) -> None:
    """Refuse no root, or more than there are (pure)."""
    if factor < 1:
        raise UsageError(f"replication.factor={factor} is not allowed: 1 or more")
    if factor > roots:
        raise UsageError(
            f"replication.factor={factor} is not allowed: this log has {counted(roots, 'root')} for data; "
            "`commitlog replicas add` adds more"
        )


def _change(
    log: CommitLog,
    topic: str,
    changed: dict[str, object],
    columns: dict[str, Any],
    partitions: int | None,
    factor: int | None,
) -> list[str]:
    """Make changes one after the other, and return them; if one fails, say which are made."""
    done: list[str] = []
    failures = Failures()  # of any class: what was changed before stays
    with failures.collected():
        if changed or columns:
            log.topic(topic).alter(changed, **columns)
            done += ["its configs are changed"] if changed else []
            done += ["its columns are changed"] if columns else []
        if partitions is not None:
            log.topic(topic).add_partitions(partitions)
            done.append(f"it has {partitions} partitions")
        if factor is not None:
            with busy("replicating"):
                failed = log.topic(topic).set_replication_factor(factor).failed
            for root, why in failed.items():
                complain(f"root {root} has not caught up, `commitlog replicas sync` goes on: {why}")
            done.append(f"its replication factor is {factor}")
    for failure in failures:
        if done:
            complain(f"{topic}: {', '.join(done)}; what comes next failed")
        raise failure
    return done


@topics.command()
def delete(
    root: Root,
    topic: Topic,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it is not there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a topic, at once; maintain removes its files."""
    with opened(root) as log:
        deleted = True
        try:
            log.topic(topic).delete()
        except UnknownTopicError:
            if not if_exists:
                raise
            deleted = False
        outcome = f"deleted topic {topic}" if deleted else f"topic {topic} is not there"
        print_lines([json.dumps({"topic": topic, "deleted": deleted}) if as_json else outcome])

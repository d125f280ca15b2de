"""`commitlog checkpoint …` and `spark-conf`: where a stopped query goes on, and settings that Spark is fast with."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, instant_of, opened
from pyspark_commitlog.cli.common.endings import ended_by_errors, print_lines
from pyspark_commitlog.cli.common.storage_options import storage_at
from pyspark_commitlog.cli.groups import (
    Execute,
    ShiftBy,
    SomeTopics,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    chosen_partitions,
    named_target,
    refuse,
    target_fault,
)
from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.spark.session.configure import (
    CHECKPOINTS,
    DRIVER_JAVA,
    EXECUTOR_JAVA,
    JAVA_OPTIONS,
    LOCAL_CHECKPOINTS,
    SETTINGS,
    quick_python,
)
from pyspark_commitlog.text import table

if TYPE_CHECKING:
    from pyspark_commitlog.spark.session.query_checkpoint import Checkpoint

_HEAD = """\
# What configure_spark(SparkSession.builder) sets:
#   commitlog spark-conf > commitlog.conf
#   spark-submit --properties-file commitlog.conf --load-spark-defaults job.py
# On one machine, Spark's Python processes start sooner with (before spark-submit):
#   export PYSPARK_PYTHON="$(commitlog spark-conf --python)" QUICK_PYTHON="$(command -v python)"
"""
_TAIL = f"""\
# For checkpoints on a local disk, where Spark's default starts a process for each rename:
# {CHECKPOINTS} {LOCAL_CHECKPOINTS}
"""

checkpoint = typer.Typer(help="Show and move where a streaming query goes on.", no_args_is_help=True)

Directory = Annotated[str, typer.Argument(help="The query's checkpointLocation.", metavar="DIR")]


@checkpoint.command()
def show(directory: Directory, as_json: AsJson = False) -> None:
    """Show the newest micro-batch of a query, and how far it has read."""
    from pyspark_commitlog.spark.session.query_checkpoint import read_checkpoint

    with ended_by_errors():
        checkpoint = read_checkpoint(storage_at(directory))
        rows = [
            (checkpoint.source(number), *place, offset)
            for number, source in checkpoint.sources.items()
            for place, offset in sorted(source.offsets.items())
        ]
        if as_json:
            names = ("source", "topic", "partition", "offset")
            batch = {"batch": checkpoint.batch, "committed": checkpoint.committed}
            print_lines(json.dumps(batch | dict(zip(names, row, strict=True))) for row in rows)
            return
        print_lines([_state(checkpoint), *table(["SOURCE", "TOPIC", "PARTITION", "OFFSET"], rows)])


def _state(checkpoint: Checkpoint) -> str:
    state = "over" if checkpoint.committed else "planned and not over: Spark plays it again"
    return f"batch {checkpoint.batch} is {state}"


@checkpoint.command("set")
def set_offsets(
    root: Root,
    directory: Directory,
    topic: SomeTopics = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    shift_by: ShiftBy = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Move where a stopped query goes on, all its topics or some. Nothing is changed without --execute.

    Stop the query first: one that runs does not look at its checkpoint, and overwrites it.
    """
    from pyspark_commitlog.groups.reset_target import target_of
    from pyspark_commitlog.spark.session.query_checkpoint import moved_checkpoint, read_checkpoint, write_checkpoint

    with opened(root) as log:
        targets = {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-offset": to_offset,
            "--to-datetime": to_datetime,
            "--shift-by": shift_by,
        }
        refuse(target_fault(targets))
        at = None if to_datetime is None else instant_of("--to-datetime", to_datetime)
        target = target_of(named_target(targets), to_offset, at, shift_by, None, 0)
        storage = storage_at(directory)
        before = read_checkpoint(storage)
        changed, moved = moved_checkpoint(log.root, before, chosen_partitions(topic), target)
        if execute and moved:
            kept = write_checkpoint(storage, changed, before)
        if as_json:
            print_lines(json.dumps(asdict(row)) for row in moved)
            return
        rows = [(row.topic, row.partition, row.before, row.after) for row in moved]
        print_lines(table(["TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"], rows))
        outcome = f"the offsets before are in {directory}/{kept}" if execute and moved else "nothing was changed"
        print_lines([outcome if execute else f"{outcome}; --execute moves it"])


def settings() -> dict[str, str]:
    """Return the settings that are safe for every job."""
    return {**SETTINGS, DRIVER_JAVA: JAVA_OPTIONS, EXECUTOR_JAVA: JAVA_OPTIONS}


def spark_conf(
    submit: Annotated[bool, typer.Option("--submit", help="As arguments: spark-submit $(… --submit) job.py.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Only the path for PYSPARK_PYTHON.")] = False,
) -> None:
    """Print the Spark settings that this package is fast with, as lines of spark-defaults.conf."""
    with ended_by_errors():
        if python:
            path = quick_python()
            if path is None:
                raise UnsupportedError("quick-python is not installed as a program: install the package with pip")
            print_lines([path])
        elif submit:
            typer.echo(" ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings().items()))
        else:
            width = max(map(len, settings()))
            lines = (f"{name:<{width}} {value}\n" for name, value in settings().items())
            typer.echo(_HEAD + "".join(lines) + _TAIL, nl=False)

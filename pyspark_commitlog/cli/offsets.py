"""`commitlog offsets` and `delete-records` (Kafka: `kafka-get-offsets`, `kafka-delete-records`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import AsJson, Root, Topic, Topics, instant_of, opened, parse_partitions
from pyspark_commitlog.cli.common.endings import EachAlone, print_lines
from pyspark_commitlog.topic_description import PartitionDescription

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.results import OffsetAndTimestamp

_MAX_TIMESTAMP = "max-timestamp"


def offsets(
    root: Root,
    topic: Topics = None,
    at: Annotated[
        str,
        typer.Option(
            "--time",
            help="latest (-1), earliest (-2), max-timestamp (-3), milliseconds since 1970, UTC as "
            "2026-01-31T12:00:00, or -1h, today, yesterday.",
        ),
    ] = "latest",
    as_json: AsJson = False,
) -> None:
    """Show topic:partition:offset of each partition at a time: the first record that is not earlier.

    max-timestamp: the record with the largest timestamp, of several the first. No offset where there is no such record.
    A topic that can't be asked stops no other.
    """
    with opened(root) as log:
        time, each = parse_time(at), EachAlone(named=bool(topic))
        for name in topic or log.topics():
            for partition, offset in (each.ask(lambda name: _offsets(log, name, time), name) or {}).items():
                row = {"topic": name, "partition": partition, "offset": offset}
                print_lines([json.dumps(row) if as_json else f"{name}:{partition}:{'' if offset is None else offset}"])
        raise typer.Exit(each.code)


def parse_time(text: str) -> int | str:
    """Return ms since 1970, or `earliest`, `latest` or `max-timestamp` (`OffsetSpec`)."""
    named = {"-1": "latest", "-2": "earliest", "-3": _MAX_TIMESTAMP}
    if text in named or text in named.values():
        return named.get(text, text)
    also = "; or latest, earliest, max-timestamp"  # not Kafka's -4 and -5, which are of tiered storage
    return instant_of("--time", text, also)


def _offsets(log: CommitLog, name: str, time: int | str) -> dict[int, int | None]:
    if time == _MAX_TIMESTAMP:
        return _offsets_of(log.topic(name).max_timestamps())
    partitions = log.topic(name).describe().partitions
    if isinstance(time, str):
        return {partition.partition: _end(partition, time) for partition in partitions}
    return _offsets_of(log.topic(name).offsets_for_times({partition.partition: time for partition in partitions}))


def _offsets_of(records: Mapping[int, OffsetAndTimestamp | None]) -> dict[int, int | None]:
    return {partition: None if at is None else at.offset for partition, at in records.items()}


def _end(partition: PartitionDescription, which: str) -> int:
    return partition.log_start_offset if which == "earliest" else partition.high_watermark


def delete_records(
    root: Root,
    topic: Topic,
    offset: Annotated[
        list[str], typer.Option("--offset", help="partition:offset, the first one that stays; -1: none. Several times.")
    ],
    as_json: AsJson = False,
) -> None:
    """Delete the records below an offset of each partition given; maintain frees the disk."""
    with opened(root) as log:
        for partition, low in log.topic(topic).delete_records(parse_partitions(offset, "--offset")).items():
            row = {"topic": topic, "partition": partition, "lowWatermark": low}
            print_lines([json.dumps(row) if as_json else f"{topic}:{partition} low_watermark: {low}"])

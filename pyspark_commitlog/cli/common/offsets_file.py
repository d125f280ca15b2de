"""CSV lines of `groups reset --export` and `--from-file`, as of Kafka's tool (pure)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import UsageError

if TYPE_CHECKING:
    from pyspark_commitlog.groups.descriptions import OffsetReset


def exported_lines(moved: Sequence[OffsetReset], group: str | None) -> Iterator[str]:
    """Yield a reset's targets, without a header; lines begin with `group`, if given."""
    before = "" if group is None else f"{_quoted(group)},"
    for row in moved:
        yield f"{before}{row.topic},{row.partition},{row.after}"


def _quoted(text: str) -> str:
    """Quote a field of CSV if necessary."""
    if text == text.strip() and not set(text) & set(',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_offsets(text: str, path: str, group: str | None) -> dict[str, dict[str, dict[int, int]]]:
    """Parse a file's lines to group -> topic -> partition -> offset.

    With `group` None each line begins with its group. A line must not contradict one before it.
    """
    offsets: dict[str, dict[str, dict[int, int]]] = {} if group is None else {group: {}}
    lines = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        for row in lines:
            _add(offsets, row, f"{path} line {lines.line_num}", group)
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV: {error}") from None
    return offsets


def _add(offsets: dict[str, dict[str, dict[int, int]]], row: list[str], where: str, group: str | None) -> None:
    try:
        name, topic, *numbers = row if group is None else [group, *row]
        partition, offset = map(int, numbers)
    except ValueError:
        form = "group,topic,partition,offset" if group is None else "topic,partition,offset"
        raise UsageError(f"{where}: {','.join(row)!r} is not {form}") from None
    of_topic = offsets.setdefault(name, {}).setdefault(topic.strip(), {})
    if partition in of_topic:
        whose = f"group {name} " if group is None else ""
        raise UsageError(f"{where}: {whose}topic {topic.strip()} partition {partition} is there twice")
    of_topic[partition] = offset

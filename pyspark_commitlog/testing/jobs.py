"""Runs streams to their end, fills topics from rows and compares topics with rows, for tests of jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_commitlog import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pyspark_commitlog import CommitLog, Topic

#: Differences that `assert_topic` prints.
_SHOWN = 10
#: A record to send or to find: its value, or fields by name.
RowLike = Mapping[str, Any] | bytes | str | None


def fill_topic(log: CommitLog, topic: str, rows: Iterable[RowLike]) -> None:
    """Append records to a topic.

    Args:
        log: where it is, a local root.
        topic: its name.
        rows: of an untyped topic values (bytes, or text as UTF-8), or dicts with `value` and, if wanted, `key`,
            `headers`, `timestamp`, `partition`, as `Producer.send` takes them. Of a typed topic dicts of its columns.

    Raises:
        CommitLogError: as `Producer.send` and its futures.
    """
    typed = log.topic(topic).describe().schema is not None
    with Producer(log.url) as producer:
        sent = [producer.send(topic, **_fields(row, typed)) for row in rows]
    for each in sent:
        each.result()


def _fields(row: RowLike, typed: bool) -> dict[str, Any]:
    if typed or not isinstance(row, Mapping):
        return {"value": row}
    return {"value": None, **row}


def run_stream(
    stream: DataFrame | DataStreamWriter,
    checkpoint: str | None = None,
    *,
    output_mode: str = "append",
    timeout_seconds: int = 120,
) -> list[Row]:
    """Run a stream over all that its sources hold now, to the end.

    Args:
        stream: a streaming DataFrame, whose rows are returned; or a `df.writeStream…` with format and options, which
            writes where it says.
        checkpoint: a directory; with the one of an earlier run the stream goes on where that ended. None: a new one,
            and for a writer the one among its options.
        output_mode: of a DataFrame: `append`, `update` or `complete`.
        timeout_seconds: after which the query is stopped.

    Returns:
        The DataFrame's rows, each micro-batch's after those of the one before; of a writer none.

    Raises:
        StreamingQueryException: the query failed.
        TimeoutError: it has not ended in time.
    """
    from pyspark.sql import DataFrame

    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home:
        if isinstance(stream, DataFrame):
            writer = stream.writeStream.outputMode(output_mode).foreachBatch(lambda df, _: rows.extend(df.collect()))
            checkpoint = checkpoint or home
        else:
            writer = stream
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(timeout_seconds):
                raise TimeoutError(f"the stream has not ended after {timeout_seconds} s: {query.status}")
        finally:
            query.stop()
    return rows


def assert_topic(topic: Topic, expected: Sequence[RowLike], *, in_order: bool = True) -> None:
    """Assert that a topic holds these records and no others.

    Args:
        topic: the topic.
        expected: of an untyped topic values, or dicts of `key`, `value`, `headers` (pairs), `timestamp` (datetime),
            `partition`, `offset`; of a typed topic dicts of its columns. Only the fields that a dict names are
            compared; text equals its UTF-8.
        in_order: by partition, then offset. False: in any order.

    Raises:
        AssertionError: lists the first differences, by partition and offset.
        UsageError: a field is none of the topic's.
    """
    wanted = [row if isinstance(row, Mapping) else {"value": row} for row in expected]
    names = list(dict.fromkeys(name for row in wanted for name in row))
    found = topic.to_arrow([*names, "_partition_id", "_offset"]).to_pylist()
    differences = list(_in_order(wanted, found) if in_order else _in_any_order(wanted, found))
    if differences:
        left_out = len(differences) - _SHOWN
        shown = [*differences[:_SHOWN], *([f"and {left_out} more"] if left_out > 0 else [])]
        raise AssertionError(
            "\n  ".join([f"topic {topic.name!r} holds {len(found)} records, expected {len(wanted)}:", *shown])
        )


def _in_order(wanted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row, record in zip(wanted, found, strict=False):
        if not _matches(row, record):
            yield f"{_place(record)}: expected {dict(row)}, found {_without_place(record, row)}"
    for row in wanted[len(found) :]:
        yield f"missing: {dict(row)}"
    for record in found[len(wanted) :]:
        yield f"{_place(record)}: not expected: {_without_place(record)}"


def _in_any_order(wanted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    left = list(found)
    for row in wanted:
        place = next((number for number, record in enumerate(left) if _matches(row, record)), None)
        if place is None:
            yield f"missing: {dict(row)}"
        else:
            del left[place]
    for record in left:
        yield f"{_place(record)}: not expected: {_without_place(record)}"


def _place(record: Mapping[str, Any]) -> str:
    return f"partition {record['_partition_id']} offset {record['_offset']}"


def _without_place(record: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    return {name: record[name] for name in names or record if name not in ("_partition_id", "_offset")}


def _matches(row: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    return all(_equal(value, record[name]) for name, value in row.items())


def _equal(wanted: Any, found: Any) -> bool:
    """Whether a value is what a test means by it (pure): text for bytes, a dict for Arrow's pairs, NaN for NaN."""
    if isinstance(found, bytes) and isinstance(wanted, str):
        return found == wanted.encode()
    if isinstance(found, Mapping) and isinstance(wanted, tuple):  # a header
        found = tuple(found.values())
    if isinstance(wanted, Mapping) and isinstance(found, Sequence):  # a map
        found = dict(found)
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return wanted.keys() == found.keys() and all(_equal(wanted[name], found[name]) for name in wanted)
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(wanted) == len(found) and all(map(_equal, wanted, found))
    return bool(wanted == found or (wanted != wanted and found != found))

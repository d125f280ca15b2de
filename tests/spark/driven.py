"""What the tests in this directory do with the driver, in a few words each: as jobs.py, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from pyspark_commitlog import CommitLog, DefaultSource
from tests.spark.driver import Checkpoint, Driver, read_batch, source, write_batch
from tests.support.records import append, batch_of


def put(log: CommitLog, topic: str, values_: Sequence[str], partition: int | None = None) -> None:
    """Append values, to one partition if it is named."""
    columns = {} if partition is None else {"partition": [partition] * len(values_)}
    append(log.root.topic(topic), batch_of([value.encode() for value in values_], **columns))


def write(root: str, topic: str | None, /, *tasks: Sequence[dict[str, Any]] | pa.RecordBatch, **options: Any) -> None:
    """Append what each task has, rows or a batch, to a topic, or to those that its topic column names."""
    named = {"topic": topic, **options} if topic else options
    write_batch(source(root, **named), [[_batch(task)] for task in tasks])


def _batch(task: Sequence[dict[str, Any]] | pa.RecordBatch) -> pa.RecordBatch:
    return task if isinstance(task, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(task))


def read(root: str, topic: str | None, /, **options: Any) -> list[list[pa.RecordBatch]]:
    """Return the record batches of each task of a batch read, of a topic or of those that the options name."""
    named = {"subscribe": topic, **options} if topic else options
    return read_batch(source(root, **named))


def rows(tasks: Iterable[Iterable[pa.RecordBatch]], *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of what tasks give, sorted."""
    return sorted(tuple(row[name] for name in columns) for task in tasks for found in task for row in found.to_pylist())


def values(tasks: Iterable[Iterable[pa.RecordBatch]]) -> list[str]:
    """Return all values as text, sorted."""
    return [value.decode() for (value,) in rows(tasks, "value")]


def stream(root: str, topic: str | None, /, **options: Any) -> DefaultSource:
    """Return the source of a streaming read, by default from the earliest offset."""
    named = {"subscribe": topic} if topic else {}
    return source(root, **{"startingOffsets": "earliest", **named, **options})


class Seen:
    """The micro-batches of one query, kept over restarts: a sink with a checkpoint."""

    def __init__(self) -> None:
        self.checkpoint = Checkpoint()
        self.batches: list[list[str]] = []

    def start(self, of: DefaultSource, behind: Callable[[int], object] | None = None) -> Driver:
        """Start the query; `behind`: called with its number when a batch was taken."""

        def take(batch: int, found: list[pa.RecordBatch]) -> None:
            self.batches.append(values([found]))
            if behind is not None:
                behind(batch)

        return Driver(of, self.checkpoint, take)

    def run(self, of: DefaultSource, behind: Callable[[int], object] | None = None) -> list[list[str]]:
        """Run it over what is available; return the values of this run's micro-batches."""
        before = len(self.batches)
        self.start(of, behind).run()
        return self.batches[before:]

    def all(self) -> list[str]:
        """Return all values seen, sorted."""
        return sorted(value for batch in self.batches for value in batch)

    def offsets(self) -> dict[str, Any]:
        """Return the source's offset in the newest batch of the checkpoint."""
        return dict(json.loads(self.checkpoint.planned[-1]))

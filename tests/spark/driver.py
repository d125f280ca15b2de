"""Spark's micro-batch loop and streaming writes without Spark: plans and pickles as it does, one task after the other.

`test_driver.py` holds it to what Spark does, call by call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource


@dataclass
class Checkpoint:
    """What survives a restart: where each planned batch ends, as JSON text, and how many batches are over."""

    planned: list[str] = field(default_factory=list)
    over: int = 0


class Driver:
    """One run of a streaming query with `trigger(availableNow=True)` over a source.

    Args:
        source: the data source, with its options.
        checkpoint: of the query.
        sink: told the batch id and the rows of each micro-batch; raising stops the query, as a crash would.
    """

    def __init__(
        self, source: DefaultSource, checkpoint: Checkpoint, sink: Callable[[int, list[pa.RecordBatch]], None]
    ) -> None:
        self._source, self._schema = source, source.schema()
        self._reader = source.streamReader(self._schema)
        self._in_tasks: DataSourceStreamReader | None = None
        self._checkpoint, self._sink = checkpoint, sink

    def run(self) -> None:
        """Run until everything that was there at the start is read."""
        self._reader.prepareForTriggerAvailableNow()
        limit = self._reader.getDefaultReadLimit()
        planned = self._checkpoint.planned
        if len(planned) > self._checkpoint.over:  # planned, but not finished: play it again
            self._batch()
        while True:
            start = planned[-1] if planned else self._text(self._reader.initialOffset())
            end = self._text(self._reader.latestOffset(json.loads(start), limit))
            self._text(self._reader.reportLatestOffset())
            if end == start:
                return
            if planned:
                self._reader.commit(json.loads(start))
            planned.append(end)
            self._batch()

    def _batch(self) -> None:
        *before, end = self._checkpoint.planned
        start = before[-1] if before else self._text(self._reader.initialOffset())
        partitions = self._reader.partitions(json.loads(start), json.loads(end))
        self._sink(len(before), [batch for partition in partitions for batch in self._task(partition)])
        self._checkpoint.over = len(self._checkpoint.planned)

    def _task(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read as a task does: from copies that were sent over, of a reader that is made once for all tasks."""
        if self._in_tasks is None:
            self._in_tasks = sent_over(self._source).streamReader(self._schema)
        reader, partition = sent_over((self._in_tasks, partition))
        yield from reader.read(partition)

    @staticmethod
    def _text(offset: dict[str, Any]) -> str:
        return json.dumps(offset)


class SinkDriver:
    """The streaming writes of one query.

    Args:
        source: the data source, with its options.
        schema: of the rows.
        query: the query's id.
    """

    def __init__(self, source: DefaultSource, schema: StructType, query: str) -> None:
        self._source, self._schema, self._query = source, schema, query

    def write(self, batch: int, tasks: Sequence[Sequence[pa.RecordBatch]]) -> None:
        """Write a micro-batch; each of the three steps is a process of its own in Spark."""
        writer = self._writer()
        messages: list[Any] = [None] * len(tasks)
        try:
            for number, rows in enumerate(tasks):
                with in_task(self._query, batch, number):
                    messages[number] = sent_over(sent_over(writer).write(iter(rows)))
            self._writer().commit(messages, batch)
        except Exception:
            self._writer().abort(messages, batch)
            raise

    def _writer(self) -> Any:
        return sent_over(self._source).streamWriter(self._schema, overwrite=False)


@contextmanager
def in_task(query: str, batch: int, number: int) -> Iterator[None]:
    """Be in a task of a streaming query, as Spark's Python worker makes it known."""
    context = TaskContext._getOrCreate()
    context._partitionId = number
    context._localProperties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def sent_over(value: Any) -> Any:
    """Return what arrives in another process."""
    return pickle.loads(pickle.dumps(value))

"""Spark's reads and writes without Spark, batch and streaming: plans and pickles as it does, one task after the other.

`test_driver.py` holds it to what Spark does, call by call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource


@dataclass
class Checkpoint:
    """What survives a restart: where each planned batch ends, as JSON text, and how many batches are over."""

    planned: list[str] = field(default_factory=list)
    over: int = 0


class Driver:
    """One run of a streaming query over a source.

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
        self._limit: ReadLimit | None = None
        self._checkpoint, self._sink = checkpoint, sink

    def run(self) -> None:
        """Run with `trigger(availableNow=True)`: until everything that was there at the start is read."""
        self._reader.prepareForTriggerAvailableNow()
        self.process_all_available()

    def process_all_available(self) -> None:
        """Run as a query without that trigger does, until there is nothing more; call it again for what comes later."""
        if self._limit is None:
            self._limit = self._reader.getDefaultReadLimit()
        limit, planned = self._limit, self._checkpoint.planned
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


def source(root: str | Path, kind: type[DefaultSource] = DefaultSource, /, **options: object) -> DefaultSource:
    """Return a data source with its options as Spark passes them: text, under lower-case names."""
    given = CaseInsensitiveDict()
    for name, value in {"path": root, **options}.items():
        given[name] = str(value)
    return kind(given)


def read_batch(of: DefaultSource, schema: StructType | None = None) -> list[list[pa.RecordBatch]]:
    """Return the record batches of each task of a batch read.

    Args:
        of: the data source, with its options.
        schema: the user's, else the source's.
    """
    schema = of.schema() if schema is None else schema
    reader = sent_over(of).reader(schema)
    in_tasks = pickle.dumps(reader)  # before it plans
    planned = reader.partitions() or [InputPartition(None)]
    return [list(pickle.loads(in_tasks).read(sent_over(partition))) for partition in planned]


def write_batch(of: DefaultSource, tasks: Sequence[Sequence[pa.RecordBatch]], *, overwrite: bool = False) -> None:
    """Write a batch, whose columns are those of the first task's first rows."""
    writer = of.writer(from_arrow_schema(tasks[0][0].schema), overwrite)
    messages: list[Any] = [None] * len(tasks)
    at_the_end = sent_over(writer)
    try:
        for number, rows in enumerate(tasks):
            with in_task(number, {}):
                messages[number] = sent_over(sent_over(writer).write(iter(rows)))
        at_the_end.commit(messages)
    except Exception:
        sent_over(writer).abort(messages)
        raise


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
                with in_task(number, {"sql.streaming.queryId": self._query, "streaming.sql.batchId": str(batch)}):
                    messages[number] = sent_over(sent_over(writer).write(iter(rows)))
            self._writer().commit(messages, batch)
        except Exception:
            self._writer().abort(messages, batch)
            raise

    def _writer(self) -> Any:
        return sent_over(self._source).streamWriter(self._schema, overwrite=False)


@contextmanager
def in_task(number: int, properties: dict[str, str]) -> Iterator[None]:
    """Be in a task, as Spark's Python worker makes it known: its number, and the job's local properties."""
    context = TaskContext._getOrCreate()
    context._partitionId = number
    context._localProperties = properties
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def sent_over(value: Any) -> Any:
    """Return what arrives in another process."""
    return pickle.loads(pickle.dumps(value))

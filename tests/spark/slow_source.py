"""A data source whose tasks are slow on worker `two` of a test's cluster.

The environment of the executors says where they leave word, and how long they wait: `killed`: until somebody kills
them; `speculative`: until another attempt of the task has had all its input on worker `one`, so that both end at
the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.spark.read.batch import CommitLogReader
from pyspark_commitlog.spark.write.sink import CommitLogStreamWriter, CommitLogWriter, StagedMessage

#: Tells a task which worker it runs on.
WORKER = "COMMITLOG_TEST_WORKER"
#: The directory where tasks leave word.
STEPS = "COMMITLOG_TEST_STEPS"
#: killed or speculative.
UNTIL = "COMMITLOG_TEST_UNTIL"
#: A test whose other half died shall fail, not hang.
PATIENCE_SECONDS = 240


class SlowSource(DefaultSource):
    """`commitlog`, but for the time that its tasks take."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog-slow"

    def reader(self, schema: StructType) -> Any:
        """Return the reader with slow tasks."""
        reader = super().reader(schema)
        reader.__class__ = SlowReader
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer with slow tasks."""
        return SlowWriter(self.open_log, self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the streaming writer with slow tasks."""
        return SlowStreamWriter(self.open_log, self.options, schema, overwrite)


class SlowReader(CommitLogReader):
    """Reads slowly."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read, with a wait half way."""
        return slow_input(Waiting("read"), super().read(partition))


class SlowWriter(CommitLogWriter):
    """Stages slowly."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage."""
        return slow_write(Waiting("write"), super().write, iterator)


class SlowStreamWriter(CommitLogStreamWriter):
    """Stages slowly."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage."""
        return slow_write(Waiting("stream"), super().write, iterator)


class Waiting:
    """What a task of a step (a word) leaves in the steps directory, and waits for there."""

    def __init__(self, step: str) -> None:
        context = TaskContext.get()
        assert context is not None
        self.task = context.partitionId()
        self._worker, self._until = os.environ[WORKER], os.environ[UNTIL]
        self._path = Path(os.environ[STEPS], f"{step}-{self.task}-")

    def wait(self) -> None:
        """Wait here, on worker `two`."""
        if self._worker == "one":
            return
        self._at("begun").touch()
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._at(self._until).exists():
            assert time.monotonic() < end, f"{self._at(self._until)} did not come"
            time.sleep(0.01)

    def over(self) -> None:
        """Tell the other attempt that this one has all its input."""
        if self._worker == "one":
            self._at("speculative").touch()

    def _at(self, word: str) -> Path:
        return self._path.with_name(self._path.name + word)


def slow_write(
    waiting: Waiting, write: Callable[[Iterator[pa.RecordBatch]], StagedMessage], batches: Iterator[pa.RecordBatch]
) -> StagedMessage:
    """Stage what a task gets: tasks 0 and 1 wait half way, the others when all is staged and Spark does not know."""
    if waiting.task < 2:
        return write(slow_input(waiting, batches))
    message = write(batches)
    waiting.over()
    waiting.wait()
    return message


def slow_input(waiting: Waiting, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand on batches, with a wait in the middle of the first."""
    for number, batch in enumerate(batches):
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        if number == 0:
            waiting.wait()
        yield batch.slice(half)
    waiting.over()

"""`commitlog` with a note of every call that reaches its readers and writers, in a file beside the root.

But for `stop`: Spark kills the reader's process when a query ends, and mostly before it comes to that.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.spark.read.batch import CommitLogReader
from pyspark_commitlog.spark.read.source_options import SourceOptions, source_options
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from pyspark_commitlog.spark.write.messages import StagedMessage
from pyspark_commitlog.spark.write.sink import CommitLogStreamWriter, CommitLogWriter
from pyspark_commitlog.spark.write.sink_options import SinkOptions

FORMAT = "commitlog-recorded"
Offsets = dict[str, list[int]]


class RecordedSource(DefaultSource):
    """`commitlog` under another name: Spark does not let go of a name that it found by itself."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def reader(self, schema: StructType) -> RecordedBatchReader:
        """Return the reader that takes notes."""
        note(self.options["path"], "reader", *sorted(self.options), *schema.names)
        return RecordedBatchReader(self.open_log, source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> RecordedBatchWriter:
        """Return the writer that takes notes."""
        note(self.options["path"], "writer", *sorted(self.options), *schema.names, overwrite)
        return RecordedBatchWriter(self.open_log, self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> RecordedReader:
        """Return the reader that takes notes."""
        note(self.options["path"], "streamReader", *sorted(self.options))
        return RecordedReader(self.open_log, source_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RecordedWriter:
        """Return the writer that takes notes."""
        note(self.options["path"], "streamWriter", overwrite)
        return RecordedWriter(self.open_log, self.options, schema, overwrite)


class Noting:
    """What reader and writer share: their notes lie beside the root."""

    _options: SourceOptions | SinkOptions

    def _note(self, *call: object) -> None:
        note(self._options.path, *call)


class RecordedReader(Noting, CommitLogStreamReader):
    """Notes each call's name and its offsets; what it answers is the reader's own."""

    def initialOffset(self) -> dict[str, Any]:
        """Note and answer."""
        answer = super().initialOffset()
        self._note("initialOffset", told(answer))
        return answer

    def prepareForTriggerAvailableNow(self) -> None:
        """Note and act."""
        self._note("prepareForTriggerAvailableNow")
        super().prepareForTriggerAvailableNow()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Note and answer."""
        answer = super().getDefaultReadLimit()
        self._note("getDefaultReadLimit", limit_of(answer))
        return answer

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Note and answer."""
        answer = super().latestOffset(start, limit)
        self._note("latestOffset", told(start), limit_of(limit), told(answer))
        return answer

    def reportLatestOffset(self) -> dict[str, Any]:
        """Note and answer."""
        answer = super().reportLatestOffset()
        self._note("reportLatestOffset", told(answer))
        return answer

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Note and answer."""
        self._note("partitions", told(start), told(end))
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Note and answer."""
        self._note("read", partition.value.topic, partition.value.partition, partition.value.start, partition.value.end)
        return super().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note and act."""
        self._note("commit", told(end))
        super().commit(end)


class RecordedWriter(Noting, CommitLogStreamWriter):
    """Notes each call's name, its task or batch, and how many messages it has; what it does is the writer's own."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Note and act."""
        context = TaskContext.get()
        assert context is not None
        self._note("write", context.partitionId())
        return super().write(iterator)

    def commit(self, messages: list[StagedMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Note and act; if a test asked for it, fail behind that."""
        self._note("commit", batchId, len(messages))
        super().commit(messages, batchId)
        if fails_next(self._options.path).exists():
            fails_next(self._options.path).unlink()
            raise CrashError("behind the commit")

    def abort(self, messages: list[StagedMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Note and act."""
        self._note("abort", batchId, len(messages))
        super().abort(messages, batchId)


class RecordedBatchReader(Noting, CommitLogReader):
    """Notes each call; what it answers is the reader's own."""

    def partitions(self) -> list[InputPartition]:
        """Note and answer."""
        self._note("partitions")
        return super().partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Note and answer."""
        of = partition.value
        self._note("read", *(() if of is None else (of.topic, of.partition, of.start, of.end)))
        return super().read(partition)


class RecordedBatchWriter(Noting, CommitLogWriter):
    """Notes each call, its task and how many messages it has; what it does is the writer's own."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Note and act."""
        context = TaskContext.get()
        assert context is not None
        self._note("write", context.partitionId(), context.getLocalProperty("sql.streaming.queryId"))
        return super().write(iterator)

    def commit(self, messages: list[StagedMessage | None]) -> None:  # type: ignore[override]
        """Note and act."""
        self._note("commit", len(messages))
        super().commit(messages)

    def abort(self, messages: list[StagedMessage | None]) -> None:  # type: ignore[override]
        """Note and act."""
        self._note("abort", len(messages))
        super().abort(messages)


class CrashError(Exception):
    """A sink gives up."""


def fails_next(root: str) -> Path:
    """Return the file that has the next commit of a writer fail after it landed."""
    return Path(f"{root}-fails-next")


def note(root: str, *call: object) -> None:
    """Write a call down."""
    descriptor = os.open(notes(root), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, json.dumps(call).encode() + b"\n")  # one write: tasks run side by side
    os.close(descriptor)


def notes(root: str) -> Path:
    """Return the file of the calls to readers and writers of a root."""
    return Path(f"{root}-calls")


def calls(root: str) -> list[list[Any]]:
    """Return the calls; those of tasks in the order of their partitions, since tasks run side by side."""
    found = [json.loads(line) for line in notes(root).read_text().splitlines()] if notes(root).exists() else []
    grouped = itertools.groupby(found, lambda call: call[0] if call[0] in ("read", "write") else None)
    return [call for name, same in grouped for call in (sorted(same) if name else same)]


def without_idle_looks(found: list[list[Any]]) -> list[list[Any]]:
    """Return the calls without the pairs of a running query that finds nothing new; it makes them until it is stopped."""
    kept: list[list[Any]] = []
    for call in found:
        if call[0] == "reportLatestOffset" and kept and kept[-1][0] == "latestOffset" and kept[-1][1] == kept[-1][3]:
            kept.pop()
        else:
            kept.append(call)
    return kept


def limit_of(limit: ReadLimit) -> int | str:
    """Return a trigger's limit in records, or that it takes all."""
    return limit.max_rows if isinstance(limit, ReadMaxRows) else "all"


def told(offset: Mapping[str, Any]) -> Offsets:
    """Return a source's offset as lists, without topic ids."""
    return {topic: [found[f"{p}"] for p in range(len(found))] for topic, found in offset.items() if topic[0] != "_"}

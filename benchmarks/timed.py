"""The source and the sink with a clock in them: `format("timed")` says what the time of its tasks went to.

Each task and commit appends a line of JSON to a file in the directory that `COMMITLOG_PARTS` names: part -> seconds
of a core. A part's time is its own: what happens in a part inside it is not counted twice. Settling is not taken apart.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.spark.read import spark_rows
from pyspark_commitlog.spark.read.batch import CommitLogReader
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.source import DefaultSource
from pyspark_commitlog.spark.write import sink
from pyspark_commitlog.spark.write.sink import CommitLogWriter, StagedMessage
from pyspark_commitlog.storage.local import local, local_files
from pyspark_commitlog.topic.read import reader
from pyspark_commitlog.topic.write import partitioner, staging

PLACE = "COMMITLOG_PARTS"
FROM_SPARK, TO_SPARK = "from Spark (socket, Arrow IPC)", "to Spark (socket, Arrow IPC)"
STEPS, COMMIT, SETTLE = "its own steps", "commit", "settle"
FILE = "create, close, rename"
#: (where, what, part)
_FUNCTIONS = [
    (staging, "prepare", "cast and check"),
    (partitioner.Partitioner, "assign", "partitions"),
    (staging, "_joined", "take, concat"),
    (untyped, "encode", "compress, to Arrow IPC"),
    (frame, "crc32c", "CRC"),
    (local_files, "crc32c", "CRC"),
    (local_files.LocalOutputFile, "write", "file write"),
    (local_files.LocalOutputFile, "close", FILE),
    (local.LocalStorage, "create", FILE),
    (os, "fsync", "fsync"),
    (sink, "settle_after_commit", SETTLE),
    (reader, "read_view", "journals"),
    (reader.PartitionReader, "_resolve", "index"),
    (local.LocalStorage, "map", "map"),
    (untyped, "decode", "decompress, from Arrow IPC"),
    (spark_rows.SparkRows, "_batch", "Spark's columns"),
]


class Parts:
    """Seconds of this process by part, as its main thread goes through them."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._open: list[str] = []
        self._thread = threading.get_ident()
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside to a part."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.process_time()
        if self._open:
            self._seconds[self._open[-1]] += now - self._since
        self._since = now

    def takes(self) -> bool:
        """Return whether a call made now is to be counted to a part of its own."""
        return bool(self._open) and self._open[-1] != SETTLE and threading.get_ident() == self._thread

    def tell(self) -> None:
        """Append what was counted to this process's file, and begin again."""
        with (Path(os.environ[PLACE]) / f"{os.getpid()}.jsonl").open("a") as out:
            out.write(json.dumps(self._seconds) + "\n")
        self._seconds.clear()


_parts: Parts | None = None


def parts() -> Parts:
    """Return this process's clock; the first call puts it into the package."""
    global _parts
    if _parts is None:
        _parts = Parts()
        for where, name, part in _FUNCTIONS:
            setattr(where, name, _counted(_parts, getattr(where, name), part))
        staging._split = _split_counted(_parts, staging._split)
    return _parts


def _counted(clock: Parts, act: Callable[..., Any], part: str) -> Callable[..., Any]:
    @wraps(act)
    def counted(*args: Any, **named: Any) -> Any:
        if not clock.takes():
            return act(*args, **named)
        with clock.part(part):
            return act(*args, **named)

    return counted


def _split_counted(clock: Parts, split: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any) -> Iterator[Any]:
        return _each(clock, split(*args), "take, concat")

    return counted


def _each(clock: Parts, items: Iterator[Any], part: str) -> Iterator[Any]:
    while True:
        with clock.part(part):
            item = next(items, None)
        if item is None:
            return
        yield item


class TimedSource(DefaultSource):
    """The data source; batch reads and writes only."""

    @classmethod
    def name(cls) -> str:
        return "timed"

    def reader(self, schema: StructType) -> CommitLogReader:
        return TimedReader(self.open_log, source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> CommitLogWriter:
        return TimedWriter(self.open_log, self.options, schema, overwrite)


class TimedReader(CommitLogReader):
    """Counts what its tasks do, and how long Spark takes for what they yield."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        clock = parts()
        with clock.part(STEPS):
            batches = super().read(partition)
        for batch in _each(clock, batches, STEPS):
            with clock.part(TO_SPARK):
                yield batch
        clock.tell()


class TimedWriter(CommitLogWriter):
    """Counts what its tasks and its commit do, and how long Spark takes for the rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        clock = parts()
        with clock.part(STEPS):
            staged = super().write(_each(clock, iterator, FROM_SPARK))
        clock.tell()
        return staged

    def commit(self, messages: list[StagedMessage | None]) -> None:  # type: ignore[override]
        clock = parts()
        with clock.part(COMMIT):
            super().commit(messages)
        clock.tell()

"""``commitlog`` with a note of every call that reaches its micro-batch reader, in a file beside the root."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.spark.options import source_options
from pyspark_commitlog.spark.stream import CommitLogStreamReader

FORMAT = "commitlog-recorded"
Offsets = dict[str, list[int]]


class RecordedSource(DefaultSource):
    """``commitlog`` under another name: Spark does not let go of a name that it found by itself."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def streamReader(self, schema: StructType) -> RecordedReader:
        """Return the reader that takes notes."""
        return RecordedReader(self, source_options(self.options), schema)


class RecordedReader(CommitLogStreamReader):
    """Notes each call's name and its offsets; what it answers is the reader's own."""

    def _note(self, *call: object) -> None:
        descriptor = os.open(notes(self._options.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, json.dumps(call).encode() + b"\n")  # one write: tasks run side by side
        os.close(descriptor)

    def initialOffset(self) -> dict[str, Any]:
        """Note and answer."""
        answer = super().initialOffset()
        self._note("initialOffset", told(answer))
        return answer

    def prepareForTriggerAvailableNow(self) -> None:
        """Note and act."""
        self._note("prepareForTriggerAvailableNow")
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Note and answer."""
        answer = super().latestOffset(start, limit)
        self._note(
            "latestOffset", told(start), limit.max_rows if isinstance(limit, ReadMaxRows) else "all", told(answer)
        )
        return answer  # fmt: skip

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


def notes(root: str) -> Path:
    """Return the file of the calls to readers of a root."""
    return Path(f"{root}-calls")


def calls(root: str) -> list[list[Any]]:
    """Return the calls; reads in the order of their partitions, since tasks run side by side."""
    found = [json.loads(line) for line in notes(root).read_text().splitlines()]
    at = 0
    while at < len(found):
        end = at
        while end < len(found) and found[end][0] == "read":
            end += 1
        found[at:end] = sorted(found[at:end])
        at = end + 1
    return found


def told(offset: Mapping[str, Any]) -> Offsets:
    """Return a source's offset as lists, without topic ids."""
    return {topic: [found[f"{p}"] for p in range(len(found))] for topic, found in offset.items() if topic[0] != "_"}

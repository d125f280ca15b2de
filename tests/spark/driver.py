"""Spark's micro-batch loop without Spark: plans and pickles as Spark does, and runs the tasks one after the other.

``test_driver.py`` holds it to what Spark does, call by call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_commitlog import DefaultSource


@dataclass
class Checkpoint:
    """What survives a restart: where each planned batch ends, as JSON text, and how many batches are over."""

    planned: list[str] = field(default_factory=list)
    over: int = 0


class Driver:
    """One run of a streaming query with ``trigger(availableNow=True)`` over a source.

    Args:
        source: the data source, with its options.
        checkpoint: of the query.
        sink: told the batch id and the rows of each micro-batch; raising stops the query, as a crash would.
    """

    def __init__(
        self, source: DefaultSource, checkpoint: Checkpoint, sink: Callable[[int, list[pa.RecordBatch]], None]
    ) -> None:
        self._schema = source.schema()
        self._reader = source.streamReader(self._schema)
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
        """Read as a task does: from copies that were sent over."""
        reader, partition = pickle.loads(pickle.dumps((self._reader, partition)))
        yield from reader.read(partition)

    @staticmethod
    def _text(offset: dict[str, Any]) -> str:
        return json.dumps(offset)

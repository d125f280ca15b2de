"""Staging of bundles: partitions, and refused records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.producer.pools import process_pools
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.producer.records.batches import ArrowBatch, Item, RecordRun, halves
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.partitioner import KeyIgnoring, Partitioner
from pyspark_commitlog.topic.write.staging import RowPlacement, Stager


class Stagers:
    """Stagers of a topic's bundles, one after the other with one partitioner."""

    def __init__(self, options: ProducerConfig) -> None:
        self._options = options
        self._partitioner: KeyIgnoring | Partitioner | None = None

    def rest(self) -> None:
        """Drop the partitioner of an idle topic."""
        self._partitioner = None

    def stager(self, topic: TopicLog, sequence: int, state: TopicState) -> Stager:
        """Return a stager at an entry's state."""
        acks_all = self._options.acks_all
        config = topic.config(state)
        paths = topic.paths(state.topic_id)
        batch_bytes = max(1, min(self._options.batch_size, config.number("batch.size")))
        partitioner = self._chooser(state.partitions, batch_bytes, topic.storage)
        return Stager(
            topic.storage, paths, state, sequence, partitioner, config,
            durable=self._options.durable, aside=process_pools.value.encoders.begin, summed=False,
            codec=self._options.compression,
            create=lambda path: topic.creates_chunks(state, acks_all=acks_all)(path),  # most sends have no chunk
        )  # fmt: skip

    def _chooser(self, partitions: int, batch_bytes: int, storage: Storage) -> KeyIgnoring | Partitioner:
        """Topic's partitioner, at a new batch.

        As Kafka's (KIP-480), it leaves a partition when the batch is closed, also by `linger`.
        """
        partitioner = self._partitioner
        if partitioner is not None:
            inner = partitioner.inner if isinstance(partitioner, KeyIgnoring) else partitioner
            inner.next_batch()
            if (inner.partitions, inner.batch_bytes) == (partitions, batch_bytes):
                return partitioner
        chosen = self._options.partitioner
        kind = "roundrobin" if chosen == "roundrobin" else "sticky"
        first = int(storage.jitter() * partitions)
        inner = Partitioner(partitions, kind, batch_bytes, first)
        self._partitioner = KeyIgnoring(inner) if chosen in ("roundrobin", "sticky") else inner
        return self._partitioner


class RefusedItemError(Exception):
    """A refused batch, or record at `row`; `is_staged`: parts of it are staged."""

    def __init__(self, error: InvalidRecordError, row: int = 0, *, is_staged: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.row, self.is_staged = error, row, is_staged


def place(
    stager: Stager, item: Item, refused: dict[int, InvalidRecordError] | None, *, checks: bool
) -> list[tuple[Item, int, RowPlacement]]:
    """Stage an item; collect refused rows, unless `refused` is None.

    Raises:
        RefusedItemError: a batch or record is refused; with `checks` rarely partly staged.
    """
    if isinstance(item, ArrowBatch):
        return _place_whole(stager, item, checks=checks)
    (batch,) = item.batches()
    return list(_placed_rows(stager, item, batch, 0, refused))


def _place_whole(stager: Stager, item: ArrowBatch, *, checks: bool) -> list[tuple[Item, int, RowPlacement]]:
    placed = list[tuple[Item, int, RowPlacement]]()
    try:
        for piece in item.pieces[1:] if checks else ():
            stager.checked(piece)
        for piece in item.pieces:
            placed.append((item, 0, stager.add(piece)))
    except InvalidRecordError as error:
        raise RefusedItemError(error, is_staged=bool(placed)) from error
    return placed


def _placed_rows(
    stager: Stager, run: RecordRun, batch: pa.RecordBatch, start: int, refused: dict[int, InvalidRecordError] | None
) -> Iterator[tuple[Item, int, RowPlacement]]:
    try:
        yield run, start, stager.add(batch)
    except InvalidRecordError as error:
        if batch.num_rows > 1:
            for half, first in halves(batch, start):
                yield from _placed_rows(stager, run, half, first, refused)
        elif refused is not None:
            refused[start] = error
        else:
            raise RefusedItemError(error, start) from error


def without_refused(item: Item, refused: Mapping[int, InvalidRecordError]) -> list[Item]:
    """Fail refused rows; return the item without them, or nothing."""
    if not isinstance(item, RecordRun):
        return [item]
    for row, error in refused.items():
        item.futures[row].set_exception(error)
    rows = [row for row in range(item.rows) if row not in refused]
    return [item.select(rows, [item.partitions[row] for row in rows])] if rows else []

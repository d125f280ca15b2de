"""Input side of a producer: record checks, lookup of accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_commitlog.config import MAX_PARTITION
from pyspark_commitlog.errors import CommitLogError, InvalidRecordError, ProducerClosedError, RootNotAvailableError
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.model import as_whole
from pyspark_commitlog.producer.accumulator import RecordAccumulator
from pyspark_commitlog.producer.buffer_pool import Buffer, interrupted
from pyspark_commitlog.producer.delivery import Delivery
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.producer.records.batch_parts import BatchPart, size_of, split_batch
from pyspark_commitlog.producer.records.batches import (
    BatchMetadata,
    Headers,
    RecordMetadata,
    as_bytes,
    as_headers,
    as_microseconds,
    as_pieces,
    as_sequence,
    bound_for,
    sizes_of,
)
from pyspark_commitlog.producer.records.bundle import ProducerIdentity
from pyspark_commitlog.producer.records.row_values import SentRecord
from pyspark_commitlog.producer.records.topic_columns import TopicColumns
from pyspark_commitlog.producer.watchdog import Watchdog
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import Deadline
from pyspark_commitlog.storage.process import process_id
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.producers import init_producer
from pyspark_commitlog.topic.write.records import MAX_COLUMN_BYTES
from pyspark_commitlog.topic.write.writers import PRODUCER, TRANSIENT

if TYPE_CHECKING:
    from pyspark_commitlog.producer.append_order import AppendOrder

_MS_US = 1000
#: Between two looks for a missing root (Kafka: retry.backoff.ms).
_RETRY_SECONDS = 0.1
_T = TypeVar("_T")


def declared_schema(producer: Gathering, topic: str) -> TopicSchema | None:
    """Return a topic's schema as its producer sees it; None if untyped. Raises as `Producer.send`."""
    return producer._opened(topic).delivery.columns.schema


class Gathering:
    """Accumulators of a producer; base of `Producer`."""

    def _start(self, storage: Storage, options: ProducerConfig, principal: str | None) -> None:
        pa.array(())  # here Arrow imports pandas: it can't while the interpreter ends, and the rest is sent
        self._storage, self._options, self._principal = storage, options, principal
        self._root = Root.on(storage, principal)
        self._roots = {storage.url: self._root}
        self._buffer = Buffer(options.buffer_memory, options.max_block_ms)
        self._accumulators: dict[str, RecordAccumulator] = {}
        self._buffer.watched = Watchdog(self._buffer, storage.clock, options, self._accumulators).start
        self._opening = RLock()  # reentrant, so that ownership is known
        self._process = process_id()
        self._choose = options.partitioner if callable(options.partitioner) else None
        self._order: AppendOrder | None = None

    def _record(
        self,
        topic: str,
        value: bytes | str | Mapping[str, Any] | None,
        key: bytes | str | None,
        headers: Headers | None,
        timestamp: int | datetime | None,
        partition: int | None,
    ) -> SentRecord:
        data = value if isinstance(value, Mapping) else as_bytes(value, "value")
        key = as_bytes(key, "key")
        size = (0 if isinstance(data, Mapping) else len(data or b"")) + len(key or b"")
        pairs = None
        if headers is not None:
            pairs = as_headers(headers)
            size += sizes_of(pairs)
        at = self._storage.clock.now_ms() * _MS_US if timestamp is None else as_microseconds(timestamp)
        return SentRecord(data, key, pairs, at, _partition_number(topic, partition), size, timestamp is not None)

    def _give(
        self, accumulator: RecordAccumulator, record: SentRecord, sequence: int | None, *, wait: bool = True
    ) -> Future[RecordMetadata] | None:
        columns = accumulator.delivery.columns
        record = columns.fit(record)
        _check_size(accumulator.topic, record.size)
        if record.partition is None and self._choose is not None:
            partition = self._chosen(columns.key(record), accumulator.delivery.partitions)
            record = record._replace(partition=partition)
        return accumulator.send(record, sequence, wait=wait)

    def _follow_columns(self, topic: str) -> None:
        """Have the newest columns of a topic checked, after a refusal by those that were known."""
        self._opened(topic).delivery.look_again(self._handle(topic).newest()[1].schema)

    def _parts(self, topic: str, batch: pa.Table | pa.RecordBatch, accumulator: RecordAccumulator) -> list[BatchPart]:
        try:
            pieces = _checked_pieces(topic, batch, accumulator.delivery.columns)
        except InvalidRecordError:
            self._follow_columns(topic)
            pieces = _checked_pieces(topic, batch, accumulator.delivery.columns)
        if self._choose is not None:
            pieces = [self._with_partitions(piece, accumulator) for piece in pieces]
        parts = split_batch(pieces, self._buffer.limit)
        for part in parts:
            self._buffer.check_fits(size_of(part.pieces), topic)
        return parts

    def _part(
        self, part: BatchPart, sequence: int | None, *, wait: bool
    ) -> Callable[[RecordAccumulator], Future[BatchMetadata] | None]:
        number = None if sequence is None else as_sequence(sequence) + part.first
        return lambda accumulator: accumulator.send_batch(part.pieces, number, wait=wait)

    async def _aopened(self, topic: str) -> RecordAccumulator:
        import asyncio

        self._check_process()
        accumulator = self._accumulators.get(topic)
        return await asyncio.to_thread(self._opened, topic) if accumulator is None else accumulator

    async def _asent(self, topic: str, give: Callable[[RecordAccumulator], Future[_T] | None]) -> Future[_T]:
        import asyncio

        from pyspark_commitlog.producer.append_order import AppendOrder

        if self._order is None:
            self._order = AppendOrder(self._buffer)
        until = asyncio.get_running_loop().time() + self._options.max_block_ms / 1000
        async with self._order.of(topic):
            while True:
                accumulator = await self._aopened(topic)
                sent = await self._order.take(partial(give, accumulator), until)
                if sent is not None:
                    return sent

    def _chosen(self, key: bytes | None, partitions: int) -> int:
        assert self._choose is not None
        partition = self._choose(key, partitions)
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < partitions:
            raise InvalidRecordError(f"the partitioner answers {partition!r}: it must answer 0 to {partitions - 1}")
        return partition

    def _with_partitions(self, piece: pa.RecordBatch, accumulator: RecordAccumulator) -> pa.RecordBatch:
        columns, partitions = accumulator.delivery.columns, accumulator.delivery.partitions
        keys, name = columns.keys(piece).to_pylist(), columns.partition
        given = piece.column(name).to_pylist() if name in piece.schema.names else [None] * piece.num_rows
        chosen = [self._chosen(k, partitions) if p is None else p for k, p in zip(keys, given, strict=True)]
        return bound_for(piece, np.array(chosen, np.int64), name)

    def _opened(self, topic: str) -> RecordAccumulator:
        """Return a topic's accumulator; the first use opens the producer's id.

        A missing root is awaited for `max_block_ms`, as Kafka awaits metadata.
        """
        self._check_process()
        accumulator = self._accumulators.get(topic)
        if accumulator is not None:
            return accumulator
        if self._opening._is_owned():  # type: ignore[attr-defined]
            raise interrupted()
        clock = self._storage.clock
        deadline = Deadline(clock, self._options.max_block_ms / 1000)
        while True:
            try:
                with self._opening:
                    return self._accumulators.get(topic) or self._open(topic)
            except RootNotAvailableError:
                if deadline.is_over:
                    raise
            clock.sleep(min(deadline.remaining(), _RETRY_SECONDS))

    def _open(self, topic: str) -> RecordAccumulator:
        self._buffer.check_open()
        handle = self._handle(topic)
        name = self._options.producer_id
        committed_sequence: int | None = None
        if name is None:
            identity = ProducerIdentity(f"{TRANSIENT}{self._storage.new_id()}")
        else:
            topic_id, row = init_producer(handle, f"{PRODUCER}{name}")
            committed_sequence = row.last
            identity = ProducerIdentity(f"{PRODUCER}{name}", row.epoch, row.last, topic_id)
        _, state = handle.newest()
        with self._buffer.lock:
            self._buffer.check_open()
            clock = self._storage.clock
            self._buffer.watched()
            allowed = partial(self._writable, topic)
            delivery = Delivery(handle, identity, state, self._options, allowed)
            self._accumulators[topic] = RecordAccumulator(
                self._storage.url, topic, delivery, self._buffer, clock, self._options, committed_sequence
            )
            return self._accumulators[topic]

    def _handle(self, topic: str) -> TopicLog:
        try:
            return self._root.topic(topic, Operation.WRITE)
        except (CommitLogError, OSError):
            fallback = self._root.find_fallback(topic)
            if fallback is None:
                raise
            return self._writable(topic, fallback)

    def _writable(self, topic: str, storage: Storage) -> TopicLog:
        """Return a topic's handle, by a root that may be another than was named; raises as `Root.topic`."""
        root = self._roots.setdefault(storage.url, Root.on(storage, self._principal))
        return root.topic(topic, Operation.WRITE)

    def _check_process(self) -> None:
        if process_id() != self._process:
            raise ProducerClosedError(
                f"this Producer belongs to process {self._process}, and this one was forked from it: make a Producer "
                "here. Nothing was sent"
            )


def _checked_pieces(topic: str, batch: pa.Table | pa.RecordBatch, columns: TopicColumns) -> list[pa.RecordBatch]:
    pieces = as_pieces(topic, batch, columns)
    columns.check_values(pieces)
    return pieces


def _check_size(topic: str, size: int) -> None:
    if size > MAX_COLUMN_BYTES:
        raise InvalidRecordError(
            f"topic {topic!r}: a record has {size} bytes: no topic takes more than {MAX_COLUMN_BYTES}"
        )


def _partition_number(topic: str, partition: int | None) -> int | None:
    number = partition if partition is None or type(partition) is int else as_whole(partition)
    if partition is not None and number is None:
        raise InvalidRecordError(f"a record's partition is {partition!r}: it takes a whole number or None")
    if number is not None and abs(number) > MAX_PARTITION:
        raise InvalidRecordError(f"topic {topic!r}: partition {number} does not exist: no topic has so many")
    return number

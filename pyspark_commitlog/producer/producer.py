"""`Producer`: appends records to topics (Kafka: `KafkaProducer`)."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import pyarrow as pa

from pyspark_commitlog.errors import InvalidRecordError, UsageError
from pyspark_commitlog.producer.accumulator import RecordAccumulator
from pyspark_commitlog.producer.gathering import Gathering
from pyspark_commitlog.producer.producer_config import ChoosePartition, ProducerConfig
from pyspark_commitlog.producer.records.batch_parts import PartFutures
from pyspark_commitlog.producer.records.batches import BatchMetadata, Headers, RecordMetadata
from pyspark_commitlog.producer.records.row_values import SentRecord
from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.clock import Deadline
from pyspark_commitlog.storage.process import at_worker_exit, process_id

log = logging.getLogger("pyspark_commitlog.producer")

_T = TypeVar("_T")
_UNSEEN = (
    "flush: readers do not see all records of topics %s yet, which are committed: that could not be stated in time. It "
    "is tried again; look whether the metadata root answers"
)
#: Producers to flush when the interpreter ends.
_open: set[Producer] = set()


class Producer(Gathering):
    """Client that appends records to the topics of a root.

    Thread-safe, but unusable in a forked child.

    Args:
        root: the root's directory or URL.
        acks: `all` or 1: an acknowledged record survives power loss. 0: it may not; its future still returns the
            offset.
        linger_ms: how long a record waits for others to share its commit.
        batch_size: bytes of a topic that are committed without lingering. Also the bytes of keyless records for one
            partition before the next one (at most the topic's `batch.size`).
        buffer_memory: bytes that may wait to be committed, over all topics.
        compression: `none`, `lz4` or `zstd`, if the topic's `compression.type` is unset or `producer`.
        partitioner: `murmur2` (by key, sticky without one), `roundrobin` or `sticky` (both ignore keys), or a
            function (key, number of partitions) -> partition. A record's own partition overrides it.
        producer_id: makes the producer durable, see `last_sequence`; exclusive to one producer.
        request_timeout_ms: duration of one try before a warning; also the bound on sending at the interpreter's end.
        delivery_timeout_ms: upper bound from `send` to completion of its future; until then transient storage errors
            are retried. Permission errors fail at once. At least `linger_ms + request_timeout_ms`.
        max_block_ms: how long `send` waits for room in the buffer, and a topic's first one for a missing root. It
            does not bound a storage call that hangs.
        metadata_max_age_ms: interval of access checks.
        principal: for access rules; None takes `COMMITLOG_PRINCIPAL`.
        storage_options: options for a URL, named as fsspec's (docs/how-to/object-stores.md).

    Raises:
        OptionError: names the option, its value and what is allowed.
    """

    def __init__(
        self,
        root: str,
        *,
        acks: str | int = "all",
        linger_ms: int = 5,
        batch_size: int = 2**20,
        buffer_memory: int = 64 * 2**20,
        compression: str | None = None,
        partitioner: str | ChoosePartition = "murmur2",
        producer_id: str | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        max_block_ms: int = 60_000,
        metadata_max_age_ms: int = 5000,
        principal: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        options = ProducerConfig(
            acks=acks,
            linger_ms=linger_ms,
            batch_size=batch_size,
            buffer_memory=buffer_memory,
            compression=compression,
            partitioner=partitioner,
            producer_id=producer_id,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_block_ms=max_block_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        ).check()
        self._start(open_storage(root, storage_options), options, principal)

    @classmethod
    def on(cls, storage: Storage, options: ProducerConfig, principal: str | None = None) -> Producer:
        """Return a producer on an open storage, as tests inject."""
        producer = cls.__new__(cls)
        producer._start(storage, options.check(), principal)
        return producer

    def _start(self, storage: Storage, options: ProducerConfig, principal: str | None) -> None:
        super()._start(storage, options, principal)
        _open.add(self)
        at_worker_exit(_flush_all)

    def __repr__(self) -> str:
        return f"Producer({self._storage.url!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self} can't be pickled or copied: its threads and records belong to this process. Make a Producer in "
            "the function that Spark or multiprocessing calls, as foreachPartition's: with Producer(…) as producer: …"
        )

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    # --- sending -----------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | str | Mapping[str, Any] | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        *,
        sequence: int | None = None,
    ) -> Future[RecordMetadata]:
        """Queue a record to be committed together with others.

        Args:
            topic: topic name.
            value: bytes, or text encoded as UTF-8; None is a tombstone. Of a typed topic a dict: column -> value. One
                that is missing is null.
            key: bytes or text; None for none, and of a typed topic, whose key is a column.
            headers: names and values.
            timestamp: milliseconds since 1970, or a datetime with a time zone; None for now. Not if a column is the
                timestamp.
            partition: partition number; None lets the partitioner choose.
            sequence: with `producer_id`, the record's ascending number in the application's input. A record that
                landed already (`last_sequence`) is skipped. None: the next number.

        Returns:
            A future of the record's partition and offset. It fails with `InvalidRecordError` if the topic refuses the
            record; a producer with `producer_id` then sends nothing after it.

        Raises:
            UnknownTopicError: the topic does not exist.
            RootNotAvailableError: at a topic's first record, the root was missing for `max_block_ms`.
            InvalidRecordError: a value has the wrong type, or more than 2 GiB, or does not fit its column.
            BufferExhaustedError: no room for `max_block_ms`; nothing was taken.
            ProducerClosedError: the producer is closed, or another process'.
            UsageError: a signal's handler, finalizer or logging handler interrupted a call of this producer: set a flag
                there.
            WriterFencedError, NotSentError: a producer with `producer_id` has ended, see `last_sequence`.
        """
        accumulator = self._opened(topic)
        record = self._record(topic, value, key, headers, timestamp, partition)
        try:
            return self._give_until_taken(accumulator, record, sequence)
        except InvalidRecordError:
            self._follow_columns(topic)
            return self._give_until_taken(accumulator, record, sequence)

    def _give_until_taken(
        self, accumulator: RecordAccumulator, record: SentRecord, sequence: int | None
    ) -> Future[RecordMetadata]:
        while (sent := self._give(accumulator, record, sequence)) is None:
            accumulator = self._opened(accumulator.topic)  # retired just now
        return sent

    async def asend(
        self,
        topic: str,
        value: bytes | str | Mapping[str, Any] | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        *,
        sequence: int | None = None,
    ) -> RecordMetadata:
        """Send a record and await its commit, without blocking the event loop.

        Records of a topic are sent in call order, including those that wait for room. Cancelling a task sends nothing
        while its record waits for room; later, the record is sent.

        Returns:
            The record's partition and offset.

        Raises:
            InvalidRecordError, DeliveryTimeoutError, OutcomeUnknownError, KafkaStorageError: as the future of `send`;
                also as `send` itself.
        """
        import asyncio

        record = self._record(topic, value, key, headers, timestamp, partition)
        give = partial(self._give, record=record, sequence=sequence, wait=False)
        try:
            sent = await self._asent(topic, give)
        except InvalidRecordError:
            await asyncio.to_thread(self._follow_columns, topic)
            sent = await self._asent(topic, give)
        return await _outcome(sent)

    def send_batch(
        self, topic: str, batch: pa.Table | pa.RecordBatch, *, sequence: int | None = None
    ) -> Future[BatchMetadata]:
        """Send an Arrow batch, visible atomically unless larger than `buffer_memory`.

        A larger one is committed in consecutive parts while this call waits for room, at most `max_block_ms` for
        each. After a part that fails or finds no room, no other is sent; earlier ones proceed.

        Args:
            topic: topic name.
            batch: columns `value` (string or binary), and optionally `key`, `headers`, `timestamp`,
                `partition`; of a typed topic the declared ones, and optionally `_headers`, `_timestamp`,
                `_partition_id`. Must not be changed until the future is done.
            sequence: number of its first record, see `send`; the others follow. Records that landed already are
                skipped.

        Returns:
            A future of the offsets, per partition from the first to one after the last; for a batch in parts, other
            records may lie between. It fails with `InvalidRecordError` if the topic refuses a record: nothing of the
            batch, or part, was sent. It fails with `BufferExhaustedError` if a later part found no room, which ends a
            producer with `producer_id`, see `last_sequence`.

        Raises:
            InvalidRecordError: names the column, its type and what is allowed; nothing was taken.
            BufferExhaustedError: no room for `max_block_ms`, or a record exceeds `buffer_memory`; nothing was
                taken.
            UnknownTopicError, ProducerClosedError, WriterFencedError, NotSentError: as `send`.
        """
        whole = PartFutures(topic)
        for part in self._parts(topic, batch, self._opened(topic)):
            give = self._part(part, sequence, wait=True)
            try:
                while (sent := give(self._opened(topic))) is None:
                    pass
            except BaseException as error:  # Ctrl-C, too: a part may be sent
                if not self._goes_on(topic, whole, error):
                    raise
                return whole.future
            if part.is_all:
                return sent
            whole.add(sent)
            if whole.has_failed:
                break
        whole.end()
        return whole.future

    async def asend_batch(
        self, topic: str, batch: pa.Table | pa.RecordBatch, *, sequence: int | None = None
    ) -> BatchMetadata:
        """Send an Arrow batch and await its commit without blocking the loop.

        A cancelled task sends no further part.

        Raises:
            CommitLogError: as `send_batch`, or as its future.
        """
        import asyncio

        accumulator = await self._aopened(topic)
        whole = PartFutures(topic)
        for part in await asyncio.to_thread(self._parts, topic, batch, accumulator):
            try:
                whole.add(await self._asent(topic, self._part(part, sequence, wait=False)))
            except BaseException as error:  # a cancelled task, too: a part may be sent
                if not self._goes_on(topic, whole, error):
                    raise
                return await _outcome(whole.future)
            if whole.has_failed:
                break
        whole.end()
        return await _outcome(whole.future)

    def _goes_on(self, topic: str, whole: PartFutures, error: BaseException) -> bool:
        """End a batch in parts after an error; False raises it."""
        if whole.has_begun:
            self._accumulators[topic].lacks(error)
        if not whole.has_begun or not isinstance(error, Exception):
            return False
        whole.end(error)
        return True

    def last_sequence(self, topic: str) -> int:
        """Return this `producer_id`'s last committed sequence in a topic, or -1.

        Records of this producer count once they are acknowledged. Asking, or sending, opens the id in the topic and
        fences its former producer, whose commits raise `WriterFencedError`: so the result is final, to continue
        after. A producer ends with the first record that can't be sent, so no number below is missing.

        Raises:
            UsageError: this producer has no `producer_id`.
            UnknownTopicError: the topic does not exist.
        """
        last = self._opened(topic).last_sequence
        if last is None:
            raise UsageError("last_sequence needs a Producer with a producer_id")
        return last

    # --- ending ------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> int:
        """Commit without lingering, and wait until readers see the records.

        With replicas a record may become visible some 20 ms after its acknowledgement, or once the metadata root
        answers: this waits until the timeout and then logs a warning. The record is not lost; making it visible is
        retried.

        Args:
            timeout: seconds; None: no limit for futures, then at most `request_timeout_ms` for readers.

        Returns:
            The number of records still in flight: 0 unless it timed out. Futures hold the errors.

        Raises:
            UsageError: this is a future's callback; or a signal's handler, finalizer or logging handler that
                interrupted this producer.
        """
        self._check_process()
        self._buffer.check_may_wait()
        clock = self._storage.clock
        deadline = Deadline(clock, timeout)
        with self._buffer.lock:
            waiting = [(accumulator, accumulator.flush()) for accumulator in self._accumulators.values()]

            def count_pending() -> int:
                return sum(accumulator.count_pending(target) for accumulator, target in waiting)

            self._buffer.wait_for(self._buffer.progress, lambda: not count_pending(), timeout)
            under_way = count_pending()
        if timeout is None:
            deadline = Deadline(clock, self._options.request_timeout_ms / 1000)
        shown = {each.topic: each.delivery.watermark.flush(deadline.remaining()) for each, _ in waiting}
        unseen = [repr(topic) for topic, seen in shown.items() if not seen]
        if unseen and not under_way:
            log.warning(_UNSEEN, ", ".join(unseen))
        return under_way

    async def aflush(self, timeout: float | None = None) -> int:
        """Flush as `flush`, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, settle what is due for at most `delivery_timeout_ms`, and end; idempotent.

        Args:
            timeout: seconds; None: no limit. Records not in flight by then fail with `ProducerClosedError`; a warning
                has their number.
        """
        if self._buffer.closed or process_id() != self._process:  # a forked child has nothing to send
            return
        clock = self._storage.clock
        deadline = Deadline(clock, timeout)
        left = self.flush(timeout)
        with self._buffer.lock:
            self._buffer.closed = True
            accumulators = list(self._accumulators.values())
            given_up = [accumulator.abandon() for accumulator in accumulators if left]
            self._buffer.wake()
        try:
            for fail in given_up:
                fail()
            if not left:
                settled = Deadline(clock, self._options.delivery_timeout_ms / 1000)
                for accumulator in accumulators:
                    accumulator.join(min(deadline.remaining(), settled.remaining()))
        finally:
            _open.discard(self)

    def _end(self) -> None:
        self.close(self._options.request_timeout_ms / 1000)

    def _flush_at_exit(self) -> None:
        if self._process == process_id() and self.flush(self._options.request_timeout_ms / 1000):
            self.close(0)  # a warning has the number of unsent records


async def _outcome(sent: Future[_T]) -> _T:
    import asyncio

    return await asyncio.wrap_future(sent)


@atexit.register
def _end_all() -> None:
    for producer in list(_open):
        producer._end()


def _flush_all() -> None:
    for producer in list(_open):
        producer._flush_at_exit()

"""``Producer``: appends records to topics, from any Python program (Kafka: ``KafkaProducer``)."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import NoReturn, Self, TypeVar

import pyarrow as pa

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.producer.batch_parts import PartFutures
from pyspark_commitlog.producer.batches import BatchMetadata, Headers, RecordMetadata
from pyspark_commitlog.producer.gathering import Gathering
from pyspark_commitlog.producer.producer_config import ChoosePartition, ProducerConfig
from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.process import at_worker_exit, process_id

log = logging.getLogger("pyspark_commitlog.producer")

_T = TypeVar("_T")
_UNSEEN = (
    "flush: readers do not see all records of topics %s yet, which are committed: that could not be stated in time. It "
    "is tried again; look whether the metadata root answers"
)
#: Producers that were not closed: what they were given is sent when the interpreter ends.
_open: set[Producer] = set()


class Producer(Gathering):
    """Appends records to the topics of a root. Safe for use by several threads; not by a forked child.

    Args:
        root: the root's directory or URL.
        acks: ``all`` or 1: a record that was acknowledged survives power loss. 0: it may not; its
            future returns the offset all the same.
        linger_ms: how long a record waits for others to share its commit.
        batch_size: bytes of a topic that are committed without lingering; and of records without key, those that go to
            one partition before the next one has its turn (at most the topic's ``batch.size``).
        buffer_memory: bytes that may wait to be committed, over all topics.
        compression: ``none``, ``lz4`` or ``zstd``, where the topic's ``compression.type`` is not set, or ``producer``.
        partitioner: ``murmur2`` (by key, sticky without one), ``roundrobin`` or ``sticky`` (both whatever the key), or
            a function (key, number of partitions) -> partition. A record's own partition comes before all of them.
        producer_id: makes the producer durable, see ``last_sequence``; one producer at a time can have it.
        request_timeout_ms: how long one try may take before a warning says that storage does not answer; and how long
            the interpreter's end waits for what was sent.
        delivery_timeout_ms: upper bound from ``send`` to completion of its future; transient storage errors are retried
            until then (what the system refuses this user fails at once), and what storage has not answered by then
            fails. At least ``linger_ms + request_timeout_ms``.
        max_block_ms: how long ``send`` waits for room in the buffer; and the first one to a topic for a root that
            was there and is not. It does not bound a look-up that storage does not answer.
        metadata_max_age_ms: how often access rules are asked again.
        principal: in whose name to write, where the root has access rules; None for what ``COMMITLOG_PRINCIPAL`` says.
        storage_options: for a URL, under the names of fsspec's filesystems (docs/how-to/object-stores.md).

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
        """Return a producer on an open storage (tests inject clocks and faults this way)."""
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
        """Refuse to be copied, as Spark and ``multiprocessing`` do with all that a function they call refers to."""
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
        """As ``__exit__``, without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self.close)

    # --- sending -----------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        *,
        sequence: int | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record; it is gathered, and committed together with others.

        Args:
            topic: its name.
            value: text is sent as UTF-8; None is a tombstone.
            key: as ``value``; None for a record without one.
            headers: names and values.
            timestamp: milliseconds since 1970, or a datetime with a time zone; None for now.
            partition: its number; None for the partitioner to choose.
            sequence: the record's number in the application's input, for a producer with ``producer_id``: above that
                of the record before. One that landed already (``last_sequence``) is not sent again. None: the next.

        Returns:
            A future of the record's partition and offset. It fails with ``InvalidRecordError`` when the topic refuses
            the record: alone, unless the producer has a ``producer_id``, which sends nothing after it.

        Raises:
            UnknownTopicError: there is no such topic.
            RootNotAvailableError: it is the first one to this topic, and the root was away for ``max_block_ms``.
            InvalidRecordError: a value of the wrong type, or more than 2 GiB.
            BufferExhaustedError: no room for ``max_block_ms``; nothing was taken.
            ProducerClosedError: closed, or another process'.
            UsageError: this is a signal's handler, a finalizer or a logging handler that interrupted a call of this
                producer: set a flag there.
            WriterFencedError, NotSentError: a producer with ``producer_id`` that has ended, see ``last_sequence``.
        """
        accumulator = self._opened(topic)
        record = self._record(topic, value, key, headers, timestamp, partition)
        while (sent := self._give(accumulator, record, sequence)) is None:
            accumulator = self._opened(topic)  # not used for a while, and let go of just now
        return sent

    async def asend(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        *,
        sequence: int | None = None,
    ) -> RecordMetadata:
        """Send a record as ``send`` does and wait until it is committed, without blocking the event loop.

        Records of a topic are sent in the order of the calls, those that wait for room included. A task that is
        cancelled while its record waits for room has sent nothing; later, the record is sent all the same.

        Returns:
            The record's partition and offset.

        Raises:
            InvalidRecordError, DeliveryTimeoutError, OutcomeUnknownError, KafkaStorageError: what the future of
                ``send`` fails with; and what ``send`` raises.
        """
        record = self._record(topic, value, key, headers, timestamp, partition)
        sent = await self._asent(topic, lambda accumulator: self._give(accumulator, record, sequence, wait=False))
        return await _outcome(sent)

    def send_batch(
        self, topic: str, batch: pa.Table | pa.RecordBatch, *, sequence: int | None = None
    ) -> Future[BatchMetadata]:
        """Send an Arrow batch; it becomes visible as a whole, unless it is larger than ``buffer_memory``.

        A larger one is cut into parts, which are committed one after the other while this call waits for room, at
        most ``max_block_ms`` for each, so memory stays bounded. Where one fails or finds no room no further one is
        taken; those that were go on.

        Args:
            topic: its name.
            batch: columns ``value`` (string or binary), and if you like ``key``, ``headers``, ``timestamp``,
                ``partition``. Must not be changed until the future is done.
            sequence: the number of its first record, see ``send``; the others follow. Those that landed already are
                not sent again.

        Returns:
            A future of the offsets; of a batch that was cut, when all parts are done, from the first offset of each
            partition to that after the last: records of others may lie between. It fails with
            ``InvalidRecordError``, and nothing was sent (of a batch that was cut: nothing of that part), when the
            topic refuses one of the records; with ``BufferExhaustedError`` when a part but the first found no room: a
            producer with a ``producer_id`` ends then, see ``last_sequence``.

        Raises:
            InvalidRecordError: names the column, its type and what is allowed.
            BufferExhaustedError: no room for ``max_block_ms``, or a record is more than ``buffer_memory``; nothing was
                taken.
            UnknownTopicError, ProducerClosedError, WriterFencedError, NotSentError: as ``send``.
        """
        whole = PartFutures(topic)
        for part in self._parts(topic, batch, self._opened(topic)):
            give = self._part(part, sequence, wait=True)
            try:
                while (sent := give(self._opened(topic))) is None:
                    pass
            except BaseException as error:
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
        """Send an Arrow batch as ``send_batch`` does and wait until it is committed, without blocking the event loop.

        A task that is cancelled sends no further part of a batch that was cut.

        Raises:
            What ``send_batch`` raises, and what its future fails with.
        """
        import asyncio

        accumulator = await self._aopened(topic)
        whole = PartFutures(topic)
        for part in await asyncio.to_thread(self._parts, topic, batch, accumulator):
            try:
                whole.add(await self._asent(topic, self._part(part, sequence, wait=False)))
            except BaseException as error:
                if not self._goes_on(topic, whole, error):
                    raise
                return await _outcome(whole.future)
            if whole.has_failed:
                break
        whole.end()
        return await _outcome(whole.future)

    def _goes_on(self, topic: str, whole: PartFutures, error: BaseException) -> bool:
        """End a batch of which a part can't be sent; return False where nothing was, or the caller was interrupted."""
        if whole.has_begun:
            self._accumulators[topic].lacks(error)
        if not whole.has_begun or not isinstance(error, Exception):
            return False
        whole.end(error)
        return True

    def last_sequence(self, topic: str) -> int:
        """Return up to which sequence number the records of this ``producer_id`` are in a topic; -1 for none.

        Those of this producer count when they are acknowledged.

        Asking, or sending, opens the id in the topic: a producer that had it before is fenced from then on, its
        commits end in ``WriterFencedError``. So what this returns is final: go on sending after it. A producer ends
        with the first record that can't be sent: nothing after it is, so that no number below this one is missing.

        Raises:
            UsageError: this producer has no ``producer_id``.
            UnknownTopicError: there is no such topic.
        """
        last = self._opened(topic).last_sequence
        if last is None:
            raise UsageError("last_sequence needs a Producer with a producer_id")
        return last

    # --- ending ------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all that was sent before is committed or has failed, and readers see it; nothing lingers.

        On a log with replicas a record that was acknowledged alone may be seen some 20 ms later. While the metadata
        root does not answer, readers don't see it: this waits for it until the time is up, and logs a warning then.
        The record is not lost; that readers see it is tried on.

        Args:
            timeout: seconds; None for as long as it takes until futures are done, and then at most
                ``request_timeout_ms`` until readers see the records.

        Returns:
            How many records are still under way: 0 but for a timeout. Futures hold what failed.

        Raises:
            UsageError: this is a callback of a future; or a signal's handler, a finalizer or a logging handler that
                interrupted this producer.
        """
        self._check_process()
        self._buffer.check_may_wait()
        clock = self._storage.clock
        began = clock.monotonic()
        with self._buffer.lock:
            waiting = [(accumulator, accumulator.flush()) for accumulator in self._accumulators.values()]

            def count_pending() -> int:
                return sum(accumulator.count_pending(target) for accumulator, target in waiting)

            self._buffer.wait_for(self._buffer.progress, lambda: not count_pending(), timeout)
            under_way = count_pending()
        until = began + timeout if timeout is not None else clock.monotonic() + self._options.request_timeout_ms / 1000
        shown = {each.topic: each.show(max(0.0, until - clock.monotonic())) for each, _ in waiting}
        unseen = [repr(topic) for topic, seen in shown.items() if not seen]
        if unseen and not under_way:
            log.warning(_UNSEEN, ", ".join(unseen))
        return under_way

    async def aflush(self, timeout: float | None = None) -> int:
        """Do as ``flush`` without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Send what was sent, then settle what is due for at most ``delivery_timeout_ms``, and end; twice is once.

        Args:
            timeout: seconds. Records that are not under way by then fail with ``ProducerClosedError``, and a warning
                says how many.
        """
        if self._buffer.closed or process_id() != self._process:  # a forked child has nothing to send
            return
        clock = self._storage.clock
        until = None if timeout is None else clock.monotonic() + timeout
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
                settled = clock.monotonic() + self._options.delivery_timeout_ms / 1000
                until = settled if until is None else min(until, settled)
                for accumulator in accumulators:
                    accumulator.join(max(0.0, until - clock.monotonic()))
        finally:
            _open.discard(self)

    def _end(self) -> None:
        """Send what is left when the interpreter ends."""
        self.close(self._options.request_timeout_ms / 1000)

    def _flush_at_exit(self) -> None:
        """Send what is left when a worker ends; its other threads may still send."""
        if self._process == process_id() and self.flush(self._options.request_timeout_ms / 1000):
            self.close(0)  # a warning says what was not sent


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

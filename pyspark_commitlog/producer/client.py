"""``Producer``: appends records to topics, from any Python program (Kafka: ``KafkaProducer``)."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from threading import Lock
from types import TracebackType

import pyarrow as pa

from pyspark_commitlog.access import Operation
from pyspark_commitlog.commit_log import CommitLog
from pyspark_commitlog.config import MAX_PARTITION
from pyspark_commitlog.errors import InvalidRecordError, ProducerClosedError, UsageError
from pyspark_commitlog.log.write.producers import init_producer
from pyspark_commitlog.log.write.records import narrowed
from pyspark_commitlog.log.write.writers import PRODUCER, TRANSIENT
from pyspark_commitlog.producer.buffer import Buffer
from pyspark_commitlog.producer.delivery import Delivery, Identity
from pyspark_commitlog.producer.options import ChoosePartition, ProducerOptions
from pyspark_commitlog.producer.records import (
    BatchMetadata,
    Headers,
    RecordMetadata,
    as_bytes,
    as_headers,
    as_microseconds,
    as_pieces,
    sizes_of,
)
from pyspark_commitlog.producer.sender import Sender
from pyspark_commitlog.producer.watchdog import Watchdog
from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.process import process_id

log = logging.getLogger("pyspark_commitlog.producer")

_MS_US = 1000
#: Producers that were not closed: what they were given is sent when the interpreter ends.
_open: set[Producer] = set()


class Producer:
    """Appends records to the topics of a root. Safe for use by several threads; not by a forked child.

    Args:
        root: the root's directory or URL.
        acks: ``all`` or 1: a record that was acknowledged survives power loss. 0: it may not, the offset is told
            all the same.
        linger_ms: how long a record waits for others to share its commit.
        batch_size: bytes of a topic that are committed without lingering; and of records without key, those that go to
            one partition before the next one has its turn (at most the topic's ``batch.size``).
        buffer_memory: bytes that may wait to be committed, over all topics.
        compression: ``none``, ``lz4`` or ``zstd``; None: the topic's ``compression.type``.
        partitioner: ``murmur2`` (by key, sticky without one), ``roundrobin`` or ``sticky`` (both whatever the key), or
            a function (key, number of partitions) -> partition. A record's own partition comes before all of them.
        producer_id: makes the producer durable, see ``last_sequence``; one producer at a time can have it.
        request_timeout_ms: how long one try may take before storage counts as silent, and a warning says so; and how
            long the interpreter's end waits for what was sent.
        delivery_timeout_ms: how long until a record's future is done, from ``send`` on: storage trouble is tried again
            so long (not what the system refuses this user: that fails at once), and what a silent storage has not
            answered for by then fails; at least ``linger_ms + request_timeout_ms``.
        max_block_ms: how long ``send`` waits for room in the buffer.
        principal: who writes, where the root has access rules; None for what ``COMMITLOG_PRINCIPAL`` says.
        storage_options: for the fsspec filesystem.

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
        principal: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        options = ProducerOptions(
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
        ).check()
        self._start(open_storage(str(root), storage_options), options, principal)

    @classmethod
    def on(cls, storage: Storage, options: ProducerOptions, principal: str | None = None) -> Producer:
        """Return a producer on an open storage (tests inject clocks and faults this way)."""
        producer = cls.__new__(cls)
        producer._start(storage, options.check(), principal)
        return producer

    def _start(self, storage: Storage, options: ProducerOptions, principal: str | None) -> None:
        self._storage, self._options = storage, options
        self._log = CommitLog.on(storage, principal)
        self._buffer = Buffer(options.buffer_memory, options.max_block_ms)
        self._senders: dict[str, Sender] = {}
        self._buffer.watched = Watchdog(self._buffer, storage.clock, options, self._senders).start
        self._opening = Lock()
        self._process = process_id()
        self._choose = options.partitioner if callable(options.partitioner) else None
        _open.add(self)

    def __repr__(self) -> str:
        return f"Producer({self._storage.url!r})"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
            A future of the record's partition and offset. It fails, alone, with ``InvalidRecordError`` when the topic
            refuses the record.

        Raises:
            UnknownTopicError: there is no such topic.
            InvalidRecordError: a value of the wrong type.
            BufferExhaustedError: no room for ``max_block_ms``; nothing was taken.
            ProducerClosedError: closed, or another process'.
            WriterFencedError, NotSentError: a producer with ``producer_id`` that has ended, see ``last_sequence``.
        """
        sender = self._sender(topic)
        value, key = as_bytes(value, "value"), as_bytes(key, "key")
        size = len(value or b"") + len(key or b"")
        pairs = None
        if headers is not None:
            pairs = as_headers(headers)
            size += sizes_of(pairs)
        at = self._storage.clock.now_ms() * _MS_US if timestamp is None else as_microseconds(timestamp)
        if partition is None:
            if self._choose is not None:
                partition = self._chosen(key, sender.partitions)
        elif isinstance(partition, bool) or not isinstance(partition, int):
            raise InvalidRecordError(f"a record's partition is {partition!r}: it takes a whole number or None")
        elif abs(partition) > MAX_PARTITION:
            raise InvalidRecordError(f"topic {topic!r}: partition {partition} does not exist: no topic has so many")
        while (sent := sender.send(value, key, pairs, at, partition, size, sequence)) is None:
            sender = self._sender(topic)  # not used for a while, and let go of just now
        return sent

    def send_batch(
        self, topic: str, batch: pa.Table | pa.RecordBatch, *, sequence: int | None = None
    ) -> Future[BatchMetadata]:
        """Send an Arrow batch; it becomes visible as a whole.

        Args:
            topic: its name.
            batch: columns ``value`` (string or binary), and if you like ``key``, ``headers``, ``timestamp``,
                ``partition``. Must not be changed until the future is done.
            sequence: the number of its first record, see ``send``; the others follow. Those that landed already are
                not sent again.

        Returns:
            A future of the offsets. It fails with ``InvalidRecordError``, and nothing was sent, when the topic refuses
            one of the records.

        Raises:
            InvalidRecordError: names the column, its type and what is allowed.
            BufferExhaustedError: no room for ``max_block_ms``, or more than ``buffer_memory``; nothing was taken.
            UnknownTopicError, ProducerClosedError, WriterFencedError, NotSentError: as ``send``.
        """
        sender = self._sender(topic)
        pieces = as_pieces(topic, batch)
        if self._choose is not None:
            pieces = [self._with_partitions(topic, piece, sender.partitions) for piece in pieces]
        while (sent := sender.send_batch(pieces, sequence)) is None:
            sender = self._sender(topic)
        return sent

    def last_sequence(self, topic: str) -> int:
        """Return up to which sequence number the records of this ``producer_id`` are in a topic; -1 for none.

        Asking, or sending, opens the id in the topic: a producer that had it before is fenced from then on, its
        commits end in ``WriterFencedError``. So what this returns is final: go on sending behind it.

        Raises:
            UsageError: this producer has no ``producer_id``.
            UnknownTopicError: there is no such topic.
        """
        landed = self._sender(topic).landed
        if landed is None:
            raise UsageError("last_sequence needs a Producer with a producer_id")
        return landed

    def _chosen(self, key: bytes | None, partitions: int) -> int:
        assert self._choose is not None
        found = self._choose(key, partitions)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < partitions:
            raise InvalidRecordError(f"the partitioner answers {found!r}: it must answer 0 to {partitions - 1}")
        return found

    def _with_partitions(self, topic: str, piece: pa.RecordBatch, partitions: int) -> pa.RecordBatch:
        """Return a batch whose rows have the partition that the application's function chooses."""
        names = piece.schema.names
        keys = [None] * piece.num_rows
        if "key" in names:
            keys = narrowed("key", piece.column("key"), pa.binary(), topic).to_pylist()
        given = piece.column("partition").to_pylist() if "partition" in names else [None] * piece.num_rows
        chosen = [self._chosen(k, partitions) if p is None else p for k, p in zip(keys, given, strict=True)]
        kept = piece.drop_columns(["partition"]) if "partition" in names else piece
        return kept.append_column("partition", pa.array(chosen, pa.int64()))

    def _sender(self, topic: str) -> Sender:
        """Return a topic's sender; the first use of a topic looks it up and opens the producer's id there."""
        self._check_process()
        found = self._senders.get(topic)
        if found is not None:
            return found
        with self._opening:
            return self._senders.get(topic) or self._open(topic)

    def _open(self, topic: str) -> Sender:
        self._buffer.check_open()
        handle = self._log.topic(topic, Operation.WRITE)
        name = self._options.producer_id
        landed: int | None = None
        if name is None:
            identity = Identity(f"{TRANSIENT}{self._storage.new_id()}")
        else:
            topic_id, row = init_producer(handle, f"{PRODUCER}{name}")
            identity, landed = Identity(f"{PRODUCER}{name}", row.epoch, row.last, topic_id), row.last
        _, state = handle.newest()
        with self._buffer.lock:
            self._buffer.check_open()
            clock = self._storage.clock
            self._buffer.watched()
            delivery = Delivery(handle, identity, state.partitions, self._options)
            self._senders[topic] = Sender(
                self._storage.url, topic, delivery, self._buffer, clock, self._options, landed
            )
            return self._senders[topic]

    def _check_process(self) -> None:
        if process_id() != self._process:
            raise ProducerClosedError(
                f"this Producer belongs to process {self._process}, and this one was forked from it: make a Producer "
                "here. Nothing was sent"
            )

    # --- ending ------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all that was sent before is committed or has failed; nothing lingers.

        Args:
            timeout: seconds; None for as long as it takes.

        Returns:
            How many records are still under way: 0 but for a timeout. Futures tell what failed.
        """
        self._check_process()
        self._buffer.check_may_wait()
        with self._buffer.lock:
            waiting = [(sender, sender.flush()) for sender in self._senders.values()]

            def left() -> int:
                return sum(sender.left(target) for sender, target in waiting)

            self._buffer.progress.wait_for(lambda: not left(), timeout)
            return left()

    def close(self, timeout: float | None = None) -> None:
        """Send what was sent, then settle what is due for at most ``delivery_timeout_ms``, and end; twice is once.

        Args:
            timeout: seconds. Records that are not under way by then fail with ``ProducerClosedError``, and a warning
                tells how many.
        """
        if self._buffer.closed or process_id() != self._process:  # a forked child has nothing to send
            return
        clock = self._storage.clock
        until = None if timeout is None else clock.monotonic() + timeout
        left = self.flush(timeout)
        with self._buffer.lock:
            self._buffer.closed = True
            senders = list(self._senders.values())
            given_up = [sender.abandon() for sender in senders if left]
            self._buffer.room.notify_all()
        try:
            for fail in given_up:
                fail()
            if not left:
                settled = clock.monotonic() + self._options.delivery_timeout_ms / 1000
                until = settled if until is None else min(until, settled)
                for sender in senders:
                    sender.join(max(0.0, until - clock.monotonic()))
        finally:
            _open.discard(self)

    def _end(self) -> None:
        """Send what is left when the interpreter ends."""
        self.close(self._options.request_timeout_ms / 1000)


@atexit.register
def _end_all() -> None:
    for producer in list(_open):
        producer._end()

"""Queue of one topic's records (Kafka: `RecordAccumulator`).

Records gather during a commit, so commits grow with the load. A job of the process' pool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import takewhile

import pyarrow as pa

from pyspark_commitlog.errors import CommitLogError, NotSentError, ProducerClosedError, UsageError
from pyspark_commitlog.producer.buffer_pool import Buffer
from pyspark_commitlog.producer.delivery import Delivery
from pyspark_commitlog.producer.pools import process_pools
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.producer.records.batch_parts import size_of, skip_rows
from pyspark_commitlog.producer.records.batches import (
    RECORD_BYTES,
    UNKNOWN,
    ArrowBatch,
    BatchMetadata,
    Item,
    RecordMetadata,
    SentFuture,
    as_sequence,
    fail_all,
)
from pyspark_commitlog.producer.records.delivery_errors import after_failure, overdue_error
from pyspark_commitlog.producer.records.record_queue import QueueMark, RecordQueue
from pyspark_commitlog.producer.records.row_values import SentRecord
from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.clock import Deadline
from pyspark_commitlog.text import counted

log = logging.getLogger("pyspark_commitlog.producer")

#: Maximum bytes of one commit, so that others can gather meanwhile.
COMMIT_BYTES = 32 * 2**20
#: Time that a callback may keep a thread of the pool before another one replaces it, seconds.
_CALLBACK_SECONDS = 1.0
#: Grace period for records that wait for a thread after their deadline, seconds.
_PATIENCE_SECONDS = 1.0
#: Idle seconds after which an accumulator drops its caches, and then itself.
REST_SECONDS, RETIRE_SECONDS = 10.0, 60.0
_SILENT = "topic %r: storage has not answered for request_timeout_ms=%d: records wait for it"
_CLOSED = "topic %r: the producer was closed before sending %s; under way: %s"

_CALLBACK = "a callback of a future has not returned"
_HELD = "topic %r: a callback of a future has kept others of its records waiting for %.1f s: callbacks must not wait"


class RecordAccumulator:
    """Queue and state of one topic's records, guarded by the buffer's lock.

    `delivery`: its writer. `retired`: takes no more records and may be replaced. `committed_sequence`: last sequence of
    a durable producer at its opening, or None. No `root` gets all threads.
    """

    def __init__(
        self,
        root: object,
        topic: str,
        delivery: Delivery,
        buffer: Buffer,
        clock: Clock,
        options: ProducerConfig,
        committed_sequence: int | None,
    ) -> None:
        self.root = root
        self.topic, self.delivery, self._buffer, self._clock = topic, delivery, buffer, clock
        self._linger, self._batch_bytes = options.linger_ms / 1000, options.batch_size
        self.committed_sequence = committed_sequence
        self._delivery_timeout = options.delivery_timeout_ms / 1000
        self._request_timeout = options.request_timeout_ms / 1000
        self._queue = RecordQueue(topic, committed_sequence, options.together_seconds)
        self._under_way: list[Item] = []
        self._paused = False
        self._silent: float | None = None
        self._held: float | None = None
        self._done = self._flush_to = 0
        self._abandoned = self.retired = self._rested = False
        self._lacking: CommitLogError | None = None
        self._taking = 0
        self._used = clock.monotonic()
        self._pool = process_pools.value.senders

    @property
    def last_sequence(self) -> int | None:
        """A durable producer's last committed sequence, else None."""
        return None if self.committed_sequence is None else self.delivery.last_sequence

    # --- appending ---------------------------------------------------------------------------------------

    def send(self, record: SentRecord, sequence: int | None, *, wait: bool = True) -> Future[RecordMetadata] | None:
        """Append one record; return None if retired.

        Raises as `Producer.send`, and `BufferFullError` instead of waiting if not `wait`.
        """
        size, sequence = record.size + RECORD_BYTES, None if sequence is None else as_sequence(sequence)
        future: SentFuture[RecordMetadata] = SentFuture()
        self._buffer.check_not_interrupted()
        with self._buffer.lock:
            if self.retired:
                return None
            self._check()
            if sequence is not None:
                if sequence <= self._require_committed_sequence():
                    future.set_result(RecordMetadata(self.topic, UNKNOWN, UNKNOWN, record.timestamp_us // 1000))
                    return future
                self._queue.check_ascends(sequence)
            taken, mark = [0], None
            try:
                self._take(size, sequence, taken, wait=wait)
                mark = self._queue.mark()
                number = self._queue.number(sequence)
                run = self._queue.open_run(size, self._clock.monotonic(), record.columns)
                run.add(*record[:5], future, size, number)
                self._added(1, size)
            except BaseException:  # Ctrl-C: the record was not taken
                self._take_back(mark, taken)
                raise
        return future

    def send_batch(
        self, pieces: list[pa.RecordBatch], sequence: int | None, *, wait: bool = True
    ) -> Future[BatchMetadata] | None:
        """Append an Arrow batch; return None if retired.

        Raises as `Producer.send_batch`, and `BufferFullError` instead of waiting if not `wait`.
        """
        future: SentFuture[BatchMetadata] = SentFuture()
        rows = sum(piece.num_rows for piece in pieces)
        self._buffer.check_not_interrupted()
        with self._buffer.lock:
            if self.retired:
                return None
            self._check()
            if sequence is not None and sequence <= self._require_committed_sequence():
                skipped = min(rows, self._require_committed_sequence() + 1 - sequence)
                pieces, sequence, rows = skip_rows(pieces, skipped), sequence + skipped, rows - skipped
            if rows == 0:
                future.set_result(BatchMetadata(self.topic, 0, {}))
                return future
            if sequence is not None:
                self._queue.check_ascends(sequence, rows)
            size = size_of(pieces)
            taken, mark = [0], None
            try:
                self._take(size, sequence, taken, wait=wait)
                mark = self._queue.mark()
                number, now = self._queue.number(sequence, rows), self._clock.monotonic()
                self._queue.items.append(
                    ArrowBatch(self.topic, now, pieces, rows, size, future, number, self.delivery.columns.partition)
                )
                self._added(rows, size)
            except BaseException:  # Ctrl-C: the batch was not taken
                self._take_back(mark, taken)
                raise
        return future

    def lacks(self, error: BaseException) -> None:
        """End a durable producer after a partly appended batch."""
        with self._buffer.lock:
            if self.committed_sequence is not None:
                self._lacking = NotSentError(f"topic {self.topic!r}: a batch was not taken whole: {error!r}")

    def _take_back(self, mark: QueueMark | None, taken: list[int]) -> None:
        if taken[0]:
            self._buffer.give(taken[0])
        if mark is not None:
            self._queue.undo(mark)

    def _take(self, size: int, sequence: int | None, taken: list[int], *, wait: bool) -> None:
        """Take memory, counted in `taken`; a wait repeats the checks."""
        self._taking += 1
        try:
            self._buffer.take(size, self.topic, taken, wait=wait)
        finally:
            self._taking -= 1
        self._check()
        if sequence is not None:
            self._queue.check_ascends(sequence)

    def _check(self) -> None:
        self._buffer.check_open()
        failed = self.delivery.failed or self._lacking
        if failed is not None:
            raise after_failure(failed, self.topic)

    def _require_committed_sequence(self) -> int:
        if self.committed_sequence is None:
            raise UsageError(f"topic {self.topic!r}: sequence needs a Producer with a producer_id")
        return self.committed_sequence

    def _added(self, rows: int, size: int) -> None:
        before = self._queue.size
        self._queue.count(rows, size)
        self._rested = False
        if before == 0 or before < self._batch_bytes <= self._queue.size:
            self._buffer.watched()
            self._buffer.waiting[self] = None
            self._pool.schedule(self, self._lingers())

    def _lingers(self) -> float:
        if not self._queue.items or self._is_ready():
            return 0.0
        return max(0.0, self._linger - (self._clock.monotonic() - self._queue.items[0].since))

    def hurry(self) -> None:
        """Schedule a commit of ready items; lock held."""
        if self._queue.items and not self._under_way and not self._lingers():
            self._pool.schedule(self)

    # --- flushing and closing; the lock is held ----------------------------------------------------------

    def flush(self) -> int:
        """Schedule a commit of all items; return the count to await."""
        self._flush_to = self._queue.sent
        if self._queue.items:
            self._pool.schedule(self)
        return self._queue.sent

    def count_pending(self, target: int) -> int:
        """How many of the first `target` records pend."""
        return max(0, target - self._done)

    def abandon(self) -> Callable[[], None]:
        """Give up without retries; return a callback that fails the rest.

        Call that without the lock.
        """
        self._abandoned = True
        items = self._dropped()
        self._counted(items)  # closing calls back, and a callback may flush
        left = sum(item.rows for item in items)
        under_way = self._queue.sent - self._done
        error = ProducerClosedError(f"topic {self.topic!r}: closed before sending {counted(left, 'record')}")

        def fail() -> None:
            if left or under_way:
                log.warning(_CLOSED, self.topic, counted(left, "record"), counted(under_way, "record"))
            fail_all(items, error)

        return fail

    def join(self, timeout: float) -> None:
        """Wait `timeout` seconds for due settling, unless storage hangs."""
        deadline = Deadline(self._clock, timeout)
        if self._silent is None and self._pool.wait(self, timeout):
            self.delivery.join(deadline.remaining())

    def rest(self, now: float) -> bool:
        """Drop idle caches; return whether this accumulator is retired.

        Lock held; `now` is monotonic, in seconds. A durable producer's numbers must last.
        """
        if self.busy or self._taking or self._under_way or not self.delivery.watermark.is_stated:
            self._used = now
        elif now - self._used >= RETIRE_SECONDS and self.committed_sequence is None and self.delivery.failed is None:
            self.retired = True
        elif now - self._used >= REST_SECONDS and not self._rested:
            self._rested = True
            self.delivery.rest()
        return self.retired

    @property
    def is_resting(self) -> bool:
        """Whether everything unused was released."""
        return self._rested and (self.committed_sequence is not None or self.delivery.failed is not None)

    @property
    def busy(self) -> bool:
        """Whether futures are pending."""
        return self._done < self._queue.sent

    def overdue(self, now: float) -> list[Callable[[], None]]:
        """Expire records while a storage call hangs, which can't be stopped.

        `now` is monotonic, in seconds. The returned callbacks fail them: call those without the lock.
        """
        if self._paused:
            return self._overdue_paused(now - _PATIENCE_SECONDS)
        began = self.delivery.trying
        calling_back = self.delivery.calling_back
        if calling_back is not None:
            return self._overdue_called_back(calling_back, now)
        if began is None and not self._under_way:  # it waits for a thread: others keep them all
            return self._overdue_waiting(now - _PATIENCE_SECONDS)
        if began is None or now - began < self._request_timeout:
            return []
        return self._overdue_under_way(began, now) + self._after_failure() + self._overdue_waiting(now)

    def _overdue_under_way(self, began: float, now: float) -> list[Callable[[], None]]:
        callbacks = list[Callable[[], None]]()
        if self._silent != began:
            self._silent = began
            callbacks.append(partial(log.warning, _SILENT, self.topic, self._request_timeout * 1000))
        if any(item.since > self.delivery.expired and not self._is_early(item, now) for item in self._under_way):
            items, self._under_way = self._under_way, []
            callbacks.append(
                partial(self._fail_dropped, items, self.delivery.give_up(sum(item.rows for item in items)))
            )
        return callbacks

    def _overdue_paused(self, now: float) -> list[Callable[[], None]]:
        late = [item for item in self._under_way if not self._is_early(item, now)]
        if not late:
            return []
        error, warnings = self.delivery.expire(late[-1].since)
        if not self.delivery.waits:
            late = self._under_way
        self._under_way = self._under_way[len(late) :]
        self._paused = self.delivery.waits
        self._buffer.give(sum(item.size for item in late))
        callbacks: list[Callable[[], None]] = [partial(self._fail_dropped, late, error)]
        return warnings + callbacks + self._after_failure() + self._overdue_waiting(now)

    def _overdue_called_back(self, began: float, now: float) -> list[Callable[[], None]]:
        if now - began >= _CALLBACK_SECONDS:
            self._pool.lend(self)
        callbacks = self._overdue_waiting(now - _PATIENCE_SECONDS, _CALLBACK, "it")
        if callbacks and self._held != began:
            self._held = began
            callbacks.insert(0, partial(log.warning, _HELD, self.topic, now - began))
        return callbacks

    def _overdue_waiting(
        self, now: float, why: str = "storage does not answer", for_what: str = "others"
    ) -> list[Callable[[], None]]:
        late = sum(1 for _ in takewhile(lambda item: not self._is_early(item, now), self._queue.items))
        if not late:
            return []
        waited = self._dropped(late)
        rows = sum(item.rows for item in waited)
        error = overdue_error(self.topic, rows, self._delivery_timeout, why, for_what)
        if self.committed_sequence is not None:  # no later record may land
            self.delivery.failed = error
        return [partial(self._fail_dropped, waited, error), *self._after_failure()]

    def _after_failure(self) -> list[Callable[[], None]]:
        failed = self.delivery.failed
        return (
            [] if failed is None else [partial(self._fail_dropped, self._dropped(), after_failure(failed, self.topic))]
        )

    def _is_early(self, item: Item, now: float) -> bool:
        return now - item.since < self._delivery_timeout

    def _dropped(self, count: int | None = None) -> list[Item]:
        items = self._queue.drop(count)
        self._buffer.give(sum(item.size for item in items))
        return items

    def _fail_dropped(self, items: list[Item], error: CommitLogError) -> None:
        """Fail removed items, then let flushes proceed; without the lock."""
        try:
            fail_all(items, error)
        finally:
            with self._buffer.lock:
                self._counted(items)

    # --- the job -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Commit due items, in a thread of the pool."""
        items = self._next()
        if not items:
            return
        with self._buffer.calling():
            try:
                pause = self.delivery.deliver(items, lambda: self._abandoned, lambda: self._pool.is_wanted(self))
            except BaseException as error:  # a bug or lack of memory: futures must not stay pending
                outcome = self.delivery.died(sum(item.rows for item in items), error)
                with self.delivery.calling():
                    fail_all(items, outcome)
                self._end_of(items)
                raise
            if pause is None or not self._pause(pause):
                self._end_of(items)

    def _pause(self, seconds: float) -> bool:
        """Release the thread until the retry, which precedes all other records.

        Returns:
            False if the records expired meanwhile.
        """
        warnings: list[Callable[[], None]] = []
        with self._buffer.lock:
            if self._under_way:
                self._paused = True
                self._pool.schedule(self, seconds)
            else:
                _, warnings = self.delivery.expire()
            paused = self._paused
        for tell in warnings:
            tell()
        return paused

    def _end_of(self, items: list[Item]) -> None:
        failed = self.delivery.failed
        with self._buffer.lock:
            if self._under_way:
                self._counted(items)
            self._under_way, self._silent, self._used = [], None, self._clock.monotonic()
            self._buffer.give(sum(item.size for item in items))
            dropped = [] if failed is None else self._dropped()
            if self._queue.items:
                self._pool.schedule(self, self._lingers())
        if failed is not None:
            self._fail_dropped(dropped, after_failure(failed, self.topic))

    def _next(self) -> list[Item]:
        with self._buffer.lock:
            if self._paused:
                self._paused = False
                return self._under_way
            self._under_way = self._queue.take(COMMIT_BYTES)
            if not self._queue.items:
                self._buffer.waiting.pop(self, None)
            return self._under_way

    def _is_ready(self) -> bool:
        buffer = self._buffer
        return (
            buffer.closed
            or buffer.blocked > 0
            or self._queue.size >= self._batch_bytes
            or self._flush_to > self._done
            or self._abandoned
        )

    def _counted(self, items: list[Item]) -> None:
        self._done += sum(item.rows for item in items)
        self._buffer.progress.notify_all()

"""Stage, commit and retry of a topic's bundles (Kafka: `Sender`).

Commits run one at a time under the next sequence numbers, so that a try of unknown outcome can be repeated (R6): if it
landed, the repetition is skipped and reads its offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaStorageError,
    NotSentError,
    OutcomeUnknownError,
    ProducerClosedError,
    ReplicaNotAvailableError,
    RootNotFoundError,
    StagedExpiredError,
    StaleBatchError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    WriterFencedError,
)
from pyspark_commitlog.format.columns import Ints
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.producer.batches import (
    UNKNOWN,
    ArrowBatch,
    BatchMetadata,
    Item,
    RecordRun,
    acknowledge_run,
    cut_out,
    divided,
    halves,
    separate_damaged,
)
from pyspark_commitlog.producer.high_watermark import HighWatermark
from pyspark_commitlog.producer.pools import of_process
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.producer.settler import Settler
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic.settle.settle_load import weight
from pyspark_commitlog.topic.state.state import TopicState
from pyspark_commitlog.topic.topic import RECENT_SECONDS, TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit, storage_error
from pyspark_commitlog.topic.write.partitioner import KeyIgnoring, Partitioner
from pyspark_commitlog.topic.write.producers import landed_ranges
from pyspark_commitlog.topic.write.staging import RowPlacement, Staged, Stager
from pyspark_commitlog.topic.write.writers import TRANSIENT, ProducerBatch

log = logging.getLogger("pyspark_commitlog.producer")

# Kafka: retry.backoff.ms, retry.backoff.max.ms, and 20 % of jitter.
_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 1.0
_JITTER = 0.2
#: Warning for records whose futures fail with one error.
NOT_COMMITTED = "topic %r: not committed: %s: %s"


@dataclass
class ProducerIdentity:
    """Writer id of a topic's batches, and their last committed sequence.

    `topic_id`: where a durable id was opened; None for transient ids, valid in all incarnations.
    """

    writer_id: str
    epoch: int = 0
    last_sequence: int = -1
    topic_id: str | None = None

    @property
    def durable(self) -> bool:
        """Return whether the application chose the id."""
        return self.topic_id is not None


@dataclass
class _Bundle:
    """Items of one commit.

    `tried`: placements of the last try that may have landed. `checks`: check all pieces of an Arrow batch before
    staging. `rest`: items of the following bundle.
    """

    items: list[Item]
    deadline: float
    batch: ProducerBatch | None = None
    topic_id: str = ""
    partitions: int = 0
    staged: Sequence[Staged] | None = None
    placed: list[tuple[Item, int, RowPlacement]] = field(default_factory=list)
    tried: list[tuple[Item, int, RowPlacement]] = field(default_factory=list)
    doubt: bool = False
    tries: int = 0
    error: Exception | None = None
    checks: bool = False
    rest: list[Item] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.items)


def is_retriable(error: Exception) -> bool:
    """Return whether a retry may succeed (pure).

    Permission errors and the topic's refusals are final.
    """
    if isinstance(error, StorageDeniedError) or isinstance(error.__cause__, StorageDeniedError | InvalidRecordError):
        return False
    if isinstance(error, CommitLogError):
        return isinstance(error, StorageError | OutcomeUnknownError) or type(error) is ConflictError
    return isinstance(error, OSError)


def offsets_of(partitions: Ints, following: Ints) -> Ints:
    """Return the offset of every row, and advance `following` per partition (pure)."""
    order = np.argsort(partitions, kind="stable")
    grouped = partitions[order]
    counts = np.bincount(partitions, minlength=len(following))
    starts = np.cumsum(counts) - counts
    offsets = np.empty_like(partitions)
    offsets[order] = following[grouped] + np.arange(len(grouped)) - starts[grouped]
    following += counts
    return offsets


class Delivery:
    """Writer of one topic, used by one thread at a time.

    Attributes:
        failed: error that ended a durable producer: later records must not land before the failed ones.
        trying: monotonic start (s) of the storage call in progress, or None.
        calling_back: monotonic start (s) of callbacks in progress, or None.
        expired: records sent at this time or before have failed, while later ones are in flight.

    `allowed` checks access at the topic's present root; raises `AccessDeniedError`.
    """

    def __init__(
        self,
        topic: TopicLog,
        identity: ProducerIdentity,
        partitions: int,
        options: ProducerConfig,
        allowed: Callable[[Storage], object],
    ) -> None:
        self._topic, self._identity, self._options, self._allowed = topic, identity, options, allowed
        self._asked = topic.storage.clock.monotonic()
        self._partitioner: KeyIgnoring | Partitioner | None = None
        self._settler = Settler(topic.storage, topic.name)
        self._watermark = HighWatermark(topic.storage, topic.name)
        self.partitions = partitions
        self.failed: CommitLogError | None = None
        self.trying: float | None = None
        self.calling_back: float | None = None
        self.expired = float("-inf")
        self._paused: _Bundle | None = None
        self._may_have_landed = False
        self._given_up = False

    def deliver(self, items: Sequence[Item], abandoned: Callable[[], bool], wanted: Callable[[], bool]) -> float | None:
        """Commit items as one entry, and complete their futures.

        Args:
            items: queued items; the same again after a returned pause.
            abandoned: tests whether the producer gave up: then nothing is retried.
            wanted: tests whether another topic waits for this thread: then it does not sleep.

        Returns:
            None if all futures are done, else the pause in seconds before the next call.
        """
        bundle, self._paused = self._paused or self._bundle(list(items)), None
        self._given_up = False
        clock = self._topic.storage.clock
        while bundle.items or bundle.rest:
            try:
                with self._asking():
                    self._try(bundle)
            except (InvalidRecordError, StagedExpiredError):  # the topic was altered since they were staged
                bundle.staged = None
            except (CommitLogError, OSError) as error:
                if self._is_reduced(bundle, error, abandoned):
                    continue
                if not self._is_tried_again(bundle, error, abandoned()):
                    self._fail(bundle, error, abandoned())
                    bundle = self._following(bundle, abandoned())
                    continue
                log.info("topic %r: trying again: %s", self._topic.name, error)
                self._find_leader(bundle)
                pause = min(self._back_off(bundle.tries), max(0.0, bundle.deadline - clock.monotonic()))
                bundle.tries += 1
                if wanted():
                    bundle.error, self._paused = error, bundle
                    return pause
                clock.sleep(pause)
            else:
                bundle = self._following(bundle, abandoned())
        return None

    def _is_reduced(self, bundle: _Bundle, error: Exception, abandoned: Callable[[], bool]) -> bool:
        """Leave out damaged partitions, or divide on a full disk; return whether that is tried at once."""
        if isinstance(error, KafkaStorageError) and self._leave_out(bundle, error.partitions):
            return True
        bundle.doubt = bundle.doubt or isinstance(error, OutcomeUnknownError)
        if bundle.doubt and bundle.staged:
            bundle.tried = bundle.placed
        over = self._topic.storage.clock.monotonic() >= bundle.deadline or abandoned()
        return isinstance(error, StorageFullError) and not over and self._divide(bundle, error)

    def _is_tried_again(self, bundle: _Bundle, error: Exception, closed: bool) -> bool:
        """Return whether a failed bundle is retried; fail overdue items."""
        if closed or self._given_up or not (is_retriable(error) or self._is_away()):
            return False
        now = self._topic.storage.clock.monotonic()
        return now < bundle.deadline or self._fail_late(bundle, error, now)

    def _is_away(self) -> bool:
        with self._asking():
            return self._topic.is_away()

    def _find_leader(self, bundle: _Bundle) -> None:
        """Move to the topic's present leader; stage again there."""
        try:
            here = self._topic  # a handle that dropped its caches knows no replicas if its root is lost
            with self._asking():
                topic = here.route(writing=True) if here.is_away() else here.at_leader()
        except (CommitLogError, OSError) as error:
            log.info("topic %r: no leader: %s", self._topic.name, error)
            return
        if topic is not self._topic:
            self._topic, bundle.staged = topic, None
            self._settler = self._settler.moved(topic.storage)

    def _bundle(self, items: list[Item], error: Exception | None = None) -> _Bundle:
        return _Bundle(items, self._deadline(items[0]) if items else 0.0, error=error)

    def _deadline(self, item: Item) -> float:
        return item.since + self._options.delivery_timeout_ms / 1000

    def _following(self, bundle: _Bundle, abandoned: bool) -> _Bundle:
        """Return the rest of a divided bundle, possibly empty.

        If the producer was closed, or storage did not answer, it fails instead.
        """
        rest = self._bundle(bundle.rest, bundle.error)
        if rest.items and (abandoned or self._given_up):
            assert rest.error is not None
            self._fail(rest, rest.error, closed=abandoned)
            return self._bundle([])
        return rest

    @property
    def waits(self) -> bool:
        """Return whether a bundle waits for a retry."""
        return self._paused is not None

    def expire(self, since: float = float("inf")) -> tuple[CommitLogError, list[Callable[[], None]]]:
        """Expire records waiting for a retry that were sent up to `since`.

        `since` is monotonic, in seconds. All expire if they may have landed or have a durable id.

        Returns:
            Their error, and callbacks that log it, to be called without a lock: a log handler may send.
        """
        bundle, self._paused = self._paused, None
        assert bundle is not None
        assert bundle.error is not None
        items = [*bundle.items, *bundle.rest]
        count = sum(item.since <= since for item in items)
        if items and count == 0:  # those have failed before
            self._paused = bundle
            return self._outcome(bundle, bundle.error, closed=False), []
        whole = bundle.doubt or self._identity.durable or count == len(items)
        bundle.items, bundle.rest = items if whole else items[:count], []
        if not whole:
            self.expired, self._paused = since, self._bundle(items[count:], bundle.error)
        outcome = self._ended(bundle, bundle.error, closed=False)
        return outcome, [partial(self._tell, bundle.rows, outcome)]

    def _back_off(self, tries: int) -> float:
        seconds: float = min(_BACKOFF_SECONDS * 2 ** min(tries, 10), _MAX_BACKOFF_SECONDS)
        return seconds * (1 - _JITTER + 2 * _JITTER * self._topic.storage.jitter())

    def _try(self, bundle: _Bundle) -> None:
        self._may_have_landed = bundle.doubt
        self._check_access()
        while bundle.staged is None:
            self._stage(bundle)
        if not bundle.staged:  # every record was refused
            return
        assert bundle.batch is not None
        if self._given_up:  # its futures have failed: sent again, it would be a duplicate
            raise NotSentError(
                f"topic {self._topic.name!r}: given up before it was sent: storage did not answer in time"
            )
        self._may_have_landed = True
        topic, topic_id = self._topic, bundle.topic_id
        done = self._commit(topic, topic_id, bundle.staged, bundle.batch)
        ranges = landed_ranges(topic, topic_id, bundle.batch) if done.skipped else done.ranges
        self._identity.last_sequence = bundle.batch.last
        with self.calling():
            _acknowledge(bundle, ranges)
        self._settler.committed(topic_id, weight(extent.length for task in bundle.staged for extent in task.extents))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Record the start of a storage call, which may hang."""
        self.trying = self._topic.storage.clock.monotonic()
        try:
            yield
        finally:
            self.trying = None

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Record the start of callbacks, whose time is not storage's."""
        clock, is_trying = self._topic.storage.clock, self.trying is not None
        self.trying, self.calling_back = None, clock.monotonic()
        try:
            yield
        finally:
            self.trying, self.calling_back = clock.monotonic() if is_trying else None, None

    def _commit(self, topic: TopicLog, topic_id: str, staged: Sequence[Staged], batch: ProducerBatch) -> Committed:
        durable, acks_all, done = self._options.durable, self._options.acks_all, None
        self._watermark.begins()
        try:
            done = commit(topic, topic_id, staged, batch, durable=durable, acks_all=acks_all, hw_later=True)
        finally:
            is_due = done is not None and topic.journal.is_replicated
            self._watermark.ends(committed=is_due, known=topic.journal.known_everywhere() if is_due else None)
        return done

    @property
    def last_sequence(self) -> int:
        """Return the last committed sequence of this id."""
        return self._identity.last_sequence

    @property
    def is_seen(self) -> bool:
        """Return whether readers see everything committed."""
        return self._watermark.is_stated

    def show(self, seconds: float) -> bool:
        """State the high watermark within `seconds`; return success."""
        return self._watermark.flush(seconds)

    def _check_access(self) -> None:
        now = self._topic.storage.clock.monotonic()
        if (now - self._asked) * 1000 >= self._options.metadata_max_age_ms:
            try:
                self._allowed(self._topic.storage)
            except RootNotFoundError as error:
                if not self._topic.is_away():
                    raise
                raise ReplicaNotAvailableError(
                    f"topic {self._topic.name!r}: the root {self._topic.storage.url} does not answer"
                ) from error
            self._asked = now

    def join(self, seconds: float) -> bool:
        """Wait `seconds` for due settling; return success."""
        return self._settler.join(seconds)

    def rest(self) -> None:
        """Drop caches of an idle topic, but not the sequence numbers."""
        self._topic = TopicLog(self._topic.storage, self._topic.name)
        self._partitioner = None
        self._settler.rest()
        self._watermark.rest()

    # --- staging -----------------------------------------------------------------------------------------

    def _stage(self, bundle: _Bundle) -> None:
        """Stage all items but refused ones; restart if one is partly staged."""
        topic = self._topic
        topic.forget_defaults(kept=True)
        stored, state = topic.newest_at(topic.journal.to_stage_by(RECENT_SECONDS), self._identity.topic_id)
        bundle.topic_id, bundle.partitions, self.partitions = state.topic_id, state.partitions, state.partitions
        if bundle.tried:  # if it landed, it did so at that placement
            bundle.items, bundle.tried = separate_damaged(bundle.tried, ())[0], []
        if bundle.batch is None:
            bundle.batch = self._numbered(bundle.items, stored.sequence)
        stager = self._stager(stored, state)
        try:
            self._add_items(stager, bundle)
        finally:
            stager.discard()

    def _add_items(self, stager: Stager, bundle: _Bundle) -> None:
        bundle.placed, number = [], 0
        alone = not (self._identity.durable or bundle.doubt)
        while number < len(bundle.items):
            item, refused = bundle.items[number], dict[int, InvalidRecordError]()
            try:
                bundle.placed += _place(stager, item, refused if alone else None, checks=bundle.checks)
            except _RefusedError as error:
                with self.calling():
                    self._refuse(bundle, number, error)
                if alone and not error.is_staged:
                    continue
                bundle.checks = True  # restart without it, with checks: else each such batch has all staged again
                return
            left = [item]
            if refused:  # a retry might find the topic altered, and accept them
                with self.calling():
                    left = _without_refused(item, refused)
            bundle.items[number : number + 1] = left
            number += len(left)
        staged = stager.finish()
        bundle.staged = [] if staged is None else [staged]

    def _refuse(self, bundle: _Bundle, number: int, refused: _RefusedError) -> None:
        """Fail the refused item; a durable producer ends there.

        Otherwise `last_sequence` would pass over it. Earlier records are committed.

        Raises:
            OutcomeUnknownError: an earlier try may have landed.
        """
        if bundle.doubt:
            raise OutcomeUnknownError(f"it is refused now: {refused.error}") from refused.error
        if not self._identity.durable:
            bundle.items.pop(number).fail(refused.error)
            return
        before, it, after = cut_out(bundle.items, number, refused.row)
        self.failed = refused.error
        it.fail(refused.error)
        for item in (*after, *bundle.rest):
            item.fail(after_failure(refused.error, self._topic.name))
        bundle.items, bundle.rest, bundle.batch = before, [], None
        if not before:
            bundle.staged = []

    def _numbered(self, items: Sequence[Item], newest: int) -> ProducerBatch:
        me = self._identity
        if me.durable:
            return ProducerBatch(me.writer_id, me.epoch, me.last_sequence + 1, items[-1].last_sequence)
        last = me.last_sequence + sum(item.rows for item in items)
        return ProducerBatch(me.writer_id, me.epoch, me.last_sequence + 1, last, since=newest)

    def _stager(self, stored: Stored, state: TopicState) -> Stager:
        topic, acks_all = self._topic, self._options.acks_all
        config = topic.config(state)
        paths = topic.paths(state.topic_id)
        batch_bytes = max(1, min(self._options.batch_size, config.number("batch.size")))
        partitioner = self._chooser(state.partitions, batch_bytes)
        return Stager(
            topic.storage, paths, state, stored.sequence, partitioner, config,
            durable=self._options.durable, aside=of_process().encoders.begin, summed=False,
            codec=self._options.compression,
            create=lambda path: topic.creates_chunks(state, acks_all=acks_all)(path),  # most sends have no chunk
        )  # fmt: skip

    def _chooser(self, partitions: int, batch_bytes: int) -> KeyIgnoring | Partitioner:
        """Return the topic's partitioner, at a new batch.

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
        first = int(self._topic.storage.jitter() * partitions)
        inner = Partitioner(partitions, kind, batch_bytes, first)
        self._partitioner = KeyIgnoring(inner) if chosen in ("roundrobin", "sticky") else inner
        return self._partitioner

    # --- failing -----------------------------------------------------------------------------------------

    def _leave_out(self, bundle: _Bundle, damaged: Mapping[int, str]) -> bool:
        """Fail records for damaged partitions; return whether others are left.

        Those keep their partitions and reuse the numbers, under which nothing landed. False if a try may have landed,
        as then all of it did, or with a durable id, as `last_sequence` would pass over failures.
        """
        if bundle.doubt or self._identity.durable:
            return False
        kept, refused = separate_damaged(bundle.placed, list(damaged))
        if not kept or not refused:
            return False
        error = storage_error(
            self._topic.name, damaged, "records for them were not committed, those for others go on without them"
        )
        rows = sum(item.rows for item in refused)
        self._tell(rows, error)
        bundle.items, bundle.batch, bundle.staged = kept, None, None
        with self.calling():
            for item in refused:
                item.fail(error)
        return True

    def _divide(self, bundle: _Bundle, error: StorageFullError) -> bool:
        """Defer half of a bundle on a full disk; return success.

        The first half reuses the numbers, under which nothing landed. False if a try may have landed, as then all of it
        did. A durable id allows it: the rest has higher numbers and lands later.
        """
        if bundle.doubt:
            return False
        first, rest = divided(bundle.items)
        if not rest:
            return False
        log.info("topic %r: %d records are committed in parts: %s", self._topic.name, bundle.rows, error)
        bundle.items, bundle.rest = first, [*rest, *bundle.rest]
        bundle.batch, bundle.staged, bundle.error = None, None, error
        return True

    def _fail_late(self, bundle: _Bundle, error: Exception, now: float) -> bool:
        """Fail items past their deadline; return whether others are left.

        Those reuse the numbers, under which nothing landed. False if a try may have landed, as then all of it did, or
        with a durable id, as nothing may land after a failure.
        """
        count = sum(self._deadline(item) <= now for item in bundle.items)
        late, left = bundle.items[:count], bundle.items[count:]
        if bundle.doubt or self._identity.durable or not left:
            return False
        has_chunk = any(task.chunk for task in bundle.staged or ())
        if late:
            self.expired = late[-1].since
            self._fail(self._bundle(late), error, closed=False)
            bundle.items, bundle.batch, bundle.staged = left, None, None
        # Items that expire soon after fail together with it; else the rest is staged again for each of them. A chunk
        # may be large: a new one every second would fill the disk while no commit succeeds.
        together = self._options.longest_together_seconds if has_chunk else self._options.together_seconds
        bundle.deadline = max(self._deadline(left[0]), now + together)
        return True

    def give_up(self, rows: int) -> OutcomeUnknownError:
        """Give up records in flight on a hanging storage call, without retry.

        Returns:
            Their error, which ends a durable producer.
        """
        self._given_up = True
        name, limit, what = self._topic.name, self._options.delivery_timeout_ms, counted(rows, "record")
        error = OutcomeUnknownError(
            f"topic {name!r}: storage does not answer, and delivery_timeout_ms={limit} is over: {what} "
            "may or may not have landed, or land later. Look whether the disk or the mount hangs"
        )
        if self._identity.durable:
            self.failed = error
        return error

    def _fail(self, bundle: _Bundle, error: Exception, closed: bool) -> None:
        outcome = self._ended(bundle, error, closed=closed)
        self._tell(bundle.rows, outcome)
        with self.calling():
            for item in bundle.items:
                item.fail(outcome)
            if self.failed is not None:
                for item in bundle.rest:
                    item.fail(after_failure(self.failed, self._topic.name))
                bundle.rest = []

    def _ended(self, bundle: _Bundle, error: Exception, *, closed: bool) -> CommitLogError:
        """Return the final error; replace a transient id that is in doubt."""
        outcome = self._outcome(bundle, error, closed)
        if self._identity.durable:
            self.failed = outcome
        elif bundle.doubt or isinstance(error, StaleBatchError):
            # A new id: the next batch is not mistaken for this one, and a lost batch leaves no gap.
            self._identity = ProducerIdentity(f"{TRANSIENT}{self._topic.storage.new_id()}")
        return outcome

    def _tell(self, rows: int, outcome: CommitLogError) -> None:
        log.warning(NOT_COMMITTED, self._topic.name, counted(rows, "record"), outcome)

    def died(self, rows: int, error: BaseException) -> CommitLogError:
        """Return the error of records whose try raised unexpectedly.

        Later records get new handles, as these may be inconsistent, and a new id. A durable producer ends.
        """
        name = self._topic.name
        what = f"topic {name!r}: the try to commit {counted(rows, 'record')} ended with {error!r}"
        outcome: CommitLogError = (
            OutcomeUnknownError(f"{what}: they may or may not have landed")
            if self._may_have_landed
            else NotSentError(f"{what}. Nothing of it is in the log")
        )
        outcome.__cause__ = error
        self._tell(rows, outcome)
        if self._identity.durable:
            self.failed = outcome
        else:
            self._identity = ProducerIdentity(f"{TRANSIENT}{self._topic.storage.new_id()}")
            self.rest()
        return outcome

    def _outcome(self, bundle: _Bundle, error: Exception, closed: bool) -> CommitLogError:
        name, limit, what = self._topic.name, self._options.delivery_timeout_ms, counted(bundle.rows, "record")
        outcome: CommitLogError
        if isinstance(error, CommitLogError) and not is_retriable(error) and not bundle.doubt:
            return error
        if isinstance(error, ConflictError) and type(error) is not ConflictError:
            return error
        if bundle.doubt:
            outcome = OutcomeUnknownError(f"topic {name!r}: {what} may or may not have landed: {error}")
        elif closed:
            outcome = ProducerClosedError(f"topic {name!r}: closed before sending {what}: {error}")
        else:
            outcome = DeliveryTimeoutError(
                f"topic {name!r}: {what} could not be committed within delivery_timeout_ms={limit}: "
                f"{error}. Nothing of it is in the log"
            )
        outcome.__cause__ = error
        return outcome


def after_failure(failed: CommitLogError, topic: str) -> CommitLogError:
    """Return the error of a durable producer's records after a failure."""
    if isinstance(failed, WriterFencedError):
        return WriterFencedError(str(failed))
    error = NotSentError(
        f"topic {topic!r}: not sent, since records before them failed ({failed}). Make a new Producer with the same "
        "producer_id, and go on after its last_sequence"
    )
    error.__cause__ = failed
    return error


class _RefusedError(Exception):
    def __init__(self, error: InvalidRecordError, row: int = 0, *, is_staged: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.row, self.is_staged = error, row, is_staged


def _place(
    stager: Stager, item: Item, refused: dict[int, InvalidRecordError] | None, *, checks: bool
) -> list[tuple[Item, int, RowPlacement]]:
    """Stage an item; collect refused rows, unless `refused` is None.

    Raises:
        _RefusedError: a batch or record is refused; with `checks` rarely partly staged.
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
        raise _RefusedError(error, is_staged=bool(placed)) from error
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
            raise _RefusedError(error, start) from error


def _without_refused(item: Item, refused: Mapping[int, InvalidRecordError]) -> list[Item]:
    """Fail refused rows; return the item without them, or nothing."""
    if not isinstance(item, RecordRun):
        return [item]
    for row, error in refused.items():
        item.futures[row].set_exception(error)
    rows = [row for row in range(item.rows) if row not in refused]
    return [item.select(rows, [item.partitions[row] for row in rows])] if rows else []


def _acknowledge(bundle: _Bundle, ranges: Mapping[int, tuple[int, int]]) -> None:
    """Complete futures with their offsets, unknown without `ranges`."""
    following: Ints = np.zeros(bundle.partitions, np.int64)
    for partition, (first, _) in ranges.items():
        following[partition] = first
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    for item, start, placed in bundle.placed:
        if isinstance(item, RecordRun):
            offsets = offsets_of(placed.partitions, following)
            acknowledge_run(item, start, placed, offsets if ranges else np.full_like(offsets, UNKNOWN))
        elif ranges:
            counts = np.bincount(placed.partitions, minlength=len(following))
            span = spans.setdefault(id(item), {})
            for partition in np.flatnonzero(counts).tolist():
                first, _ = span.get(partition, (int(following[partition]), 0))
                span[partition] = first, int(following[partition] + counts[partition])
            following += counts
    for item in bundle.items:
        if isinstance(item, ArrowBatch):
            item.future.set_result(BatchMetadata(item.topic, item.rows, spans.get(id(item), {})))

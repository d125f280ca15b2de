"""Stage, commit and retry of a topic's bundles (Kafka: `Sender`).

Commits run one at a time under the next sequence numbers, so that a try of unknown outcome can be repeated (R6): if it
landed, the repetition is skipped and reads its offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark_commitlog.errors import (
    CommitLogError,
    InvalidRecordError,
    KafkaStorageError,
    NotSentError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
    RootNotFoundError,
    StagedExpiredError,
    StaleBatchError,
    StorageFullError,
)
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.producer.bundle_staging import RefusedItemError, Stagers, place, without_refused
from pyspark_commitlog.producer.high_watermark import HighWatermark
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.producer.records.batches import Item, cut_out, fail_all, separate_damaged
from pyspark_commitlog.producer.records.bundle import Bundle, ProducerIdentity
from pyspark_commitlog.producer.records.delivery_errors import (
    NOT_COMMITTED,
    RETRY_BACKOFF,
    TRIED_AGAIN,
    after_failure,
    final_error,
    is_retriable,
    unanswered,
    unexpected,
)
from pyspark_commitlog.producer.records.topic_columns import TopicColumns
from pyspark_commitlog.producer.settler import Settler
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic.settle.settle_load import weight
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import RECENT_SECONDS, TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit, storage_error
from pyspark_commitlog.topic.write.producers import landed_ranges
from pyspark_commitlog.topic.write.staging import Staged, Stager
from pyspark_commitlog.topic.write.writers import TRANSIENT, ProducerBatch

log = logging.getLogger("pyspark_commitlog.producer")


class Delivery:
    """Writer of one topic, used by one thread at a time.

    Attributes:
        failed: error that ended a durable producer: later records must not land before the failed ones.
        trying: monotonic start (s) of the storage call in progress, or None.
        calling_back: monotonic start (s) of callbacks in progress, or None.
        watermark: states the high watermark of what was committed.
        expired: records sent at this time or before have failed, while later ones are in flight.

    `allowed` checks access at the topic's present root; raises `AccessDeniedError`.
    """

    def __init__(
        self,
        topic: TopicLog,
        identity: ProducerIdentity,
        state: TopicState,
        options: ProducerConfig,
        allowed: Callable[[Storage], object],
    ) -> None:
        self._topic, self._identity, self._options, self._allowed = topic, identity, options, allowed
        self._asked = topic.storage.clock.monotonic()
        self._stagers = Stagers(options)
        self._settler = Settler(topic.storage, topic.name)
        self.watermark = HighWatermark(topic.storage, topic.name)
        self.partitions, self.columns = state.partitions, TopicColumns(topic.name, state.schema)
        self.failed: CommitLogError | None = None
        self.trying: float | None = None
        self.calling_back: float | None = None
        self.expired = float("-inf")
        self._paused: Bundle | None = None
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
                log.info(TRIED_AGAIN, self._topic.name, error)
                self._find_leader(bundle)
                pause = RETRY_BACKOFF.after(bundle.tries, self._topic.storage.jitter())
                pause = min(pause, max(0.0, bundle.deadline - clock.monotonic()))
                bundle.tries += 1
                if wanted():
                    bundle.error, self._paused = error, bundle
                    return pause
                clock.sleep(pause)
            else:
                bundle = self._following(bundle, abandoned())
        return None

    def _is_reduced(self, bundle: Bundle, error: Exception, abandoned: Callable[[], bool]) -> bool:
        """Leave out damaged partitions, or divide on a full disk; return success."""
        if isinstance(error, KafkaStorageError) and self._leave_out(bundle, error.partitions):
            return True
        bundle.doubt = bundle.doubt or isinstance(error, OutcomeUnknownError)
        if bundle.doubt and bundle.staged:
            bundle.tried = bundle.placed
        over = self._topic.storage.clock.monotonic() >= bundle.deadline or abandoned()
        return isinstance(error, StorageFullError) and not over and self._divide(bundle, error)

    def _is_tried_again(self, bundle: Bundle, error: Exception, closed: bool) -> bool:
        """Whether a failed bundle is retried; fail overdue items."""
        if closed or self._given_up or not (is_retriable(error) or self._is_away()):
            return False
        now = self._topic.storage.clock.monotonic()
        return now < bundle.deadline or self._fail_late(bundle, error, now)

    def _is_away(self) -> bool:
        with self._asking():
            return self._topic.is_away()

    def _find_leader(self, bundle: Bundle) -> None:
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

    def _bundle(self, items: list[Item], error: Exception | None = None) -> Bundle:
        return Bundle(items, self._deadline(items[0]) if items else 0.0, self._identity.durable, error=error)

    def _deadline(self, item: Item) -> float:
        return item.since + self._options.delivery_timeout_ms / 1000

    def _following(self, bundle: Bundle, abandoned: bool) -> Bundle:
        """Rest of a divided bundle, possibly empty.

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
        """Whether a bundle waits for a retry."""
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
        whole = bundle.is_whole or count == len(items)
        bundle.items, bundle.rest = items if whole else items[:count], []
        if not whole:
            self.expired, self._paused = since, self._bundle(items[count:], bundle.error)
        outcome = self._ended(bundle, bundle.error, closed=False)
        return outcome, [partial(self._tell, bundle.rows, outcome)]

    def _try(self, bundle: Bundle) -> None:
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
            bundle.acknowledge(ranges)
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
        self.watermark.begins()
        try:
            done = commit(topic, topic_id, staged, batch, durable=durable, acks_all=acks_all, hw_later=True)
        finally:
            is_due = done is not None and topic.journal.is_replicated
            self.watermark.ends(committed=is_due, known=topic.journal.known_everywhere() if is_due else None)
        return done

    @property
    def last_sequence(self) -> int:
        """Last committed sequence of this id."""
        return self._identity.last_sequence

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
        self._stagers.rest()
        self._settler.rest()
        self.watermark.rest()

    def look_again(self, schema: TopicSchema | None) -> None:
        """Follow the topic's schema."""
        if schema != self.columns.schema:
            self.columns = TopicColumns(self._topic.name, schema, self.columns.began)

    # --- staging -----------------------------------------------------------------------------------------

    def _stage(self, bundle: Bundle) -> None:
        """Stage all items but refused ones; restart if one is partly staged."""
        topic = self._topic
        topic.forget_defaults(kept=True)
        stored, state = topic.newest_at(topic.journal.to_stage_by(RECENT_SECONDS), self._identity.topic_id)
        bundle.topic_id, bundle.partitions, self.partitions = state.topic_id, state.partitions, state.partitions
        self.look_again(state.schema)
        if bundle.tried:  # if it landed, it did so at that placement
            bundle.items, bundle.tried = separate_damaged(bundle.tried, ())[0], []
        if bundle.batch is None:
            bundle.batch = self._identity.number(bundle.items, stored.sequence)
        stager = self._stagers.stager(topic, stored.sequence, state)
        try:
            self._add_items(stager, bundle)
        finally:
            stager.discard()

    def _add_items(self, stager: Stager, bundle: Bundle) -> None:
        bundle.placed, number = [], 0
        alone = not bundle.is_whole
        while number < len(bundle.items):
            item, refused = bundle.items[number], dict[int, InvalidRecordError]()
            try:
                bundle.placed += place(stager, item, refused if alone else None, checks=bundle.checks)
            except RefusedItemError as error:
                with self.calling():
                    self._refuse(bundle, number, error)
                if alone and not error.is_staged:
                    continue
                bundle.checks = True  # restart without it, with checks: else each such batch has all staged again
                return
            left = [item]
            if refused:  # a retry might find the topic altered, and accept them
                with self.calling():
                    left = without_refused(item, refused)
            bundle.items[number : number + 1] = left
            number += len(left)
        staged = stager.finish()
        bundle.staged = [] if staged is None else [staged]

    def _refuse(self, bundle: Bundle, number: int, refused: RefusedItemError) -> None:
        """Fail the refused item; a durable producer ends there.

        Otherwise `last_sequence` would pass over it.

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
        fail_all((*after, *bundle.rest), after_failure(refused.error, self._topic.name))
        bundle.items, bundle.rest, bundle.batch = before, [], None
        if not before:
            bundle.staged = []

    # --- failing -----------------------------------------------------------------------------------------

    def _leave_out(self, bundle: Bundle, damaged: Mapping[int, str]) -> bool:
        refused = bundle.leave_out(list(damaged))
        if not refused:
            return False
        error = storage_error(
            self._topic.name, damaged, "records for them were not committed, those for others go on without them"
        )
        self._tell(sum(item.rows for item in refused), error)
        with self.calling():
            fail_all(refused, error)
        return True

    def _divide(self, bundle: Bundle, error: StorageFullError) -> bool:
        rows = bundle.rows
        if not bundle.divide(error):
            return False
        log.info("topic %r: %d records are committed in parts: %s", self._topic.name, rows, error)
        return True

    def _fail_late(self, bundle: Bundle, error: Exception, now: float) -> bool:
        """Fail items past their deadline; return whether others are left, which reuse the numbers."""
        count = sum(self._deadline(item) <= now for item in bundle.items)
        late, left = bundle.items[:count], bundle.items[count:]
        if bundle.is_whole or not left:
            return False
        has_chunk = any(task.chunk for task in bundle.staged or ())
        if late:
            self.expired = late[-1].since
            self._fail(self._bundle(late), error, closed=False)
            bundle.replace(left)
        # Items that expire soon after fail together with it; else the rest is staged again for each of them. A chunk
        # may be large: a new one every second would fill the disk while no commit succeeds.
        together = self._options.longest_together_seconds if has_chunk else self._options.together_seconds
        bundle.deadline = max(self._deadline(left[0]), now + together)
        return True

    def give_up(self, rows: int) -> OutcomeUnknownError:
        """Give up records in flight on a hanging storage call; return their error, which ends a durable producer."""
        self._given_up = True
        error = unanswered(self._topic.name, rows, self._options.delivery_timeout_ms)
        if self._identity.durable:
            self.failed = error
        return error

    def _fail(self, bundle: Bundle, error: Exception, closed: bool) -> None:
        outcome = self._ended(bundle, error, closed=closed)
        self._tell(bundle.rows, outcome)
        with self.calling():
            fail_all(bundle.items, outcome)
            if self.failed is not None:
                fail_all(bundle.rest, after_failure(self.failed, self._topic.name))
                bundle.rest = []

    def _ended(self, bundle: Bundle, error: Exception, *, closed: bool) -> CommitLogError:
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
        """Error of records whose try raised unexpectedly.

        Later records get new handles, as these may be inconsistent, and a new id. A durable producer ends.
        """
        outcome = unexpected(self._topic.name, rows, error, doubt=self._may_have_landed)
        self._tell(rows, outcome)
        if self._identity.durable:
            self.failed = outcome
        else:
            self._identity = ProducerIdentity(f"{TRANSIENT}{self._topic.storage.new_id()}")
            self.rest()
        return outcome

    def _outcome(self, bundle: Bundle, error: Exception, closed: bool) -> CommitLogError:
        timeout_ms = self._options.delivery_timeout_ms
        return final_error(error, self._topic.name, bundle.rows, timeout_ms, doubt=bundle.doubt, closed=closed)

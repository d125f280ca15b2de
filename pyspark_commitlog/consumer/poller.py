"""Poll loop of a consumer; an interrupted poll loses nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, check_number
from pyspark_commitlog.consumer.coordinator import ConsumerCoordinator
from pyspark_commitlog.consumer.fetch_buffer import FetchBuffer, PolledRows, filtered, to_records, to_table
from pyspark_commitlog.consumer.fetcher import Fetcher, PolledColumns, PollResult
from pyspark_commitlog.consumer.guard import ConsumerGuard
from pyspark_commitlog.consumer.offset_fetcher import OffsetFetcher
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.consumer.topic_metadata import ConsumerMetadata
from pyspark_commitlog.errors import RootNotAvailableError
from pyspark_commitlog.model import Record, TopicPartition
from pyspark_commitlog.storage.clock import Deadline
from pyspark_commitlog.topic.read.named_columns import NamedColumns, Schemas, as_names

#: Longest wait without a look at the group, the clock and new topics, in seconds; the watcher looks at the topics.
_WAIT_SECONDS = 0.2
#: The same for a member without partitions.
_JOIN_SECONDS = 0.05
_PATIENCE_SECONDS = 3600.0
#: Time that polls return nothing while the root is unavailable, before they raise (Kafka: `default.api.timeout.ms`).
_AWAY_SECONDS = 60.0
_ALL = 2**62
_Rows = TypeVar("_Rows", bound=Sized)

log = logging.getLogger("pyspark_commitlog.consumer")


@dataclass(frozen=True, slots=True)
class PollRequest(Generic[_Rows]):
    """Arguments of one poll.

    `select` returns the columns for the topics' schemas, `convert` makes the result, `then` gets it once positions have
    moved. `certain`: see `SharedTopic.look`.
    """

    select: Callable[[Schemas], PolledColumns]
    most: int
    convert: Callable[[Sequence[PolledRows], Any], _Rows]
    certain: bool = False
    then: Callable[[_Rows], object] | None = None


class Poller:
    """Poll loop of one consumer."""

    def __init__(
        self,
        root: SharedRoot,
        config: ConsumerConfig,
        guard: ConsumerGuard,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        buffer: FetchBuffer,
        coordinator: ConsumerCoordinator,
        offsets: OffsetFetcher,
    ) -> None:
        self._root, self._config, self._guard, self._clock = root, config, guard, root.storage.clock
        self._subscriptions, self._metadata, self._buffer = subscriptions, metadata, buffer
        self._coordinator, self._offsets = coordinator, offsets
        self._fetcher = Fetcher(subscriptions, metadata, buffer)
        self._away_since: float | None = None

    def record_request(self, max_records: int | None) -> PollRequest[list[Record]]:
        """Return a request for records."""
        return PollRequest(
            self._metadata.record_columns, self._limit(max_records, self._config.max_poll_records), to_records
        )

    def table_request(
        self, columns: Sequence[str] | None, max_records: int | None, condition: str | None = None
    ) -> PollRequest[pa.Table]:
        """Return a request for a table, of the rows that meet a condition."""
        select = filtered(self._selection(columns), condition)
        return PollRequest(select, self._limit(max_records, _ALL), to_table)

    def _selection(self, columns: Sequence[str] | None) -> Callable[[Schemas], NamedColumns]:
        return partial(self._metadata.name_columns, as_names(columns))

    def _limit(self, max_records: int | None, default: int) -> int:
        if max_records is None:
            return default
        check_number("max_records", max_records)
        return max_records

    def poll(self, timeout: float, request: PollRequest[_Rows]) -> _Rows:
        """Return the next rows, converted; an interruption moves nothing."""
        deadline = Deadline(self._clock, timeout)
        while True:
            result = None
            try:
                with self._guard.lock:
                    result = self._take(request)
                    rows = self._hand_out(result, request)
                left = deadline.remaining()
                if len(rows) or not left:
                    return rows
                if result.pieces:  # none of them passes the filter
                    continue
                if self._away_since is not None:
                    self._clock.sleep(min(left, _WAIT_SECONDS))
                else:
                    self._root.wait(self._metadata.seen, min(left, self._longest_wait))
            except BaseException:  # Ctrl-C: the rows were not handed out
                self._undo(result)
                raise

    async def apoll(self, timeout: float, request: PollRequest[_Rows]) -> _Rows:
        """Like `poll`, without blocking the event loop."""
        deadline = Deadline(self._clock, timeout)
        while True:
            # Only the loop's thread moves positions: a poll cancelled here has returned nothing.
            result = await asyncio.to_thread(self._take, request)
            try:
                rows = self._hand_out(result, request)
                left = deadline.remaining()
                if len(rows) or not left:
                    return rows
            except BaseException:  # Ctrl-C, or a cancelled task: as in `poll`
                self._undo(result)
                raise
            if result.pieces:
                continue
            if self._away_since is not None:
                await asyncio.sleep(min(left, _WAIT_SECONDS))
            else:
                await self._root.await_news(self._metadata.seen, min(left, self._longest_wait))

    @property
    def _longest_wait(self) -> float:
        subscription = self._subscriptions.subscription
        if self._coordinator.is_joining:
            return _JOIN_SECONDS
        busy = self._coordinator.has_group or (subscription is not None and subscription.pattern is not None)
        return _WAIT_SECONDS if busy else _PATIENCE_SECONDS

    def _take(self, request: PollRequest[_Rows]) -> PollResult:
        """Take available rows; none while the root is away for up to `_AWAY_SECONDS`, unless the request is certain."""
        try:
            result = self._take_there(request)
        except RootNotAvailableError as error:
            now = self._clock.monotonic()
            if self._away_since is None:
                self._away_since = now
                log.warning("the consumer waits: %s", error)
            if request.certain or now - self._away_since >= _AWAY_SECONDS:
                raise
            return PollResult(request.select(self._metadata.schemas()))
        self._away_since = None
        return result

    def _take_there(self, request: PollRequest[_Rows]) -> PollResult:
        with self._guard.lock:
            self._guard.check_open()
            self._coordinator.check_subscribed()
            self._buffer.records.clear()
            self._metadata.begin_looks()
            self._metadata.check_access()
            self._coordinator.follow_assignment()
            self._coordinator.auto_commit()
            views = self._offsets.look({} if request.certain else self._metadata.views, certain=request.certain)
            self._metadata.seen = self._metadata.versions(views)
            columns = request.select(self._metadata.schemas(views))
            result = self._fetcher.take(views, columns, request.most, self._config.fetch_max_bytes)
            if not result.pieces:
                self._metadata.check_damaged()
            return result

    def _hand_out(self, result: PollResult, request: PollRequest[_Rows]) -> _Rows:
        """Convert rows, then move positions: rows that fail stay."""
        rows = request.convert(result.pieces, result.columns)
        with self._guard.lock:
            self._fetcher.apply(result)
        if request.then is not None:
            request.then(rows)
        return rows

    def _undo(self, result: PollResult | None) -> None:
        if result is not None:
            with self._guard.lock:
                self._buffer.records.clear()
                self._fetcher.undo(result)

    # --- iteration ---------------------------------------------------------------------------------------

    def has_next(self) -> bool:
        """Wait up to `consumer_timeout_ms`; return whether a record came."""
        while not self._buffer.records:
            self._poll_ahead(self._patience)
            if not self._buffer.records and self._config.consumer_timeout_ms is not None:
                self._poll_ahead(0.0, certain=True)
                if not self._buffer.records:
                    return False
        return True

    async def ahas_next(self) -> bool:
        """Like `has_next`, without blocking the event loop."""
        while not self._buffer.records:
            await self._apoll_ahead(self._patience)
            if not self._buffer.records and self._config.consumer_timeout_ms is not None:
                await self._apoll_ahead(0.0, certain=True)
                if not self._buffer.records:
                    return False
        return True

    def _poll_ahead(self, timeout: float, *, certain: bool = False) -> None:
        self.poll(timeout, self._request_ahead(certain=certain))

    async def _apoll_ahead(self, timeout: float, *, certain: bool = False) -> None:
        await self.apoll(timeout, self._request_ahead(certain=certain))

    def _request_ahead(self, *, certain: bool) -> PollRequest[list[Record]]:
        most, hold = self._config.max_poll_records, self._buffer.hold
        return PollRequest(self._metadata.record_columns, most, to_records, certain, hold)

    @property
    def _patience(self) -> float:
        timeout_ms = self._config.consumer_timeout_ms
        return _PATIENCE_SECONDS if timeout_ms is None else timeout_ms / 1000

    # --- up to the high watermarks -----------------------------------------------------------------------

    def read_up(self, timeout: float, columns: Sequence[str] | None, max_records: int | None) -> pa.Table:
        """Return rows up to the present high watermarks.

        A failure restores positions; commits meanwhile count none of these rows.
        """
        most, select = self._limit(max_records, _ALL), self._selection(columns)
        begun: dict[TopicPartition, tuple[str | None, int]] = {}

        def convert(pieces: Sequence[PolledRows], named: NamedColumns) -> pa.Table:
            for piece in pieces:
                topic_id = self._subscriptions.assigned[piece.place].topic_id
                begun.setdefault(piece.place, (topic_id, piece.rows.offset_of(0)))
            return to_table(pieces, named)

        self._subscriptions.reading = begun
        try:
            tables = [self.poll(timeout, PollRequest(select, most, convert))]
            assigned = self._subscriptions.assigned
            until = {key: (assigned[key].position or 0) + lag for key, lag in self.lag().items()}
            while (most := most - tables[-1].num_rows) > 0 and self._is_before(until):
                tables.append(self.poll(0.0, PollRequest(select, most, convert)))
            return pa.concat_tables(tables, promote_options="permissive")  # columns may be altered meanwhile
        except BaseException:  # Ctrl-C: no row was returned
            self._go_back(begun)
            raise
        finally:
            self._subscriptions.reading = {}

    def lag(self) -> dict[TopicPartition, int]:
        """Return each assigned partition's distance to the high watermark."""
        with self._guard.lock:
            self._guard.check_open()
            views = self._offsets.look()
            self._metadata.check_damaged()
            return self._subscriptions.lag(views)

    def _go_back(self, begun: Mapping[TopicPartition, tuple[str | None, int]]) -> None:
        with self._guard.lock:
            for key, (topic_id, offset) in begun.items():
                state = self._subscriptions.assigned.get(key)
                if state is not None and state.topic_id == topic_id:
                    self._subscriptions.move(key, offset)

    def _is_before(self, until: Mapping[TopicPartition, int]) -> bool:
        waiting, assigned = self.lag(), self._subscriptions.assigned
        return any(
            waiting.get(key) and not assigned[key].paused and (assigned[key].position or 0) < end
            for key, end in until.items()
        )

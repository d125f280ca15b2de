"""``Consumer``: read topics from Python, without Spark. Kafka's names: ``KafkaConsumer``, ``ConsumerConfig``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

import pyarrow as pa

from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, Reset, check_flag, check_number, checked
from pyspark_commitlog.consumer.fetcher import Taken
from pyspark_commitlog.consumer.polled_rows import RECORD_COLUMNS, PolledRows, to_records, to_table
from pyspark_commitlog.consumer.positions import Positions
from pyspark_commitlog.consumer.watcher import SharedRoot
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.assignment.assignors import check_assignors
from pyspark_commitlog.groups.member_config import MemberConfig
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.log.read.arrow import schema_of, stored_columns
from pyspark_commitlog.model import Record, TopicPartition
from pyspark_commitlog.storage import Storage

#: The longest wait without a look at the group, the clock and new topics; the watcher looks at the topics.
_WAIT_SECONDS = 0.2
#: The same, of a member that has no partitions yet.
_JOIN_SECONDS = 0.05
_PATIENCE_SECONDS = 3600.0
_ALL = 2**62
_T = TypeVar("_T")


class Consumer(Positions):
    """Reads topics: records, or Arrow tables.

    For one thread, or one task, at a time. Many consumers in one process share their looks at the journals and the
    frames that were decoded.

    Args:
        root: the commit log; it must be there.
        topics: to subscribe to; or call ``subscribe`` or ``assign``.
        group_id: the group whose offsets to start from and to commit to. Who subscribes is a member of it: the members
            share the partitions of their topics. None: no group, and all partitions.
        client_id: a name for log messages.
        group_instance_id: makes a static member: it may restart within its session, and keeps its partitions.
        partition_assignment_strategy: some of ``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky``, the
            best first; the group takes one that all members know.
        session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms, initial_rebalance_delay_ms: ``MemberConfig``. A
            thread tells that the consumer lives, also while nobody polls, up to ``max_poll_interval_ms``.
        auto_offset_reset: where to begin without a committed offset, and to go on where a position is out of range:
            ``latest``, ``earliest``, or ``none``, which raises. Partitions and topics that come up while the consumer
            runs are read from their start.
        enable_auto_commit: with a group, ``poll`` commits what earlier polls have handed out.
        auto_commit_interval_ms: how often, at most.
        max_poll_records: how many records ``poll`` returns at most.
        fetch_max_bytes: about how many decoded bytes one poll takes at most; a frame more than that may come.
        consumer_timeout_ms: iteration ends when nothing has come for so long; None: never.
        metadata_max_age_ms: how often a ``pattern`` looks for new topics (a group does with every heartbeat), and
            access rules are asked again.
        principal: who reads, where the root has access rules; None for what ``COMMITLOG_PRINCIPAL`` says.
        storage_options: for the fsspec filesystem.

    Raises:
        RootNotFoundError: there is no root.
        UsageError: an argument that is not allowed.
    """

    def __init__(
        self,
        root: str | SharedRoot,
        *topics: str,
        group_id: str | None = None,
        client_id: str | None = None,
        group_instance_id: str | None = None,
        partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky"),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        initial_rebalance_delay_ms: int = 200,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        max_poll_records: int = 500,
        fetch_max_bytes: int = 52_428_800,
        consumer_timeout_ms: int | None = None,
        metadata_max_age_ms: int = 5000,
        principal: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        settings = ConsumerConfig(
            reset=Reset.of(auto_offset_reset),
            group_id=group_id,
            client_id=client_id or f"consumer-{group_id or 'none'}",
            auto_commit=check_flag("enable_auto_commit", enable_auto_commit) and group_id is not None,
            auto_commit_interval_ms=auto_commit_interval_ms,
            max_poll_records=max_poll_records,
            fetch_max_bytes=fetch_max_bytes,
            consumer_timeout_ms=consumer_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            partition_assignment_strategy=check_assignors(partition_assignment_strategy),
            group_instance_id=group_instance_id,
            times=MemberConfig(
                session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms, initial_rebalance_delay_ms
            ),
            principal=principal,
        )
        shared = root if isinstance(root, SharedRoot) else SharedRoot.open(str(root), storage_options)
        super().__init__(shared, checked(settings))
        if topics:
            self.subscribe(topics)

    @classmethod
    def on(cls, storage: Storage, *topics: str, **settings: object) -> Consumer:
        """Return a consumer on an open storage (tests inject clocks and faults this way)."""
        return cls(SharedRoot(storage, id(storage)), *topics, **settings)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Consumer({self._shared.storage.url!r}, client_id={self._settings.client_id!r})"

    # --- records -----------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Return the next records, in order within each partition, as soon as there are some.

        Args:
            timeout: how long to wait for one, in seconds.
            max_records: how many at most, in place of ``max_poll_records``.

        Returns:
            Records of any of the partitions; none when the time is up.

        Raises:
            UsageError: nothing is subscribed to or assigned.
            OffsetOutOfRangeError: a position is out of range, or there is none, and ``auto_offset_reset`` is ``none``.
            TopicChangedError: a topic was deleted or made again, and ``auto_offset_reset`` is ``none``.
            UnknownTopicError: a topic is not there.
            AccessDeniedError: the principal may not read a topic.
            FencedInstanceIdError: another process has joined with this ``group_instance_id``.
            CorruptionError: stored bytes are damaged. The position stays before them.
        """
        return self._poll(timeout, RECORD_COLUMNS, self._most(max_records), to_records)

    def poll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the next records as a table, as soon as there are some: about ``fetch_max_bytes`` of them at most.

        Args:
            timeout: how long to wait for one, in seconds.
            max_records: how many rows at most; None: as the bytes allow.
            columns: of the table, in their order; others are not even decompressed. None: all.

        Returns:
            key binary, value binary, topic string, partition int32, offset int64, timestamp timestamp[us, UTC],
            timestampType int32, headers list<struct<key string, value binary>>. In chunks of one partition each.

        Raises:
            As ``poll``.
        """
        schema = schema_of(columns)
        most = _ALL if max_records is None else self._most(max_records)
        return self._poll(timeout, stored_columns(schema), most, partial(to_table, schema=schema))

    def to_arrow(
        self, max_records: int | None = None, timeout: float = 0.0, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return all records up to the present high watermarks as one table; memory must hold them.

        Args:
            max_records: how many rows at most.
            timeout: how long to wait for the first, in seconds.
            columns: see ``poll_arrow``.

        Raises:
            As ``poll``. Positions are then where they were; a group's automatic commits may be further.
        """
        schema = schema_of(columns)
        names, left = stored_columns(schema), _ALL if max_records is None else self._most(max_records)
        begun: dict[TopicPartition, tuple[str | None, int]] = {}

        def convert(pieces: Sequence[PolledRows]) -> pa.Table:
            for piece in pieces:
                begun.setdefault(piece.place, (self._reading.places[piece.place].topic_id, piece.rows.offset_of(0)))
            return to_table(pieces, schema)

        try:
            found = [self._poll(timeout, names, left, convert)]
            until = {key: (self._reading.places[key].position or 0) + lag for key, lag in self.lag().items()}
            while (left := left - found[-1].num_rows) > 0 and self._is_before(until):
                found.append(self._poll(0.0, names, left, convert))
            return pa.concat_tables(found)
        except BaseException:
            self._go_back(begun)
            raise

    def _go_back(self, begun: Mapping[TopicPartition, tuple[str | None, int]]) -> None:
        with self._lock:
            for key, (topic_id, offset) in begun.items():
                if key in self._reading.places and self._reading.places[key].topic_id == topic_id:
                    self._reading.move(key, offset)

    def _is_before(self, until: Mapping[TopicPartition, int]) -> bool:
        """Return whether there is more to read before some offsets; of a topic that was deleted there is not."""
        waiting, places = self.lag(), self._reading.places
        return any(
            waiting.get(key) and not places[key].paused and (places[key].position or 0) < end
            for key, end in until.items()
        )

    async def apoll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Do as ``poll`` without blocking the event loop: files are read in a thread, and so are listeners called."""
        return await self._apoll(timeout, RECORD_COLUMNS, self._most(max_records), to_records)

    async def apoll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Do as ``poll_arrow`` without blocking the event loop."""
        schema = schema_of(columns)
        most = _ALL if max_records is None else self._most(max_records)
        return await self._apoll(timeout, stored_columns(schema), most, partial(to_table, schema=schema))

    def _most(self, max_records: int | None) -> int:
        if max_records is None:
            return self._settings.max_poll_records
        check_number("max_records", max_records)
        return max_records

    def _poll(
        self,
        timeout: float,
        names: tuple[str, ...],
        most: int,
        convert: Callable[[Sequence[PolledRows]], _T],
        *,
        certain: bool = False,
        then: Callable[[_T], object] | None = None,
    ) -> _T:
        """Return what ``convert`` made of the next rows; ``then`` is called with it.

        Whatever interrupts it (Ctrl-C): nothing has moved.
        """
        deadline = self._clock.monotonic() + timeout
        while True:
            taken = None
            try:
                with self._lock:
                    taken = self._take(names, most, certain=certain)
                    found = convert(taken.pieces)  # first: what fails here is there at the next poll
                    self._apply(taken)
                    if then is not None:
                        then(found)
                left = deadline - self._clock.monotonic()
                if taken.pieces or left <= 0:
                    return found
                self._shared.wait(self._seen, min(left, self._longest_wait))
            except BaseException:
                self._undo(taken)
                raise

    async def _apoll(
        self,
        timeout: float,
        names: tuple[str, ...],
        most: int,
        convert: Callable[[Sequence[PolledRows]], _T],
        *,
        certain: bool = False,
        then: Callable[[_T], object] | None = None,
    ) -> _T:
        deadline = self._clock.monotonic() + timeout
        while True:
            # Only the loop's thread moves positions: a poll that is cancelled here has handed nothing out.
            taken = await asyncio.to_thread(self._take, names, most, certain=certain)
            try:
                found = convert(taken.pieces)
                self._apply(taken)
                if then is not None:
                    then(found)
                left = deadline - self._clock.monotonic()
                if taken.pieces or left <= 0:
                    return found
            except BaseException:
                self._undo(taken)
                raise
            await self._wait(min(left, self._longest_wait))

    @property
    def _longest_wait(self) -> float:
        wanted = self._subscription
        if isinstance(self._membership, GroupMember) and not self._reading.places:
            return _JOIN_SECONDS
        busy = self._group is not None or (wanted is not None and wanted.pattern is not None)
        return _WAIT_SECONDS if busy else _PATIENCE_SECONDS

    async def _wait(self, seconds: float) -> None:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        forget = self._shared.watch(self._seen, wake)
        try:
            await asyncio.wait_for(news.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            forget()

    def _take(self, names: tuple[str, ...], most: int, *, certain: bool = False) -> Taken:
        with self._lock:
            self._check_open()
            if self._membership is None:
                raise UsageError("nothing is subscribed to: call subscribe(topics) or assign(partitions) first")
            self._ahead.clear()
            self._views.clear()
            self._check_access()
            self._follow_assignment()
            self._auto_commit()
            views = self._reading.look({} if certain else self._views, certain=certain)
            self._seen = self._reading.versions(views)
            return self._reading.take(views, names, most, self._settings.fetch_max_bytes)

    def _apply(self, taken: Taken) -> None:
        with self._lock:
            self._reading.apply(taken)

    def _undo(self, taken: Taken | None) -> None:
        """Go back to before what was taken: it was not handed out."""
        if taken is not None:
            with self._lock:
                self._ahead.clear()
                self._reading.undo(taken)

    # --- iteration ---------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """Return the next record; wait for it, at most ``consumer_timeout_ms``."""
        while not self._ahead:
            self._poll(self._patience, RECORD_COLUMNS, self._most(None), to_records, then=self._hold)
            if not self._ahead and self._settings.consumer_timeout_ms is not None:
                self._poll(0.0, RECORD_COLUMNS, self._most(None), to_records, certain=True, then=self._hold)
                if not self._ahead:
                    raise StopIteration
        return self._hand_over()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """As ``__next__``, without blocking the event loop."""
        while not self._ahead:
            await self._apoll(self._patience, RECORD_COLUMNS, self._most(None), to_records, then=self._hold)
            if not self._ahead and self._settings.consumer_timeout_ms is not None:
                await self._apoll(0.0, RECORD_COLUMNS, self._most(None), to_records, certain=True, then=self._hold)
                if not self._ahead:
                    raise StopAsyncIteration
        return self._hand_over()

    @property
    def _patience(self) -> float:
        timeout_ms = self._settings.consumer_timeout_ms
        return _PATIENCE_SECONDS if timeout_ms is None else timeout_ms / 1000

    def _hold(self, records: Sequence[Record]) -> None:
        """Keep records that were polled, with the positions before them: they count as they are handed over."""
        self._ahead.extend(records)
        for record in reversed(records):
            self._reading.move(TopicPartition(record.topic, record.partition), record.offset)

    def _hand_over(self) -> Record:
        """Return the next record that was polled, its position moved; where that is interrupted (Ctrl-C), neither."""
        record = self._ahead[0]
        place = TopicPartition(record.topic, record.partition)
        try:
            self._reading.move(place, record.offset + 1)
            self._ahead.popleft()
            return record
        except BaseException:
            if not self._ahead or self._ahead[0] is not record:
                self._ahead.appendleft(record)
            self._reading.move(place, record.offset)
            raise

    # --- the end -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close. Behind an error there is no last commit: what was handed out last may not be done."""
        self.close(commit=kind is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As ``__exit__``, without blocking the event loop."""
        await asyncio.to_thread(self.close, commit=kind is None)

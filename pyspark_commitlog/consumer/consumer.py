"""`Consumer`: reads topics without Spark (Kafka: `KafkaConsumer`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Self

import pyarrow as pa

from pyspark_commitlog.consumer.consumer_config import (
    ConsumerConfig,
    Reset,
    check_flag,
    check_number,
    check_places,
    checked,
    subscription,
)
from pyspark_commitlog.consumer.coordinator import ConsumerCoordinator
from pyspark_commitlog.consumer.fetch_buffer import FetchBuffer
from pyspark_commitlog.consumer.guard import ConsumerGuard
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener
from pyspark_commitlog.consumer.offset_fetcher import OffsetFetcher
from pyspark_commitlog.consumer.poller import Poller
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.consumer.topic_metadata import ConsumerMetadata
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.assignment.assignors import check_assignors
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.model import Record, TopicPartition, whole_number
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage.pace import DEFAULT_IDLE_POLL_INTERVAL_MS
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp
from pyspark_commitlog.topic.state.topic_state import TopicState


class Consumer:
    """Client that reads topics as records or Arrow tables.

    For one thread, or one task, at a time. The consumers of a process share their looks at journals and decoded frames.

    Args:
        root: the root's directory or URL; it must exist.
        topics: topics to subscribe to; or call `subscribe` or `assign`.
        group_id: group of the committed offsets, whose subscribed members share the partitions; None: no group.
        client_id: name in log messages.
        group_instance_id: id of a static member, which may restart within its session and keep its partitions.
        partition_assignment_strategy: some of `range`, `roundrobin`, `sticky` and `cooperative-sticky`, the best first;
            the group takes one that all members know.
        session_timeout_ms: a member whose heartbeats stay out for so long loses its partitions.
        heartbeat_interval_ms: how often a thread sends heartbeats; best a third of `session_timeout_ms`.
        max_poll_interval_ms: a member that does not poll for so long leaves the group.
        initial_rebalance_delay_ms: how long a joining member waits for others.
        auto_offset_reset: where to begin without a committed offset, and to go on if a position is out of range:
            `latest`, `earliest`, or `none`, which raises. Partitions and topics that come up while the consumer runs
            are read from their start.
        enable_auto_commit: with a group, `poll` commits what earlier polls have returned.
        auto_commit_interval_ms: minimum time between these commits.
        max_poll_records: maximum records of a `poll`.
        fetch_max_bytes: about the maximum decoded bytes of a poll; up to a frame more.
        consumer_timeout_ms: iteration ends when nothing has come for so long; None: never.
        metadata_max_age_ms: how often a `pattern` looks for new topics (a group does with every heartbeat), and access
            rules are asked again.
        idle_poll_interval_ms: mean interval between requests that find nothing, for each topic and process, on object
            stores and unknown mounts: a record after a long silence is seen about so late. Range: 1 to 60,000.
        principal: in whose name to read, if the root has access rules; None: `COMMITLOG_PRINCIPAL`.
        storage_options: for a URL, named as fsspec's (docs/how-to/object-stores.md).

    Raises:
        RootNotFoundError: there is no root.
        UsageError: an argument is not allowed.
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
        idle_poll_interval_ms: int = DEFAULT_IDLE_POLL_INTERVAL_MS,
        principal: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        config = ConsumerConfig(
            reset=Reset.of(auto_offset_reset),
            group_id=group_id,
            client_id=client_id or f"consumer-{group_id or 'none'}",
            auto_commit=check_flag("enable_auto_commit", enable_auto_commit) and group_id is not None,
            auto_commit_interval_ms=auto_commit_interval_ms,
            max_poll_records=max_poll_records,
            fetch_max_bytes=fetch_max_bytes,
            consumer_timeout_ms=consumer_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            idle_poll_interval_ms=idle_poll_interval_ms,
            partition_assignment_strategy=check_assignors(partition_assignment_strategy),
            group_instance_id=group_instance_id,
            times=MemberConfig(
                session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms, initial_rebalance_delay_ms
            ),
            principal=principal,
        )
        shared = root if isinstance(root, SharedRoot) else SharedRoot.open(root, storage_options)
        self._root, self._config = shared, checked(config)
        self._assemble()
        if topics:
            self.subscribe(topics)

    def _assemble(self) -> None:
        """Create the parts, without references to the consumer: closing frees them."""
        root, config = self._root, self._config
        self._guard, self._subscriptions = ConsumerGuard(str(self)), SubscriptionState()
        self._own_root = Root.on(root.storage, config.principal)
        self._metadata = ConsumerMetadata(root, self._own_root, config, self._subscriptions)
        self._buffer = FetchBuffer(self._subscriptions)
        self._coordinator = ConsumerCoordinator(
            config, self._own_root, self._subscriptions, self._metadata, self._buffer
        )
        self._offsets = OffsetFetcher(
            config, self._subscriptions, self._metadata, self._buffer, self._coordinator.group_state
        )
        self._poller = Poller(
            root, config, self._guard, self._subscriptions, self._metadata, self._buffer, self._coordinator,
            self._offsets,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Consumer({self._root.storage.url!r}, client_id={self._config.client_id!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self} can't be pickled or copied: both would read the same records. Make a Consumer in the function "
            "that Spark or multiprocessing calls: with Consumer(…) as consumer: …"
        )

    # --- subscription and assignment ---------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, including partitions added later, instead of the present ones.

        With a group, the consumer joins at its next poll. Without one it reads all partitions, and keeps its positions
        in those read before.

        Args:
            topics: topic names.
            pattern: instead, a Python regular expression for whole names, also of later topics.
            listener: called inside `poll` with partitions that are assigned, revoked or lost.

        Raises:
            UsageError: neither or both are given, or a name or pattern is invalid.
        """
        self._guard.call(self._coordinator.subscribe, subscription(topics, pattern), listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions instead of the present ones.

        Partitions read before, except as a member, keep their positions, paused or not. A consumer with a group does
        not join it: it commits beside the members, if any.
        """
        self._guard.call(self._coordinator.assign, check_places(partitions))

    def unsubscribe(self) -> None:
        """Stop reading."""
        self._guard.call(self._coordinator.unsubscribe)

    def subscription(self) -> set[str]:
        """Return the subscribed topics; of a pattern, those found."""
        return self._subscriptions.topics()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read: none before a subscription's first poll."""
        return set(self._subscriptions.assigned)

    def is_stable(self) -> bool:
        """Return whether `assignment` is complete, perhaps empty: not while a group rebalances."""
        return self._coordinator.is_stable

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        return set(range(self._metadata.look(topic).topic.partitions))

    def topics(self) -> set[str]:
        """Return the names of all topics of the root."""
        return set(self._own_root.topics())

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Return the next records, in order within each partition.

        Args:
            timeout: how long to wait for a record, in seconds.
            max_records: maximum number, instead of `max_poll_records`.

        Returns:
            Records of any partitions; empty after the timeout.

        Raises:
            UsageError: nothing is subscribed or assigned.
            OffsetOutOfRangeError: a position is missing or out of range, and `auto_offset_reset` is `none`.
            TopicChangedError: a topic was deleted or recreated, and `auto_offset_reset` is `none`.
            UnknownTopicError: a topic does not exist.
            AccessDeniedError: the principal may not read a topic.
            FencedInstanceIdError: another process has joined with this `group_instance_id`.
            CorruptionError: stored bytes are damaged. The position stays before them.
        """
        return self._poller.poll(timeout, self._poller.record_request(max_records))

    def poll_arrow(
        self,
        timeout: float = 0.0,
        max_records: int | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 as of `Topic.to_arrow`
    ) -> pa.Table:
        """Return the next records as a table, about `fetch_max_bytes` at most.

        Args:
            timeout: how long to wait for a record, in seconds.
            max_records: maximum rows; None: as the bytes allow.
            columns, filter: as of `Topic.to_arrow`. The position passes over records that do not meet the filter.

        Returns:
            Columns as `Topic.to_arrow`. Of several typed topics those of all, null if a record's topic lacks one. Each
            chunk is of one partition.

        Raises:
            CommitLogError: as `poll`.
        """
        return self._poller.poll(timeout, self._poller.table_request(columns, max_records, filter))

    def to_arrow(
        self, max_records: int | None = None, timeout: float = 0.0, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return all records up to the present high watermarks in memory.

        Args:
            max_records: maximum rows.
            timeout: how long to wait for the first, in seconds.
            columns: see `poll_arrow`.

        Raises:
            CommitLogError: as `poll`. Positions are then unchanged, and nothing read here is committed.
        """
        return self._poller.read_up(timeout, columns, max_records)

    async def apoll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Poll in a thread, including listeners, without blocking the loop."""
        return await self._poller.apoll(timeout, self._poller.record_request(max_records))

    async def apoll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None, columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
    ) -> pa.Table:  # fmt: skip
        """Poll as `poll_arrow`, without blocking the event loop."""
        return await self._poller.apoll(timeout, self._poller.table_request(columns, max_records, filter))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """Return the next record, within `consumer_timeout_ms`."""
        if not (self._buffer.records or self._poller.has_next()):
            raise StopIteration
        return self._buffer.hand_over()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        if not (self._buffer.records or await self._poller.ahas_next()):
            raise StopAsyncIteration
        return self._buffer.hand_over()

    # --- positions ---------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move to an offset; the next poll applies `auto_offset_reset` if necessary.

        Raises:
            UsageError: the partition is not assigned, or the offset is negative.
        """
        offset = whole_number("offset", offset)
        check_number("offset", offset, least=0)
        with self._guard.lock:
            self._check_assigned([partition])
            self._offsets.move({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the log start offsets of some or all assigned partitions."""
        with self._guard.lock:
            self._offsets.move(self.beginning_offsets(self._chosen(partitions)))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move to the high watermarks of some or all assigned partitions."""
        with self._guard.lock:
            self._offsets.move(self.end_offsets(self._chosen(partitions)))

    def _chosen(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        self._guard.check_open()
        if not self._subscriptions.assigned:
            self._coordinator.follow_assignment()
        chosen = check_places(partitions) or tuple(sorted(self._subscriptions.assigned))
        self._check_assigned(chosen)
        return chosen

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._guard.check_open()
        self._subscriptions.check_assigned(partitions)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be returned.

        Raises:
            UsageError: the partition is not assigned.
            OffsetOutOfRangeError: there is no position yet, and `auto_offset_reset` is `none`.
            TopicChangedError: there is no position yet, and the topic was deleted.
        """
        with self._guard.lock:
            self._check_assigned([partition])
            return self._offsets.position(partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Exclude partitions from polls until `resume`; their positions stay."""
        with self._guard.lock:
            self._check_assigned(partitions)
            self._buffer.forget(partitions)
            self._subscriptions.pause(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read paused partitions again."""
        with self._guard.lock:
            self._check_assigned(partitions)
            self._subscriptions.pause(partitions, paused=False)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {key for key, state in self._subscriptions.assigned.items() if state.paused}

    def lag(self) -> dict[TopicPartition, int]:
        """Return each assigned partition's distance to the high watermark, in offsets."""
        return self._poller.lag()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition, assigned or not.

        Raises:
            UnknownTopicError: a topic does not exist.
            UsageError: a partition does not exist.
        """
        return {key: state.log_start[key.partition] for key, state in self._states(partitions).items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; raises as `beginning_offsets`."""
        return {key: state.log_end[key.partition] for key, state in self._states(partitions).items()}

    def _states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicState]:
        return self._guard.call(self._metadata.states, partitions)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first record not before a timestamp (ms), or None."""
        self._guard.check_open()
        return {key: self._metadata.offset_for_time(key, at) for key, at in times.items()}

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Commit to the group durably, never backwards: to go back, reset the group.

        After an error, unless OutcomeUnknownError, nothing was committed.

        Args:
            offsets: offset of the next record of each partition; None: all positions.
            metadata: text to store with them.

        Raises:
            UsageError: the consumer has no group.
            OffsetOutOfRangeError: an offset beyond the high watermark.
            TopicChangedError: a topic was deleted or recreated since it was read.
            CommitFailedError: the member has lost a partition, or the generation is over: poll, and commit what is
                assigned then.
            FencedInstanceIdError: another process has joined with this `group_instance_id`.
            GroupResetError: the group was reset meanwhile; the next poll starts from there.
            OutcomeUnknownError: commit again, which is idempotent.
        """
        self._guard.call(self._coordinator.commit, offsets, metadata)

    async def acommit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Commit as `commit`, without blocking the event loop."""
        await asyncio.to_thread(self.commit, offsets, metadata)

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition; None without one.

        Raises:
            UsageError: the consumer has no group.
        """
        return self._guard.call(self._coordinator.committed, partition)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; after an error without a last commit of unprocessed records."""
        self.close(commit=kind is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await asyncio.to_thread(self.close, commit=kind is None)

    def close(self, *, commit: bool = True) -> None:
        """Commit automatically if enabled, and give up all partitions; idempotent.

        Args:
            commit: False omits that commit, so that the last poll's records are read again.
        """
        if self._guard.is_over:
            return
        with self._guard.lock:
            try:
                self._coordinator.leave(commit=commit)
            finally:
                self._guard.closed = True
                self._subscriptions.listener = ConsumerRebalanceListener()
                self._subscriptions.assigned.clear()
                self._buffer.rest = None
                self._metadata.end()

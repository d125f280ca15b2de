"""`CommitLog.groups`: operations on a root's consumer groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, compress
from typing import TypeVar

from pyspark_commitlog.broker_config import offsets_retention_ms
from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import (
    CorruptionError,
    StorageUnreadableError,
    UnknownGroupError,
    UnknownTopicError,
    UsageError,
    fault_of,
)
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.descriptions import (
    DAMAGED,
    GroupDescription,
    GroupPartition,
    MaintainedGroup,
    OffsetReset,
    described_members,
)
from pyspark_commitlog.groups.membership.evict import remove_silent
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.reset_target import Offsets, Target, Way, new_offset, target_of, whole_offsets
from pyspark_commitlog.groups.state.group_log import Changed, GroupLog
from pyspark_commitlog.groups.state.group_state import GroupState, Position, reset, without_topic
from pyspark_commitlog.groups.verification import faults_of, strays_of
from pyspark_commitlog.journal import Slot
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.replication.admin.replicating import replicate_first
from pyspark_commitlog.replication.metadata.metadata_roots import Deciders
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import results_of
from pyspark_commitlog.text import did_you_mean, similar_names
from pyspark_commitlog.topic.access import Access, Operation
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

log = logging.getLogger("pyspark_commitlog.groups")

_Result = TypeVar("_Result")

#: Topics of a reset: None for all of the group, names, or the partitions of each.
Chosen = str | Sequence[str] | Mapping[str, Sequence[int]] | None


class Groups:
    """The consumer groups of a root. Opening has no effect.

    Changes need READ on the topics, if the root has access rules. `maintain` also cleans `learner`, the opened root if
    the `deciders` are others.
    """

    def __init__(
        self,
        storage: Storage,
        access: Access,
        *,
        replicated: bool = False,
        deciders: Deciders | None = None,
        learner: Storage | None = None,
        offsets_expire: bool = False,
    ) -> None:
        self._storage, self._access, self._replicated, self._deciders = storage, access, replicated, deciders
        self._learner, self._offsets_expire = learner, offsets_expire

    def _check(self, topics: Iterable[str]) -> None:
        self._access.check(Operation.READ, *topics)

    def open(self, group: str) -> GroupLog:
        """Return the handle of a group, existing or not.

        The first commit to a topic checks READ.

        Raises:
            UsageError: the name is invalid.
        """
        return GroupLog(
            self._storage, group, lambda topic: self._check([topic]),
            replicated=self._replicated, deciders=self._deciders,
        )  # fmt: skip

    def list(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        names = self.every_name()
        return tuple(compress(names, self._of_each(self._is_live, names)))

    def _of_each(self, act: Callable[[str], _Result], groups: Sequence[str]) -> Sequence[_Result]:
        return results_of(act, groups, self._storage.requests_at_once)

    def every_name(self) -> tuple[str, ...]:
        """Names of all groups with files, even deleted, sorted."""
        stored = (self._deciders or self._storage).names(paths.GROUPS)
        names = (paths.parse_group(name) for name in stored)
        return tuple(sorted(name for name in names if name is not None))

    def _is_live(self, group: str) -> bool:
        """Whether a group exists; an unreadable one counts."""
        try:
            return self.open(group).newest().exists
        except UsageError:
            return False
        except (CorruptionError, StorageUnreadableError):
            return True

    def _existing(self, group: str) -> tuple[GroupLog, GroupState]:
        handle = self.open(group)
        state = handle.newest()
        if not state.exists:
            live = (name for name in similar_names(group, self.every_name()) if self._is_live(name))
            similar = did_you_mean(next(live, None))
            raise UnknownGroupError(
                f"there is no group {group!r} in {self._storage.url}{similar}: it begins with its first commit, or "
                "member"
            )
        return handle, state

    def describe(self, group: str) -> GroupDescription:
        """Return a group's offsets and lags by partition, sorted, and its members.

        Deleted topics, and those hidden from the principal, are left out. A recreated topic has no commits. Damage is
        listed in `faults`.

        Raises:
            UnknownGroupError: no such group.
        """
        try:
            handle, state = self._existing(group)
        except CorruptionError as error:
            return GroupDescription(group, 0, (), {}, DAMAGED, faults=(str(error),))
        rows, metadata = [], {}
        faults = MemberFiles(self._storage, group, self._deciders).faults()
        for name in self._access.permitted_topics(Operation.DESCRIBE, sorted({*state.names(), *state.members.topics})):
            try:
                topic = _live(handle, name)
            except CorruptionError as error:
                faults.append(str(error))
                continue
            if topic is None:
                continue
            offsets = state.offsets(topic.topic_id)
            rows += [_row(name, topic, partition, offsets.get(partition)) for partition in range(topic.partitions)]
            if topic.topic_id in state.topics and state.topics[topic.topic_id].metadata:
                metadata[name] = state.topics[topic.topic_id].metadata
        members = state.members
        return GroupDescription(
            group,
            state.generation,
            tuple(rows),
            metadata,
            members.phase.value,
            members.generation,
            members.protocol,
            described_members(members),
            tuple(faults),
        )

    def commit(
        self, group: str, offsets: Offsets, *, generation: int | None = None, metadata: str = ""
    ) -> dict[str, dict[int, int]]:
        """Commit offsets of the next records to read; creates the group.

        Never moves backwards: to go back, reset.

        Args:
            group: group name.
            offsets: topic -> partition -> offset.
            generation: that of `describe` when you began to read, to refuse the commit after a reset. None: the present
                one.
            metadata: text of up to 4,096 bytes to store with them.

        Returns:
            The committed offsets of these topics.

        Raises:
            UnknownTopicError, TopicChangedError: a topic does not exist, or was deleted meanwhile.
            UsageError: a partition does not exist.
            OffsetOutOfRangeError: negative, or beyond the high watermark.
            GroupResetError: a partition was reset in a later generation.
            OutcomeUnknownError: commit again, which is idempotent.
        """
        self._check(offsets)
        offsets = whole_offsets(offsets)
        handle = self.open(group)
        ids = {name: handle.topic_state(name).topic_id for name in offsets}
        follows = handle.newest().generation if generation is None else generation
        positions = [
            Position(name, ids[name], p, offset)
            for name, by_partition in offsets.items()
            for p, offset in by_partition.items()
        ]
        state = handle.advance(positions, follows, metadata, strict=True).state
        return {name: state.offsets(topic_id) for name, topic_id in ids.items()}

    def reset(
        self,
        group: str,
        topics: Chosen = None,
        to: str | Offsets | None = None,
        *,
        offset: int | None = None,
        timestamp: int | datetime | None = None,
        shift: int | None = None,
        duration: str | None = None,
        dry_run: bool = True,
    ) -> tuple[OffsetReset, ...]:
        """Move a group's offsets in any direction, and raise its generation.

        Running queries continue from their checkpoints, but their progress no longer counts for these partitions. Give
        exactly one of `to`, `offset`, `timestamp`, `shift` and `duration`. A group with members can't be
        reset, as in Kafka; sessions of killed members are awaited.

        Args:
            group: group name; a missing group is created.
            topics: names, or topic -> partitions; None for all of the group, or those in `to`.
            to: `earliest`, `latest`, `current` (the committed offset, else the high watermark), or topic ->
                partition -> offset.
            offset: an offset.
            timestamp: the first record not earlier, in ms or as a datetime; else the high watermark.
            shift: records forward, or back if negative, within the log.
            duration: as `timestamp`, this long ago: `PT1H`, `P1DT12H`.
            dry_run: only return the moves.

        Returns:
            The moves, sorted.

        Raises:
            UsageError: no such partition, no topic, a shift without a committed offset, or not exactly one target.
            UnknownGroupError: no topics were given, and no such group.
            UnknownTopicError: a topic does not exist.
            OffsetOutOfRangeError: outside of log start offset and high watermark.
            NonEmptyGroupError: the group has live members.
            OutcomeUnknownError: describe the group, and reset again if necessary.
        """
        now = self._storage.clock.now_ms()
        target = target_of(to, offset, timestamp, shift, duration, now)
        handle = self.open(group) if topics or target.each else self._existing(group)[0]
        ids: dict[str, str] = {}

        def change(state: GroupState, slot: Slot) -> Changed[tuple[tuple[Position, int | None], ...]]:
            handle.refuse_members(state.members)
            moved = tuple(_planned(handle, state, topics, target, ids))
            for name in dict.fromkeys(at.topic for at, _ in moved):
                state = handle.of_history(state, name, handle.topic_state(name, ids[name]))
            after = reset(state, [position for position, _ in moved], now, slot.write_id) if moved else state
            return Changed(after, moved)

        moved = tuple(_planned(handle, handle.newest(), topics, target, ids))  # raises before waiting for sessions
        self._check({at.topic for at, _ in moved})
        if not dry_run:
            remove_silent(handle)
            moved = handle.apply("reset", change).result
        resets = (OffsetReset(at.topic, at.partition, before, at.offset) for at, before in moved)
        return tuple(sorted(resets, key=_place))

    def delete(self, group: str) -> None:
        """Delete a group with all its offsets and fence its queries.

        A damaged group is deleted at once, with its members; with access rules that takes READ on all topics, as its
        own are unknown.

        Raises:
            UnknownGroupError: no such group.
            NonEmptyGroupError: it has live members.
        """
        handle = self.open(group)
        try:
            _, state = self._existing(group)
        except CorruptionError as error:
            self._check([ALL])
            log.warning("group %r is deleted unread: %s", group, error)
            MemberFiles(self._storage, group, self._deciders).clear()
            handle.end_damaged()
            return
        self._check(state.names())
        remove_silent(handle)
        handle.end()

    def delete_offsets(self, group: str, topics: str | Iterable[str]) -> None:
        """Delete a group's offsets of topics atomically, fencing its queries.

        The topics may be deleted.

        Raises:
            UnknownGroupError: no such group.
            UnknownTopicError: a topic has no commits; nothing was deleted.
            NonEmptyGroupError: a live member wants one of them.
        """
        names = sorted({topics} if isinstance(topics, str) else set(topics))
        self._check(names)
        handle, state = self._existing(group)
        now = self._storage.clock.now_ms()
        if not state.members.topics.keys().isdisjoint(names):
            remove_silent(handle)

        def change(state: GroupState, slot: Slot) -> GroupState:
            if not state.members.topics.keys().isdisjoint(names):
                handle.refuse_members(state.members)
            for name in names:
                if name not in state.names():
                    raise UnknownTopicError(f"group {group!r} has no offsets of topic {name!r}")
                topic = _live(handle, name)
                live = {} if topic is None else {topic.topic_id: topic.partitions}
                state = without_topic(state, name, live, now, slot.write_id)
            return state

        handle.change("delete-offsets", change)

    def maintain(self, group: str) -> MaintainedGroup:
        """Forget offsets of deleted topics and those that have expired, and remove old entries.

        Offsets expire by the root's `offsets.retention.minutes`. All replicas first learn the commits; failures are
        logged.

        Raises:
            CorruptionError: the newest entry is damaged.
        """
        handle = self.open(group)
        if self._replicated:
            replicate_first(handle.journal.decided_log())
        retention_ms = offsets_retention_ms(RootDefaults(self._storage).as_given(), expire=self._offsets_expire)
        expired = 0 if retention_ms is None else handle.expire(retention_ms)
        done = MaintainedGroup(group, handle.forget(), handle.collect_old(), expired)
        if self._learner is not None:
            GroupLog(self._learner, group).collect_old()
        return done

    def verify(self) -> tuple[str, ...]:
        """Check every entry, table and member file; return the faults."""

        def faults(name: str) -> Sequence[str]:
            found: list[str] = []
            with ErrorBoundary(lambda error: found.append(fault_of(error, f"group {name}"))):
                found += faults_of(self.open(name))
            return found

        return tuple(chain.from_iterable(self._of_each(faults, self.list())))

    def unnamed(self) -> tuple[str, ...]:
        """Return files and directories that belong to no group or entry.

        Unreadable ones are left to `verify`.
        """

        def unnamed(directory: str) -> Sequence[str]:
            with suppress(StorageUnreadableError):
                return self._unnamed_of(directory)
            return ()

        return tuple(chain.from_iterable(self._of_each(unnamed, self._storage.names(paths.GROUPS))))

    def _unnamed_of(self, directory: str) -> Sequence[str]:
        name = paths.parse_group(directory)
        if name is None or not self.open(name).journal.sequences():  # a deleted group keeps entries, which fence
            return [f"{paths.GROUPS}/{directory}"]
        return strays_of(self.open(name))


def _place(row: OffsetReset) -> tuple[str, int]:
    return row.topic, row.partition


def _live(handle: GroupLog, name: str) -> TopicState | None:
    try:
        return handle.topic_state(name)
    except UnknownTopicError:
        return None


def _row(name: str, topic: TopicState, partition: int, offset: int | None) -> GroupPartition:
    low, high = topic.log_start[partition], topic.log_end[partition]
    lag = high - (low if offset is None else offset)
    return GroupPartition(name, partition, offset, low, high, high, max(0, lag))


def moved_to(topic: TopicLog, state: TopicState, partition: int, target: Target, current: int | None) -> int:
    """Return a partition's target offset; a timestamp is looked up."""
    check_partition(topic.name, state, partition)
    low, high = state.log_start[partition], state.log_end[partition]
    if target.way is not Way.TIMESTAMP:
        return new_offset(TopicPartition(topic.name, partition), target, current, low, high)
    record = find_time(topic, state.topic_id, partition, target.number)
    return high if record is None else min(record.offset, high)


def _planned(
    handle: GroupLog, state: GroupState, topics: Chosen, target: Target, ids: dict[str, str]
) -> Iterable[tuple[Position, int | None]]:
    """Yield each chosen partition's target and committed offset.

    `ids` keeps the first attempt's topic ids.
    """
    for name, wanted in _chosen(handle, state, topics, target).items():
        topic = handle.topic_state(name, ids.get(name))
        ids[name] = topic.topic_id
        offsets = handle.of_history(state, name, topic).offsets(topic.topic_id)
        for partition in sorted(set(range(topic.partitions) if wanted is None else wanted)):
            current = offsets.get(partition)
            after = moved_to(handle.topic(name).readable(), topic, partition, target, current)
            yield Position(name, topic.topic_id, partition, after, topic.lineage), current


def _chosen(handle: GroupLog, state: GroupState, topics: Chosen, target: Target) -> Mapping[str, Iterable[int] | None]:
    if target.each is not None:
        if topics:
            raise UsageError("topics and their offsets in 'to' exclude each other")
        return target.each
    if isinstance(topics, Mapping):
        return topics
    if topics:
        return dict.fromkeys([topics] if isinstance(topics, str) else topics)
    live_names = [name for name in state.names() if _live(handle, name) is not None]
    if not live_names:
        raise UsageError(f"group {handle.name!r} has no offsets of a topic that is there: name the topics")
    return dict.fromkeys(live_names)

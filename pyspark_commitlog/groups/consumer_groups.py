"""``CommitLog.groups``: a root's consumer groups, for Python code, notebooks and the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, compress
from typing import TypeVar

from pyspark_commitlog.access import Access, Operation
from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    StorageUnreadableError,
    UnknownGroupError,
    UnknownTopicError,
    UsageError,
    fault_of,
    missing,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.descriptions import (
    DAMAGED,
    GroupDescription,
    GroupPartition,
    MaintainedGroup,
    Moved,
    described_members,
)
from pyspark_commitlog.groups.membership.evict import remove_silent
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.reset_target import Offsets, Target, Way, new_offset, target_of, whole_offsets
from pyspark_commitlog.groups.state.group_log import Changed, GroupLog
from pyspark_commitlog.groups.state.group_state import GroupState, Position, reset, without_topic
from pyspark_commitlog.journal import Slot
from pyspark_commitlog.log.read.timestamps import find_time
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog, check_partition
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.replicas.metadata_roots import Deciders
from pyspark_commitlog.replicas.replicating import replicate_first
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import results_of
from pyspark_commitlog.text import did_you_mean, similar_names

log = logging.getLogger("pyspark_commitlog.groups")

_Result = TypeVar("_Result")

#: What a reset is about: None for all topics of the group, names, or the partitions of each.
Chosen = str | Sequence[str] | Mapping[str, Sequence[int]] | None


class Groups:
    """The consumer groups of a root. Opening touches nothing.

    Where the root has access rules, the principal needs READ on the topics to commit, reset or delete.

    Args:
        storage: the root.
        access: its rules.
        replicated: whether it belongs together with others.
        deciders: the metadata roots, where there are several.
        learner: the root that was opened, where others decide: ``maintain`` removes old entries there, too.
    """

    def __init__(
        self,
        storage: Storage,
        access: Access,
        *,
        replicated: bool = False,
        deciders: Deciders | None = None,
        learner: Storage | None = None,
    ) -> None:
        self._storage, self._access, self._replicated, self._deciders = storage, access, replicated, deciders
        self._learner = learner

    def _check(self, topics: Iterable[str]) -> None:
        self._access.check(Operation.READ, *topics)

    def open(self, group: str) -> GroupLog:
        """Return the handle of a group, existing or not; the layers below the API work on it.

        It asks whether the principal may read a topic at the first commit to it.

        Raises:
            UsageError: a name that is not allowed.
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
        """Return the results of ``act`` for each group, in their order.

        Several at a time if the disk is not local.
        """
        return results_of(act, groups, self._storage.requests_at_once)

    def every_name(self) -> tuple[str, ...]:
        """Return the names of all groups of which something is stored, deleted ones too, sorted."""
        stored = (self._deciders or self._storage).names(paths.GROUPS)
        names = (paths.parse_group(name) for name in stored)
        return tuple(sorted(name for name in names if name is not None))

    def _is_live(self, group: str) -> bool:
        """Return whether a group is there; one that can't be read is: looking at it raises why."""
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
        """Return how far a group has come in every partition of its topics, sorted, and its members.

        Topics that are gone, or that the principal may not use, are left out; of one that was made again nothing is
        committed.

        Damage is listed, and hides nothing else (``faults``).

        Raises:
            UnknownGroupError: there is no such group.
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
        """Commit offsets: those of the next records to read. The group begins with its first commit.

        Forward only: where a higher offset is committed already, it stays. To go back, reset.

        Args:
            group: its name.
            offsets: topic -> partition -> offset.
            generation: that of ``describe`` when you began to read: the commit is refused where the group was reset
                since. None for the present one, which knows of no reset.
            metadata: a text of up to 4,096 bytes to keep with them.

        Returns:
            What is committed now, of the topics given.

        Raises:
            UnknownTopicError, TopicChangedError: a topic is not there, or was deleted meanwhile.
            UsageError: a partition that does not exist.
            OffsetOutOfRangeError: an offset below 0 or beyond the high watermark.
            GroupResetError: a partition was reset in a later generation.
            OutcomeUnknownError: commit again: what landed changes nothing the second time.
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
    ) -> tuple[Moved, ...]:
        """Move a group's offsets, forward or back, and raise its generation: running queries can't undo it.

        They go on from their checkpoints, and their progress no longer counts for these partitions. Give exactly one
        of ``to``, ``offset``, ``timestamp``, ``shift`` and ``duration``. A group with members can't be reset, as in
        Kafka; members that were killed are waited for until their sessions are over.

        Args:
            group: its name; one that is not there begins.
            topics: names, or topic -> partitions; None for all topics of the group, or those in ``to``.
            to: ``earliest``, ``latest``, ``current`` (what is committed; the high watermark where nothing is), or
                topic -> partition -> offset.
            offset: this offset.
            timestamp: the first record that is not earlier, in ms or as a datetime; the high watermark if all are.
            shift: so many records on, or back if negative; it ends at the ends of the log.
            duration: as ``timestamp``, so long ago: ``PT1H``, ``P1DT12H``.
            dry_run: change nothing, only return what would be moved.

        Returns:
            What was moved, or would be, sorted.

        Raises:
            UsageError: no such partition, no topic, a shift of what was never committed, or not exactly one target.
            UnknownGroupError: no topics were given, and there is no such group.
            UnknownTopicError: a topic is not there.
            OffsetOutOfRangeError: an offset outside of log start offset and high watermark.
            NonEmptyGroupError: the group has members that live.
            OutcomeUnknownError: look, and reset again if need be.
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

        # first: what is wrong, or not allowed, is raised before anybody's session is waited for
        moved = tuple(_planned(handle, handle.newest(), topics, target, ids))
        self._check({at.topic for at, _ in moved})
        if not dry_run:
            remove_silent(handle)
            moved = handle.apply("reset", change).result
        return tuple(sorted((Moved(at.topic, at.partition, before, at.offset) for at, before in moved), key=_place))

    def delete(self, group: str) -> None:
        """Delete a group with all its offsets; queries that belong to it no longer commit, a new one makes it again.

        One whose newest entry can't be read goes at once, with its members: none of them can go on. Where the root has
        access rules, that takes READ on all topics, as it is unknown which it had.

        Raises:
            UnknownGroupError: there is no such group.
            NonEmptyGroupError: it has members that live.
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
        """Delete a group's offsets of one topic, or of several at once; running queries can't undo it.

        Args:
            group: the group.
            topics: their names; they may be gone.

        Raises:
            UnknownGroupError: there is no such group.
            UnknownTopicError: nothing of one of the topics is committed; nothing was deleted.
            NonEmptyGroupError: a member that lives wants one of them.
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
        """Forget a group's offsets of topics that were deleted, and remove its old entries.

        Before it all replicas learn what was committed; a root that fails there is logged.

        Returns:
            Of the entries those that were removed where they are decided.

        Raises:
            CorruptionError: the newest entry is damaged.
        """
        handle = self.open(group)
        if self._replicated:
            replicate_first(handle.journal.order())
        done = MaintainedGroup(group, handle.forget(), handle.collect_old())
        if self._learner is not None:
            GroupLog(self._learner, group).collect_old()
        return done

    def verify(self) -> tuple[str, ...]:
        """Check every stored entry, table and member's file of every group; return the faults."""

        def faults(name: str) -> Sequence[str]:
            found: list[str] = []
            try:
                found += _faults(self.open(name))
            except Exception as error:  # noqa: BLE001 a fault: no group stops the others
                found.append(fault_of(error, f"group {name}"))
            return found

        return tuple(chain.from_iterable(self._of_each(faults, self.list())))

    def unnamed(self) -> tuple[str, ...]:
        """Return the files and directories that belong to no group, or that no entry of theirs refers to.

        What may not be read is no such file: ``verify`` says that it can't be.
        """

        def unnamed(directory: str) -> Sequence[str]:
            with suppress(StorageUnreadableError):
                return self._unnamed_of(directory)
            return ()

        return tuple(chain.from_iterable(self._of_each(unnamed, self._storage.names(paths.GROUPS))))

    def _unnamed_of(self, directory: str) -> Sequence[str]:
        home, name = f"{paths.GROUPS}/{directory}", paths.parse_group(directory)
        if name is None or not self.open(name).journal.sequences():  # one that was deleted has entries: they fence
            return [home]
        ours = {"journal", "side", "members"}
        there = (file for file in self._storage.names(home) if not paths.is_acceptor(file))
        unnamed = [f"{home}/{file}" for file in there if file not in ours]
        journal, sides = paths.group_journal(name), paths.group_side(name)
        named = _sides(self.open(name))
        unnamed += [f"{journal}/{file}" for file in self._storage.names(journal) if paths.parse_entry(file) is None]
        unnamed += [f"{sides}/{file}" for file in self._storage.names(sides) if file not in named]
        members = paths.group_members(name)
        unnamed += [f"{members}/{file}" for file in self._storage.names(members) if paths.parse_member(file) is None]
        return unnamed


def _sides(handle: GroupLog) -> set[str]:
    """Return the side files that the entries of a group name, as far as those can be read."""
    named = set()
    for sequence in handle.journal.sequences():
        with suppress(CommitLogError, FileNotFoundError):
            members = handle.journal.read(sequence).entry.body["state"].get("members")
            if isinstance(members, dict) and "file" in members:
                named.add(members["file"])
    return named


def _place(row: Moved) -> tuple[str, int]:
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
    """Return where a target moves a partition to; a timestamp is looked up.

    Raises:
        UsageError: the partition does not exist.
        As ``target.new_offset``.
    """
    check_partition(topic.name, state, partition)
    low, high = state.log_start[partition], state.log_end[partition]
    if target.way is not Way.TIMESTAMP:
        return new_offset(TopicPartition(topic.name, partition), target, current, low, high)
    record = find_time(topic, state.topic_id, partition, target.number)
    return high if record is None else min(record.offset, high)


def _planned(
    handle: GroupLog, state: GroupState, topics: Chosen, target: Target, ids: dict[str, str]
) -> Iterable[tuple[Position, int | None]]:
    """Yield where each chosen partition goes, and what is committed for it.

    ``ids`` remembers the ids of the topics from the first attempt on.
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
    """Return topic -> partitions, None for all of them."""
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


def _faults(handle: GroupLog) -> Iterable[str]:
    """Yield what is damaged. That each entry follows the one before is not asked: a sleeper may have put below them."""
    for sequence in handle.journal.sequences():
        try:
            handle.state_of(handle.journal.read(sequence))
        except FileNotFoundError as error:
            if sequence in handle.journal.sequences():  # else it was collected meanwhile
                yield str(missing(error))
        except CommitLogError as error:
            yield str(error)
    files = MemberFiles.of(handle)
    for member_id in files.members():
        if files.read(member_id) is None and member_id in files.members():  # else it left meanwhile
            member = f"{paths.group_members(handle.name)}/{paths.member_name(member_id)}"
            yield f"{member} is no member's file: the member counts as gone until it writes it again"

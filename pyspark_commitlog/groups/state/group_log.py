"""Handle on one group, by its journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple
from zlib import crc32

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import (
    CommitLogError,
    GroupResetError,
    NonEmptyGroupError,
    UsageError,
    missing,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json, to_json_bytes
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.groups.state.gone_topics import gone_for_good
from pyspark_commitlog.groups.state.group_entries import GroupEntries
from pyspark_commitlog.groups.state.group_files import GroupFiles
from pyspark_commitlog.groups.state.group_metadata import ConsumerGroupMetadata, check_generation
from pyspark_commitlog.groups.state.group_shapes import check_group_entry, check_members
from pyspark_commitlog.groups.state.group_state import (
    GroupState,
    Position,
    committed,
    ended,
    fenced,
    forgotten,
    noting_emptied,
    without_expired,
    without_lost,
)
from pyspark_commitlog.groups.state.members import Members
from pyspark_commitlog.groups.state.position_check import PositionCheck
from pyspark_commitlog.journal import Draft, LandedDraft, Slot, Stored, Unchanged
from pyspark_commitlog.journal.anchor import stays_ms
from pyspark_commitlog.journal.entries import Appended, Plan, Result
from pyspark_commitlog.replication.leader.quorum_journal import unit_journal
from pyspark_commitlog.replication.metadata.metadata_roots import Deciders
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.shared.caches import Shelf
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.divergence import find_divergence
from pyspark_commitlog.topic.state.side_files import place_tables
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import HANDLE_BYTES, TopicLog

log = logging.getLogger("pyspark_commitlog.groups")

#: Maximum bytes of an entry's rows: bounds a commit's write, and a look's read.
MAX_STATE_BYTES = 2**20
MAX_METADATA_BYTES = 4096
#: Bound of generations: larger ones count no resets.
MAX_GENERATION = 2**53
_COLLECT_EVERY = 16


@dataclass(frozen=True, slots=True)
class Advanced:
    """Result of a commit: the state after it, and positions reset since."""

    state: GroupState
    fenced: tuple[Position, ...]


class Changed(NamedTuple, Generic[Result]):
    """New state, the same object if unchanged, and result of an operation."""

    state: GroupState
    result: Result


def _side_file(directory: str, topic_id: str, file: str) -> str:
    return f"{directory}/{file}"


def _count_topics(state: GroupState) -> int:
    return sum(bool(state.offsets(topic_id)) for topic_id in state.topics)


class GroupLog:
    """One group of a root. Not thread-safe; opening has no effect.

    Args:
        allow: raises if offsets of a topic may not be committed; not called again for topics of the last commit.
        replicated: whether replicas learn commits.
        deciders: metadata roots, if several, read instead of this root.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        allow: Callable[[str], None] | None = None,
        *,
        replicated: bool = False,
        deciders: Deciders | None = None,
    ) -> None:
        self.storage, self._allow, self._replicated, self.deciders = storage, allow, replicated, deciders
        self.name = paths.check_group_name(name)
        self.directory = paths.group_journal(name)
        self._sides = paths.group_side(name)
        self._side = partial(_side_file, self._sides)  # no method: with it the journal would refer back to its handle
        unit = Unit(self.directory, "group", self._side, GroupFiles(storage, name), whole=True)
        self.journal = unit_journal(storage, unit, check_group_entry, decided=deciders is not None)
        self._entries = GroupEntries(storage, self.journal, name)
        self._topics: Shelf[str, TopicLog] = Shelf()
        self._members: tuple[Json, Members] | None = None
        self._allowed: set[str] = set()

    def topic(self, name: str) -> TopicLog:
        """Handle of a topic."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._opened(name)
            self._topics.put(name, topic, HANDLE_BYTES)
        return topic

    def _topic_once(self, name: str) -> TopicLog:
        """Handle uncached: thousands of deleted topics may be known."""
        return self._topics.get(name) or self._opened(name)

    def _opened(self, name: str) -> TopicLog:
        return TopicLog(self.storage, name, decided=self.deciders is not None)

    def topic_names(self) -> list[str]:
        """Names in the topics' directory, sorted; not all are topics."""
        return (self.deciders or self.storage).names(paths.TOPICS)

    def topic_state(self, name: str, topic_id: str | None = None) -> TopicState:
        """Newest state of a topic, made durable first (rule R5)."""
        return self.topic(name).newest_durable(topic_id)[1]

    def newest(self) -> GroupState:
        """Return the group's durable state, empty before any commit."""
        stored = self.journal.newest()
        if stored is None:
            return GroupState()
        self.journal.sync_exposed(stored)
        try:
            return self.state_of(stored)
        except FileNotFoundError as error:  # its members' file was collected with it: there is a newer entry
            self.journal.forget()
            if self.journal.newest() == stored:
                raise missing(error) from error
            return self.newest()

    def state_of(self, stored: Stored | None) -> GroupState:
        """State in an entry; an empty one for none.

        Raises:
            FileNotFoundError: the side file with its members was collected.
        """
        if stored is None:
            return GroupState()
        data = stored.entry.body["state"]
        return GroupState.from_json(data, self._members_of(data.get("members")))

    def _members_of(self, table: Json | None) -> Members:
        if table is None:
            return Members()
        if self._members is None or self._members[0] != table:
            inline = table
            if "file" in table:
                path = self._side("", table["file"])
                inline = check_members(checked_json(self.journal.side("", table), dict[str, object], path), path)
            self._members = table, Members.from_json(inline)
        return self._members[1]

    def advance(
        self,
        positions: Sequence[Position],
        generation: int = 0,
        metadata: str = "",
        *,
        strict: bool = False,
        member: ConsumerGroupMetadata | None = None,
    ) -> Advanced:
        """Commit positions; each partition keeps the higher offset.

        Unless OutcomeUnknownError, an error means that nothing was committed.

        Args:
            generation: that the committer follows; ignored for members, which no reset coexists with.
            strict: refuse the whole commit if a part was reset since; else commit the rest.
            member: committing member; None for queries and others.

        Raises:
            AccessDeniedError: the principal may not read a topic.
            UnknownTopicError, TopicChangedError: a topic was deleted or recreated.
            UsageError: no such partition, or the state is too large.
            OffsetOutOfRangeError: negative, or beyond the high watermark.
            LogTruncationError: a topic was restored since the position was reached.
            GroupResetError: a part was reset, and `strict` is set.
            CommitFailedError: the member's generation is over, or a partition not its own.
            FencedInstanceIdError: another process is the static member now.
            OutcomeUnknownError: commit again, which is idempotent.
        """
        try:
            size = len(metadata.encode())
        except UnicodeEncodeError:
            raise UsageError(
                f"metadata {metadata!r} is no text that UTF-8 has: it has half of a surrogate pair"
            ) from None
        if size > MAX_METADATA_BYTES:
            raise UsageError(f"metadata has {size} bytes, at most {MAX_METADATA_BYTES} are allowed")
        self._check_allowed({at.topic for at in positions})

        def change(state: GroupState, slot: Slot) -> Changed[tuple[Position, ...]]:
            if member is not None:
                check_generation(self.name, state.members, member, positions)
            refused = fenced(state, positions, generation if member is None else state.generation)
            if refused and strict:
                raise self._reset_since(refused, generation, state)
            out = set(refused)
            counted, states = PositionCheck(self.name, self.topic).checked(
                [at for at in positions if at not in out], state
            )
            for name in dict.fromkeys(at.topic for at in counted):
                state = self.of_history(state, name, states[name])
            return Changed(committed(state, counted, self.storage.clock.now_ms(), metadata), refused)

        return Advanced(*self.apply("commit", change))

    def _check_allowed(self, topics: set[str]) -> None:
        if self._allow is None:
            return
        for topic in sorted(topics - self._allowed):
            self._allow(topic)
        self._allowed = topics

    def end(self) -> None:
        """Delete the group: drop all offsets, fence former followers. Refuse one with members."""

        def change(state: GroupState, slot: Slot) -> GroupState:
            self.refuse_members(state.members)
            return ended(state, slot.write_id) if state.names() else state

        self.change("delete", change)

    def end_damaged(self) -> None:
        """Delete the group without reading its damaged entries.

        The generation continues from the highest found, to fence former followers.
        """
        generations = [self._generation_at(sequence) for sequence in self.journal.sequences()]

        def make(slot: Slot) -> Draft[None]:
            state = ended(GroupState(max(generations, default=0)), slot.write_id)
            return Draft("delete", "", {"state": state.to_json()}, result=None)

        self.journal.supersede(make)
        self._members = None
        self._entries.collect_sides()

    def _generation_at(self, sequence: int) -> int:
        try:
            state = self.journal.read(sequence).entry.body.get("state")
        except (CommitLogError, OSError):
            return 0
        generation = state.get("generation") if isinstance(state, dict) else None
        return generation if type(generation) is int and 0 <= generation < MAX_GENERATION else 0

    def forget(self) -> int:
        """Forget the offsets of deleted topics, as Kafka's coordinator does; return the number of topic ids."""

        def without_gone(state: GroupState) -> GroupState:
            return forgotten(state, gone_for_good(self._topic_once, state, self.name, absent=False))

        before = self.newest()
        if without_gone(before) is before:
            return 0
        after, known = self.apply("forget", lambda state, slot: Changed(without_gone(state), len(state.topics)))
        return known - len(after.topics)

    def expire(self, retention_ms: int) -> int:
        """Forget the offsets that nobody has used for so long; return the number of topic ids.

        A commit or a member that comes first keeps them: each attempt looks at the entry that it builds on (R9). The
        storage's time is a lower bound, so that a clock that is fast alone forgets nothing.
        """
        before_ms = min(self.storage.clock.now_ms(), self.storage.now_ms()) - retention_ms
        state = self.newest()
        if without_expired(state, before_ms) is state:
            return 0
        after, known = self.apply(
            "expire", lambda state, slot: Changed(without_expired(state, before_ms), _count_topics(state))
        )
        return known - _count_topics(after)

    def _fitting(self, state: GroupState) -> GroupState:
        """State; one that is too large without deleted topics."""
        size = len(to_json_bytes(state.to_json()))
        if size > MAX_STATE_BYTES:
            state = forgotten(state, gone_for_good(self._topic_once, state, self.name, absent=True))
            size = len(to_json_bytes(state.to_json()))
        if size > MAX_STATE_BYTES:
            raise UsageError(
                f"group {self.name!r}: its offsets would take {size} bytes, at most {MAX_STATE_BYTES} are allowed: "
                "use several groups"
            )
        return state

    def refuse_members(self, members: Members) -> None:
        """Refuse an operation on a group with members."""
        for row in members.rows.values():
            raise NonEmptyGroupError(
                f"group {self.name!r} has {len(members.rows)} members, such as {row.profile.client_id} on "
                f"{row.profile.host}: stop them, then do it again. One that was killed is removed once its session of "
                f"{row.profile.session_timeout_ms} ms is over"
            )

    def change(self, kind: str, change: Callable[[GroupState, Slot], GroupState]) -> GroupState:
        """Put the result of `change`, unless it is the newest state itself.

        Called on every attempt (rule R9).
        """
        return self.apply(kind, lambda state, slot: Changed(change(state, slot), None)).state

    def apply(self, kind: str, change: Callable[[GroupState, Slot], Changed[Result]]) -> Changed[Result]:
        """Put the state that `change` returns; return it with the result."""

        def plan(base: Stored | None, slot: Slot) -> Draft[Changed[Result]] | Unchanged[Changed[Result]] | LandedDraft:
            before = self.state_of(base)
            if before.last_reset == slot.write_id:
                return LandedDraft()
            after, result = change(before, slot)
            if after is before:
                return Unchanged(Changed(before, result))
            after = self._fitting(noting_emptied(before, after, self.storage.clock.now_ms()))
            if base is None and self.deciders is None:
                self.storage.make_directory(self.directory)
            return self._draft(kind, Changed(after, result), slot)

        try:
            stored, changed = self._append(plan)
        except FileNotFoundError as error:  # the members' file of the newest entry
            raise missing(error) from error
        if stored is not None and (kind != "commit" or stored.sequence % _COLLECT_EVERY == 0):
            self._collect()
        return changed

    def _append(self, plan: Plan[Result]) -> Appended[Result]:
        if self._replicated and self.journal.newest() is None:
            return self.journal.decided_log().create(plan, None, crc32(self.name.encode()))
        return self.journal.append(plan)

    def _draft(self, kind: str, changed: Changed[Result], slot: Slot) -> Draft[Changed[Result]]:
        state = changed.state
        body = state.to_json()
        sides: Mapping[str, bytes] = {}
        if self._members is not None and self._members[1] is state.members:
            body["members"] = self._members[0]
        elif state.members.generation:
            tables = place_tables({"members": state.members.to_json()}, slot.sequence, slot.write_id)
            body["members"], sides = tables.body["members"], tables.sides
        return Draft(kind, "", {"state": body}, sides=sides, result=changed)

    def of_history(self, state: GroupState, name: str, topic: TopicState) -> GroupState:
        """Cut commits of a topic's lost history to the common prefix, to nothing if unknown."""
        difference = find_divergence(self.topic(name), state.lineage(topic.topic_id), topic)
        if difference is None:
            return state
        log.warning("group %r: topic %r: what was committed is cut back: %s", self.name, name, difference.reason)
        return without_lost(state, topic.topic_id, difference.ends)

    def _reset_since(self, refused: Sequence[Position], generation: int, state: GroupState) -> GroupResetError:
        at = refused[0]
        return GroupResetError(
            f"group {self.name!r}: {at.topic} partition {at.partition} was reset, or deleted, in generation "
            f"{state.since(at.topic_id, at.partition)}, the commit follows generation {generation}: nothing was "
            f"committed. Read on from the group's offsets, in generation {state.generation}"
        )

    # --- old entries --------------------------------------------------------------------------------------

    def _collect(self) -> None:
        try:
            self.collect_old()
        except (CommitLogError, OSError) as error:
            log.warning("group %r: old entries were not collected, and will be later: %s", self.name, error)

    def collect_old(self) -> int:
        """Delete entries by the root's delay; return how many."""
        delay = TopicConfig(RootDefaults(self.storage).by_topic_name()).number("file.delete.delay.ms")
        return self.collect(delay if self.storage.can_append else stays_ms(delay))

    def collect(self, delay_ms: int) -> int:
        """Delete old entries, ascending; return how many.

        Old: the successor exceeds the delay. Keeps the newest two, and those that an in-sync replica has not learned.
        With several metadata roots, at each that answers.
        """
        if self.deciders is None:
            return self._entries.collect(delay_ms, self.journal.learned_in_sync)
        learned = self.journal.learned_in_sync()
        gone = 0
        for storage in self.deciders.reachable_roots():
            try:
                gone += GroupLog(storage, self.name)._entries.collect(delay_ms, lambda: learned)
            except (CommitLogError, OSError) as error:
                log.warning("group %r: old entries at %s go when it answers: %s", self.name, storage.url, error)
        return gone

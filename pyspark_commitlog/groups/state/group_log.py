"""A handle on one group: its journal, and what its newest entry says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, NoReturn
from zlib import crc32

from pyspark_commitlog.anchor import KEPT_ENTRIES, stays_ms
from pyspark_commitlog.config import DAY_MS, TopicConfig
from pyspark_commitlog.errors import (
    CommitFailedError,
    CommitLogError,
    FencedInstanceIdError,
    GroupResetError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
    missing,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json, to_json_bytes
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.groups.state.gone_topics import gone_for_good
from pyspark_commitlog.groups.state.group_files import GroupFiles
from pyspark_commitlog.groups.state.group_shapes import check_group_entry, check_members
from pyspark_commitlog.groups.state.group_state import (
    GroupState,
    Position,
    committed,
    ended,
    fenced,
    forgotten,
    without_lost,
)
from pyspark_commitlog.groups.state.members import Members
from pyspark_commitlog.journal import Draft, LandedDraft, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, Plan, Result
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.log.divergence import check_parted, find_divergence
from pyspark_commitlog.log.maintain.collect import oldest_needed
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.tables import place_tables
from pyspark_commitlog.log.topic import HANDLE_BYTES, TopicLog, check_partition
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.replicas.decided_journal import DecidedJournal
from pyspark_commitlog.replicas.journal import ReplicatedJournal
from pyspark_commitlog.replicas.metadata_roots import Deciders
from pyspark_commitlog.replicas.unit import Unit
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.caches import Shelf

log = logging.getLogger("pyspark_commitlog.groups")

#: All rows of an entry together: bounds what a commit writes, and what a look reads.
MAX_STATE_BYTES = 2**20
MAX_METADATA_BYTES = 4096
#: A generation above is no count of resets.
MAX_GENERATION = 2**53
_COLLECT_EVERY = 16
#: How long commits of offsets go by what is remembered of their topics, where a look is a request.
_RECENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a commit came to: the state after it, and what it could not move, because it was reset since."""

    state: GroupState
    fenced: tuple[Position, ...]


class Changed(NamedTuple, Generic[Result]):
    """What an operation makes of a group's state, the very same where it changes nothing; and what it comes to."""

    state: GroupState
    result: Result


@dataclass(frozen=True, slots=True)
class Tenure:
    """In whose name a member commits (Kafka: ``ConsumerGroupMetadata``); ``joined`` is the number of its admission."""

    member_id: str
    joined: int | None
    generation: int
    instance_id: str | None = None


def _side_file(directory: str, topic_id: str, file: str) -> str:
    return f"{directory}/{file}"


class GroupLog:
    """One group of a root. Opening touches nothing; every answer comes from the newest entry.

    Not safe for use by several threads at once.

    Args:
        storage: the root.
        name: of the group.
        allow: raises where offsets of a topic may not be committed; not asked again of topics that the last commit had.
        replicated: whether the root belongs together with others: all learn what a group commits.
        deciders: the metadata roots, where there are several: they are asked, and not what this root has.
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
        self._side = partial(_side_file, self._sides)  # no method: the journal would hold its handle, as a cycle
        unit = Unit(self.directory, "group", self._side, GroupFiles(storage, name), whole=True)
        self.journal = (DecidedJournal if deciders else ReplicatedJournal)(storage, unit, check_group_entry)
        self._topics: Shelf[str, TopicLog] = Shelf()
        self._members: tuple[Json, Members] | None = None
        self._allowed: set[str] = set()

    def topic(self, name: str) -> TopicLog:
        """Return the handle of a topic."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._opened(name)
            self._topics.put(name, topic, HANDLE_BYTES)
        return topic

    def _topic_once(self, name: str) -> TopicLog:
        """Return the handle of a topic, which is not kept: a group may know thousands that are gone."""
        return self._topics.get(name) or self._opened(name)

    def _opened(self, name: str) -> TopicLog:
        return TopicLog(self.storage, name, decided=self.deciders is not None)

    def topic_names(self) -> list[str]:
        """Return the names in the topics' directory, sorted; not all are topics."""
        return (self.deciders or self.storage).names(paths.TOPICS)

    def topic_state(self, name: str, topic_id: str | None = None) -> TopicState:
        """Return the newest state of a topic, made durable first (rule R5).

        Raises:
            UnknownTopicError, TopicChangedError: see ``TopicLog.newest``.
        """
        return self.topic(name).newest_durable(topic_id)[1]

    def newest(self) -> GroupState:
        """Return the group's state, durable; an empty one where nothing was ever committed.

        Raises:
            CorruptionError: the newest entry is damaged.
        """
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
        """Return the state in an entry; an empty one for none.

        Raises:
            FileNotFoundError: the side file with its members is collected.
            CorruptionError: that is damaged.
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
        member: Tenure | None = None,
    ) -> Advanced:
        """Commit positions: of each partition the higher offset stays.

        Args:
            positions: what to commit.
            generation: that the committer follows; a member follows none, as there is no reset beside it.
            metadata: a text to keep with them.
            strict: refuse the whole commit if a part of it was reset since; else the others are committed.
            member: in whose name; None for queries, and others that are not members of the group.

        Raises:
            AccessDeniedError: the principal may not read a topic; nothing was committed.
            UnknownTopicError, TopicChangedError: a topic is gone, or another one now.
            UsageError: a partition that does not exist, or too much of all.
            OffsetOutOfRangeError: an offset below 0 or beyond the high watermark.
            LogTruncationError: a topic was restored from a copy since the position was reached; nothing was committed.
            GroupResetError: a part was reset, and ``strict`` is set.
            CommitFailedError: the member's generation is over, or a partition is not its own; nothing was committed.
            FencedInstanceIdError: another process is the static member now; nothing was committed.
            OutcomeUnknownError: do it again: what landed changes nothing the second time.
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
                self._check_tenure(state.members, member, positions)
            refused = fenced(state, positions, generation if member is None else state.generation)
            if refused and strict:
                raise self._reset_since(refused, generation, state)
            out = set(refused)
            counted, states = self._checked([at for at in positions if at not in out], state)
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
        """Delete the group: no offset is left, and processes that followed it before can't commit any more.

        Raises:
            NonEmptyGroupError: it has members.
        """

        def change(state: GroupState, slot: Slot) -> GroupState:
            self.refuse_members(state.members)
            return ended(state, slot.write_id) if state.names() else state

        self.change("delete", change)

    def end_damaged(self) -> None:
        """Delete the group, whatever its entries hold: nothing of what can't be read is kept, nor asked.

        The generation goes on from the highest that is found, so followers of the group can't commit any more.
        """
        generations = [self._generation_at(sequence) for sequence in self.journal.sequences()]

        def make(slot: Slot) -> Draft[None]:
            state = ended(GroupState(max(generations, default=0)), slot.write_id)
            return Draft("delete", "", {"state": state.to_json()}, result=None)

        self.journal.supersede(make)
        self._members = None
        self._collect_sides()

    def _generation_at(self, sequence: int) -> int:
        """Return the generation of an entry as far as it can be read, else 0."""
        try:
            state = self.journal.read(sequence).entry.body.get("state")
        except (CommitLogError, OSError):
            return 0
        generation = state.get("generation") if isinstance(state, dict) else None
        return generation if type(generation) is int and 0 <= generation < MAX_GENERATION else 0

    def forget(self) -> int:
        """Forget the offsets of topics that were deleted, as Kafka's coordinator does (``maintain``).

        Returns:
            Of how many topic ids.
        """

        def without_gone(state: GroupState) -> GroupState:
            return forgotten(state, gone_for_good(self._topic_once, state, self.name, absent=False))

        before = self.newest()
        if without_gone(before) is before:
            return 0
        after, known = self.apply("forget", lambda state, slot: Changed(without_gone(state), len(state.topics)))
        return known - len(after.topics)

    def _fitting(self, state: GroupState) -> GroupState:
        """Return a state; one that is too large without what it holds of topics that are gone.

        Raises:
            UsageError: it does not fit all the same.
        """
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
        """Refuse what can't be done under members.

        Raises:
            NonEmptyGroupError: names one.
        """
        for row in members.rows.values():
            raise NonEmptyGroupError(
                f"group {self.name!r} has {len(members.rows)} members, such as {row.profile.client_id} on "
                f"{row.profile.host}: stop them, then do it again. One that was killed is removed once its session of "
                f"{row.profile.session_timeout_ms} ms is over"
            )

    def _check_tenure(self, members: Members, member: Tenure, positions: Iterable[Position]) -> None:
        row = members.rows.get(member.member_id)
        if row is None or (row.joined, members.generation) != (member.joined, member.generation):
            self._refuse_tenure(members, member)
        for at in positions:
            place = TopicPartition(at.topic, at.partition)
            if not members.has(member.member_id, place, at.topic_id):
                raise CommitFailedError(
                    f"group {self.name!r}: {at.topic} partition {at.partition} is not assigned to member "
                    f"{member.member_id} in generation {members.generation}: nothing was committed"
                )

    def _refuse_tenure(self, members: Members, member: Tenure) -> NoReturn:
        other = members.instance(member.instance_id)
        if other not in (None, member.member_id):
            raise FencedInstanceIdError(
                f"group {self.name!r}: another process, member {other}, has joined with group_instance_id "
                f"{member.instance_id!r}: nothing was committed. Give each process an id of its own, and start this "
                "one again"
            )
        row = members.rows.get(member.member_id)
        now = "still a member" if row is not None and row.joined == member.joined else "not a member any more"
        raise CommitFailedError(
            f"group {self.name!r} is in generation {members.generation}, member {member.member_id} commits in "
            f"generation {member.generation} and is {now}: nothing was committed. Poll, and commit what is assigned "
            "then; if that comes often, poll more often, or raise max_poll_interval_ms or session_timeout_ms"
        )

    def change(self, kind: str, change: Callable[[GroupState, Slot], GroupState]) -> GroupState:
        """Put what ``change`` makes of the newest state; nothing, where it returns the very same.

        ``change`` is called on every attempt (rule R9).
        """
        return self.apply(kind, lambda state, slot: Changed(change(state, slot), None)).state

    def apply(self, kind: str, change: Callable[[GroupState, Slot], Changed[Result]]) -> Changed[Result]:
        """Put what ``change`` makes of the newest state, as the method of that name; return that and its result."""

        def plan(base: Stored | None, slot: Slot) -> Draft[Changed[Result]] | Unchanged[Changed[Result]] | LandedDraft:
            before = self.state_of(base)
            if before.last_reset == slot.write_id:
                return LandedDraft()
            after, result = change(before, slot)
            if after is before:
                return Unchanged(Changed(before, result))
            after = self._fitting(after)
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
            return self.journal.order().create(plan, None, crc32(self.name.encode()))
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
        """Return the state without what was committed of a topic before it was restored from a copy.

        The offsets up to which both histories are the same stay; where that is unknown, none does.
        """
        difference = find_divergence(self.topic(name), state.lineage(topic.topic_id), topic)
        if difference is None:
            return state
        log.warning("group %r: topic %r: what was committed is cut back: %s", self.name, name, difference.reason)
        return without_lost(state, topic.topic_id, difference.ends)

    def _covering(self, at: Position, state: GroupState) -> TopicState:
        """Return a topic's state that a position can be checked by: where a look is a request, one that is remembered.

        That may be of a topic that was deleted, or restored, a minute ago; as if the commit had come before. The
        position carries its incarnation and history, by which it is judged when it is used.
        """
        topic = self.topic(at.topic)
        try:
            stored, remembered = topic.newest_at(topic.journal.recent(_RECENT_SECONDS), at.topic_id)
        except (TopicChangedError, UnknownTopicError):
            return self.topic_state(at.topic, at.topic_id)
        if not _covers(remembered, at, state):
            return self.topic_state(at.topic, at.topic_id)
        topic.journal.sync_exposed(stored)
        return remembered

    def _checked(
        self, positions: Iterable[Position], state: GroupState
    ) -> tuple[list[Position], dict[str, TopicState]]:
        """Return positions that can be committed on top of a state, and those of their topics, as they were checked.

        A topic of which the group has offsets of another incarnation is looked at: of the two, the one that is gone
        would take the offsets of the other away. So would one position among those of a commit.
        """
        states: dict[str, TopicState] = {}
        incarnations = Counter(row.name for row in state.topics.values())
        checked = []
        for at in positions:
            if at.topic not in states:
                has_other = incarnations[at.topic] > (at.topic_id in state.topics)
                states[at.topic] = self.topic_state(at.topic, at.topic_id) if has_other else self._covering(at, state)
            elif states[at.topic].topic_id != at.topic_id:
                for each in (at.topic_id, states[at.topic].topic_id):  # one of them is gone: that is the error
                    self.topic_state(at.topic, each)
            elif not _covers(states[at.topic], at, state):
                states[at.topic] = self.topic_state(at.topic, at.topic_id)
            check_partition(at.topic, states[at.topic], at.partition)
            high = states[at.topic].log_end[at.partition]
            if not 0 <= at.offset <= high:
                raise OffsetOutOfRangeError(
                    f"group {self.name!r}: {at.topic} partition {at.partition}: offset {at.offset} can't be committed, "
                    f"the high watermark is {high}; nothing was committed"
                )
            check_parted(self.topic(at.topic), at.lineage, states[at.topic], [(at.partition, at.offset)])
            checked.append(at)
        return [replace(at, lineage=states[at.topic].lineage) for at in checked], states

    def _reset_since(self, refused: Sequence[Position], generation: int, state: GroupState) -> GroupResetError:
        at = refused[0]
        return GroupResetError(
            f"group {self.name!r}: {at.topic} partition {at.partition} was reset, or deleted, in generation "
            f"{state.since(at.topic_id, at.partition)}, the commit follows generation {generation}: nothing was "
            f"committed. Read on from the group's offsets, in generation {state.generation}"
        )

    # --- old entries --------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Delete entries that nobody can need; a failure is a warning: what was put is committed."""
        try:
            self.collect_old()
        except (CommitLogError, OSError) as error:
            log.warning("group %r: old entries were not collected, and will be later: %s", self.name, error)

    def collect_old(self) -> int:
        """Delete entries by the root's delay; return how many."""
        delay = TopicConfig(RootDefaults(self.storage).by_topic_name()).number("file.delete.delay.ms")
        return self.collect(delay if self.storage.can_append else stays_ms(delay))

    def collect(self, delay_ms: int) -> int:
        """Delete, ascending, the entries whose next one is older than the delay, never the newest two.

        Nor one that a replica in sync has not learned. Where several metadata roots decide, at each that answers.

        Returns:
            How many went.
        """
        if self.deciders is None:
            return self._collect_here(delay_ms, self.journal.learned_in_sync)
        learned = self.journal.learned_in_sync()
        gone = 0
        for storage in self.deciders.reachable_roots():
            try:
                gone += GroupLog(storage, self.name)._collect_here(delay_ms, lambda: learned)
            except (CommitLogError, OSError) as error:
                log.warning("group %r: old entries at %s go when it answers: %s", self.name, storage.url, error)
        return gone

    def _collect_here(self, delay_ms: int, in_sync: Callable[[], int | None]) -> int:
        sequences, now = self.journal.sequences(), self.storage.now_ms()
        if self.storage.can_append:
            proof = oldest_needed(((sequence, self._stored_ms(sequence)) for sequence in sequences[1:]), now, delay_ms)
        else:
            proof = self.journal.older_than(now - delay_ms)
        gone = [sequence for sequence in sequences[:-KEPT_ENTRIES] if sequence < proof]
        if gone and (learned := in_sync()) is not None:
            gone = [sequence for sequence in gone if sequence <= learned]
        for sequence in gone:
            self.journal.delete(sequence)
        self._collect_sides()
        for directory in (self.directory, paths.group_members(self.name)):
            self.storage.remove_abandoned(directory, now - DAY_MS)
        return len(gone)

    def _stored_ms(self, sequence: int) -> int | None:
        """Return an entry's storage time; None where another collector is ahead of us."""
        try:
            return self.storage.info(f"{self.directory}/{paths.entry_name(sequence)}").modified_ms
        except FileNotFoundError:
            return None

    def _collect_sides(self) -> None:
        """Delete the side files that no entry names any more: those made for entries before the oldest one's."""
        made = {name: paths.parse_side(name) for name in self.storage.names(self._sides)}
        sequences = self.journal.sequences() if made else []
        if not sequences:  # none was put yet: what lies there may be of one that is about to be
            return
        try:
            oldest = self.journal.read(sequences[0])
        except FileNotFoundError:  # another collector is ahead of us
            return
        named = paths.parse_side(oldest.entry.body["state"].get("members", {}).get("file", ""))
        for name, sequence in made.items():
            if sequence is not None and sequence < (named or oldest.sequence):
                self.storage.delete(f"{self._sides}/{name}")


def _covers(topic: TopicState, at: Position, group: GroupState) -> bool:
    """Return whether a state that is remembered has what a position needs (pure).

    That is the offset, and nothing may be newer: neither what the position was read under, nor what the group's offsets
    of the topic were committed under. To such an older state looks like a history that has parted from it.
    """
    seen = [lineage.sequence for lineage in (at.lineage, group.lineage(at.topic_id)) if lineage is not None]
    is_old = max(seen, default=0) > topic.lineage.sequence
    return not is_old and at.partition < topic.partitions and at.offset <= topic.log_end[at.partition]

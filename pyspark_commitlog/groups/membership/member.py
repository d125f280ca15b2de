"""One member of a group: heartbeats, rebalances, assignment.

See docs/explanation/design/group-membership.md. Safety does not depend on this module: each commit is checked against
the newest entry (`GroupLog.advance`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark_commitlog.errors import (
    CommitFailedError,
    ConflictError,
    CorruptionError,
    FencedInstanceIdError,
    OutcomeUnknownError,
    StorageDeniedError,
    StorageError,
    StorageUnreadableError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.assignment.assignment import Assignment
from pyspark_commitlog.groups.assignment.assignors import check_assignors, chosen
from pyspark_commitlog.groups.assignment.rebalance import MAX_MEMBERS, Observation, is_due, rebalanced
from pyspark_commitlog.groups.membership.member_files import MemberFiles, topic_incarnations
from pyspark_commitlog.groups.membership.observer import Observer
from pyspark_commitlog.groups.membership.topic_pattern import TopicPattern
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_metadata import ConsumerGroupMetadata
from pyspark_commitlog.groups.state.group_state import GroupState, Position
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.groups.state.members import NEVER_IN, MemberFile, Members, Phase, Profile, TopicIncarnation
from pyspark_commitlog.journal import Slot
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.storage import process_name
from pyspark_commitlog.storage.process import process_id

log = logging.getLogger("pyspark_commitlog.groups")

#: Factor by which looks are more frequent than heartbeats while waiting.
_QUICK = 20
#: Recent warnings that are not repeated.
_WARNINGS = 32
_Place = tuple[TopicPartition, str]


class GroupMember:
    """A member of a group; see `Membership`. Thread-safe.

    Args:
        handle: the group, used by this member alone.
        topics: names; or `pattern`: a regular expression for whole names.
        group_instance_id: id of a static member, which keeps its partitions over a restart within its session.
        partition_assignment_strategy: the best first.
    """

    def __init__(
        self,
        handle: GroupLog,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        *,
        client_id: str = "commitlog",
        group_instance_id: str | None = None,
        partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky"),
        config: MemberConfig | None = None,
    ) -> None:
        self._handle, self._config = handle, config or MemberConfig()
        self._clock = handle.storage.clock
        self._files = MemberFiles.of(handle)
        self._observer = Observer(self._files, handle.storage.jitter(), self.heartbeat_seconds)
        self._held_lock, self._process = threading.RLock(), process_id()
        self._profile = Profile(
            client_id,
            process_name(),
            assignors=check_assignors(partition_assignment_strategy),
            instance_id=group_instance_id,
            session_timeout_ms=self._config.session_timeout_ms,
        )
        self._closed = False
        self._fenced: FencedInstanceIdError | None = None
        self._warned: dict[str, None] = {}
        self._members = Members()
        self._idle: tuple[Members, Observation, Mapping[str, TopicIncarnation]] | None = None
        self._begin()
        self.subscribe(topics, pattern)
        self._polled = self._clock.monotonic()

    def _begin(self) -> None:
        self._id = self._handle.storage.new_id()
        self._joined: int | None = None
        self._generation = self._given_up = NEVER_IN
        self._held: frozenset[_Place] = frozenset()
        self._beaten = self._looked = self._due = None  # type: float | None
        self._due_on: Members | None = None

    @property
    def _lock(self) -> threading.RLock:
        if self._process != process_id():
            raise UsageError(
                f"group {self._handle.name!r}: member {self._id} is that of the process that this one was forked from: "
                "make another one here"
            )
        return self._held_lock

    # --- properties -----------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """Id in the group; replaced after a removal."""
        return self._id

    @property
    def root(self) -> str:
        """URL of its group's root."""
        return self._handle.storage.url

    @property
    def heartbeat_seconds(self) -> float:
        """Time between heartbeats."""
        return self._config.heartbeat_interval_ms / 1000

    @property
    def generation(self) -> int:
        """Generation that it follows; -1 without any."""
        return self._generation

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that it may read."""
        return frozenset(place for place, _ in self._held)

    @property
    def is_stable(self) -> bool:
        """Whether the group was stable with this member at the last look."""
        with self._lock:
            members = self._members
            return self._id in members.rows and (members.phase, members.generation) == (Phase.STABLE, self._generation)

    @property
    def tenure(self) -> ConsumerGroupMetadata:
        """Identity for commits."""
        return ConsumerGroupMetadata(self._id, self._joined, self._generation, self._profile.instance_id)

    def subscribe(self, topics: Sequence[str] = (), pattern: str | None = None) -> None:
        """Replace the wanted topics."""
        if isinstance(topics, str) or bool(topics) == (pattern is not None):
            raise UsageError(f"topics={topics!r}, pattern={pattern!r}: give a list of names, or a pattern")
        for name in topics:
            paths.check_topic_name(name)
        wanted = None if pattern is None else TopicPattern(pattern)
        with self._lock:
            self._pattern = wanted
            self._profile = replace(self._profile, topics=tuple(sorted(set(topics))), pattern=pattern)
            self._beaten = self._looked = None

    # --- calls of a consumer --------------------------------------------------------------------------------

    def poll(self) -> Assignment | None:
        """Return the assignment if it changed since the last call.

        The call gives up all partitions that the last result revoked: only the consumer may make it.

        Raises:
            FencedInstanceIdError: another process is this static member now.
            StorageDeniedError: this user may not read or write the group's files.
        """
        with self._lock:
            if self._fenced is not None:
                raise self._fenced
            if self._closed:
                return None
            self._polled = self._clock.monotonic()
            if self._given_up != self._generation:
                self._given_up, self._beaten, self._looked = self._generation, None, None
            self._work(polled=True)
            return self._adopt()

    def heartbeat(self) -> None:
        """Send a heartbeat and observe others; leave without polls for `max_poll_interval_ms`.

        For another thread than the poller's, which returns while that is at work: a poll is a heartbeat. A commit is
        none, and may wait ten seconds, which a session should outlast.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._closed or self._is_out():
                return
            if self._clock.monotonic() - self._polled <= self._config.max_poll_interval_ms / 1000:
                self._work()
            elif self._id in self._members.rows and self._profile.instance_id is None:
                self._warn(
                    f"group {self._handle.name!r}: member {self._id} has not polled for "
                    f"{self._config.max_poll_interval_ms} ms and leaves: poll more often, with fewer records, or raise "
                    "max_poll_interval_ms"
                )
                self._go()
        finally:
            self._lock.release()

    def commit(self, positions: Sequence[Position], metadata: str = "") -> None:
        """Commit offsets of the member's partitions, never backwards (rule R9).

        Raises as `GroupLog.advance`.
        """
        if not positions:
            return
        with self._lock:
            try:
                self._handle.advance(positions, metadata=metadata, member=self.tenure)
            except (CommitFailedError, FencedInstanceIdError):
                self._looked = None
                raise

    def leave(self) -> None:
        """Leave the group at once; a static member only falls silent (KIP-345)."""
        with self._lock:
            try:
                if not self._closed and self._profile.instance_id is None:
                    self._go()
            finally:
                self._closed, self._held = True, frozenset()

    # --- protocol -------------------------------------------------------------------------------------------

    def _is_out(self) -> bool:
        return self._joined is not None and self._id not in self._members.rows

    def _go(self) -> None:
        row = self._members.rows.get(self._id)
        try:
            self._files.delete(self._id)
            if row is not None:
                self._put("leave", Observation(gone={self._id: row.joined}))
        except (ConflictError, OutcomeUnknownError, StorageError, CorruptionError) as error:
            self._warn(f"group {self._handle.name!r}: member {self._id} could not leave: its session will end: {error}")

    def _work(self, *, polled: bool = False) -> None:
        """Beat, look and rebalance when due; storage errors only warn.

        A poll raises permanent ones, or it would wait for ever.
        """
        now = self._clock.monotonic()
        try:
            if self._beaten is None:
                self._match()
            self._beat(now)
            if self._is_time_to_look(now):
                self._looked = now
                self._members = self._handle.newest().members
                if self._joined is None and self._id in self._members.rows:
                    self._joined = self._members.rows[self._id].joined
                self._match()  # after the newest entry, whose result for such a pattern is older
                self._beat(now)
                self._look_after(now)
        except (ConflictError, OutcomeUnknownError, StorageError) as error:
            if polled and isinstance(error, StorageDeniedError):
                self._looked = None
                raise
            self._warn(f"group {self._handle.name!r}: a heartbeat of member {self._id} failed: {error}")

    def _is_time_to_look(self, now: float) -> bool:
        beat = self._config.heartbeat_interval_ms / 1000
        waiting = self._joined is None or self._due is not None or self._members.phase is Phase.PREPARING_REBALANCE
        return self._looked is None or now - self._looked >= (beat / _QUICK if waiting else beat)

    def _beat(self, now: float) -> None:
        if self._beaten is None or now - self._beaten >= self._config.heartbeat_interval_ms / 1000:
            reached = self._given_up if self._joined is None else max(self._given_up, 0)
            self._files.write(self._id, MemberFile(self._profile, reached))
            self._beaten = now

    def _match(self) -> None:
        if self._pattern is not None:
            topics = self._pattern.matching_names(self._handle.topic_names())
            if topics != self._profile.topics:
                self._profile, self._beaten = replace(self._profile, topics=topics), None

    def _look_after(self, now: float) -> None:
        if self._is_out():
            return
        if self._due is not None and now < self._due and self._due_on is self._members:
            return  # earlier rebalances by others show in the newest entry: no files needed
        observation = self._sight(now)
        if not self._is_due(observation):
            self._due = None
            return
        if self._due is None:
            self._due = self._due_time(observation, now)
        self._due_on = self._members
        if now >= self._due:
            self._due = None
            self._delete_files(observation)  # first: a dead member must not be admitted again
            self._put("rebalance", observation)

    def _due_time(self, observation: Observation, now: float) -> float:
        """Return when this member rebalances, unless another does."""
        patience = self._config.initial_rebalance_delay_ms / 1000 if observation.joining else 0.0
        first = min(self._members.rows or observation.joining)
        jitter = self._config.heartbeat_interval_ms / 1000 * self._handle.storage.jitter()
        return now + patience + (0.0 if first == self._id else jitter)

    def _delete_files(self, observation: Observation) -> None:
        returning = (self._members.instance(profile.instance_id) for profile in observation.joining.values())
        for member_id in (*observation.gone, *(former for former in returning if former is not None)):
            self._files.delete(member_id)

    def _is_due(self, observation: Observation) -> bool:
        situation = self._members, observation, self._topics(self._members, observation)
        if self._idle is not None and self._idle[0] is situation[0] and self._idle[1:] == situation[1:]:
            return False
        due = is_due(*situation)
        self._idle = None if due else situation
        return due

    def _sight(self, now: float) -> Observation:
        observation = self._observer.look(self._members, self._id, self._profile, self._given_up, now)
        return replace(observation, changed=self._wishes() if self._id in self._members.rows else {})

    def _wishes(self) -> Mapping[str, Profile]:
        """Return new profiles of this member and those sharing its pattern."""
        mine = self._profile
        wishes = {self._id: mine}
        if mine.pattern is not None:
            for member_id, row in self._members.rows.items():
                if row.profile.pattern == mine.pattern and member_id != self._id:
                    wishes[member_id] = replace(row.profile, topics=mine.topics)
        return wishes

    def _topics(self, members: Members, observation: Observation) -> Mapping[str, TopicIncarnation]:
        rows = (row.profile for row in members.rows.values())
        try:
            profiles = (*rows, *observation.joining.values(), *observation.changed.values())
            return topic_incarnations(self._handle, profiles, members.topics, self._warn)
        except StorageUnreadableError as error:  # another member wants and may read it: that one can rebalance
            raise StorageError(str(error)) from error

    def _put(self, kind: str, observation: Observation) -> None:
        def change(state: GroupState, slot: Slot) -> GroupState:
            after = rebalanced(state.members, observation, self._topics(state.members, observation))
            return state if after is state.members else replace(state, members=after)

        self._members = self._handle.change(kind, change).members

    def _adopt(self) -> Assignment | None:
        row = self._members.rows.get(self._id)
        if row is None and self._joined is None:
            self._check_admission()
            return None
        if row is None:
            return self._rejoin()
        if self._joined not in (None, row.joined):
            held, self._held, self._joined, self._generation = self._held, frozenset(), row.joined, NEVER_IN
            return self._lost_assignment(held)
        self._joined = row.joined
        if self._generation == self._members.generation:
            return None
        topic_ids = {name: life.topic_id for name, life in self._members.topics.items()}
        held = frozenset((place, topic_ids[place.topic]) for place in row.owned)
        before, self._held = self._held, held
        self._generation = self._members.generation
        return Assignment(
            self._generation, self.assignment, _partitions(before - held), _partitions(held - before), topic_ids
        )

    def _rejoin(self) -> Assignment | None:
        held, other = self._held, self._members.instance(self._profile.instance_id)
        try:
            self._files.delete(self._id)
        except StorageError as error:
            self._warn(f"group {self._handle.name!r}: the file of member {self._id} stays for a while: {error}")
        if other is not None:
            self._closed, self._held = True, frozenset()
            self._fenced = FencedInstanceIdError(
                f"group {self._handle.name!r}: another process, member {other}, has joined with group_instance_id "
                f"{self._profile.instance_id!r}: give each process an id of its own, and start this one again"
            )
            raise self._fenced
        self._begin()
        return self._lost_assignment(held)

    def _lost_assignment(self, held: frozenset[_Place]) -> Assignment | None:
        return Assignment(NEVER_IN, frozenset(), _partitions(held), lost=True) if held else None

    def _check_admission(self) -> None:
        wishes = [row.profile.assignors for row in self._members.rows.values()]
        if chosen([*wishes, self._profile.assignors]) is None:
            raise UsageError(
                f"partition_assignment_strategy={list(self._profile.assignors)}: the members of group "
                f"{self._handle.name!r} have none of these in common; one of theirs is {self._members.protocol!r}"
            )
        if len(wishes) >= MAX_MEMBERS:
            raise UsageError(f"group {self._handle.name!r} has {MAX_MEMBERS} members, the most there may be")

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            log.warning("%s", message)
            self._warned[message] = None
            if len(self._warned) > _WARNINGS:
                del self._warned[next(iter(self._warned))]


def _partitions(held: frozenset[_Place]) -> frozenset[TopicPartition]:
    return frozenset(place for place, _ in held)

"""What a consumer reads: its subscription, the partitions that brings, and what its group is told of it."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from threading import RLock
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

from pyspark_commitlog.access import Operation
from pyspark_commitlog.commit_log import CommitLog
from pyspark_commitlog.consumer.consumer_config import (
    ConsumerConfig,
    Subscription,
    check_places,
    pattern_text,
    subscription,
)
from pyspark_commitlog.consumer.fetcher import Fetcher
from pyspark_commitlog.consumer.group_offsets import GroupOffsets
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener, Given, Sole
from pyspark_commitlog.consumer.shared_topic import SharedTopic
from pyspark_commitlog.consumer.watcher import SharedRoot
from pyspark_commitlog.errors import FencedInstanceIdError, UnknownTopicError, UsageError
from pyspark_commitlog.format.paths import is_topic_name
from pyspark_commitlog.groups.assignment.assignment import Assignment, Membership
from pyspark_commitlog.groups.membership import heartbeats
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_state import GroupState, Position
from pyspark_commitlog.log.read.reader import View
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.model import Record, TopicPartition
from pyspark_commitlog.storage.process import process_id

log = logging.getLogger("pyspark_commitlog.consumer")

_Args = ParamSpec("_Args")
_Answer = TypeVar("_Answer")
#: Topics whose life is remembered, to tell one that was made again; the last ones that were assigned.
_LIVES = 4096


def _weak(method: Callable[_Args, _Answer]) -> Callable[_Args, _Answer]:
    """Return what calls a method without holding its object, which outlives who calls it."""
    held = WeakMethod(method)

    def call(*args: _Args.args, **named: _Args.kwargs) -> _Answer:
        found = held()
        assert found is not None
        return found(*args, **named)

    return call


class Subscriber:
    """The part of ``Consumer`` that says what is read.

    The assigned partitions come from one place, ``self._membership``, which is asked on every poll.
    """

    def __init__(self, shared: SharedRoot, settings: ConsumerConfig) -> None:
        self._shared, self._settings = shared, settings
        self._log = CommitLog.on(shared.storage, settings.principal)
        groups, group_id = self._log.groups, settings.group_id
        self._group = (
            None if group_id is None else GroupOffsets(groups.open(group_id), settings.auto_commit_interval_ms)
        )
        self._clock = shared.storage.clock
        # Weakly: no cycle, so what a closed consumer held goes at once, not with some garbage collection.
        self._reading = Fetcher(_weak(self._opened), settings, _weak(self._group_state), _weak(self._forget_ahead))
        self._membership: Membership | None = None
        self._subscription: Subscription | None = None
        self._listener = ConsumerRebalanceListener()
        self._begun: dict[str, int] | None = None
        self._lives: dict[str, str] = {}
        self._listed: tuple[float, tuple[str, ...]] | None = None
        self._seen: dict[SharedTopic, str] = {}
        self._views: dict[str, View] = {}
        self._ahead: deque[Record] = deque()
        self._generation = 0
        self._unsure = self._beats = False
        self._allowed = self._clock.monotonic()
        self._process, self._closed = process_id(), False
        self._held = RLock()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self} is closed: make another")

    @property
    def _lock(self) -> RLock:
        """Return the lock of the process that made the consumer: a forked child may find it held for ever."""
        if self._process != process_id():
            raise UsageError(
                f"{self} was made in the process that this one was forked from, and both would read the same records: "
                "make another one here"
            )
        return self._held

    # --- what it reads -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, also partitions that are added later; in place of what was read before.

        With a group, the consumer becomes a member of it at its next poll: the members share the partitions. Without
        one it reads all partitions.

        Args:
            topics: their names.
            pattern: or a regular expression of Python for whole names; topics that come to match are found.
            listener: is told, inside ``poll``, which partitions come and go.

        Raises:
            UsageError: neither or both are given, or what no topic, or no member, can have.
        """
        wanted = subscription(topics, pattern)
        with self._lock:
            self._check_open()
            self._start(self._join(wanted) if self._group is not None else Sole(_weak(self._counts)), wanted, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, in place of what was read before; no others come up.

        No membership comes of it, also with a group: it commits beside the group's members, if there are some.
        """
        places = check_places(partitions)
        with self._lock:
            self._check_open()
            self._start(Given(places), None, None)
            self._follow_assignment()

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        with self._lock:
            self._check_open()
            self._start(None, None, None)

    def _join(self, wanted: Subscription) -> GroupMember:
        """Return a member of the group, which joins when it is polled."""
        settings, group_id = self._settings, self._settings.group_id
        assert self._group is not None
        assert group_id is not None
        return GroupMember(
            self._log.groups.open(group_id),
            wanted.names,
            pattern_text(wanted.pattern),
            client_id=settings.client_id,
            group_instance_id=settings.group_instance_id,
            partition_assignment_strategy=settings.partition_assignment_strategy,
            config=settings.times,
        )

    def _start(
        self, membership: Membership | None, wanted: Subscription | None, listener: ConsumerRebalanceListener | None
    ) -> None:
        self._end()
        self._membership, self._subscription = membership, wanted
        self._listener = listener or ConsumerRebalanceListener()
        self._begun = self._listed = None
        self._unsure = False
        self._lives.clear()
        if self._group is not None and isinstance(membership, GroupMember):
            self._group.member, self._beats = membership, False

    def _end(self, *, commit: bool = True) -> None:
        """Give up what is read now: commit, tell, leave."""
        membership = self._membership
        if membership is None:
            return
        try:
            if commit:
                self._commit_last(membership)
            places = set(self._reading.places)
            if places and self._subscription is not None:
                self._listener.on_partitions_revoked(places)
        finally:
            membership.leave()
            if self._group is not None and self._group.member is not None:
                heartbeats.of_process().remove(self._group.member)
                self._group.member = None
            self._reading.remove(list(self._reading.places))
            self._ahead.clear()
            self._views.clear()
            self._seen = {}
            self._membership = None

    def _commit_last(self, membership: Membership) -> None:
        """Commit as ``poll`` does, and again where the group has moved on since: that takes another look."""
        if self._auto_commit(now=True) or self._group is None or self._group.member is None:
            return
        found = membership.poll()
        if found is not None:
            self._give_up(found)
        self._auto_commit(now=True)

    def subscription(self) -> set[str]:
        """Return the names of the topics that are subscribed to; of a pattern those that were found."""
        wanted = self._subscription
        if wanted is None:
            return set()
        return set(wanted.names) if wanted.pattern is None else {place.topic for place in self._reading.places}

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read: none of a subscription before its first poll."""
        return set(self._reading.places)

    def is_settled(self) -> bool:
        """Return whether ``assignment`` is all that is to be read, maybe nothing: not while a group shares out anew."""
        membership = self._membership
        return membership is not None and (not isinstance(membership, GroupMember) or membership.is_settled)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return set(range(self._view(topic).topic.partitions))

    def topics(self) -> set[str]:
        """Return the names of all topics of the root."""
        return set(self._log.topics())

    def _counts(self) -> dict[str, int]:
        """Return the subscribed topics and how many partitions each has."""
        assert self._subscription is not None
        found: dict[str, int] = {}
        for name in self._subscription.names or self._matching():
            try:
                self._views[name] = self._view(name, certain=False)
                found[name] = self._views[name].topic.partitions
            except UnknownTopicError:
                before = sum(place.topic == name for place in self._reading.places)
                if before and self._subscription.pattern is None:  # deleted: it may be made again
                    found[name] = before
                elif self._subscription.pattern is None:
                    raise
        if self._begun is None:
            self._begun = dict(found)
        return found

    def _matching(self) -> tuple[str, ...]:
        assert self._subscription is not None
        assert self._subscription.pattern is not None
        now, pattern = self._clock.monotonic(), self._subscription.pattern
        if self._listed is None or (now - self._listed[0]) * 1000 >= self._settings.metadata_max_age_ms:
            names = (name for name in self._log.listed() if pattern.fullmatch(name) and is_topic_name(name))
            self._listed = now, tuple(names)
        return self._listed[1]

    def _follow_assignment(self) -> None:
        if self._begun is None and self._subscription is not None:
            self._counts()
        unsure, self._unsure = self._unsure, True  # until all is followed: an answer may get lost (Ctrl-C)
        try:
            found = None if self._membership is None else self._membership.poll()
            self._beat()
        except FencedInstanceIdError:
            self._give_up(Assignment(0, frozenset(), frozenset(self._reading.places), lost=True))
            raise
        if unsure and self._membership is not None:
            found = self._difference(self._membership.assignment, found)
        if found is not None:
            try:
                self._give_up(found)
            finally:
                self._take_on(found)
        self._unsure = False

    def _beat(self) -> None:
        """Have a member tell that it lives, from its first poll on: that joins, and is told what stands in the way."""
        if not self._beats and self._group is not None and self._group.member is not None:
            heartbeats.of_process().add(self._group.member)
            self._beats = True

    def _difference(self, assigned: frozenset[TopicPartition], found: Assignment | None) -> Assignment:
        """Return what leads from the partitions that are read to those that are assigned."""
        has = frozenset(self._reading.places)
        found = found or Assignment(0, assigned)
        return replace(found, revoked=found.revoked | has - assigned, assigned=found.assigned | assigned - has)

    def _take_on(self, found: Assignment) -> None:
        if found.assigned:
            log.info("%s: assigned %s", self._settings.client_id, sorted(found.assigned))
            ids = found.topic_ids or {}
            again = {name for name, topic_id in ids.items() if self._lives.get(name, topic_id) != topic_id}
            self._reading.add(found.assigned, lambda place: place.topic in again or self._is_late(place), ids)
            self._lives |= ids
            while len(self._lives) > _LIVES:
                del self._lives[next(iter(self._lives))]
            self._listener.on_partitions_assigned(set(found.assigned))

    def _give_up(self, found: Assignment) -> None:
        revoked = found.revoked & set(self._reading.places)
        if not revoked:
            return
        log.info("%s: %s %s", self._settings.client_id, "lost" if found.lost else "revoked", sorted(revoked))
        try:
            if found.lost:
                self._listener.on_partitions_lost(revoked)
            else:
                self._auto_commit(now=True)
                self._listener.on_partitions_revoked(revoked)
        finally:
            self._reading.remove(revoked)
            self._forget_ahead(revoked)

    def _forget_ahead(self, places: Collection[TopicPartition]) -> None:
        """Drop what iteration was about to hand over of some partitions: their positions are still before it."""
        self._ahead = deque(r for r in self._ahead if TopicPartition(r.topic, r.partition) not in places)

    def _is_late(self, place: TopicPartition) -> bool:
        """Return whether a partition came up after the subscription began."""
        return self._begun is not None and place.partition >= self._begun.get(place.topic, 0)

    # --- the group ---------------------------------------------------------------------------------------

    def _group_state(self) -> GroupState | None:
        """Return what the group has committed; from then on the consumer follows that generation."""
        if self._group is None:
            return None
        state = self._group.state()
        self._reading.follow(state, self._generation)
        self._generation = max(self._generation, state.generation)
        return state

    def _positions(self) -> list[Position]:
        """Return how far every partition has been handed out."""
        found = []
        for key, place in sorted(self._reading.places.items()):
            if place.topic_id is not None and place.position is not None:
                found.append(Position(key.topic, place.topic_id, key.partition, place.position, place.lineage))
        return found

    def _auto_commit(self, *, now: bool = False) -> bool:
        """Commit what was handed out before this call, if it is time: the caller has come back for more.

        Returns:
            False where the group has moved on, so that nothing was committed.
        """
        if self._group is None or not self._settings.auto_commit or not (now or self._group.due()):
            return True
        if self._group.commit_now_and_then(self._committable(), self._generation):
            return True
        self._group_state()
        return False

    def _committable(self) -> list[Position]:
        """Return the positions that mean something now: one that a seek left outside the log is not committed."""
        found, topics = [], dict[str, TopicState | None]()
        for at in self._positions():
            if at.topic not in topics:
                topics[at.topic] = self._live(at.topic)
            topic = topics[at.topic]
            if topic and topic.topic_id == at.topic_id and at.offset <= topic.log_end[at.partition]:
                found.append(at)
        return found

    def _live(self, topic: str) -> TopicState | None:
        try:
            return self._view(topic).topic
        except UnknownTopicError:
            return None

    def _check_access(self) -> None:
        """Ask now and then whether the principal may still read what it reads.

        Raises:
            AccessDeniedError: no longer; each poll says so, until it may again.
        """
        now = self._clock.monotonic()
        if (now - self._allowed) * 1000 >= self._settings.metadata_max_age_ms:
            names = {place.topic for place in self._reading.places}
            if names:
                self._log.access.check(Operation.READ, *sorted(names))
            self._allowed = now

    def _opened(self, topic: str) -> SharedTopic:
        """Return a topic that the consumer's principal may read."""
        self._log.topic(topic)
        return self._shared.topic(topic)

    def _view(self, topic: str, *, certain: bool = True) -> View:
        """Return what is visible of a topic now; see ``SharedTopic.look``."""
        return self._reading.topic(topic).look(certain=certain)

    def close(self, *, commit: bool = True) -> None:
        """Give up all partitions, after a last automatic commit where these are enabled; a second call does nothing.

        Args:
            commit: False leaves out that commit: what the last poll returned is then read again.
        """
        if self._closed or self._process != process_id():
            return
        with self._lock:
            try:
                self._end(commit=commit)
            finally:
                self._closed = True
                self._listener = ConsumerRebalanceListener()
                self._reading.end()
                self._views.clear()
                self._seen = {}

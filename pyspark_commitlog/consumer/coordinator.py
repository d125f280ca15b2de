"""A consumer's assignment and commits (Kafka: `ConsumerCoordinator`)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, Subscription, check_places, pattern_text
from pyspark_commitlog.consumer.fetch_buffer import FetchBuffer
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener, ManualAssignment, Sole
from pyspark_commitlog.consumer.offset_committer import OffsetCommitter
from pyspark_commitlog.consumer.partition_state import PartitionState
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.consumer.topic_metadata import ConsumerMetadata
from pyspark_commitlog.errors import FencedInstanceIdError, GroupResetError, UsageError
from pyspark_commitlog.groups.assignment.assignment import Assignment, Membership
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.membership import heartbeats
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_state import NEVER, GroupState, Position
from pyspark_commitlog.model import TopicPartition, whole_number
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.state.topic_state import TopicState

log = logging.getLogger("pyspark_commitlog.consumer")

#: Most recently assigned topics whose ids are remembered, to notice a recreation.
_TOPIC_IDS = 4096


class ConsumerCoordinator:
    """Membership, listener calls and commits of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        root: Root,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        buffer: FetchBuffer,
    ) -> None:
        self._config = config
        self._subscriptions, self._metadata, self._buffer = subscriptions, metadata, buffer
        self._groups: Groups | None = None
        self._group: OffsetCommitter | None = None
        if config.group_id is None:
            root.check()
        else:
            self._groups = root.groups  # no check: they may be at another root while this one is away
            self._group = OffsetCommitter(self._groups.open(config.group_id), config.auto_commit_interval_ms)
        self._membership: Membership | None = None
        self._topic_ids: dict[str, str] = {}
        self._generation: int | None = None
        self._unsure = self._beats = False

    @property
    def has_group(self) -> bool:
        """Whether the consumer has a group."""
        return self._group is not None

    @property
    def is_joining(self) -> bool:
        """Whether the consumer is a member without partitions."""
        return isinstance(self._membership, GroupMember) and not self._subscriptions.assigned

    @property
    def is_stable(self) -> bool:
        """Whether the assignment is final."""
        membership = self._membership
        return membership is not None and (not isinstance(membership, GroupMember) or membership.is_stable)

    # --- beginning and ending ----------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: ConsumerRebalanceListener | None) -> None:
        """Replace the subscription; a member joins at its next poll."""
        membership = self._member(subscription) if self._group is not None else Sole(self._metadata.counts)
        self._start(membership, subscription, listener)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions instead of the present ones."""
        self._start(ManualAssignment(partitions), None, None)
        self.follow_assignment()

    def unsubscribe(self) -> None:
        """Stop reading."""
        self._start(None, None, None)

    def _member(self, subscription: Subscription) -> GroupMember:
        config = self._config
        assert self._groups is not None
        assert config.group_id is not None
        return GroupMember(
            self._groups.open(config.group_id),
            subscription.names,
            pattern_text(subscription.pattern),
            client_id=config.client_id,
            group_instance_id=config.group_instance_id,
            partition_assignment_strategy=config.partition_assignment_strategy,
            config=config.times,
        )

    def _start(
        self,
        membership: Membership | None,
        subscription: Subscription | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        former = self._kept_for(membership)
        self.leave()
        self._membership = membership
        self._subscriptions.begin(subscription, listener, former)
        self._metadata.list_again()
        self._unsure = False
        self._topic_ids.clear()
        if self._group is not None and isinstance(membership, GroupMember):
            self._group.member, self._beats = membership, False

    def _kept_for(self, membership: Membership | None) -> dict[TopicPartition, PartitionState]:
        """Partition states that a new assignment may keep: a position found again could skip or repeat records.

        Lost ones are dropped; a member starts at the group's offsets.
        """
        if any(each is None or isinstance(each, GroupMember) for each in (self._membership, membership)):
            return {}
        return {key: state for key, state in self._subscriptions.assigned.items() if not state.lost}

    def leave(self, *, commit: bool = True) -> None:
        """Give up the assignment: commit, call the listener, leave.

        Without `commit`, omit the last automatic one.
        """
        membership = self._membership
        if membership is None:
            return
        try:
            if commit:
                self._commit_last(membership)
            partitions = set(self._subscriptions.assigned)
            if partitions and self._subscriptions.subscription is not None:
                self._subscriptions.listener.on_partitions_revoked(partitions)
        finally:
            self._let_go(membership)

    def _let_go(self, membership: Membership) -> None:
        try:
            membership.leave()
        finally:  # in any case: heartbeats would keep the partitions from the others
            if self._group is not None and self._group.member is not None:
                heartbeats.process_heartbeats.value.remove(self._group.member)
                self._group.member = None
            self._remove(list(self._subscriptions.assigned))
            self._buffer.records.clear()
            self._metadata.forget_looks()
            self._membership = None

    def _commit_last(self, membership: Membership) -> None:
        if self.auto_commit(now=True) or self._group is None or self._group.member is None:
            return
        change = membership.poll()
        if change is not None:
            self._give_up(change)
        self.auto_commit(now=True)

    # --- following the membership ------------------------------------------------------------------------

    def check_subscribed(self) -> None:
        """Refuse to poll without a subscription or an assignment."""
        if self._membership is None:
            raise UsageError("nothing is subscribed to: call subscribe(topics) or assign(partitions) first")

    def follow_assignment(self) -> None:
        """Poll the membership, give up revoked partitions, take on assigned ones.

        Raises as `GroupMember.poll`.
        """
        subscriptions = self._subscriptions
        if subscriptions.begun is None and subscriptions.subscription is not None:
            self._metadata.counts()
        unsure, self._unsure = self._unsure, True  # until all is followed: Ctrl-C may lose an answer
        try:
            change = None if self._membership is None else self._membership.poll()
            self._beat()
        except FencedInstanceIdError:
            self._give_up(Assignment(0, frozenset(), frozenset(subscriptions.assigned), lost=True))
            raise
        if unsure and self._membership is not None:
            change = self._difference(self._membership.assignment, change)
        if change is not None:
            try:
                self._give_up(change)
            finally:
                self._take_on(change)
        self._unsure = False

    def _beat(self) -> None:
        if not self._beats and self._group is not None and self._group.member is not None:
            heartbeats.process_heartbeats.value.add(self._group.member)
            self._beats = True

    def _difference(self, assigned: frozenset[TopicPartition], change: Assignment | None) -> Assignment:
        has = frozenset(self._subscriptions.assigned)
        change = change or Assignment(0, assigned)
        return replace(change, revoked=change.revoked | has - assigned, assigned=change.assigned | assigned - has)

    def _take_on(self, change: Assignment) -> None:
        if not change.assigned:
            return
        log.info("%s: assigned %s", self._config.client_id, sorted(change.assigned))
        ids, subscriptions = change.topic_ids or {}, self._subscriptions
        again = {name for name, topic_id in ids.items() if self._topic_ids.get(name, topic_id) != topic_id}
        subscriptions.add(change.assigned, lambda key: key.topic in again or subscriptions.is_late(key), ids)
        self._topic_ids |= ids
        while len(self._topic_ids) > _TOPIC_IDS:
            del self._topic_ids[next(iter(self._topic_ids))]
        subscriptions.listener.on_partitions_assigned(set(change.assigned))

    def _give_up(self, change: Assignment) -> None:
        revoked = change.revoked & set(self._subscriptions.assigned)
        if not revoked:
            return
        log.info("%s: %s %s", self._config.client_id, "lost" if change.lost else "revoked", sorted(revoked))
        try:
            if change.lost:
                self._subscriptions.listener.on_partitions_lost(revoked)
            else:
                self.auto_commit(now=True)
                self._subscriptions.listener.on_partitions_revoked(revoked)
        finally:
            self._remove(revoked)
            self._buffer.forget(revoked)

    def _remove(self, partitions: Collection[TopicPartition]) -> None:
        self._subscriptions.remove(partitions)
        self._buffer.drop_rest()
        self._metadata.let_go_of_others()

    # --- committing --------------------------------------------------------------------------------------

    def group_state(self) -> GroupState | None:
        """Follow the group's generation; return its state, if any."""
        if self._group is None:
            return None
        state = self._group.state()
        followed = state.generation if self._generation is None else self._generation
        self._subscriptions.follow(state, followed, self._config.group_id, self._buffer.forget)
        self._generation = max(followed, state.generation)
        return state

    def auto_commit(self, *, now: bool = False) -> bool:
        """Commit the records returned before this call, if due.

        Return False if the group has moved on, and nothing was committed.
        """
        if self._group is None or not self._config.auto_commit or not (now or self._group.is_commit_due()):
            return True
        if self._group.commit_now_and_then(self._committable(), self._generation or 0):
            return True
        self.group_state()
        return False

    def _committable(self) -> list[Position]:
        """Return valid positions: none beyond the log after a seek."""
        committable, topics = [], dict[str, TopicState | None]()
        for at in self._subscriptions.positions():
            if at.topic not in topics:
                topics[at.topic] = self._metadata.live(at.topic)
            topic = topics[at.topic]
            if topic is None or topic.topic_id != at.topic_id or at.partition >= topic.partitions:
                continue  # recreated, or restored from a copy without the partition
            if at.offset <= topic.log_end[at.partition]:
                committable.append(at)
        return committable

    def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Commit offsets, or all positions; raises as `Consumer.commit`."""
        if self._group is None:
            raise UsageError("there is no group to commit to: make the consumer with group_id=…")
        if self._generation is None and self._group.member is None:
            self.group_state()  # nothing was polled: follow resets up to now
        try:
            self._group.commit(self._explicit(offsets), self._generation or 0, metadata)
        except GroupResetError:
            self.group_state()
            raise

    def _explicit(self, offsets: Mapping[TopicPartition, int] | None) -> Sequence[Position]:
        if offsets is None:
            return self._subscriptions.positions()
        offsets = {key: whole_number("offset", offset) for key, offset in offsets.items()}
        assigned = self._subscriptions.assigned
        read = {key: assigned[key] for key in check_places(offsets) if key in assigned}
        ids = self._topic_ids_of(offsets, read)
        seen = {key: state.lineage for key, state in read.items()}
        return [Position(p.topic, ids[p], p.partition, offset, seen.get(p)) for p, offset in offsets.items()]

    def _topic_ids_of(
        self, partitions: Collection[TopicPartition], read: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, str]:
        ids = {key: state.topic_id for key, state in read.items() if state.topic_id is not None}
        states = self._metadata.states([key for key in partitions if key not in ids])
        return ids | {key: state.topic_id for key, state in states.items()}

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset, if any."""
        if self._group is None:
            raise UsageError("there is no group that could have committed: make the consumer with group_id=…")
        state = self._group.state()
        offset = state.offset(self._metadata.states([partition])[partition].topic_id, partition.partition)
        return None if offset == NEVER else offset

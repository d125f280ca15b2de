"""A topic's roots and their progress, for operators."""

from __future__ import annotations

from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.admin.unit_status import ReplicaStatus, UnitStatus, look
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import ReplicaDescription, ReplicationDescription, RootDescription


def describe_replication(topic: TopicLog, newest: Stored) -> ReplicationDescription | None:
    """Return a topic's replication; None if it has no replicas."""
    return described(topic, look(topic.journal.decided_log().places)) if newest.entry.is_replicated else None


def log_ends(topic: TopicLog, state: TopicState) -> tuple[int, ...]:
    """Each partition's log end offset at this root (LEO)."""
    head = topic.journal.head()
    found = None if head is None else topic.state_of(head.entry)
    if found is None or found.topic_id != state.topic_id:
        return state.log_end
    return found.log_end[: state.partitions]


def described(topic: TopicLog, status: UnitStatus) -> ReplicationDescription:
    """Return the description of a unit's status (pure)."""
    state = status.state
    metadata = (RootDescription(root.id, root.url, False, True, fault) for root, fault in status.metadata)
    return ReplicationDescription(
        leader=state.leader,
        leader_url=status.leader.url,
        leader_epoch=state.leader_epoch,
        replicas=tuple(_replica(topic, state, replica) for replica in status.replicas),
        isr=state.isr,
        joining=state.joining,
        metadata=tuple(metadata),
        elected_ms=state.elected_ms,
        elected_why=state.why,
    )


def _replica(topic: TopicLog, state: ReplicaState, status: ReplicaStatus) -> ReplicaDescription:
    root, lacks = status.address.id, status.lacks
    return ReplicaDescription(
        root_id=root,
        url=status.address.url,
        role=role(state, root),
        high_watermarks=_ends(topic, status, status.visible),
        log_end_offsets=_ends(topic, status, status.head),
        entries_behind=None if lacks is None else lacks.entries,
        bytes_behind=None if lacks is None else lacks.size_bytes,
        ms_behind=None if lacks is None else lacks.age_ms,
        fault=status.fault,
    )


def role(state: ReplicaState, root: str) -> str:
    """Return a replica's role: leader, in sync, joining, or out of sync."""
    if root == state.leader:
        return "leader"
    if root in state.isr:
        return "in sync"
    return "joining" if root in state.joining else "out of sync"


def _ends(topic: TopicLog, status: ReplicaStatus, at: Stored | None) -> tuple[int, ...] | None:
    if status.fault is not None:
        return None
    return () if at is None else topic.state_of(at.entry).log_end

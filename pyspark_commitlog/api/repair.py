"""Repair a topic at one root from others: entries, tables and chunks as files, segments by offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.model import Repaired
from pyspark_commitlog.replication.follower.mending import MendedFiles, mend_journal, mend_named, other_places
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.replica_fetch.mend import MendedSegments, mend_segments
from pyspark_commitlog.topic.replica_fetch.settled_copy import SettledTopic
from pyspark_commitlog.topic.state.late_voids import late_voids
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.topic_log import TopicLog, unknown_topic


def repair(root: Root, name: str) -> Repaired:
    """See `Topic.repair`."""
    root.check_replica_admin(name)
    root.check_store()
    return _repair(root.storage, name)


def repair_before_void(root: Root, name: str) -> None:
    """Fetch what other roots have of a topic, before what none has is voided.

    Raises:
        ReplicaNotAvailableError: one that may have it does not answer.
    """
    root.check()
    if not root.is_replicated:
        return
    with suppress(CorruptionError):  # a damaged newest entry is itself repaired below
        head = TopicLog(root.storage, name).journal.head()
        if head is None or not head.entry.is_replicated:
            return
    done = repair(root, name)
    if done.left and done.away:
        raise ReplicaNotAvailableError(
            f"topic {name!r}: nothing was voided: another root may have what is damaged: {'; '.join(done.away)}. "
            "Bring it back, or repair it first; what is lost for good is taken out with `commitlog replicas remove`"
        )


def _repair(storage: Storage, name: str, *, segments: bool = True) -> Repaired:
    """Repair a topic at a root; without `segments` only what is not settled."""
    topic = TopicLog(storage, name)
    places = topic.journal.decided_log().places
    done, (others, away) = mend_journal(places), other_places(places)
    mended = MendedSegments()
    try:
        files, mended = _repair_named(topic, places, others, away, segments=segments)
        done += files
    except CorruptionError as error:  # no other root can supply it; all else was repaired
        done += MendedFiles(left=(str(error),) if str(error) not in done.left else ())
    return Repaired(name, storage.url, done.files, mended.ranges, (*done.left, *mended.left), tuple(away))


def _repair_named(
    topic: TopicLog, places: Places, others: Sequence[Replica], away: list[str], *, segments: bool
) -> tuple[MendedFiles, MendedSegments]:
    """Repair what a root's entries name; add to `away` the roots that failed but may hold more."""
    head = topic.journal.head()
    if head is None:
        raise unknown_topic(topic.storage, topic.name)
    state = topic.state_of(head.entry)
    if not _holds(places, head) or state.deleted:  # this root holds none of its records, or it is deleted
        return mend_named(places, head.sequence), MendedSegments()
    settled = places.unit.files.settled
    done, mended = mend_named(places, settled(topic.storage, state.topic_id)), MendedSegments()
    holding = _holding(topic, head, others)
    if done.lost:  # another root has settled the chunk and deleted it
        mended, failures = _take_settled(topic, holding, lambda at: settled(at, state.topic_id) >= min(done.lost))
        away += failures
        if mended.ranges:
            settle_on(topic, state.topic_id)  # as a part was settled before
            again = mend_named(places, settled(topic.storage, state.topic_id))
            done = MendedFiles((*done.files, *again.files), again.left, again.lost)
    if segments:
        mended += mend_segments(topic, state.topic_id, holding)
    settle_on(topic, state.topic_id)  # clears the marks of what was damaged and is whole now
    return done, mended


def _holds(places: Places, head: Stored) -> bool:
    return head.entry.is_replicated and places.roots.own_id() in state_of(head.entry).replicas


def _holding(topic: TopicLog, head: Stored, others: Sequence[Replica]) -> list[TopicLog]:
    """Other roots' topics that have its records, the likeliest first."""
    by_id, said = {other.id: other.storage for other in others}, state_of(head.entry)
    holding = [by_id[root] for root in dict.fromkeys((*said.isr, *said.replicas)) if root in by_id]
    return [TopicLog(other, topic.name) for other in holding]


def _take_settled(
    topic: TopicLog, holding: Sequence[TopicLog], has: Callable[[Storage], bool]
) -> tuple[MendedSegments, list[str]]:
    """Copy the segments of the first root for which `has` is true; else return the failures.

    A root that has settled beyond what this one has learned is left out.

    The interleavings: this root settles meanwhile, or another process copies (the one that publishes later gives up);
    it is killed before it publishes (nothing names what was written). Its readers look again, as after any settling.
    """
    segments, failures = TopicSegments(topic.name), list[str]()

    def check(there: SettledTopic) -> None:
        head = topic.journal.head()  # others write meanwhile
        if head is None or there.settled is None or there.sequence > head.sequence:
            raise ReplicaNotAvailableError(
                f"it has settled entry {there.sequence}, and {topic.storage.url} has learned less: run `commitlog "
                "replicas sync`"
            )

    for other in holding:
        try:
            if not has(other.storage):
                continue
            there = segments.settled(other.storage)
            check(there)
            before = topic.settled(there.state.topic_id)[1]
            segments.copy(other.storage, topic.storage, there, check)  # it may go on to a later entry
            after = topic.settled(there.state.topic_id)[1]
            return _moved(before, after), []
        except (CommitLogError, OSError) as error:
            failures.append(f"{other.storage.url}: {error}")
    return MendedSegments(), failures


def _moved(before: SettleState, after: SettleState) -> MendedSegments:
    """Offsets settled since (pure)."""
    ends = ((p, before.partition(p).end_offset, row.end_offset) for p, row in enumerate(after.partitions))
    return MendedSegments(tuple(each for each in ends if each[1] < each[2]))


def drop_void_records(storage: Storage, name: str) -> MendedSegments:
    """Drop what was made void after a root had settled it; see `mend_segments`.

    Compaction waits for it, since a void record supersedes none.
    """
    topic = TopicLog(storage, name)
    head = topic.journal.head()
    if head is None:
        return MendedSegments()
    state = topic.state_of(head.entry)
    if state.deleted or not state.lost:
        return MendedSegments()
    places = topic.journal.decided_log().places
    if not _holds(places, head):
        return MendedSegments()
    settled = topic.settled(state.topic_id)[1]
    if not any(late_voids(state, partition, settled.partition(partition)) for partition in range(state.partitions)):
        return MendedSegments()
    holding = _holding(topic, head, other_places(places)[0])
    alone = len(holding) + 1 == len(state_of(head.entry).replicas)
    return mend_segments(topic, state.topic_id, holding, void_only=True, alone=alone)


def repair_unsettled(storage: Storage, name: str) -> bool:
    """Repair what a settler needs, without reading segments; return whether anything was fetched."""
    try:
        done = _repair(storage, name, segments=False)
        return bool(done.files or done.ranges)
    except (CommitLogError, OSError):
        return False

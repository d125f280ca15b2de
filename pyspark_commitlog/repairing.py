"""Repair a topic at one root from the others that have it: entries, tables and chunks as files, segments by offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.maintain.catch_up import TopicSegments
from pyspark_commitlog.log.maintain.mend import MendedSegments, mend_segments
from pyspark_commitlog.log.maintain.settle import settle_on
from pyspark_commitlog.log.repair.void_records import void_records
from pyspark_commitlog.log.topic import TopicLog, unknown_topic
from pyspark_commitlog.model import Repaired
from pyspark_commitlog.replicas.entries import state_of
from pyspark_commitlog.replicas.learning import Replica
from pyspark_commitlog.replicas.mending import MendedFiles, mend_journal, mend_named, other_places
from pyspark_commitlog.replicas.places import Places
from pyspark_commitlog.storage import Storage


def repair(storage: Storage, name: str, *, segments: bool = True) -> Repaired:
    """Repair a topic at a root; see ``ReplicatedRoot.repair``.

    Args:
        storage: the root.
        name: of the topic.
        segments: read all segments, too; else only what is not settled.
    """
    topic = TopicLog(storage, name)
    places = topic.journal.order().places
    done, (others, away) = mend_journal(places), other_places(places)
    mended = MendedSegments()
    try:
        files, mended = _repair_named(topic, places, others, away, segments=segments)
        done += files
    except CorruptionError as error:  # what no root has, or what is this root's alone: of the rest all is done
        done += MendedFiles(left=(str(error),) if str(error) not in done.left else ())
    return Repaired(name, storage.url, done.files, mended.ranges, (*done.left, *mended.left), tuple(away))


def _repair_named(
    topic: TopicLog, places: Places, others: Sequence[Replica], away: list[str], *, segments: bool
) -> tuple[MendedFiles, MendedSegments]:
    """Repair what the entries of a root name; add to ``away`` who may have what is left."""
    head = topic.journal.head()
    if head is None:
        raise unknown_topic(topic.storage.url, topic.name)
    state = topic.state_of(head.entry)
    holds = bool(head.entry.features) and places.roots.own_id() in state_of(head.entry).replicas
    if not holds or state.deleted:  # it only decides, or has no records
        return mend_named(places, head.sequence), MendedSegments()
    settled = places.unit.files.settled
    own = settled(topic.storage, state.topic_id)
    done, mended, holding = mend_named(places, own), MendedSegments(), _holding(topic, head, others)
    if done.left:  # a chunk goes from where it is settled
        taken, failures = _take_settled(topic, head, holding, lambda at: settled(at, state.topic_id) > own)
        away += failures
        if taken:
            again = mend_named(places, settled(topic.storage, state.topic_id))
            done = MendedFiles((*done.files, *again.files), again.left)
    if segments:
        mended = mend_segments(topic, state.topic_id, holding)
    settle_on(topic, state.topic_id)  # it finds that what it could not move is whole
    return done, mended


def _holding(topic: TopicLog, head: Stored, others: Sequence[Replica]) -> list[TopicLog]:
    """Return the topic at those of other roots that have its records, the likeliest first."""
    by_id, said = {other.id: other.storage for other in others}, state_of(head.entry)
    holding = [by_id[root] for root in dict.fromkeys((*said.isr, *said.replicas)) if root in by_id]
    return [TopicLog(other, topic.name) for other in holding]


def _take_settled(
    topic: TopicLog, head: Stored, holding: Sequence[TopicLog], is_further: Callable[[Storage], bool]
) -> tuple[bool, list[str]]:
    """Have a root hold in segments what one has settled that is further, as far as it has learned that; or say why not.

    The interleavings: this root settles meanwhile, or another process copies (the one that publishes later gives up);
    it is killed before it publishes (nothing names what was written). Its readers look again, as after any settling.
    """
    segments, failures = TopicSegments(topic.name), list[str]()
    for other in holding:
        try:
            if not is_further(other.storage):
                continue
            there = segments.settled(other.storage)
            if there.sequence <= head.sequence:
                segments.copy(other.storage, topic.storage, there)
                return True, []
            failures.append(
                f"{other.storage.url} has settled entry {there.sequence}, and {topic.storage.url} has learned "
                f"{head.sequence}: run `commitlog replicate`"
            )
        except (CommitLogError, OSError) as error:
            failures.append(f"{other.storage.url}: {error}")
    return False, failures


def drop_void_records(storage: Storage, name: str) -> MendedSegments:
    """Drop what an unclean election made void after a root had settled it; see ``mend_segments``.

    Compaction waits for it, since a void record supersedes none.

    Raises:
        CommitLogError, OSError: nothing was dropped, or of some partitions.
    """
    topic = TopicLog(storage, name)
    head = topic.journal.head()
    if head is None or not head.entry.features:
        return MendedSegments()
    state = topic.state_of(head.entry)
    if state.deleted or not void_records(topic, state, topic.settled(state.topic_id)[1]):
        return MendedSegments()
    others, _ = other_places(topic.journal.order().places)
    return mend_segments(topic, state.topic_id, _holding(topic, head, others), void_only=True)


def repair_unsettled(storage: Storage, name: str) -> bool:
    """Repair what a settler needs, without reading segments; return whether anything was fetched."""
    try:
        return bool(repair(storage, name, segments=False).files)
    except (CommitLogError, OSError):
        return False

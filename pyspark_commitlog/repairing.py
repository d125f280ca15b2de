"""Repair a topic at one root from the others that have it: entries, tables and chunks as files, segments by offset."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.log.maintain.mend import MendedSegments, mend_segments
from pyspark_commitlog.log.maintain.settle import settle_on
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
        files, mended = _repair_named(topic, places, others, segments=segments)
        done += files
    except CorruptionError as error:  # what no root has, or what is this root's alone: of the rest all is done
        done += MendedFiles(left=(str(error),) if str(error) not in done.left else ())
    return Repaired(name, storage.url, done.files, mended.ranges, (*done.left, *mended.left), tuple(away))


def _repair_named(
    topic: TopicLog, places: Places, others: Sequence[Replica], *, segments: bool
) -> tuple[MendedFiles, MendedSegments]:
    """Repair what the entries of a root name."""
    head = topic.journal.head()
    if head is None:
        raise unknown_topic(topic.storage.url, topic.name)
    state = topic.state_of(head.entry)
    holds = bool(head.entry.features) and places.roots.own_id() in state_of(head.entry).replicas
    if not holds or state.deleted:  # it only decides, or has no records
        return mend_named(places, head.sequence), MendedSegments()
    done, mended = mend_named(places, places.unit.files.settled(topic.storage, state.topic_id)), MendedSegments()
    if segments:
        by_id, said = {other.id: other.storage for other in others}, state_of(head.entry)
        holding = [by_id[root] for root in dict.fromkeys((*said.isr, *said.replicas)) if root in by_id]
        mended = mend_segments(topic, state.topic_id, [TopicLog(other, topic.name) for other in holding])
    settle_on(topic, state.topic_id)  # it finds that what it could not move is whole
    return done, mended


def repair_unsettled(storage: Storage, name: str) -> bool:
    """Repair what a settler needs, without reading segments; return whether anything was fetched."""
    try:
        return bool(repair(storage, name, segments=False).files)
    except (CommitLogError, OSError):
        return False

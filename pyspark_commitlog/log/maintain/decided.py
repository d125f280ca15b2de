"""Collect at the metadata roots, where they hold no replica: nobody settles there.

What all replicas in sync, and those that join, have learned goes, once all metadata roots have it. A metadata root that
is new, or slow, begins with what is left (``replicas.seats``).
"""

from __future__ import annotations

from pyspark_commitlog.anchor import stays_ms
from pyspark_commitlog.log.maintain.collect import kept_from, plan_entries, remove_former, sweep_tables
from pyspark_commitlog.log.topic import TopicLog


def collect_decided(topic: TopicLog) -> int:
    """Delete the entries that all replicas have learned, with their tables; return how many.

    Of several metadata roots nothing goes while one of them is away.

    Raises:
        ReplicaNotAvailableError: the metadata root does not answer, or most of several.
    """
    storages, learned = topic.journal.metadata()
    return sum(_collect_at(TopicLog(storage, topic.name), topic, learned) for storage in storages)


def _collect_at(at: TopicLog, topic: TopicLog, learned: int) -> int:
    storage, stored = at.storage, at.journal.newest()
    assert stored is not None, "it decides"
    state = at.state_of(stored.entry)
    delay = topic.config(state).number("file.delete.delay.ms")
    delay = delay if storage.can_append else stays_ms(delay)
    below = min(learned, kept_from(at, state), at.journal.older_than(storage.now_ms() - delay))
    gone = plan_entries(at.journal.sequences(), below)
    for sequence in gone:
        at.journal.delete(sequence)
    if gone and storage.exists(at.paths(state.topic_id).side):
        sweep_tables(at, state.topic_id)
    remove_former(at, stored)
    return len(gone)

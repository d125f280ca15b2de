"""Collect at the metadata root, where it holds no replica: nobody settles there."""

from __future__ import annotations

from pyspark_commitlog.anchor import stays_ms
from pyspark_commitlog.log.maintain.collect import kept_from, plan_entries, remove_former, sweep_tables
from pyspark_commitlog.log.topic import TopicLog


def collect_decided(topic: TopicLog) -> int:
    """Delete the entries that all replicas have learned, with their tables; return how many.

    Raises:
        ReplicaNotAvailableError: the metadata root does not answer.
    """
    storage = topic.journal.decides_alone()
    if storage is None:
        return 0
    at = TopicLog(storage, topic.name)
    stored = at.journal.newest()
    assert stored is not None, "it decides"
    state = at.state_of(stored.entry)
    delay = topic.config(state).number("file.delete.delay.ms")
    delay = delay if storage.can_append else stays_ms(delay)
    below = min(kept_from(at, state), at.journal.older_than(storage.now_ms() - delay))
    gone = plan_entries(at.journal.sequences(), below)
    for sequence in gone:
        at.journal.delete(sequence)
    if gone and storage.exists(at.paths(state.topic_id).side):
        sweep_tables(at, state.topic_id)
    remove_former(at, stored)
    return len(gone)

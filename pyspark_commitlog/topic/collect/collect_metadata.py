"""Collection at metadata roots without a replica, which never settle.

Deletes what all in-sync and joining replicas have learned. A new metadata root starts from the rest
(`replication.metadata.quorum_members`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark_commitlog.errors import CommitLogError, CorruptionError, combine_errors
from pyspark_commitlog.journal.anchor import stays_ms
from pyspark_commitlog.topic.collect.collect import kept_from, remove_former, sweep_tables
from pyspark_commitlog.topic.collect.collect_entries import plan_entries
from pyspark_commitlog.topic.topic_log import TopicLog


def collect_decided(topic: TopicLog) -> int:
    """Delete entries learned by all replicas; return their number.

    Failed deletions raise last, several as a group.
    """
    roots = [TopicLog(storage, topic.name) for storage in topic.journal.metadata()]
    gone, failures = _at_each(roots, lambda at: _collect_at(at, topic))
    if roots and not failures and all(map(_has_one_life, roots)):
        _, failures = _at_each(roots, _remove_former)
    if failures:
        raise combine_errors(failures, f"topic {topic.name!r}: {len(failures)} metadata roots failed")
    return gone


def _at_each(roots: Iterable[TopicLog], step: Callable[[TopicLog], int]) -> tuple[int, list[Exception]]:
    done, failures = 0, list[Exception]()
    for at in roots:
        try:
            done += step(at)
        except (CommitLogError, OSError) as error:
            failures.append(error)
    return done, failures


def _remove_former(at: TopicLog) -> int:
    stored = at.journal.newest()
    return 0 if stored is None else remove_former(at, stored)


def _collect_at(at: TopicLog, topic: TopicLog) -> int:
    storage = at.storage
    try:
        stored = at.journal.newest()
    except CorruptionError:  # it began above its newest entry's high watermark and must learn more
        return 0
    if stored is None:  # it was emptied since
        return 0
    state = at.state_of(stored.entry)
    delay = topic.config(state).number("file.delete.delay.ms")
    delay = delay if storage.can_append else stays_ms(delay)
    below = min(kept_from(at, state), at.journal.older_than(storage.now_ms() - delay))
    gone = plan_entries(at.journal.sequences(), below)
    for sequence in gone:
        at.journal.delete(sequence)
    if gone and storage.exists(at.paths(state.topic_id).side):
        sweep_tables(at, state.topic_id)
    return len(gone)


def _has_one_life(at: TopicLog) -> bool:
    """Whether all retained entries are of the current incarnation.

    A root that learns a former one's entry needs its tables, so those directories go after the entries.
    """
    try:
        stored = at.journal.newest()
        left = at.journal.sequences()
        oldest = at.journal.read(left[0]).entry if left else None
    except (CorruptionError, FileNotFoundError):
        return False
    if oldest is None or stored is None or at.state_of(stored.entry).deleted:
        return False
    return oldest.topic_id == stored.entry.topic_id

"""Deleted topics of a group, whose offsets may be forgotten."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.groups.state.group_state import GroupState
from pyspark_commitlog.topic.topic_log import TopicLog

log = logging.getLogger("pyspark_commitlog.groups")


def gone_for_good(topic: Callable[[str], TopicLog], state: GroupState, group: str, *, absent: bool) -> set[str]:
    """Topic ids that are deleted or replaced, which is final.

    `absent` includes topics without any journal, which might be restored.
    """
    gone = set()
    for topic_id, row in state.topics.items():
        try:
            over = _is_over(topic(row.name), topic_id, absent=absent)
        except (CommitLogError, OSError) as error:
            log.warning("group %r: whether topic %r is gone is unknown: %s", group, row.name, error)
            over = False
        if over:
            gone.add(topic_id)
    return gone


def _is_over(topic: TopicLog, topic_id: str, *, absent: bool) -> bool:
    stored = topic.journal.newest()
    if stored is None:
        return absent
    newest = topic.state_of(stored.entry)
    if not newest.deleted and newest.topic_id == topic_id:
        return False
    topic.journal.sync_exposed(stored)  # rule R5: power loss must not bring it back
    return True

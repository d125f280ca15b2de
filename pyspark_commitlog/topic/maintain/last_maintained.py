"""Time of a topic's last maintenance: a file's mtime, advisory; the file is empty until there was one."""

from __future__ import annotations

import logging
from contextlib import suppress

from pyspark_commitlog.broker_config import check_interval_ms
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.storage.base import write_whole
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")

#: Interval of a writer's check, and the age at which it warns, in seconds.
_WARN_SECONDS = 3600
_MAINTAINED = b"maintained\n"


def note_maintained(topic: TopicLog, topic_id: str) -> None:
    """Set the time to now; not durable, errors ignored."""
    _note(topic, topic_id, _MAINTAINED)


def renew_note(topic: TopicLog, topic_id: str) -> None:
    """Set the time to now where maintenance is put off, whether there was any or not."""
    _, was_maintained = since_maintained_ms(topic, topic_id)
    _note(topic, topic_id, _MAINTAINED if was_maintained else b"")


def _note(topic: TopicLog, topic_id: str, data: bytes) -> None:
    with suppress(CommitLogError, OSError):
        write_whole(topic.storage.create(topic.paths(topic_id).maintained), data, durable=False)


def start_note(topic: TopicLog, topic_id: str) -> None:
    """Set the time to now if unset, when first settled."""
    with suppress(CommitLogError, OSError):
        if not topic.storage.exists(topic.paths(topic_id).maintained):
            _note(topic, topic_id, b"")


def since_maintained_ms(topic: TopicLog, topic_id: str) -> tuple[int | None, bool]:
    """Ms since the last maintenance or first settling, if known, and whether there was any maintenance."""
    try:
        last = topic.storage.info(topic.paths(topic_id).maintained)
    except (CommitLogError, OSError):
        return None, False
    return max(0, topic.storage.clock.now_ms() - last.modified_ms), last.size > 0


def warn_unless_maintained(topic: TopicLog, topic_id: str) -> None:
    """Warn if a topic is not maintained; hourly per handle.

    The limit is an hour, or twice the root's `log.retention.check.interval.ms` if longer.
    """
    now = topic.storage.clock.monotonic()
    if topic.maintenance_checked is not None and now - topic.maintenance_checked < _WARN_SECONDS:
        return
    topic.maintenance_checked = now
    age_ms, _ = since_maintained_ms(topic, topic_id)
    if age_ms is not None and age_ms >= _WARN_SECONDS * 1000 and age_ms >= 2 * _interval_ms(topic):
        logger.warning(
            "topic %r: maintenance has not run for %d minutes: retention, compaction and the removal of old files "
            "wait for it. Run `commitlog maintain %s`, as a service or from cron, or call CommitLog.maintain()",
            topic.name, age_ms // 60_000, topic.storage.url,
        )  # fmt: skip


def _interval_ms(topic: TopicLog) -> int:
    with suppress(CommitLogError, OSError):
        return check_interval_ms(RootDefaults(topic.storage).as_given())
    return 0

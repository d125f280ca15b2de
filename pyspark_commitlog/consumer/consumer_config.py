"""Arguments of a consumer, checked (Kafka: `ConsumerConfig`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.paths import check_group_name, check_topic_name
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.storage.pace import DEFAULT_IDLE_POLL_INTERVAL_MS, check_idle_poll_interval


class Reset(Enum):
    """Start without a valid offset (Kafka: `auto.offset.reset`)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    @classmethod
    def of(cls, value: str) -> Reset:
        """Parse a name."""
        try:
            return cls(value)
        except ValueError:
            raise UsageError(
                f"auto_offset_reset={value!r} is not allowed: it takes 'earliest', 'latest' or 'none'"
            ) from None


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Settings of a consumer in Kafka's names; see `Consumer`."""

    reset: Reset
    group_id: str | None
    client_id: str
    auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    fetch_max_bytes: int
    consumer_timeout_ms: int | None
    metadata_max_age_ms: int
    partition_assignment_strategy: tuple[str, ...]
    group_instance_id: str | None
    times: MemberConfig
    principal: str | None
    idle_poll_interval_ms: int = DEFAULT_IDLE_POLL_INTERVAL_MS


def checked(settings: ConsumerConfig) -> ConsumerConfig:
    """Check and return the settings."""
    if settings.group_id is not None:
        check_group_name(settings.group_id)
    elif settings.group_instance_id is not None:
        raise UsageError(f"group_instance_id={settings.group_instance_id!r} takes a group: give group_id, too")
    check_number("max_poll_records", settings.max_poll_records)
    check_number("fetch_max_bytes", settings.fetch_max_bytes)
    check_number("auto_commit_interval_ms", settings.auto_commit_interval_ms, least=0)
    check_number("metadata_max_age_ms", settings.metadata_max_age_ms, least=0)
    check_idle_poll_interval("idle_poll_interval_ms", settings.idle_poll_interval_ms)
    if settings.consumer_timeout_ms is not None:
        check_number("consumer_timeout_ms", settings.consumer_timeout_ms, least=0)
    return settings


def check_number(name: str, value: object, least: int = 1) -> None:
    """Refuse all but integers of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r} is not allowed: it takes {least} or more")


def check_flag(name: str, value: bool) -> bool:
    """Return a bool; `"false"` would count as true."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r} is not allowed: it takes True or False")
    return value


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name, or a regular expression for whole names."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


def subscription(topics: Iterable[str] | str | None, pattern: str | re.Pattern[str] | None) -> Subscription:
    """Subscription to topics or to a pattern."""
    if (topics is None) == (pattern is None):
        raise UsageError("subscribe takes either topics or pattern=…")
    if pattern is not None:
        try:
            return Subscription(pattern=re.compile(pattern))
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(f"pattern={pattern!r} is not a regular expression of Python: {error}") from None
    names = [topics] if isinstance(topics, str) else list(topics or ())
    if not names:
        raise UsageError("subscribe takes at least one topic; to read nothing any more, call unsubscribe()")
    return Subscription(tuple(sorted({check_topic_name(name) for name in names})))


def pattern_text(pattern: re.Pattern[str] | None) -> str | None:
    """Return a pattern's text for the other members of a group."""
    if pattern is None:
        return None
    if pattern.flags != re.compile(pattern.pattern).flags:
        raise UsageError(f"pattern={pattern!r}: members of a group share its text, so write flags into it: '(?i)…'")
    return pattern.pattern


def check_places(places: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return unique partitions, sorted."""
    partitions = set()
    for place in places:
        if not isinstance(place, TopicPartition):
            raise UsageError(f"{place!r} is not a partition: use TopicPartition(topic, number)")
        check_topic_name(place.topic)
        partitions.add(place)
    return tuple(sorted(partitions))

"""Root-wide defaults of topic configs, under the names and units of Kafka's broker configs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_commitlog.config import HOUR_MS, KEYS, LONG_MAX, Key, check_names

#: Kafka's broker-wide names of each topic config, in order of precedence, with their unit in units of the topic config
#: (Kafka: `ServerTopicConfigSynonyms`). The topic config's own name takes precedence over all of them.
BROKER_NAMES: dict[str, dict[str, int]] = {
    "max.message.bytes": {"message.max.bytes": 1},
    "message.timestamp.type": {"log.message.timestamp.type": 1},
    "message.timestamp.before.max.ms": {"log.message.timestamp.before.max.ms": 1},
    "message.timestamp.after.max.ms": {"log.message.timestamp.after.max.ms": 1},
    "segment.bytes": {"log.segment.bytes": 1},
    "segment.ms": {"log.roll.ms": 1, "log.roll.hours": HOUR_MS},
    "segment.jitter.ms": {"log.roll.jitter.ms": 1, "log.roll.jitter.hours": HOUR_MS},
    "segment.index.bytes": {"log.index.size.max.bytes": 1},
    "index.interval.bytes": {"log.index.interval.bytes": 1},
    "flush.messages": {"log.flush.interval.messages": 1},
    "flush.ms": {"log.flush.interval.ms": 1, "log.flush.scheduler.interval.ms": 1},
    "preallocate": {"log.preallocate": 1},
    "cleanup.policy": {"log.cleanup.policy": 1},
    "retention.ms": {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": HOUR_MS},
    "retention.bytes": {"log.retention.bytes": 1},
    "file.delete.delay.ms": {"log.segment.delete.delay.ms": 1},
    "min.cleanable.dirty.ratio": {"log.cleaner.min.cleanable.ratio": 1},
    "min.compaction.lag.ms": {"log.cleaner.min.compaction.lag.ms": 1},
    "max.compaction.lag.ms": {"log.cleaner.max.compaction.lag.ms": 1},
    "delete.retention.ms": {"log.cleaner.delete.retention.ms": 1},
    "cleaner.dedupe.buffer.size": {"log.cleaner.dedupe.buffer.size": 1},
}


#: Interval of `maintain` in ms: a default of the root that no topic has (Kafka: of the broker).
CHECK_INTERVAL = Key("log.retention.check.interval.ms", "300000", 1)


#: How long a group without members keeps its offsets, in minutes; -1 for ever (Kafka: of the broker, KIP-211).
OFFSETS_RETENTION = Key("offsets.retention.minutes", "10080", -1)


def offsets_retention_ms(defaults: Mapping[str, str], *, expire: bool) -> int | None:
    """Retention of groups' offsets under these root defaults, in ms; None: for ever (pure).

    `expire`: whether it has a default (`Marker.offsets_expire`).
    """
    minutes = int(defaults.get(OFFSETS_RETENTION.name, OFFSETS_RETENTION.default if expire else -1))
    return None if minutes < 0 else minutes * 60_000


def check_interval_ms(defaults: Mapping[str, str]) -> int:
    """Interval of `maintain` under these root defaults, in ms (pure)."""
    return int(defaults.get(CHECK_INTERVAL.name, CHECK_INTERVAL.default))


def check_defaults(config: Mapping[str, object]) -> tuple[set[str], dict[str, str]]:
    """Check root-wide defaults, under Kafka's broker-wide or topic config names.

    Return the names whose value is None, and the other configs as stored text.
    """
    keys = {**KEYS, CHECK_INTERVAL.name: CHECK_INTERVAL, OFFSETS_RETENTION.name: OFFSETS_RETENTION}
    for topic_name, names in BROKER_NAMES.items():
        keys |= {name: _in_units(KEYS[topic_name], name, unit) for name, unit in names.items()}
    check_names(config, keys, "default")
    removed = {name for name, value in config.items() if value is None}
    return removed, {name: keys[name].check(value) for name, value in config.items() if name not in removed}


def _in_units(key: Key, name: str, unit: int) -> Key:
    """Key under another name, in larger units.

    -1, 0 and 1 stay as minimum.
    """
    return replace(key, name=name, maximum=(LONG_MAX if key.maximum is None else key.maximum) // unit)


def topic_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Root-wide defaults under topic config names, in their units (pure)."""
    defaults: dict[str, str] = {}
    for topic_name in KEYS if given else ():  # runs on every commit, and most roots have none
        names = {topic_name: 1, **BROKER_NAMES.get(topic_name, {})}
        name = next((name for name in names if name in given), None)
        if name is not None:
            value, unit = given[name], names[name]
            defaults[topic_name] = value if unit == 1 or value == "-1" else str(int(value) * unit)
    return defaults

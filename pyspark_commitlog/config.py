"""Topic configs: Kafka's names, units and defaults where Kafka has the config.

A config is stored as the text the user gave, so that ``describe`` shows it unchanged; ``TopicConfig`` reads it.
Defaults live here only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_commitlog.errors import ConfigError

LONG_MAX = 2**63 - 1
DAY_MS = 86_400_000
FLAG = ("false", "true")


@dataclass(frozen=True, slots=True)
class Key:
    """One config: how to read it, its default, and the least (or the listed) values allowed.

    ``several`` allows more than one of the choices, separated by commas; ``ratio`` numbers that are not whole.
    """

    name: str
    default: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    ratio: bool = False
    doc: str = ""

    def check(self, value: object) -> str:
        """Return ``value`` as the text to store.

        Raises:
            ConfigError: with the name, the value and what is allowed.
        """
        text = str(value).strip()
        return self._check_choice(text) if self.choices else self._check_number(text)

    def _check_choice(self, text: str) -> str:
        text = text.lower() if self.choices == FLAG else text
        chosen = _listed(text) if self.several else [text]
        if not set(chosen) <= set(self.choices) or len(set(chosen)) < len(chosen):
            many = "one or more" if self.several else "one"
            raise ConfigError(f"{self.name}={text!r} is not allowed: use {many} of {', '.join(self.choices)}")
        return ",".join(chosen)

    def _check_number(self, text: str) -> str:
        try:
            number = float(text) if self.ratio else int(text)
        except ValueError:
            kind = "a number" if self.ratio else "a whole number"
            raise ConfigError(f"{self.name}={text!r} is not allowed: it takes {kind}") from None
        low, high = self.minimum, LONG_MAX if self.maximum is None else self.maximum
        if (low is not None and not number >= low) or not number <= high:
            raise ConfigError(f"{self.name}={text} is not allowed: it takes {low} to {high}")
        return text if self.ratio else str(number)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _keys(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


KEYS: dict[str, Key] = _keys(
    # --- what a record may be (Kafka: LogValidator) ---
    Key("max.message.bytes", "1048588", 1, doc="Largest key + value + headers of one record, bytes."),
    Key(
        "message.timestamp.type",
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whose clock a record's timestamp is: the producer's, or the write task's.",
    ),
    Key("message.timestamp.before.max.ms", str(LONG_MAX), 0, doc="How far a timestamp may lie in the past, ms."),
    Key("message.timestamp.after.max.ms", "3600000", 0, doc="How far a timestamp may lie in the future, ms."),
    # --- frames ---
    Key("compression.type", "lz4", choices=("none", "lz4", "zstd"), doc="Arrow body compression of new frames."),
    Key("batch.size", "1048576", 1024, 2**30, doc="Aimed size of a frame before compression, bytes."),
    Key(
        "inline.max.bytes",
        "65536",
        0,
        2**20,
        doc="A write task with fewer frame bytes returns them in its commit message instead of a chunk.",
    ),
    # --- segments (Kafka: LogConfig) ---
    Key("segment.bytes", "1073741824", 1024, 2**31 - 1, doc="Roll when the .log would grow beyond this, bytes."),
    Key("segment.ms", str(7 * DAY_MS), 1, doc="Roll when the first frame is this much older than the next, ms."),
    Key(
        "segment.jitter.ms", "0", 0, doc="Up to this much is taken off segment.ms, for each segment another share, ms."
    ),
    Key("segment.index.bytes", "10485760", 24, 2**31 - 1, doc="Preallocated size of .index and .timeindex, bytes."),
    Key("index.interval.bytes", "4096", 0, 2**31 - 1, doc="At most one index entry per this many log bytes."),
    Key("flush.messages", str(LONG_MAX), 1, doc="Sync the active indexes, too, every so many records of a partition."),
    Key("flush.ms", str(LONG_MAX), 0, doc="… or every so many ms. A .log is always synced before it counts."),
    Key("preallocate", "false", choices=FLAG, doc="Reserve segment.bytes of disk for the .log of an active segment."),
    # --- retention (Kafka: UnifiedLog.deleteOldSegments) ---
    Key(
        "cleanup.policy",
        "delete",
        choices=("delete", "compact"),
        several=True,
        doc="delete: old segments go; compact: the last record of every key stays; or both, with a comma.",
    ),
    Key("retention.ms", str(7 * DAY_MS), -1, doc="Age at which a segment may go, ms; -1 keeps for ever."),
    Key("retention.bytes", "-1", -1, doc="Size of a partition above which old segments may go; -1 is no limit."),
    Key("file.delete.delay.ms", "60000", 0, doc="How long a file stays after nothing needs it any more, ms."),
    # --- compaction (Kafka: LogCleaner) ---
    Key("min.cleanable.dirty.ratio", "0.5", 0, 1, ratio=True, doc="Share of bytes not compacted yet that is enough."),
    Key("min.compaction.lag.ms", "0", 0, doc="Age below which a segment is not compacted, ms."),
    Key("max.compaction.lag.ms", str(LONG_MAX), 1, doc="Age above which a record is compacted whatever the ratio, ms."),
    Key("delete.retention.ms", str(DAY_MS), 0, doc="How long tombstones stay after a compaction saw them, ms."),
    Key(
        "cleaner.dedupe.buffer.size",
        str(128 * 2**20),
        1024,
        2**30,
        doc="Bytes of keys that compaction holds at a time; at its peak it takes about three times as much memory.",
    ),
    # --- ours: staging, settling, writers ---
    Key("staged.retention.ms", str(DAY_MS), 1, doc="Age at which a chunk nobody committed may be swept, ms."),
    Key("producer.id.expiration.ms", str(30 * DAY_MS), 1, doc="How long a silent writer's last id is kept, ms."),
    Key("settle.bytes", str(16 * 2**20), 0, doc="Settle inside a commit when this many bytes are unsettled."),
    Key("settle.entries", "64", 1, doc="… or this many journal entries."),
    Key("settle.ms", "60000", 0, doc="… or the oldest unsettled entry is this old, ms."),
    Key("settle.budget.ms", "200", 0, doc="Longest time that settling may add to one commit, ms."),
)


def check_names(names: Iterable[str]) -> None:
    """Refuse unknown config names.

    Raises:
        ConfigError: the name, the nearest known one, and all known ones.
    """
    for name in names:
        if name not in KEYS:
            raise ConfigError(f"unknown topic config {name!r}{_hint(name)}; known: {', '.join(KEYS)}")


def check_together(config: Mapping[str, str]) -> None:
    """Refuse configs that are right one by one and contradict each other (Kafka: ``LogConfig.validateValues``).

    Raises:
        ConfigError: names both.
    """
    topic = TopicConfig(config)
    low, high = topic.number("min.compaction.lag.ms"), topic.number("max.compaction.lag.ms")
    if low > high:
        raise ConfigError(f"min.compaction.lag.ms={low} is above max.compaction.lag.ms={high}")


def check_config(config: Mapping[str, object]) -> dict[str, str]:
    """Check user-given configs; return them as stored text.

    Raises:
        ConfigError: unknown name (with the nearest known one) or a value that is not allowed.
    """
    check_names(config)
    return {name: KEYS[name].check(value) for name, value in config.items()}


def _hint(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, KEYS, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configs, typed, with defaults for what was not set."""

    stored: Mapping[str, str]

    def _read(self, name: str) -> str:
        return self.stored.get(name, KEYS[name].default)

    def number(self, name: str) -> int:
        """Return a numeric config."""
        return int(self._read(name))

    def ratio(self, name: str) -> float:
        """Return a config that is a share of one."""
        return float(self._read(name))

    def has_policy(self, policy: str) -> bool:
        """Return whether ``cleanup.policy`` names ``delete`` or ``compact``."""
        return policy in _listed(self._read("cleanup.policy"))

    @property
    def max_segment_ms(self) -> int:
        """Return after what time a segment rolls: compaction takes sealed ones only (``LogConfig.maxSegmentMs``)."""
        limit = self.number("segment.ms")
        return min(limit, self.number("max.compaction.lag.ms")) if self.has_policy("compact") else limit

    def text(self, name: str) -> str:
        """Return a config that is one of a list."""
        return self._read(name)

    def flag(self, name: str) -> bool:
        """Return a config that is true or false."""
        return self._read(name) == "true"

    def resolved(self) -> dict[str, str]:
        """Return every config with its value, defaults included."""
        return {name: self.stored.get(name, key.default) for name, key in KEYS.items()}

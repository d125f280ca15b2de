"""Topic configs, with Kafka's names, units and defaults if Kafka has them.

Values are stored as the user's text and parsed by `TopicConfig`. Built-in defaults live here only; a root may
override them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.model import as_whole
from pyspark_commitlog.text import did_you_mean, similar_names

LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
#: Codecs of frames.
COMPRESSIONS = ("none", "lz4", "zstd")
#: The value of `compression.type` that lets the writer choose.
PRODUCERS = "producer"
#: Default of typed topics: half the bytes of lz4, for half a decode more (docs/how-to/typed-topics.md).
TYPED_COMPRESSION = "zstd"
FLAG = ("false", "true")
#: Config at creation: the number of roots that hold the topic (Kafka).
REPLICATION_FACTOR = "replication.factor"
#: Environment variable that names the principal of a client that was given none.
PRINCIPAL_VARIABLE = "COMMITLOG_PRINCIPAL"
#: Wildcard for all principals, or all topics, in an access rule.
ALL = "*"
#: Largest partition number (Kafka's protocol).
MAX_PARTITION = 2**31 - 1
#: The most partitions of a topic.
MAX_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True)
class Key:
    """One config: its default and the allowed values.

    Attributes:
        several: Whether choices may be several, separated by commas.
        ratio: Whether the number may be fractional.
        doc: Markdown for docs/reference/topic-configs.md.
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
        """Return an allowed `value` as the text to store."""
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
    Key(
        "max.message.bytes",
        "1048588",
        1,
        2**31 - 1,
        doc="Largest record: bytes of key, value and headers before compression. A frame takes at most 2,097,152,000.",
    ),
    Key(
        "message.timestamp.type",
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whose clock a record's timestamp is: the producer's, or the write task's.",
    ),
    Key(
        "message.timestamp.before.max.ms",
        str(LONG_MAX),
        0,
        doc="How far a timestamp may lie in the past; never before 1970.",
    ),
    Key("message.timestamp.after.max.ms", "3600000", 0, doc="How far a timestamp may lie in the future."),
    # --- frames ---
    Key(
        "compression.type",
        "lz4",
        choices=(*COMPRESSIONS, PRODUCERS),
        doc="Arrow body compression of new frames, whatever their writer asks for. `producer`, or not set: as the "
        "writer asks, else lz4, of typed topics zstd. (Kafka's default: `producer`.)",
    ),
    Key(
        "batch.size",
        "1048576",
        1024,
        2**30,
        doc="Aimed size of a frame before compression. One of several records decodes to at most twice as much.",
    ),
    Key(
        "inline.max.bytes",
        "65536",
        0,
        2**20,
        doc="A write task with fewer frame bytes returns them in its commit message instead of a chunk: one file per "
        "small commit.",
    ),
    # --- replicas (Kafka: KafkaConfig, LogConfig) ---
    Key(
        "min.insync.replicas",
        "1",
        1,
        16,
        doc="A commit with acks=all is refused while fewer replicas are in sync. A root that stands alone ignores it.",
    ),
    Key(
        "replica.lag.time.max.ms",
        "30000",
        0,
        doc="A replica that a writer can't push to for so long leaves the ISR.",
    ),
    Key(
        "unclean.leader.election.enable",
        "false",
        choices=FLAG,
        doc="If no replica in sync can lead, a process that finds the leader gone elects one that is not in sync: "
        "records that it lacks are lost.",
    ),
    # --- segments (Kafka: LogConfig) ---
    Key("segment.bytes", "1073741824", 1024, 2**31 - 1, doc="The active segment rolls before it grows beyond this."),
    Key(
        "segment.ms",
        str(7 * DAY_MS),
        1,
        doc="The active segment rolls when its first frame is this much older than the next.",
    ),
    Key(
        "segment.jitter.ms",
        "0",
        0,
        doc="Each segment rolls earlier by a share of this, so that partitions do not all roll at once.",
    ),
    Key("segment.index.bytes", "10485760", 24, 2**31 - 1, doc="Preallocated size of `.index` and `.timeindex`."),
    Key("index.interval.bytes", "4096", 0, 2**31 - 1, doc="At most one index entry per this many log bytes."),
    Key(
        "flush.messages",
        str(LONG_MAX),
        1,
        doc="The active indexes are synced every so many records of a partition, so that power loss costs no rebuild. "
        "A `.log` always is, before its records leave their chunk.",
    ),
    Key("flush.ms", str(LONG_MAX), 0, doc="The same, every so many ms."),
    Key(
        "preallocate",
        "false",
        choices=FLAG,
        doc="Reserve `segment.bytes` of disk for each partition's active segment, when it is begun.",
    ),
    # --- retention (Kafka: UnifiedLog.deleteOldSegments) ---
    Key(
        "cleanup.policy",
        "delete",
        choices=("delete", "compact"),
        several=True,
        doc="`delete`: old segments are deleted. `compact`: the last record of every key stays.",
    ),
    Key(
        "retention.ms",
        str(7 * DAY_MS),
        -1,
        doc="`maintain` deletes segments whose latest record is older (whose file is, if no timestamp is above 0); -1 "
        "keeps for ever. Records with old event times need -1: a write most of which is older is warned of, once per "
        "topic.",
    ),
    Key(
        "retention.bytes",
        "-1",
        -1,
        doc="`maintain` deletes the oldest segments of a partition that is larger; -1 is no limit.",
    ),
    Key(
        "file.delete.delay.ms",
        "60000",
        0,
        doc="How long a file stays after nothing needs it. Without append at least 10 s.",
    ),
    # --- compaction (Kafka: LogCleaner) ---
    Key(
        "min.cleanable.dirty.ratio",
        "0.5",
        0,
        1,
        ratio=True,
        doc="`maintain` compacts when this share of the bytes is not compacted yet.",
    ),
    Key("min.compaction.lag.ms", "0", 0, doc="Age below which a segment is not compacted."),
    Key("max.compaction.lag.ms", str(LONG_MAX), 1, doc="Age above which a record is compacted whatever the ratio."),
    Key(
        "delete.retention.ms",
        str(DAY_MS),
        0,
        doc="How long a tombstone (a null value) stays after a compaction saw it.",
    ),
    Key(
        "cleaner.dedupe.buffer.size",
        str(128 * 2**20),
        1024,
        2**30,
        doc="Bytes of keys that compaction holds at a time; it peaks at four to five times as much memory.",
    ),
    # --- ours: staging, settling, writers ---
    Key(
        "staged.retention.ms",
        str(DAY_MS),
        1,
        doc="Age at which a chunk that nobody committed may be swept. Without append at least 1 hour.",
    ),
    Key(
        "producer.id.expiration.ms",
        str(HOUR_MS),
        1,
        doc="How long a silent producer without `producer_id` is remembered: until then it can tell whether a try "
        "landed. Ids that last (queries, `txnAppId`, `producer_id`) do not expire. (Kafka's default: 1 day.)",
    ),
    Key(
        "settle.bytes",
        str(16 * 2**20),
        0,
        doc="A commit also settles when this many bytes are unsettled. An extent (what one task wrote to one "
        "partition) counts 4 KiB beside its bytes: a wide shuffle settles earlier.",
    ),
    Key("settle.entries", "64", 1, doc="The same, at this many journal entries."),
    Key("settle.ms", "60000", 0, doc="The same, when the oldest unsettled entry is this old."),
    Key("settle.budget.ms", "200", 0, doc="Longest time that settling may add to one commit."),
)


def check_names(names: Iterable[str], known: Iterable[str] = KEYS, what: str = "topic config") -> None:
    """Refuse unknown config names; suggest the nearest known one, or all."""
    known = list(known)
    for name in names:
        if name not in known:
            similar = did_you_mean(next(iter(similar_names(name, known)), None))
            raise ConfigError(f"unknown {what} {name!r}{similar or '; known: ' + ', '.join(known)}")


#: Minimums on storage without append: file times have seconds and two clocks may differ by two
#: (docs/explanation/design/settling-on-object-stores.md, O7); slow uploads must not be swept.
MIN_DELAY_MS = 10_000
MIN_STAGED_MS = HOUR_MS
_LEAST_WITHOUT_APPEND = {"file.delete.delay.ms": MIN_DELAY_MS, "staged.retention.ms": MIN_STAGED_MS}


def check_together(config: Mapping[str, str], *, appends: bool) -> None:
    """Refuse configs that contradict each other or storage (Kafka: `LogConfig.validateValues`)."""
    topic = TopicConfig(config)
    for name, least in () if appends else _LEAST_WITHOUT_APPEND.items():
        if topic.number(name) < least:
            raise ConfigError(
                f"{name}={topic.number(name)} is not allowed here: on object stores, NFS and unknown mounts it is at "
                f"least {least}, as their clocks count in seconds and requests may be late"
            )
    low, high = topic.number("min.compaction.lag.ms"), topic.number("max.compaction.lag.ms")
    if low > high:
        raise ConfigError(f"min.compaction.lag.ms={low} is above max.compaction.lag.ms={high}")


def check_config(config: Mapping[str, object]) -> dict[str, str]:
    """Check a user's configs and return them as stored text."""
    check_names(config)
    return {name: KEYS[name].check(value) for name, value in config.items()}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configs, typed; unset ones have their defaults.

    `can_compact`: whether `cleanup.policy=compact` counts; not for typed topics, which may have it by a root's default.
    """

    stored: Mapping[str, str]
    can_compact: bool = True

    def _read(self, name: str) -> str:
        return self.stored.get(name, KEYS[name].default)

    def number(self, name: str) -> int:
        """Numeric config."""
        return int(self._read(name))

    def ratio(self, name: str) -> float:
        """Fractional config."""
        return float(self._read(name))

    def has_policy(self, policy: str) -> bool:
        """Whether `cleanup.policy` includes `delete` or `compact`."""
        return policy in _listed(self._read("cleanup.policy")) and (self.can_compact or policy != "compact")

    @property
    def max_segment_ms(self) -> int:
        """Age in ms at which a segment rolls (`LogConfig.maxSegmentMs`).

        With `compact` it is limited by `max.compaction.lag.ms`: only sealed segments are compacted.
        """
        limit = self.number("segment.ms")
        return min(limit, self.number("max.compaction.lag.ms")) if self.has_policy("compact") else limit

    def codec(self, writer: str | None = None, *, is_typed: bool = False) -> str:
        """Compression: the topic's, else the writer's, else the default, which is zstd for typed topics.

        Kafka: `BrokerCompressionType.targetCompression`.
        """
        own = self.stored.get("compression.type", PRODUCERS)
        default = TYPED_COMPRESSION if is_typed else KEYS["compression.type"].default
        return (writer or default) if own == PRODUCERS else own

    def text(self, name: str) -> str:
        """Config that is one of a list."""
        return self._read(name)

    def flag(self, name: str) -> bool:
        """Boolean config."""
        return self._read(name) == "true"

    def resolved(self) -> dict[str, str]:
        """Every config with its value, defaults included."""
        return {name: self.stored.get(name, key.default) for name, key in KEYS.items()}


def truth_value(name: str, value: object) -> bool:
    """Return a boolean config; refuse what is neither true nor false."""
    if str(value).lower() not in FLAG:
        raise ConfigError(f"{name}={value!r} is not allowed: it takes true or false")
    return str(value).lower() == "true"


def replication_factor(value: object) -> int | None:
    """Replication factor of a new topic; None if not given."""
    try:
        return None if value is None else int(str(value))
    except ValueError:
        raise ConfigError(f"{REPLICATION_FACTOR}={value!r} is not allowed: it takes a whole number") from None


def partition_count(partitions: int) -> int:
    """Partition count of a new topic."""
    count = as_whole(partitions)
    if count is None or not 1 <= count <= MAX_PARTITIONS:
        raise UsageError(f"partitions={partitions!r} is not allowed: it takes 1 to {MAX_PARTITIONS}")
    return count

"""Description of a topic: as values, and as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark_commitlog.config import HOUR_MS
from pyspark_commitlog.text import counted, html_lines, html_table, table

#: Partitions whose offsets a replica's row shows; JSON has all.
_SHOWN = 8
_REPLICA_HEAD = "REPLICA ROOT-ID ROLE HIGH-WATERMARKS LOG-END-OFFSETS ENTRIES-BEHIND BYTES-BEHIND SECONDS-BEHIND"
_COLUMN_HEAD = ["COLUMN", "TYPE", "NULLABLE", "COMMENT"]
_HEAD = "PARTITION LOG-START-OFFSET HIGH-WATERMARK LOG-END-OFFSET SEGMENTS BYTES UNSETTLED"


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One row of `Topic.describe`.

    `high_watermark` is the first offset that readers may not see, `log_end_offset` that of the next record; they differ
    while in-sync replicas lack the last records. `segments` and `size_bytes` are of the segmented log; `unsettled`
    counts readable records still in chunks or journal entries, `unsettled_bytes` about their bytes: the partition's
    share, by records.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    segments: int
    size_bytes: int
    unsettled: int
    unsettled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unsettled journal entries, their bytes, and the age (ms) of the oldest.

    Of more than 64 entries the bytes are estimated. An `age_ms` that only grows: nobody settles, for lack of writers
    and `maintain`, or as a process holds the lock and does not go on (`Maintained.busy`).
    """

    entries: int = 0
    size_bytes: int = 0
    age_ms: int = 0


NOTHING_WAITS = Backlog()


@dataclass(frozen=True, slots=True)
class RootDescription:
    """One of the roots that belong together.

    `fault`: why it does not answer, or None. `leads`: topics.
    """

    root_id: str
    url: str
    data: bool = True
    metadata: bool = False
    fault: str | None = None
    leads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica of a topic.

    `role` is "leader", "in sync", "joining" or "out of sync". Per partition: the log end offset (LEO), and the high
    watermark of its readers. `entries_behind` counts the topic's entries that it has not learned, `bytes_behind` about
    their bytes, `ms_behind` the time since the first was decided. All are None if it does not answer, which `fault`
    explains; ms and bytes also if the first entries are removed already.
    """

    root_id: str
    url: str
    role: str
    high_watermarks: tuple[int, ...] | None = None
    log_end_offsets: tuple[int, ...] | None = None
    entries_behind: int | None = None
    bytes_behind: int | None = None
    ms_behind: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicationDescription:
    """A topic's roots. Its partitions share one leader and one ISR.

    `leader`, `isr` and `joining` are root ids. `metadata` has the roots that decide, with a `fault` if one does not
    answer: the rest is then what answering replicas have learned. `elected_ms`: last election, in ms since 1970 by the
    leader's storage clock, -1 for none; `elected_why`: its reason.
    """

    leader: str
    leader_url: str
    leader_epoch: int
    replicas: tuple[ReplicaDescription, ...]
    isr: tuple[str, ...]
    joining: tuple[str, ...]
    metadata: tuple[RootDescription, ...]
    elected_ms: int = -1
    elected_why: str = ""

    @property
    def is_under_replicated(self) -> bool:
        """Whether some replicas are out of sync (Kafka: `UnderReplicatedPartitions`)."""
        return len(self.isr) < len(self.replicas)

    @property
    def is_unavailable(self) -> bool:
        """Whether the leader does not answer."""
        return any(replica.root_id == self.leader and replica.fault is not None for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A declared column; `type` is Spark's `simpleString`."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaDescription:
    """Columns of a typed topic; `version` counts changes, `key` and `timestamp` are names."""

    version: int
    columns: tuple[ColumnDescription, ...]
    key: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Result of `Topic.describe`; its text is that of `commitlog topics describe`.

    `config` has every config, `overrides` the names of those set for the topic or the root. `damaged` maps partitions
    that can't be settled to their damage: commits to them are refused. `since_maintained_ms`: time since the last
    `maintain`; if not `was_maintained`, since the first settling, and None before. `unsafe_single_writer`: only one
    process may write to the root. `replication`: None for one root alone. `schema`: None if untyped.
    """

    name: str
    topic_id: str
    config: Mapping[str, str]
    partitions: tuple[PartitionDescription, ...]
    unsettled: Backlog = NOTHING_WAITS
    damaged: Mapping[int, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    since_maintained_ms: int | None = None
    unsafe_single_writer: bool = False
    replication: ReplicationDescription | None = None
    schema: SchemaDescription | None = None
    was_maintained: bool = True

    def __str__(self) -> str:
        return "\n".join(topic_lines(self))

    def _repr_html_(self) -> str:
        sections = [html_lines([_headline(self, self.overrides)]), html_table(_HEAD.split(), _partition_rows(self))]
        if self.schema is not None:
            sections.append(html_table(_COLUMN_HEAD, _column_rows(self.schema)))
        if self.replication is not None:
            sections.append(html_table(_REPLICA_HEAD.split(), _replica_rows(self.replication)))
        return "".join([*sections, html_lines(_notes(self))])


def backlog_line(waiting: Backlog) -> str:
    """How much of a topic waits to be settled."""
    if not waiting.entries:
        return "all is settled"
    return (
        f"{counted(waiting.entries, 'journal entry')} ({counted(waiting.size_bytes, 'byte')}) "
        f"{'waits' if waiting.entries == 1 else 'wait'} to be settled, the oldest for {waiting.age_ms // 1000:,} s"
    )


def maintained_line(topic: TopicDescription) -> str:
    """When a topic was last maintained, or first settled; advise after an hour."""
    age_ms = topic.since_maintained_ms
    if age_ms is None:
        return "never maintained"
    if age_ms < HOUR_MS:
        what = "maintained" if topic.was_maintained else "not maintained yet, first settled"
        return f"{what} {age_ms // 1000:,} s ago"
    return f"not maintained for {age_ms // 60_000:,} minutes: run `commitlog maintain` as a service, or from cron"


def topic_lines(topic: TopicDescription, *, all_configs: bool = False) -> Iterator[str]:
    """Yield lines like `kafka-topics --describe`: a head, and a row per partition.

    `all_configs`: also configs at their default (`kafka-configs --describe --all`).
    """
    yield _headline(topic, topic.config if all_configs else topic.overrides)
    yield from table(_HEAD.split(), _partition_rows(topic))
    if topic.schema is not None:
        yield from _schema_lines(topic.name, topic.schema)
    if topic.replication is not None:
        yield from replication_lines(topic.name, topic.replication)
    yield from _notes(topic)


def _headline(topic: TopicDescription, shown: Iterable[str]) -> str:
    config = ",".join(f"{name}={topic.config[name]}" for name in sorted(shown))
    copies = f"ReplicationFactor: {len(topic.replication.replicas)}  " if topic.replication else ""
    return (
        f"Topic: {topic.name}  TopicId: {topic.topic_id}  PartitionCount: {len(topic.partitions)}  {copies}"
        f"Configs: {config}"
    )


def _partition_rows(topic: TopicDescription) -> list[tuple[int, ...]]:
    return [
        (
            p.partition,
            p.log_start_offset,
            p.high_watermark,
            p.log_end_offset,
            p.segments,
            p.size_bytes + p.unsettled_bytes,
            p.unsettled,
        )
        for p in topic.partitions
    ]


def _notes(topic: TopicDescription) -> Iterator[str]:
    yield f"{topic.name}: {backlog_line(topic.unsettled)}"
    if topic.since_maintained_ms is not None:
        yield f"{topic.name}: {maintained_line(topic)}"
    if topic.unsafe_single_writer:
        yield f"{topic.name}: UNSAFE: its root was made with unsafe.single.writer=true: one process alone may write"
    for partition, why in sorted(topic.damaged.items()):
        yield f"{topic.name}: partition {partition} takes no commits: it can't be settled: {why}"


def _schema_lines(name: str, schema: SchemaDescription) -> Iterator[str]:
    roles = {"Key": schema.key, "Timestamp": schema.timestamp}
    yield "  ".join(
        [f"{name}: SchemaVersion: {schema.version}", *(f"{role}: {column}" for role, column in roles.items() if column)]
    )
    yield from table(_COLUMN_HEAD, _column_rows(schema))


def _column_rows(schema: SchemaDescription) -> list[tuple[object, ...]]:
    return [(each.name, each.type, "yes" if each.nullable else "no", each.comment) for each in schema.columns]


def _replica_rows(of: ReplicationDescription) -> list[tuple[object, ...]]:
    return [
        (
            replica.url,
            replica.root_id,
            replica.role,
            _first(replica.high_watermarks),
            _first(replica.log_end_offsets),
            replica.entries_behind,
            replica.bytes_behind,
            None if replica.ms_behind is None else f"{replica.ms_behind / 1000:.1f}",
        )
        for replica in of.replicas
    ]


def replication_lines(name: str, of: ReplicationDescription) -> Iterator[str]:
    """Yield the leader, a row per replica, and silent roots."""
    yield (
        f"{name}: Leader: {of.leader_url} ({of.leader})  LeaderEpoch: {of.leader_epoch}  "
        f"Replicas: {_urls(of, [replica.root_id for replica in of.replicas])}  Isr: {_urls(of, of.isr)}"
    )
    yield from table(_REPLICA_HEAD.split(), _replica_rows(of))
    if of.elected_ms >= 0:
        at = datetime.fromtimestamp(of.elected_ms // 1000, UTC).isoformat()
        yield f"{name}: last election at {at}: {of.elected_why}"
    for replica in of.replicas:
        if replica.fault is not None:
            yield f"{name}: no answer from {replica.url}: {replica.fault}"
    for root in of.metadata:
        answer = "answers" if root.fault is None else f"does not answer: {root.fault}"
        yield f"{name}: metadata: {root.url} ({root.root_id}) {answer}"


def _urls(of: ReplicationDescription, roots: Sequence[str]) -> str:
    return ",".join(replica.url for replica in of.replicas if replica.root_id in roots)


def _first(offsets: Sequence[int] | None) -> str | None:
    if offsets is None:
        return None
    return ",".join(map(str, offsets[:_SHOWN])) + ",…" * (len(offsets) > _SHOWN)

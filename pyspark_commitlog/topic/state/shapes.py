"""Declared shapes of a topic's entries and tables, and further checks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import gt
from typing import Annotated, Any

from msgspec import Meta

from pyspark_commitlog.config import KEYS, MAX_PARTITIONS
from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.paths import CHUNK_NAME, MANIFEST_NAME, OBJECT_NAME
from pyspark_commitlog.format.shape import (
    Crc,
    CrcText,
    Id,
    OrNone,
    Row,
    Shape,
    Text,
    Timestamp,
    Whole,
    check,
    damage,
)
from pyspark_commitlog.replication.protocol.replica_state import check_replicated
from pyspark_commitlog.topic.state.schema_state import check_schema
from pyspark_commitlog.topic.state.side_files import Side

Partition = Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS)]
PerPartition = Annotated[tuple[Whole, ...], Meta(min_length=1, max_length=MAX_PARTITIONS)]


class Chunk(Shape):
    """A row of `chunks`."""

    name: Annotated[str, Meta(pattern=CHUNK_NAME)]
    length: Whole
    crc: CrcText


Chunks = tuple[Chunk, ...]
#: chunk, partition, position, length, rows, base offset
Extents = tuple[tuple[OrNone, Partition, Whole, Whole, Whole, Whole], ...]


class Writer(Row):
    """Row of the writers' table."""

    last: OrNone
    rows: Whole
    sequence: Whole
    at_ms: Whole
    checksum: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")] | None
    epoch: OrNone | None = None
    ranges: tuple[tuple[Whole, Whole], ...] | None = None

    def __post_init__(self) -> None:
        if (self.epoch is None) != (self.ranges is None):
            raise ValueError("Expected an epoch with ranges")


WriterRows = dict[Text, Writer]


class WritersTable(Shape):
    """`state.writers`."""

    rows: WriterRows
    snapshot: Side | None
    forgotten: Whole


class LostRow(Row):
    """Row of `topic.state.topic_state.LostOffsets`."""

    entry: Whole
    epoch: OrNone
    at_ms: OrNone
    root: Id
    ranges: tuple[tuple[Partition, Whole, Whole], ...]


class TopicStateShape(Shape):
    """`state` of an entry of a topic's journal."""

    deleted: bool
    config: dict[str, str]
    log_start: PerPartition
    log_end: PerPartition
    created: Whole
    writers: WritersTable
    staged_floor: Whole
    leader_epoch: Whole
    schemas: dict[str, object]
    marks: tuple[tuple[Whole, Whole], ...]
    former_ids: tuple[tuple[Id, Whole], ...]
    former_queries: tuple[Text, ...]
    voids: tuple[tuple[Partition, Whole, Whole], ...]
    unsynced_from: Whole | None
    copied: Whole = 0
    lost: tuple[LostRow, ...] = ()
    replicas: dict[str, object] | None = None
    schema: dict[str, object] | None = None


class TopicEntry(Shape):
    """Body of an entry of a topic's journal."""

    state: TopicStateShape
    chunks: Chunks | Side = ()
    extents: Extents | Side = ()


class ActiveRow(Row):
    """The active segment of a partition."""

    base_offset: Whole
    rewrite: Whole
    length: Whole
    crc: Crc
    offset_bytes: Whole
    time_bytes: Whole
    since_last_entry: Whole
    max_timestamp: Timestamp
    max_timestamp_offset: OrNone
    first_timestamp: Timestamp
    last_time_entry: Timestamp
    min_timestamp: Timestamp | None = None
    lateness: Timestamp | None = None


#: file, length, crc, segments, bytes
Manifest = tuple[Annotated[str, Meta(pattern=MANIFEST_NAME)], Whole, CrcText, Whole, Whole]


class SettledRow(Row):
    """Partition of a settle entry."""

    end_offset: Whole
    manifest: Manifest | None
    active: ActiveRow | None
    cleaned: Whole
    dropped_below: Whole = 0
    voids_at: Whole = 0


SettledRows = Annotated[tuple[SettledRow, ...], Meta(max_length=MAX_PARTITIONS)]
ObjectName = Annotated[str, Meta(pattern=OBJECT_NAME)]
#: object, tier, bytes, length and crc of its footer
Tail = Annotated[
    tuple[tuple[ObjectName, Annotated[int, Meta(ge=0, le=64)], Whole, Whole, Crc], ...], Meta(max_length=4096)
]
#: A path below a topic id's directory.
Dropped = Annotated[str, Meta(pattern="^(objects|manifests|side)/[0-9a-zA-Z][0-9a-zA-Z.-]{0,200}$")]

#: partition, offset, why
DamagedRows = Annotated[tuple[tuple[Partition, Whole, str], ...], Meta(max_length=MAX_PARTITIONS)]


class SettleEntry(Shape):
    """Body of a settle entry."""

    through: tuple[Whole, Id]
    oldest_unsettled: Whole
    partitions: SettledRows | Side
    damaged: DamagedRows | Side = ()
    others_unsettled: Whole | None = None
    tail: Tail = ()
    files_floor: Whole = 0
    marks: tuple[tuple[Whole, Whole], ...] = ()
    drops: tuple[Dropped, ...] = ()


class SealedRow(Row):
    """A sealed segment; the last two if in a segment object."""

    base_offset: Whole
    end_offset: Whole
    rewrite: Whole
    length: Whole
    crc: Crc
    offset_bytes: Whole
    time_bytes: Whole
    max_timestamp: Timestamp
    min_timestamp: Timestamp | None
    lateness: Timestamp | None
    object: ObjectName | None = None
    position: Whole | None = None


SealedRows = list[SealedRow]
#: file, length, crc, base offset of its first segment, segments
LeafRow = tuple[Annotated[str, Meta(pattern=MANIFEST_NAME)], Whole, CrcText, Whole, Whole]


class LongManifest(Shape):
    """A manifest with leaves."""

    leaves: list[LeafRow]
    segments: SealedRows


#: Members of a row of a segment with files of its own, and of one in a segment object.
_FILES, _PLACED = 10, 12


def check_topic_entry(body: Json, where: str) -> None:
    """Check an entry of a topic's journal."""
    state = check(body, TopicEntry, where).state
    partitions = len(state.log_end)
    if len(state.log_start) != partitions:
        raise damage(where, "state.logStart", state.log_start, f"{partitions} offsets, as logEnd has")
    if any(map(gt, state.log_start, state.log_end)):
        at = next(n for n in range(partitions) if state.log_start[n] > state.log_end[n])
        raise damage(where, f"state.logStart[{at}]", state.log_start[at], f"at most logEnd, {state.log_end[at]}")
    _check_voids(state.voids, state.log_end, "state.voids", where)
    _check_order(state.voids, "state.voids", where)
    for number, row in enumerate(state.lost):
        _check_voids(row.ranges, state.log_end, f"state.lost[{number}][4]", where)
        if row.entry > body["sequence"]:
            expected = f"at most the entry's own number, {body['sequence']}"
            raise damage(where, f"state.lost[{number}][0]", row.entry, expected)
    check_replicated(state.replicas, body, where)
    check_topic_config(state.config, where)
    if state.schema is not None:
        check_schema(state.schema, where)


def _check_voids(rows: Sequence[tuple[int, int, int]], log_end: Sequence[int], field: str, where: str) -> None:
    for number, (partition, start, end) in enumerate(rows):
        if partition >= len(log_end) or not start < end <= log_end[partition]:
            raise damage(where, f"{field}[{number}]", [partition, start, end], "offsets of a partition there is")


def _check_order(rows: Sequence[tuple[int, int, int]], field: str, where: str) -> None:
    """Check that ranges are sorted and disjoint: they are bisected."""
    for number, ((before, _, end), (partition, start, _)) in enumerate(pairwise(rows), 1):
        if (partition, start) < (before, end):
            raise damage(where, f"{field}[{number}]", list(rows[number]), "offsets after those of the range before")


def check_extents(rows: Sequence[Sequence[int]], chunks: int, partitions: int, where: str) -> None:
    """Check that extents' chunks and partitions exist."""
    highest = max(row[0] for row in rows)
    if highest >= chunks:
        raise damage(where, "a chunk of extents", highest, f"below {chunks}, as many as are named")
    highest = max(row[1] for row in rows)
    if highest >= partitions:
        raise damage(where, "a partition of extents", highest, f"below {partitions}, as many as the topic has")


def check_topic_config(config: dict[str, str], where: str) -> None:
    """Check stored configs, ignoring unknown names."""
    for name, value in config.items():
        if name in KEYS:
            try:
                KEYS[name].check(value)
            except ConfigError as error:
                raise damage(where, f"config {name!r}", value, str(error)) from error


def check_settle_entry(body: Json, where: str) -> None:
    """Check a settle entry."""
    check(body, SettleEntry, where)
    if not isinstance(body["partitions"], dict):
        check_settled(body["partitions"], where)


def check_settled(rows: Sequence[Sequence[Any]], where: str) -> None:
    """Check that no index is larger than its log."""
    for number, (_, _, active, *_) in enumerate(rows):
        if active is not None:
            _, _, length, _, offset_bytes, time_bytes, *_ = active
            _check_indexes(length, offset_bytes, time_bytes, f"partition {number}", where)


def _check_indexes(length: int, offset_bytes: int, time_bytes: int, what: str, where: str) -> None:
    if max(offset_bytes, time_bytes) > length:
        raise damage(
            where, f"indexes of {what}", [offset_bytes, time_bytes], f"at most {length} bytes each, as its log"
        )


def check_sealed(rows: Sequence[Sequence[int]], where: str) -> None:
    """Check that a manifest's segments ascend without overlap."""
    for number, row in enumerate(rows):
        if not row[0] < row[1] or (number and rows[number - 1][1] > row[0]):
            raise damage(where, f"segment {number}", list(row[:2]), "offsets after those of the segment before")
        if len(row) not in (_FILES, _PLACED):
            raise damage(where, f"segment {number}", len(row), f"{_FILES} members, or {_PLACED} with its place")
        _check_indexes(row[3], row[5], row[6], f"segment {number}", where)

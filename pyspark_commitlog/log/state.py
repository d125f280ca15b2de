"""What an entry says: the state of a topic, and where its root keeps it. Values and their JSON; no I/O.

Every entry carries the complete small state, so that the newest entry alone tells. Tables that would not fit are
side files which the entry names (``place_tables`` decides).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from pyspark_commitlog.format.entry import Checked, Json, to_json_bytes
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.lineage import NO_LINEAGE, Lineage
from pyspark_commitlog.format.paths import segment_stem, side_name

#: A table larger than this goes to a side file.
TABLE_BYTES = 16 * 1024
#: ``chunk`` of an extent whose frames lie in the entry itself.
INLINE = -1
#: Entries that are remembered by storage time.
_MARKS = 32


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A staged chunk, as the entry names it."""

    name: str
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Frames of one partition, next to each other in a chunk (or inline), and the offset of their first row."""

    chunk: int
    partition: int
    position: int
    length: int
    rows: int
    base_offset: int

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last row."""
        return self.base_offset + self.rows

    def to_json(self) -> list[int]:
        """Return the row of the extents table."""
        return [self.chunk, self.partition, self.position, self.length, self.rows, self.base_offset]


@dataclass(frozen=True, slots=True)
class WriterRow:
    """What is remembered of a writer id (rule R6).

    ``last`` is the last batch id, transaction version or sequence; ``rows`` and ``checksum`` what that commit wrote
    (``log.write.checksum``; None for producers); ``sequence`` and ``at_ms`` the journal entry it went to and when, by
    the storage's clock. ``epoch`` and ``ranges`` (the last five, first and last sequence) are used by producers only.
    """

    last: int
    rows: int
    sequence: int
    at_ms: int
    epoch: int = -1
    ranges: tuple[tuple[int, int], ...] = ()
    checksum: int | None = None

    def to_json(self) -> list[Any]:
        """Return the row of the writers' table."""
        checksum = None if self.checksum is None else f"{self.checksum:016x}"
        row: list[Any] = [self.last, self.rows, self.sequence, self.at_ms, checksum]
        return row if self.epoch < 0 else [*row, self.epoch, [list(pair) for pair in self.ranges]]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> WriterRow:
        """Return the value of a row."""
        last, rows, sequence, at_ms, checksum, *producer = row
        epoch, ranges = producer or (-1, ())
        kept = tuple((first, last) for first, last in ranges)
        return cls(last, rows, sequence, at_ms, epoch, kept, checksum and int(checksum, 16))


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers' table: a snapshot in a side file, if any, and the rows changed since.

    Rows of producers without an id whose last commit is entry ``forgotten`` or one before it may be gone.
    """

    snapshot: Json | None = None
    rows: Mapping[str, WriterRow] = field(default_factory=dict)
    forgotten: int = 0

    def to_json(self) -> Json:
        """Return the JSON form."""
        rows = {name: row.to_json() for name, row in self.rows.items()}
        return {"snapshot": self.snapshot, "rows": rows, "forgotten": self.forgotten}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Writers:
        """Return the value of the JSON form."""
        return cls(data["snapshot"], read_writer_rows(data["rows"]), data["forgotten"])


def read_writer_rows(data: Mapping[str, Sequence[Any]]) -> dict[str, WriterRow]:
    """Return the rows of a writers' table or snapshot."""
    return {name: WriterRow.from_json(row) for name, row in data.items()}


@dataclass(frozen=True, slots=True)
class Mark:
    """A sequence and the storage time (ms) of its entry: evidence for the sweep (rule R1)."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Void:
    """Offsets [start, end) of a partition that an operator gave up: readers pass over them."""

    partition: int
    start: int
    end: int


def merged(voids: Iterable[Void]) -> tuple[Void, ...]:
    """Return the same offsets in as few ranges as can be, sorted (pure)."""
    found: list[Void] = []
    for void in sorted(voids):
        if found and found[-1].partition == void.partition and void.start <= found[-1].end:
            found[-1] = replace(found[-1], end=max(found[-1].end, void.end))
        else:
            found.append(void)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TopicState:
    """What a topic IS after an entry: the same on every replica.

    ``created`` is the sequence of the entry that made this topic id; ``former_ids`` are earlier lives of the name
    with the storage time (ms) at which they ended, ``former_queries`` the streaming queries that wrote to those.
    ``unsynced_from`` is the first entry whose chunks may not survive power loss (acks=0), None for none. ``lineage`` is
    that of the entry that the state was read from.
    """

    topic_id: str
    deleted: bool
    config: Mapping[str, str]
    log_start: tuple[int, ...]
    log_end: tuple[int, ...]
    created: int
    writers: Writers = Writers()
    staged_floor: int = 0
    leader_epoch: int = 0
    marks: tuple[Mark, ...] = ()
    former_ids: tuple[tuple[str, int], ...] = ()
    former_queries: tuple[str, ...] = ()
    voids: tuple[Void, ...] = ()
    unsynced_from: int | None = None
    lineage: Lineage = field(default=NO_LINEAGE, compare=False)

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self.log_end)

    def voids_of(self, partition: int) -> tuple[Void, ...]:
        """Return the voided ranges of a partition, ascending."""
        return tuple(void for void in self.voids if void.partition == partition)

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {
            "deleted": self.deleted,
            "config": dict(self.config),
            "logStart": list(self.log_start),
            "logEnd": list(self.log_end),
            "created": self.created,
            "writers": self.writers.to_json(),
            "stagedFloor": self.staged_floor,
            "leaderEpoch": self.leader_epoch,
            "schemas": {},
            "unsyncedFrom": self.unsynced_from,
            "marks": [[mark.sequence, mark.at_ms] for mark in self.marks],
            "formerIds": [list(former) for former in self.former_ids],
            "formerQueries": list(self.former_queries),
            "voids": [[void.partition, void.start, void.end] for void in self.voids],
        }

    @classmethod
    def from_entry(cls, topic_id: str, body: Mapping[str, Any], lineage: Lineage = NO_LINEAGE) -> TopicState:
        """Return the state in an entry's body."""
        data = body["state"]
        return cls(
            topic_id=topic_id,
            deleted=data["deleted"],
            config=data["config"],
            log_start=tuple(data["logStart"]),
            log_end=tuple(data["logEnd"]),
            created=data["created"],
            writers=Writers.from_json(data["writers"]),
            staged_floor=data["stagedFloor"],
            leader_epoch=data["leaderEpoch"],
            marks=tuple(Mark(*mark) for mark in data["marks"]),
            former_ids=tuple((name, at) for name, at in data["formerIds"]),
            former_queries=tuple(data["formerQueries"]),
            voids=tuple(Void(*void) for void in data["voids"]),
            unsynced_from=data["unsyncedFrom"],
            lineage=lineage,
        )


def read_chunks(rows: Sequence[Mapping[str, Any]]) -> tuple[ChunkRef, ...]:
    """Return the chunks of a table."""
    return tuple(ChunkRef(c["name"], c["length"], int(c["crc"], 16)) for c in rows)


def chunks_to_json(chunks: Sequence[ChunkRef]) -> list[Json]:
    """Return the JSON form of an entry's chunks."""
    return [{"name": c.name, "length": c.length, "crc": f"{c.crc:08x}"} for c in chunks]


def read_extents(rows: Sequence[Sequence[int]]) -> tuple[Extent, ...]:
    """Return the extents of a table."""
    return tuple(Extent(*row) for row in rows)


# --- settle -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Active:
    """The active segment of a partition as published: readers look no further than these lengths (rule R4).

    No record in it is before ``min_timestamp``, and none more than ``lateness`` before the largest timestamp of any
    frame before its own; in ms; None: nobody knows.
    """

    index: IndexState
    crc: int = 0
    rewrite: int = 0
    min_timestamp: int | None = None
    lateness: int | None = None

    @property
    def base_offset(self) -> int:
        """Return the segment's base offset."""
        return self.index.base_offset

    @property
    def length(self) -> int:
        """Return the published length of the ``.log``."""
        return self.index.position

    @property
    def offset_bytes(self) -> int:
        """Return the published length of the ``.index``."""
        return self.index.offset_bytes

    @property
    def time_bytes(self) -> int:
        """Return the published length of the ``.timeindex``."""
        return self.index.time_bytes

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp (ms) of the segment; -1 for none."""
        return self.index.max_timestamp

    @property
    def stem(self) -> str:
        """Return the file name without its suffix."""
        return segment_stem(self.base_offset, self.rewrite)

    def to_json(self) -> list[int | None]:
        """Return the JSON form."""
        i = self.index
        return [i.base_offset, self.rewrite, i.position, self.crc, i.offset_bytes, i.time_bytes, i.since_last_entry,
                i.max_timestamp, i.max_timestamp_offset, i.first_timestamp, i.last_time_entry,
                self.min_timestamp, self.lateness]  # fmt: skip

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Active:
        """Return the value of the JSON form."""
        base, rewrite, length, crc, offset_bytes, time_bytes, since, top, top_offset, first, last, *more = row
        index = IndexState(base, length, since, top, top_offset, first, offset_bytes, time_bytes, last)
        return cls(index, crc, rewrite, *more)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment, one row of a partition's manifest. ``min_timestamp`` and ``lateness`` as in ``Active``."""

    base_offset: int
    end_offset: int
    rewrite: int
    length: int
    crc: int
    offset_bytes: int
    time_bytes: int
    max_timestamp: int
    min_timestamp: int | None = None
    lateness: int | None = None

    @property
    def stem(self) -> str:
        """Return the file name without its suffix."""
        return segment_stem(self.base_offset, self.rewrite)

    def to_json(self) -> list[int | None]:
        """Return the JSON form."""
        return [self.base_offset, self.end_offset, self.rewrite, self.length, self.crc, self.offset_bytes,
                self.time_bytes, self.max_timestamp, self.min_timestamp, self.lateness]  # fmt: skip


def earliest(timestamps: Iterable[int | None]) -> int | None:
    """Return the smallest of these timestamps; None where one of them is not known (pure)."""
    found: list[int] = []
    for at in timestamps:
        if at is None:
            return None
        found.append(at)
    return min(found)


def later(lateness: int | None, latest_ms: int, least_ms: int | None) -> int | None:
    """Return a segment's lateness with one more frame (pure).

    Args:
        lateness: of the frames before; 0 where there is none.
        latest_ms: the largest timestamp of those; -1 where there is none.
        least_ms: the smallest of the frame.
    """
    return None if lateness is None or least_ms is None else max(lateness, latest_ms - least_ms)


_BASE, _END, _LATEST = 0, 1, 7  # of a row that ``Sealed.to_json`` made


@dataclass(frozen=True, slots=True)
class Segments:
    """A partition's sealed segments for look-ups, by bisection: a row becomes a value when it is the answer.

    ``rows`` by base offset; ``latest`` is the largest timestamp up to each of them, which ascends where the segments'
    own need not.
    """

    rows: Sequence[Sequence[int]]
    latest: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Segments:
        """Return the segments in a manifest's rows."""
        return cls(rows, tuple(accumulate((row[_LATEST] for row in rows), max)))

    def holding(self, offset: int) -> Sealed | None:
        """Return the last segment that does not start behind ``offset``."""
        at = bisect_right(self.rows, offset, key=lambda row: row[_BASE]) - 1
        return None if at < 0 else Sealed(*self.rows[at])

    def not_before(self, timestamp_ms: int, offset: int) -> Iterator[Sealed]:
        """Yield the segments with offsets from ``offset`` on and a record that is not before ``timestamp_ms``."""
        first = bisect_right(self.rows, offset, key=lambda row: row[_END])
        for at in range(max(first, bisect_left(self.latest, timestamp_ms)), len(self.rows)):
            if self.rows[at][_LATEST] >= timestamp_ms:
                yield Sealed(*self.rows[at])


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a settle entry names a partition's manifest of sealed segments."""

    name: str
    checked: Checked
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SettledPartition:
    """How far a partition is settled, and in which files.

    Below ``cleaned`` every key has one record: compaction came that far (Kafka: the cleaner's checkpoint).
    """

    settled: int
    active: Active
    manifest: Manifest | None = None
    cleaned: int = 0

    def to_json(self) -> list[Any]:
        """Return the row of the settle table."""
        m = self.manifest
        named = m and [m.name, m.checked.length, f"{m.checked.crc:08x}", m.segments, m.size_bytes]
        return [self.settled, named, self.active.to_json(), self.cleaned]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> SettledPartition:
        """Return the value of a row."""
        settled, named, active, cleaned = row
        manifest = None
        if named:
            name, length, crc, segments, size = named
            manifest = Manifest(name, Checked(length, int(crc, 16)), segments, size)
        return cls(settled, Active.from_json(active), manifest, cleaned)


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """A partition that could not be settled from ``offset`` on, and why: commits to it are refused."""

    partition: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class SettleState:
    """Where THIS root keeps a topic.

    ``through`` is (sequence, write id) of the newest logical entry below which all is settled;
    ``oldest_unsettled`` the first entry that readers may still need. Where some partitions are ``damaged``, ``ahead``
    is the first that readers of the others may still need.
    """

    topic_id: str
    through: tuple[int, str]
    oldest_unsettled: int
    partitions: tuple[SettledPartition, ...]
    damaged: tuple[Damage, ...] = ()
    ahead: int | None = None

    @property
    def others_from(self) -> int:
        """Return the first entry that partitions which are not damaged may still need."""
        return self.oldest_unsettled if self.ahead is None else self.ahead

    def without_damage(self, partitions: Collection[int]) -> SettleState:
        """Return the state in which these partitions count as sound: whoever settles next reads all they may need."""
        left = tuple(each for each in self.damaged if each.partition not in partitions)
        ahead = None if not left else self.ahead if left == self.damaged else self.oldest_unsettled
        return replace(self, damaged=left, ahead=ahead)

    def to_tables(self) -> Json:
        """Return the tables of a settle entry's body; that of damaged partitions only where there are some."""
        rows = {"partitions": [row.to_json() for row in self.partitions]}
        damaged = [[each.partition, each.offset, each.why] for each in self.damaged]
        return {**rows, "damaged": damaged} if damaged else rows

    def to_body(self) -> Json:
        """Return the rest of the body."""
        body: Json = {"through": list(self.through), "oldestUnsettled": self.oldest_unsettled}
        return body if self.ahead is None else {**body, "othersUnsettled": self.ahead}

    def partition(self, number: int) -> SettledPartition:
        """Return a partition's row; a fresh one for a partition added since."""
        return self.partitions[number] if number < len(self.partitions) else SettledPartition(0, Active(IndexState(0)))


@dataclass(frozen=True, slots=True)
class Tables:
    """A body's large tables, each kept in the entry or moved to a side file."""

    body: Json
    sides: Mapping[str, bytes]


def place_tables(tables: Mapping[str, Any], sequence: int, write_id: str) -> Tables:
    """Return each table as it stands in the entry: itself, or the name of the side file that is to hold it."""
    body: Json = {}
    sides: dict[str, bytes] = {}
    for kind, table in tables.items():
        data = to_json_bytes(table)
        if len(data) <= TABLE_BYTES:
            body[kind] = table
        else:
            body[kind] = named_side(kind, data, sequence, write_id)
            sides[kind] = data
    return Tables(body, sides)


def named_side(kind: str, data: bytes, sequence: int, write_id: str) -> Json:
    """Return how an entry names a side file."""
    return {"file": side_name(sequence, write_id, kind), **Checked.of(data).to_json()}


def with_mark(state: TopicState, base_sequence: int, base_ms: int, every_ms: int) -> TopicState:
    """Return ``state`` with its newest entry remembered by storage time, at most once per ``every_ms``.

    A mark from the future, of a clock that was ahead once, keeps no later one away.
    """
    if state.marks and 0 <= base_ms - state.marks[-1].at_ms < every_ms:
        return state
    return replace(state, marks=(*state.marks, Mark(base_sequence, base_ms))[-_MARKS:])

"""State of a topic in its journal's entries. No I/O.

Every entry carries the whole state. Large tables are side files (`topic.state.side_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.lineage import NO_LINEAGE, Lineage
from pyspark_commitlog.format.schema.topic_schema import Column, TopicSchema
from pyspark_commitlog.topic.state.schema_state import parse_schema, refuse_to_read

#: `chunk` of an inline extent.
INLINE = -1
#: Maximum of marks in a state.
_MARKS = 32
#: Maximum of `lost` rows of a replicated topic.
MAX_LOST = 32


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """An entry's reference to a staged chunk."""

    name: str
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Adjacent frames of one partition in a chunk or inline."""

    chunk: int
    partition: int
    position: int
    length: int
    rows: int
    base_offset: int

    @property
    def end_offset(self) -> int:
        """Offset after the last row."""
        return self.base_offset + self.rows

    def chunk_in(self, chunks: Sequence[ChunkRef]) -> ChunkRef | None:
        """Return its chunk; None if inline."""
        return None if self.chunk == INLINE else chunks[self.chunk]

    def to_json(self) -> list[int]:
        """Row of the extents table."""
        return [self.chunk, self.partition, self.position, self.length, self.rows, self.base_offset]


@dataclass(frozen=True, slots=True)
class WriterRow:
    """Last commit of a writer id (rule R6).

    Attributes:
        last: batch id, transaction version or sequence.
        rows, checksum: of that commit (`topic.write.checksum`; None for producers).
        sequence, at_ms: its entry, and that entry's storage time.
        epoch, ranges: producers only; the last five (first, last) sequences.
    """

    last: int
    rows: int
    sequence: int
    at_ms: int
    epoch: int = -1
    ranges: tuple[tuple[int, int], ...] = ()
    checksum: int | None = None

    @property
    def is_forgotten(self) -> bool:
        """Whether all appends are void; hides the snapshot's row."""
        return self.last < 0 and self.epoch < 0

    def to_json(self) -> list[Any]:
        """Row of the writers' table."""
        checksum = None if self.checksum is None else f"{self.checksum:016x}"
        row: list[Any] = [self.last, self.rows, self.sequence, self.at_ms, checksum]
        return row if self.epoch < 0 else [*row, self.epoch, [list(pair) for pair in self.ranges]]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> WriterRow:
        """Parse a row."""
        last, rows, sequence, at_ms, checksum, *producer = row
        epoch, ranges = producer or (-1, ())
        kept = tuple((first, last) for first, last in ranges)
        return cls(last, rows, sequence, at_ms, epoch, kept, checksum and int(checksum, 16))


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers' table: a snapshot in a side file, and later rows.

    Rows of anonymous producers whose last commit is `forgotten` or earlier may be gone.
    """

    snapshot: Json | None = None
    rows: Mapping[str, WriterRow] = field(default_factory=dict)
    forgotten: int = 0

    def to_json(self) -> Json:
        """JSON form."""
        rows = {name: row.to_json() for name, row in self.rows.items()}
        return {"snapshot": self.snapshot, "rows": rows, "forgotten": self.forgotten}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Writers:
        """Parse the JSON form."""
        return cls(data["snapshot"], read_writer_rows(data["rows"]), data["forgotten"])


def read_writer_rows(data: Mapping[str, Sequence[Any]]) -> dict[str, WriterRow]:
    """Parse a writers' table or snapshot."""
    return {name: WriterRow.from_json(row) for name, row in data.items()}


@dataclass(frozen=True, slots=True)
class Mark:
    """Sequence and storage time (ms) of an entry (rule R1)."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Void:
    """Offsets [start, end) that an operator gave up; readers pass over them."""

    partition: int
    start: int
    end: int


def merged(voids: Iterable[Void]) -> tuple[Void, ...]:
    """Merge overlapping and adjacent ranges, sorted (pure)."""
    ranges: list[Void] = []
    for void in sorted(voids):
        if ranges and ranges[-1].partition == void.partition and void.start <= ranges[-1].end:
            ranges[-1] = replace(ranges[-1], end=max(ranges[-1].end, void.end))
        else:
            ranges.append(void)
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Readable or promised offsets that one entry made void.

    Attributes:
        epoch: leader epoch of the unclean election or `recover`; -1 for an operator's void, or acks=0 and power loss.
        at_ms, root: the new leader's storage time and id.
    """

    entry: int
    epoch: int = -1
    at_ms: int = -1
    root: str = ""
    ranges: tuple[Void, ...] = ()

    @property
    def by_election(self) -> bool:
        """Whether an election lost them."""
        return self.epoch >= 0

    def to_json(self) -> list[Any]:
        """Row of the table."""
        ranges = [[void.partition, void.start, void.end] for void in self.ranges]
        return [self.entry, self.epoch, self.at_ms, self.root, ranges]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> LostOffsets:
        """Parse a row."""
        entry, epoch, at_ms, root, ranges = row
        return cls(entry, epoch, at_ms, root, tuple(Void(*void) for void in ranges))


def with_lost(before: Sequence[LostOffsets], lost: LostOffsets, log_start: Sequence[int]) -> tuple[LostOffsets, ...]:
    """Losses with one more entry's (pure).

    Those below the log start are forgotten. Beyond `MAX_LOST` the oldest two merge under the later's entry: both are
    reported to a position that does not know it.
    """
    kept = []
    for each in (*before, lost):
        there = merged(void for void in each.ranges if void.end > log_start[void.partition])
        kept += [replace(each, ranges=there)] if there else []
    if len(kept) > MAX_LOST:
        first, second, *later = kept
        kept = [replace(second, ranges=merged([*first.ranges, *second.ranges])), *later]
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class TopicState:
    """State of a topic after an entry, the same on every replica.

    Attributes:
        created: entry that created this topic id; of a copy, the number before its first entry with records.
        copied: last entry that a copy put; 0 if none.
        former_ids: earlier incarnations and their ends in storage time (ms).
        former_queries: those that wrote to them.
        unsynced_from: first entry whose chunks power loss may take (acks=0).
        lost: `voids` of a replicated topic that may have been read.
        is_replicated: on several roots, each of which settles alone.
        schema: columns of a typed topic; None if untyped.
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
    copied: int = 0
    lost: tuple[LostOffsets, ...] = ()
    is_replicated: bool = False
    schema: TopicSchema | None = None
    lineage: Lineage = field(default=NO_LINEAGE, compare=False)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.log_end)

    @property
    def is_copy(self) -> bool:
        """Whether only a copy has put entries."""
        return 0 < self.copied == self.lineage.sequence

    def voids_of(self, partition: int) -> tuple[Void, ...]:
        """Voided ranges of a partition, ascending."""
        return tuple(void for void in self.voids if void.partition == partition)

    def to_json(self) -> Json:
        """JSON form."""
        copied = {"copied": self.copied} if self.copied else {}
        lost = {"lost": [each.to_json() for each in self.lost]} if self.lost else {}
        schema = {"schema": self.schema.to_json()} if self.schema else {}
        return {
            **copied,
            **lost,
            **schema,
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
    def from_entry(
        cls,
        topic_id: str,
        body: Mapping[str, Any],
        lineage: Lineage = NO_LINEAGE,
        read_columns: Callable[[Json], Sequence[Column]] = refuse_to_read,
    ) -> TopicState:
        """Parse an entry's body; `read_columns` reads a schema's side file."""
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
            copied=data.get("copied", 0),
            lost=tuple(LostOffsets.from_json(row) for row in data.get("lost", ())),
            is_replicated="replicas" in data,
            schema=parse_schema(data["schema"], read_columns) if "schema" in data else None,
            lineage=lineage,
        )


def read_chunks(rows: Sequence[Mapping[str, Any]]) -> tuple[ChunkRef, ...]:
    """Parse a table of chunks."""
    return tuple(ChunkRef(c["name"], c["length"], int(c["crc"], 16)) for c in rows)


def chunks_to_json(chunks: Sequence[ChunkRef]) -> list[Json]:
    """JSON form of an entry's chunks."""
    return [{"name": c.name, "length": c.length, "crc": f"{c.crc:08x}"} for c in chunks]


def read_extents(rows: Sequence[Sequence[int]]) -> tuple[Extent, ...]:
    """Parse a table of extents."""
    return tuple(Extent(*row) for row in rows)


def with_mark(state: TopicState, base_sequence: int, base_ms: int, every_ms: int) -> TopicState:
    """Mark the newest entry's storage time, once per `every_ms`.

    A mark from the future, of a clock that was ahead, blocks no later one.
    """
    if base_ms < 0:
        return state
    if state.marks and (0 <= base_ms - state.marks[-1].at_ms < every_ms or base_sequence <= state.marks[-1].sequence):
        return state
    return replace(state, marks=(*state.marks, Mark(base_sequence, base_ms))[-_MARKS:])


def plan_floor(marks: Sequence[Mark], now_ms: int, retention_ms: int) -> int:
    """Return the highest marked sequence older than the retention; 0 if none (rule R1; pure).

    A mark without a time (-1) is no evidence.
    """
    return max((mark.sequence for mark in marks if 0 <= mark.at_ms <= now_ms - retention_ms), default=0)

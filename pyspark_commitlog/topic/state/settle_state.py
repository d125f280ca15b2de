"""State of a topic at one root, in settle entries. No I/O.

Large tables are side files (`topic.state.side_files`); sealed segments are in manifests.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from pyspark_commitlog.format.entry import Checked, Json
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import segment_stem
from pyspark_commitlog.format.segment_object import PARTS, Slice
from pyspark_commitlog.topic.state.topic_state import Mark


@dataclass(frozen=True, slots=True)
class Active:
    """Active segment of a partition, with published lengths (rule R4).

    Attributes:
        min_timestamp: lower bound in ms; None if unknown.
        lateness: most ms by which a record is before earlier frames' largest timestamp; None if unknown.
    """

    index: IndexState
    crc: int = 0
    rewrite: int = 0
    min_timestamp: int | None = None
    lateness: int | None = None

    @property
    def base_offset(self) -> int:
        """Base offset."""
        return self.index.base_offset

    @property
    def length(self) -> int:
        """Published length of the `.log`."""
        return self.index.position

    @property
    def offset_bytes(self) -> int:
        """Published length of the `.index`."""
        return self.index.offset_bytes

    @property
    def time_bytes(self) -> int:
        """Published length of the `.timeindex`."""
        return self.index.time_bytes

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp (ms) of the segment; -1 for none."""
        return self.index.max_timestamp

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return segment_stem(self.base_offset, self.rewrite)

    def to_json(self) -> list[int | None]:
        """JSON form."""
        i = self.index
        return [i.base_offset, self.rewrite, i.position, self.crc, i.offset_bytes, i.time_bytes, i.since_last_entry,
                i.max_timestamp, i.max_timestamp_offset, i.first_timestamp, i.last_time_entry,
                self.min_timestamp, self.lateness]  # fmt: skip

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Active:
        """Parse the JSON form."""
        base, rewrite, length, crc, offset_bytes, time_bytes, since, top, top_offset, first, last, *more = row
        index = IndexState(base, length, since, top, top_offset, first, offset_bytes, time_bytes, last)
        return cls(index, crc, rewrite, *more)


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a segment's contiguous parts in a segment object."""

    object: str
    position: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Sealed segment, a row of a manifest; see `Active`.

    `place` is set on storage without append; else it has files of its own.
    """

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
    place: Place | None = None

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return segment_stem(self.base_offset, self.rewrite)

    def to_json(self) -> list[Any]:
        """JSON form."""
        row = [self.base_offset, self.end_offset, self.rewrite, self.length, self.crc, self.offset_bytes,
               self.time_bytes, self.max_timestamp, self.min_timestamp, self.lateness]  # fmt: skip
        return row if self.place is None else [*row, self.place.object, self.place.position]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Sealed:
        """Parse the JSON form."""
        base, end, rewrite, length, crc, offsets, times, latest, least, late, *placed = row
        place = Place(*placed) if placed else None
        return cls(base, end, rewrite, length, crc, offsets, times, latest, least, late, place)


@dataclass(frozen=True, slots=True)
class Shared:
    """Segment object of the tail, shared by partitions (rule O10).

    `tier` counts its merges; `footer` checks the JSON before the trailer.
    """

    name: str
    tier: int
    size_bytes: int
    footer: Checked

    def to_json(self) -> list[Any]:
        """JSON form."""
        return [self.name, self.tier, self.size_bytes, self.footer.length, self.footer.crc]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Shared:
        """Parse the JSON form."""
        name, tier, size, length, crc = row
        return cls(name, tier, size, Checked(length, crc))


def latest_of(sealed: Sequence[Sealed]) -> int:
    """Last segment's largest timestamp (ms); -1 if none (pure)."""
    return sealed[-1].max_timestamp if sealed else NO_TIMESTAMP


def sealed_slice(name: str, position: int, piece: Slice) -> Sealed:
    """Segment of a slice of an object (pure)."""
    log, index, times = piece.parts[: len(PARTS)]
    return Sealed(piece.base_offset, piece.end_offset, 0, log.length, log.crc, index.length, times.length,
                  piece.max_timestamp, piece.min_timestamp, piece.lateness, Place(name, position))  # fmt: skip


def earliest(timestamps: Iterable[int | None]) -> int | None:
    """Smallest timestamp; None if one is unknown (pure)."""
    known: list[int] = []
    for at in timestamps:
        if at is None:
            return None
        known.append(at)
    return min(known)


def lateness_with(lateness: int | None, latest_ms: int, least_ms: int | None) -> int | None:
    """Return a segment's lateness with one more frame (pure).

    `latest_ms`: largest timestamp before (-1 if none), `least_ms`: the frame's smallest.
    """
    return None if lateness is None or least_ms is None else max(lateness, latest_ms - least_ms)


_BASE, _END, _LATEST = 0, 1, 7  # of a row that `Sealed.to_json` made


@dataclass(frozen=True, slots=True)
class SealedSegments:
    """Bisectable sealed segments, parsed only when returned.

    `latest` is the running maximum of their largest timestamps.
    """

    rows: Sequence[Sequence[Any]]
    latest: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> SealedSegments:
        """Build from a manifest's rows."""
        return cls(rows, tuple(accumulate((row[_LATEST] for row in rows), max)))

    def followed_by(self, rows: Sequence[Sequence[Any]]) -> SealedSegments:
        """Return these segments and later ones."""
        return SealedSegments.of([*self.rows, *rows]) if rows else self

    @property
    def end_offset(self) -> int:
        """Offset after the last; 0 if none."""
        return int(self.rows[-1][_END]) if self.rows else 0

    def every(self) -> Iterator[Sealed]:
        """Yield all segments."""
        return map(Sealed.from_json, self.rows)

    def holding(self, offset: int) -> Sealed | None:
        """Last segment with a base offset of at most `offset`."""
        at = bisect_right(self.rows, offset, key=lambda row: row[_BASE]) - 1
        return None if at < 0 else Sealed.from_json(self.rows[at])

    def not_before(self, timestamp_ms: int, offset: int) -> Iterator[Sealed]:
        """Yield segments that end after `offset` and reach `timestamp_ms`."""
        first = bisect_right(self.rows, offset, key=lambda row: row[_END])
        for at in range(max(first, bisect_left(self.latest, timestamp_ms)), len(self.rows)):
            if self.rows[at][_LATEST] >= timestamp_ms:
                yield Sealed.from_json(self.rows[at])


@dataclass(frozen=True, slots=True)
class Manifest:
    """A settle entry's reference to a partition's manifest."""

    name: str
    checked: Checked
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SettledPartition:
    """Settled offsets and files of a partition.

    Attributes:
        cleaned: below it every key has one record (Kafka: the cleaner's checkpoint).
        dropped_below: below it records may be dropped, if above `cleaned`: by an unfinished round or another root.
        voids_at: entry as of which the segments have no void record.
    """

    end_offset: int
    active: Active
    manifest: Manifest | None = None
    cleaned: int = 0
    dropped_below: int = 0
    voids_at: int = 0

    @property
    def compacted_below(self) -> int:
        """Offset below which compaction may have dropped records."""
        return max(self.cleaned, self.dropped_below)

    def with_dropped_below(self, offset: int) -> SettledPartition:
        """Row with another `dropped_below`; 0 if `cleaned` covers it."""
        return replace(self, dropped_below=offset if offset > self.cleaned else 0)

    def to_json(self) -> list[Any]:
        """Row of the settle table."""
        m = self.manifest
        named = m and [m.name, m.checked.length, f"{m.checked.crc:08x}", m.segments, m.size_bytes]
        active = None if self.active == Active(IndexState(self.end_offset)) else self.active.to_json()
        row = [self.end_offset, named, active, self.cleaned]
        return [*row, self.dropped_below, self.voids_at] if self.dropped_below or self.voids_at else row

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> SettledPartition:
        """Parse a row."""
        end_offset, named, active, cleaned, *more = row
        manifest = None
        if named:
            name, length, crc, segments, size = named
            manifest = Manifest(name, Checked(length, int(crc, 16)), segments, size)
        empty = Active(IndexState(end_offset))
        return cls(end_offset, empty if active is None else Active.from_json(active), manifest, cleaned, *more)


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """Partition that can't be settled from `offset` on, and why."""

    partition: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class SettleState:
    """State of a topic at this root.

    Attributes:
        through: (sequence, write id) of the newest entry below which all is settled.
        oldest_unsettled: first entry that readers may need.
        ahead: the same for undamaged partitions, if some are `damaged`.
        tail: objects shared by partitions, by offset, after the manifests' segments.
        files_floor: objects begun below are never named again (rule O4).
        marks: storage times of earlier entries.
        drops: paths named by the entry before but not this one (rule O6).
    """

    topic_id: str
    through: tuple[int, str]
    oldest_unsettled: int
    partitions: tuple[SettledPartition, ...]
    damaged: tuple[Damage, ...] = ()
    ahead: int | None = None
    tail: tuple[Shared, ...] = ()
    files_floor: int = 0
    marks: tuple[Mark, ...] = ()
    drops: tuple[str, ...] = ()

    @property
    def marked(self) -> frozenset[int]:
        """Damaged partitions."""
        return frozenset(damage.partition for damage in self.damaged)

    @property
    def others_from(self) -> int:
        """First entry that undamaged partitions may need."""
        return self.oldest_unsettled if self.ahead is None else self.ahead

    def without_damage(self, partitions: Collection[int]) -> SettleState:
        """State with these partitions sound, to be read again."""
        left = tuple(damage for damage in self.damaged if damage.partition not in partitions)
        ahead = None if not left else self.ahead if left == self.damaged else self.oldest_unsettled
        return replace(self, damaged=left, ahead=ahead)

    def to_tables(self) -> Json:
        """Tables of the body; `damaged` only if not empty."""
        rows = {"partitions": [row.to_json() for row in self.partitions]}
        damaged = [[damage.partition, damage.offset, damage.why] for damage in self.damaged]
        return {**rows, "damaged": damaged} if damaged else rows

    def to_body(self) -> Json:
        """Rest of the body."""
        body: Json = {"through": list(self.through), "oldestUnsettled": self.oldest_unsettled}
        more: Json = {
            "othersUnsettled": self.ahead,
            "tail": [shared.to_json() for shared in self.tail],
            "filesFloor": self.files_floor,
            "marks": [[mark.sequence, mark.at_ms] for mark in self.marks],
            "drops": list(self.drops),
        }
        body |= {name: value for name, value in more.items() if value or name == "othersUnsettled"}
        return body

    def with_row(self, number: int, row: SettledPartition) -> SettleState:
        """State with another or new row."""
        rows = [self.partition(each) for each in range(max(len(self.partitions), number + 1))]
        rows[number] = row
        return replace(self, partitions=tuple(rows))

    def partition(self, number: int) -> SettledPartition:
        """Return a partition's row; a fresh one if added since."""
        return self.partitions[number] if number < len(self.partitions) else SettledPartition(0, Active(IndexState(0)))


def objects_of(pieces: Iterable[Sealed], others: Iterable[Sealed]) -> tuple[str, ...]:
    """Paths of pieces' objects that `others` do not use (pure)."""
    kept = {piece.place.object for piece in others if piece.place is not None}
    names = dict.fromkeys(piece.place.object for piece in pieces if piece.place is not None)
    return tuple(f"objects/{name}" for name in names if name not in kept)

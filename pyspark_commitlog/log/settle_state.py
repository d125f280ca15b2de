"""What an entry of a settle journal says: where a root keeps a topic. Values and their JSON; no I/O.

Tables that would not fit into the entry are side files (``log.tables``); sealed segments in a
manifest per partition.
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
from pyspark_commitlog.log.state import Mark


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
class Place:
    """Where a segment lies in a segment object: its parts follow one another from ``position`` on."""

    object: str
    position: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment, one row of a partition's manifest. ``min_timestamp`` and ``lateness`` as in ``Active``.

    ``place`` is where it lies on storage without append; None: it has three files of its own.
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
        """Return the file name without its suffix."""
        return segment_stem(self.base_offset, self.rewrite)

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        row = [self.base_offset, self.end_offset, self.rewrite, self.length, self.crc, self.offset_bytes,
               self.time_bytes, self.max_timestamp, self.min_timestamp, self.lateness]  # fmt: skip
        return row if self.place is None else [*row, self.place.object, self.place.position]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Sealed:
        """Return the value of the JSON form."""
        base, end, rewrite, length, crc, offsets, times, latest, least, late, *placed = row
        place = Place(*placed) if placed else None
        return cls(base, end, rewrite, length, crc, offsets, times, latest, least, late, place)


@dataclass(frozen=True, slots=True)
class Shared:
    """A segment object of the tail, which partitions share; its footer says what it holds (rule O10).

    Args:
        name: of the object.
        tier: how often what it holds was merged.
        size_bytes: of the whole object.
        footer: length and CRC of the JSON before its trailer.
    """

    name: str
    tier: int
    size_bytes: int
    footer: Checked

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.name, self.tier, self.size_bytes, self.footer.length, self.footer.crc]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Shared:
        """Return the value of the JSON form."""
        name, tier, size, length, crc = row
        return cls(name, tier, size, Checked(length, crc))


def latest_of(sealed: Sequence[Sealed]) -> int:
    """Return the largest timestamp (ms) of the last of some segments; -1 where there is none (pure)."""
    return sealed[-1].max_timestamp if sealed else NO_TIMESTAMP


def sealed_slice(name: str, position: int, piece: Slice) -> Sealed:
    """Return the segment that is a slice of the object ``name`` and begins at ``position`` (pure)."""
    log, index, times = piece.parts[: len(PARTS)]
    return Sealed(piece.base_offset, piece.end_offset, 0, log.length, log.crc, index.length, times.length,
                  piece.max_timestamp, piece.min_timestamp, piece.lateness, Place(name, position))  # fmt: skip


def earliest(timestamps: Iterable[int | None]) -> int | None:
    """Return the smallest of these timestamps; None where one of them is not known (pure)."""
    known: list[int] = []
    for at in timestamps:
        if at is None:
            return None
        known.append(at)
    return min(known)


def lateness_with(lateness: int | None, latest_ms: int, least_ms: int | None) -> int | None:
    """Return a segment's lateness with one more frame (pure).

    Args:
        lateness: of the frames before; 0 where there is none.
        latest_ms: the largest timestamp of those; -1 where there is none.
        least_ms: the smallest of the frame.
    """
    return None if lateness is None or least_ms is None else max(lateness, latest_ms - least_ms)


_BASE, _END, _LATEST = 0, 1, 7  # of a row that ``Sealed.to_json`` made


@dataclass(frozen=True, slots=True)
class SealedSegments:
    """A partition's sealed segments for look-ups, by bisection: a row becomes a value when it is the answer.

    ``rows`` by base offset; ``latest`` is the largest timestamp up to each of them, which ascends where the segments'
    own need not.
    """

    rows: Sequence[Sequence[Any]]
    latest: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> SealedSegments:
        """Return the segments in a manifest's rows."""
        return cls(rows, tuple(accumulate((row[_LATEST] for row in rows), max)))

    def followed_by(self, rows: Sequence[Sequence[Any]]) -> SealedSegments:
        """Return these segments and those after them."""
        return SealedSegments.of([*self.rows, *rows]) if rows else self

    @property
    def end_offset(self) -> int:
        """Return the offset after the last of them; 0 where there is none."""
        return int(self.rows[-1][_END]) if self.rows else 0

    def every(self) -> Iterator[Sealed]:
        """Yield all segments."""
        return map(Sealed.from_json, self.rows)

    def holding(self, offset: int) -> Sealed | None:
        """Return the last segment that does not start after ``offset``."""
        at = bisect_right(self.rows, offset, key=lambda row: row[_BASE]) - 1
        return None if at < 0 else Sealed.from_json(self.rows[at])

    def not_before(self, timestamp_ms: int, offset: int) -> Iterator[Sealed]:
        """Yield the segments with offsets from ``offset`` on and a record that is not before ``timestamp_ms``."""
        first = bisect_right(self.rows, offset, key=lambda row: row[_END])
        for at in range(max(first, bisect_left(self.latest, timestamp_ms)), len(self.rows)):
            if self.rows[at][_LATEST] >= timestamp_ms:
                yield Sealed.from_json(self.rows[at])


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

    Below ``cleaned`` every key has one record: compaction came that far (Kafka: the cleaner's checkpoint). Below
    ``dropped_below`` it may have dropped records, where that is more: a round was not finished, or another root's
    frames were taken. ``voids_at`` is the entry by which the segments have no record that is void; one may be void
    since.
    """

    end_offset: int
    active: Active
    manifest: Manifest | None = None
    cleaned: int = 0
    dropped_below: int = 0
    voids_at: int = 0

    @property
    def compacted_below(self) -> int:
        """Return the offset below which compaction may have dropped records."""
        return max(self.cleaned, self.dropped_below)

    def with_dropped_below(self, offset: int) -> SettledPartition:
        """Return the row with another ``dropped_below``; 0 where ``cleaned`` says it."""
        return replace(self, dropped_below=offset if offset > self.cleaned else 0)

    def to_json(self) -> list[Any]:
        """Return the row of the settle table."""
        m = self.manifest
        named = m and [m.name, m.checked.length, f"{m.checked.crc:08x}", m.segments, m.size_bytes]
        active = None if self.active == Active(IndexState(self.end_offset)) else self.active.to_json()
        row = [self.end_offset, named, active, self.cleaned]
        return [*row, self.dropped_below, self.voids_at] if self.dropped_below or self.voids_at else row

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> SettledPartition:
        """Return the value of a row."""
        end_offset, named, active, cleaned, *more = row
        manifest = None
        if named:
            name, length, crc, segments, size = named
            manifest = Manifest(name, Checked(length, int(crc, 16)), segments, size)
        empty = Active(IndexState(end_offset))
        return cls(end_offset, empty if active is None else Active.from_json(active), manifest, cleaned, *more)


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

    On storage without append: ``tail`` has the objects that partitions share, in the order of offsets; they follow the
    segments in the partitions' manifests. No object that was begun below ``files_floor`` is ever named again (rule O4),
    ``marks`` date earlier entries for that. ``drops`` are the paths, below the topic id's directory, that the entry
    before named and this one does not (rule O6).
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
        """Return the partitions that are published as damaged."""
        return frozenset(damage.partition for damage in self.damaged)

    @property
    def others_from(self) -> int:
        """Return the first entry that partitions which are not damaged may still need."""
        return self.oldest_unsettled if self.ahead is None else self.ahead

    def without_damage(self, partitions: Collection[int]) -> SettleState:
        """Return the state in which these partitions count as sound: the next settler reads all they may need."""
        left = tuple(damage for damage in self.damaged if damage.partition not in partitions)
        ahead = None if not left else self.ahead if left == self.damaged else self.oldest_unsettled
        return replace(self, damaged=left, ahead=ahead)

    def to_tables(self) -> Json:
        """Return the tables of a settle entry's body; that of damaged partitions only where there are some."""
        rows = {"partitions": [row.to_json() for row in self.partitions]}
        damaged = [[damage.partition, damage.offset, damage.why] for damage in self.damaged]
        return {**rows, "damaged": damaged} if damaged else rows

    def to_body(self) -> Json:
        """Return the rest of the body."""
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
        """Return the state with another row for a partition, which may be a new one."""
        rows = [self.partition(each) for each in range(max(len(self.partitions), number + 1))]
        rows[number] = row
        return replace(self, partitions=tuple(rows))

    def partition(self, number: int) -> SettledPartition:
        """Return a partition's row; a fresh one for a partition added since."""
        return self.partitions[number] if number < len(self.partitions) else SettledPartition(0, Active(IndexState(0)))

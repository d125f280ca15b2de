"""Check of all of a topic's stored bytes, read-only.

Beyond a reader's checks: running CRCs of segments, all index entries, file lengths, the chain of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark_commitlog.errors import CorruptionError, fault_of
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, decode_offset, decode_time
from pyspark_commitlog.format.segment_object import INDEX, TIMEINDEX
from pyspark_commitlog.model import Progress, Watched, silent, watched
from pyspark_commitlog.storage.process import results_in_batches
from pyspark_commitlog.topic.damage.check_object import NamedObject, object_faults
from pyspark_commitlog.topic.damage.strays import Strays
from pyspark_commitlog.topic.damage.typed_faults import typed_faults
from pyspark_commitlog.topic.read.backlog import backlog
from pyspark_commitlog.topic.read.unsettled import Entries, Source, Unsettled, overlaps, unsettled_frames
from pyspark_commitlog.topic.segments.frames import (
    Span,
    check_whole,
    crc_of,
    earliest_row_ms,
    segment_part,
    segment_span,
    walk,
)
from pyspark_commitlog.topic.state.settle_state import (
    Active,
    Sealed,
    SettledPartition,
    SettleState,
    Shared,
    lateness_with,
)
from pyspark_commitlog.topic.state.topic_state import INLINE, ChunkRef, Extent
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import NOTHING_WAITS, Backlog

_TRIES = 3


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What `verify` looked at, and the faults it found: file, expectation, what is there.

    Attributes:
        unnamed: orphans, and damaged files of older entries; no faults.
        under_way: objects that an entry may still name.
        root: directory or URL that was checked.
        replicated: other roots have the topic; `repair` can fetch.
    """

    topic: str
    faults: tuple[str, ...]
    segments: int
    segment_bytes: int
    entries: int
    chunks: int
    unsettled: Backlog = NOTHING_WAITS
    unnamed: tuple[str, ...] = ()
    under_way: tuple[str, ...] = ()
    root: str = ""
    replicated: bool = False


@dataclass(frozen=True, slots=True)
class RootReport:
    """What `verify_root` found: as in `TopicReport`, of what belongs to no topic."""

    faults: tuple[str, ...]
    unnamed: tuple[str, ...]
    topics: tuple[TopicReport, ...] = ()


def verify(topic: TopicLog, progress: Progress = silent) -> TopicReport:
    """Check the topic, part by part, each as it is then; what changed while it was looked at is looked at again.

    `progress` gets the bytes of segments read, and of all.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    seen, watcher = 0, watched(progress)

    def looked_at(size: int) -> None:
        nonlocal seen
        seen = min(seen + size, journal.published_bytes)
        watcher("verify", seen, journal.published_bytes)

    make = partial(_Checker, topic, looked_at, watcher)
    journal = _stable(make, _Checker.journal)
    checkers = [journal]
    checkers += (_stable(make, partial(_Checker.partition, partition=p)) for p in range(journal.partitions))
    checkers.append(_stable(make, _Checker.objects))
    strays = _stable(make, _Checker.strays)
    return TopicReport(
        topic.name,
        tuple(dict.fromkeys(fault for checker in [*checkers, strays] for fault in checker.faults)),
        sum(checker.segments for checker in checkers),
        sum(checker.segment_bytes for checker in checkers),
        sum(checker.entries for checker in checkers),
        sum(checker.chunks for checker in checkers),
        journal.unsettled,
        tuple(strays.unnamed),
        tuple(strays.under_way),
        topic.storage.url,
        topic.journal.is_replicated,
    )


def _stable(make: Callable[[], _Checker], check: Callable[[_Checker], None]) -> _Checker:
    for _ in range(_TRIES):
        checker = make()
        before = checker.look()
        if before is not None:
            check(checker)
        if not checker.faults or make().look() == before:
            break
    return checker


class _OneEntry(Entries):
    _inline: bytes | None = None

    def inline(self, entry: Entry) -> bytes:
        if self._inline is None:
            self._inline = super().inline(entry)
        return self._inline


@dataclass
class _Checker:
    topic: TopicLog
    looked_at: Callable[[int], None]
    progress: Watched
    faults: list[str] = field(default_factory=list)
    segments: int = 0
    segment_bytes: int = 0
    entries: int = 0
    chunks: int = 0
    partitions: int = 0
    published_bytes: int = 0
    unsettled: Backlog = NOTHING_WAITS
    unnamed: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)

    def look(self) -> tuple[int, int] | None:
        """Read both journals (R12); return their newest numbers, None on a fault."""
        try:
            self._newest, self._state = self.topic.newest()
            self._id = self._state.topic_id
            self._paths = self.topic.paths(self._id)
            stored, self._settled = self.topic.settled(self._id)
            self.partitions = self._state.partitions
            self.published_bytes = sum(
                partition.active.length + (partition.manifest.size_bytes if partition.manifest else 0)
                for partition in self._settled.partitions
            ) + sum(shared.size_bytes for shared in self._settled.tail)
        except CorruptionError as error:
            self.faults.append(str(error))
            return None
        return self._newest.sequence, stored.sequence

    def _guard(self, act: Callable[..., object], *args: object) -> bool:
        """Run a check, recording an error; return whether it completed."""
        part = f" partition {args[0]}" if args and isinstance(args[0], int) else ""
        what = f"topic {self.topic.name!r}{part}"
        with ErrorBoundary(lambda error: self.faults.append(fault_of(error, what)), self.progress):
            act(*args)
            return True
        return False

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    def strays(self) -> None:
        look = Strays(self.topic, self._state, self._settled, self._replaced, self.progress)
        self._guard(look.look)
        self.faults += look.faults
        self.unnamed, self.under_way = look.unnamed, look.under_way

    # --- segments ----------------------------------------------------------------------------------------

    def partition(self, partition: int) -> None:
        self._guard(self._partition, partition, self._settled.partition(partition))

    def _partition(self, partition: int, row: SettledPartition) -> None:
        sealed, complete = self._sealed(partition)
        where = self._paths.partition(partition)
        start, end = self._state.log_start[partition], self._state.log_end[partition]
        first = sealed[0].base_offset if sealed else row.active.base_offset
        self._expect(
            first <= start or not complete, f"{where}: the first segment starts at {first}, log start offset is {start}"
        )
        self._expect(row.end_offset <= end, f"{where}: settled to {row.end_offset}, log end offset is {end}")
        bases = [*(segment.base_offset for segment in sealed), row.active.base_offset][1:]
        for segment, following in zip(sealed, bases, strict=True):
            fault = f"{where}: segment {segment.stem} ends at {segment.end_offset}, the next one starts at {following}"
            below = segment.end_offset < following <= start  # merges leave out offsets below the log start
            self._expect(segment.end_offset == following or below or not complete, fault)
            self._guard(self._segment, partition, segment, segment.end_offset)
        if self.topic.storage.can_append:
            self._guard(self._segment, partition, row.active, row.end_offset)

    def _sealed(self, partition: int) -> tuple[list[Sealed], bool]:
        sealed, faults = list[Sealed](), len(self.faults)
        self._guard(lambda: sealed.extend(self.topic.sealed(replace(self._settled, tail=()), partition)))
        for shared in self._settled.tail:
            self._guard(self._slice, shared, partition, sealed)
        return sealed, len(self.faults) == faults

    def _slice(self, shared: Shared, partition: int, into: list[Sealed]) -> None:
        piece = self.topic.slice_in(self._id, shared, partition)
        into += [] if piece is None else [piece]

    def objects(self) -> None:
        named = {shared.name: NamedObject(shared) for shared in self._settled.tail}
        for partition in range(len(self._settled.partitions)):
            for segment in self._sealed(partition)[0]:
                if segment.place is not None:
                    named.setdefault(segment.place.object, NamedObject()).rows[partition] = segment
        for name, each in named.items():
            self._guard(self._object, name, each)

    def _object(self, name: str, named: NamedObject) -> None:
        self.faults += object_faults(self.topic.storage, self._paths.object(name), named)

    def _segment(self, partition: int, segment: Active | Sealed, end_offset: int) -> None:
        self.segments += 1
        self.segment_bytes += segment.length
        if segment.length == 0:
            return
        span = segment_span(self._paths, partition, segment, unmapped=True)
        path = span.path
        self._size(span, segment)
        self._crc(path, span.start, segment.length, segment.crc)
        frames: dict[int, tuple[int, int]] = {}
        offset, latest, least = segment.base_offset, -1, segment.min_timestamp
        for located in walk(self.topic.storage, span):
            frame, payload = located.frame, check_whole(located, span)[0]
            first = earliest_row_ms(frame, payload)
            self._rows(f"{path} position {located.position}", frame, payload)
            if frame.delete_horizon_ms is None and first is not None:
                fault = f"its header's smallest timestamp is {frame.base_timestamp}, its rows' {first}"
                self._expect(first == frame.base_timestamp, f"{path} position {located.position}: {fault}")
            fault = f"{path}: a record is of {first}, before {least}, the segment's smallest published timestamp"
            self._expect(first is None or least is None or first >= least, fault)
            late = lateness_with(0, latest, first)
            fault = f"{path}: a record comes {late} ms late, the segment's published lateness is {segment.lateness}"
            self._expect(late is None or segment.lateness is None or late <= segment.lateness, fault)
            offset, latest = located.next_offset, max(latest, frame.max_timestamp)
            frames[offset - 1] = (located.position - span.start, latest)
        self.looked_at(segment.length)
        self._expect(offset == end_offset, f"{path} ends at offset {offset}, {end_offset} was published")
        self._indexes(partition, segment, frames)

    def _size(self, span: Span, segment: Active | Sealed) -> None:
        if isinstance(segment, Active) or segment.place is None:
            size = self.topic.storage.info(span.path).size
            fault = f"{span.path} has {size} bytes, {span.end} were published"
            self._expect(size == span.end if isinstance(segment, Sealed) else size >= span.end, fault)

    def _replaced(self, partition: int, segment: Active | Sealed, end_offset: int) -> list[str]:
        here, self.faults = self.faults, []
        self._guard(self._segment, partition, segment, end_offset)
        faults, self.faults = self.faults, here
        return faults

    def _crc(self, path: str, start: int, length: int, expected: int) -> None:
        crc = crc_of(self.topic.storage, path, length, start)
        self._expect(crc == expected, f"{path}: CRC-32C of {length} bytes is {crc:08x}, expected {expected:08x}")

    def _indexes(self, partition: int, segment: Active | Sealed, frames: dict[int, tuple[int, int]]) -> None:
        """Check that every published index entry names a frame, in order."""
        path, data = self._part(partition, segment, INDEX)
        self._expect(len(data) == segment.offset_bytes, f"{path} is shorter than {segment.offset_bytes} bytes")
        last = -1
        for slot in range(len(data) // OFFSET_ENTRY_BYTES):
            entry = decode_offset(data, slot, segment.base_offset)
            # The first frame never gets an entry: a slot of zeros is none.
            right = 0 < entry.position == frames.get(entry.offset, (-1, 0))[0] and entry.offset > last
            self._expect(right, f"{path} entry {slot} is {entry}, which names no frame")
            last = entry.offset
        path, data = self._part(partition, segment, TIMEINDEX)
        self._expect(len(data) == segment.time_bytes, f"{path} is shorter than {segment.time_bytes} bytes")
        for slot in range(len(data) // TIME_ENTRY_BYTES):
            time_entry = decode_time(data, slot, segment.base_offset)
            right = frames.get(time_entry.offset, (0, -1))[1] == time_entry.timestamp
            self._expect(right, f"{path} entry {slot} is {time_entry}, which names no frame")

    def _part(self, partition: int, segment: Active | Sealed, suffix: str) -> tuple[str, bytes]:
        part = segment_part(self._paths, partition, segment, suffix)
        return part.path, self.topic.storage.read(part.path, part.start, part.length)

    # --- journal -----------------------------------------------------------------------------------------

    def journal(self) -> None:
        """Check the writers' table, and the chain of needed entries with chunks."""
        settled = self._settled
        self._guard(self.topic.snapshot, self._state)
        self.unsettled = backlog(self.topic, self._newest, self._state, settled)
        first = max(settled.oldest_unsettled, self._state.created + 1)
        before: Entry | None = None
        for sequence, (entry, checker) in self._entries(range(first, self._newest.sequence + 1)):
            self.entries += 1
            self.chunks += checker.chunks
            chained = before is None or entry is None or entry.prev == before.write_id
            self._expect(chained, f"journal entry {sequence} of {self.topic.name} does not follow the one before")
            self.faults += checker.faults
            before = entry

    def _entries(self, numbers: Sequence[int]) -> Iterator[tuple[int, tuple[Entry | None, _Checker]]]:
        """Yield entries (None if unreadable) with findings, in parallel if not local."""
        alone = self.topic.storage.can_append

        def look(sequence: int) -> tuple[Entry | None, _Checker]:
            checker = copy(self)
            checker.faults, checker.chunks = [], 0
            if not alone:  # a handle is for one thread at a time
                checker.topic = TopicLog(self.topic.storage, self.topic.name)
            return checker._entry(sequence), checker

        return results_in_batches(look, numbers, self.topic.storage.requests_at_once)

    def _entry(self, sequence: int) -> Entry | None:
        what, entry = f"journal entry {sequence} of {self.topic.name}", None

        def note(error: Exception) -> None:
            is_gone = isinstance(error, FileNotFoundError)
            self.faults.append(f"{what} is missing, and not settled" if is_gone else fault_of(error, what))

        with ErrorBoundary(note):
            entry = self.topic.journal.read(sequence).entry
        if entry is not None:
            self._guard(self._appended, entry, self._settled)
        return entry

    def _appended(self, entry: Entry, settled: SettleState) -> None:
        named = self.topic.chunks(entry)
        extents = [e for e in self.topic.extents(entry) if e.end_offset > settled.partition(e.partition).end_offset]
        void = {extent.chunk for extent in extents if self._is_void(extent)}  # not all of its bytes are needed
        read = sorted({extent.chunk for extent in extents} - {INLINE, *void})
        unread = {number for number in read if not self._guard(self._chunk, named[number])}
        entries = _OneEntry(self.topic)
        for extent in extents:
            if extent.chunk in unread:  # mapping it may kill this process
                continue
            self._guard(self._extent, Source(entry, extent, extent.chunk_in(named)), entries)

    def _is_void(self, extent: Extent) -> bool:
        return overlaps(self._state.voids_of(extent.partition), extent.base_offset, extent.end_offset)

    def _chunk(self, chunk: ChunkRef) -> None:
        self.chunks += 1
        path = self._paths.chunk(chunk.name)
        size = self.topic.storage.info(path).size
        self._expect(size == chunk.length, f"{path} has {size} bytes, expected {chunk.length}")
        if size >= chunk.length:
            self._crc(path, 0, chunk.length, chunk.crc)

    def _extent(self, source: Source, entries: Entries) -> None:
        voids = self._state.voids_of(source.extent.partition)
        where = f"journal entry {source.entry.sequence}, partition {source.extent.partition}"
        for each in unsettled_frames(self.topic, self._id, [source], 0, voids, entries):
            if isinstance(each, Unsettled):
                self._rows(f"{where}, frame at offset {each.base_offset}", each.frame, each.payload)

    def _rows(self, where: str, frame: Frame, payload: Payload) -> None:
        self.faults += (f"{where}: {fault}" for fault in typed_faults(frame, payload, self._state.schema))

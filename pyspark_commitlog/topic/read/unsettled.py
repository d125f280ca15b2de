"""Committed but unsettled records: entries, extents and their frames.

A lost entry or chunk leaves a hole in some partitions: skipped if voided, else an error, and nothing after it is
returned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.format.lineage import NO_LINEAGE
from pyspark_commitlog.format.paths import chunk_id
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import share_out
from pyspark_commitlog.topic.read.damage import Fragment, fragments_of
from pyspark_commitlog.topic.read.extents import NO_EXTENTS, EntryTables, ExtentTable, read_tables, shared_tables
from pyspark_commitlog.topic.read.neighbours import neighbours_of
from pyspark_commitlog.topic.segments.frames import Span, check_whole, crc_of, walk
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import ChunkRef, Extent, TopicState, Void
from pyspark_commitlog.topic.topic_log import TopicLog

#: Maximum of entries read in one go.
MAX_ENTRIES = 10_000
#: If each is a request: entries per read, and most inline bytes kept of one.
AT_ONCE, _INLINE_BYTES = 32, 2**18
#: Members of a body that are kept, besides tables.
_KEPT = ("unsynced",)


@dataclass(frozen=True, slots=True)
class Source:
    """Unsettled extent, and the entry and chunk with its frames."""

    entry: Entry
    extent: Extent
    chunk: ChunkRef | None
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets of a partition without a readable entry; the next entry has the leader epoch."""

    partition: int
    start: int
    end: int
    why: str
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """Entry that is not fully settled; its body has only `_KEPT`.

    `log_end` is that after it, `starts` before it. A lost entry (`why` is set) has both, and its write id, from the
    next.
    """

    sequence: int
    write_id: str
    prev: str
    log_end: tuple[int, ...]
    starts: tuple[int, ...]
    entry: Entry | None = None
    extents: ExtentTable = NO_EXTENTS
    chunks: tuple[ChunkRef, ...] = ()
    why: str = ""
    leader_epoch: int = 0


def load_pending(
    topic: TopicLog, entry: Entry, tables: Callable[[TopicLog, Entry], EntryTables] = read_tables
) -> Pending:
    """Load an entry with its tables, or why they are lost.

    Body and lineage describe the whole topic, and are dropped: thousands of entries may be held.
    """
    ends, epoch = tuple(entry.body["state"]["logEnd"]), entry.body["state"]["leaderEpoch"]
    try:
        extents, chunks = tables(topic, entry)
    except (FileNotFoundError, CorruptionError) as error:
        why = f"a table of journal entry {entry.sequence} is lost ({error})"
        return Pending(entry.sequence, entry.write_id, entry.prev, ends, ends, why=why, leader_epoch=epoch)
    starts = list(ends)
    for partition, rows in extents.counts().items():
        starts[partition] -= rows
    lean = replace(entry, body={key: entry.body[key] for key in _KEPT if key in entry.body}, lineage=NO_LINEAGE)
    return Pending(
        entry.sequence, entry.write_id, entry.prev, ends, tuple(starts), lean, extents, chunks, leader_epoch=epoch
    )


class Entries:
    """Reader of a topic's unsettled entries and inline bytes."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._read_ahead: dict[str, bytes] = {}

    def read(self, sequence: int, entry: Entry | None) -> Pending:
        """Return an entry, parsed or given; raises as `Journal.read`."""
        return load_pending(self._topic, entry or self._topic.journal.read(sequence).entry, shared_tables)

    def read_many(self, sequences: Sequence[int]) -> dict[int, Pending]:
        """Return readable entries; cache their inline bytes."""
        found, self._read_ahead = read_many(self._topic, sequences, shared_tables), {}
        for _, inline in found.values():
            self._read_ahead |= inline
        return {sequence: pending for sequence, (pending, _) in found.items()}

    def inline(self, entry: Entry) -> bytes:
        """Return an entry's inline bytes; raises as `Journal.inline`."""
        inline = self._read_ahead.get(entry.write_id)
        return self._topic.journal.inline(entry) if inline is None else inline

    def chunk(self, chunk: ChunkRef) -> pa.Buffer | None:
        """Return a chunk's bytes if in memory, else None."""
        return None


def read_many(
    topic: TopicLog,
    sequences: Sequence[int],
    tables: Callable[[TopicLog, Entry], EntryTables] = read_tables,
    *,
    inline: bool = True,
) -> dict[int, tuple[Pending, dict[str, bytes]]]:
    """Return readable entries, each with its inline bytes by write id.

    At most `AT_ONCE`, in parallel if each is a request; without large inline bytes.
    """
    found: dict[int, tuple[Pending, dict[str, bytes]]] = {}
    alone = topic.storage.can_append

    def read(sequence: int) -> None:
        own = topic if alone else TopicLog(topic.storage, topic.name)  # a handle is for one thread at a time
        try:
            pending = load_pending(own, own.journal.read(sequence).entry, tables)
            entry = pending.entry
            few = inline and entry is not None and entry.inline is not None and entry.inline.length <= _INLINE_BYTES
            found[sequence] = pending, {entry.write_id: own.journal.inline(entry)} if entry and few else {}
        except (FileNotFoundError, CorruptionError):
            return

    share_out(read, sequences[:AT_ONCE], topic.storage.requests_at_once)
    return found


def lost_entry(sequence: int, error: Exception, following: Pending) -> Pending:
    """Lost entry as described by the next one (pure)."""
    why = f"journal entry {sequence} is missing or damaged ({error}) and not settled yet"
    starts, epoch = following.starts, following.leader_epoch
    return Pending(sequence, following.prev, "", starts, starts, why=why, leader_epoch=epoch)


def read_pending(
    topic: TopicLog,
    settled: SettleState,
    state: TopicState,
    newest: Stored,
    enough: Callable[[], bool],
    *,
    first: int = 0,
) -> list[Pending]:
    """Return the oldest unsettled entries, up to `MAX_ENTRIES` or until `enough`, at least one.

    The last is never a lost one, which only the next describes.
    """
    oldest = max(settled.oldest_unsettled, state.created + 1, first)
    entries: list[Pending | tuple[int, Exception]] = []
    own = _put_here(topic, newest.entry, oldest)
    ahead = _EntryReadAhead(topic, min(own))
    for sequence in range(oldest, newest.sequence + 1):
        if entries and isinstance(entries[-1], Pending) and (len(entries) >= MAX_ENTRIES or enough()):
            break
        try:
            pending = None if sequence in own else ahead.take(sequence)
            if pending is None:
                entry = own.get(sequence) or topic.journal.read(sequence).entry
                pending = load_pending(topic, entry)
            entries.append(pending)
        except (FileNotFoundError, CorruptionError) as error:
            entries.append((sequence, error))
    return _with_lost(entries)


def _with_lost(entries: Sequence[Pending | tuple[int, Exception]]) -> list[Pending]:
    found: list[Pending] = []
    for each in reversed(entries):
        found.append(each if isinstance(each, Pending) else lost_entry(*each, found[-1]))
    return found[::-1]


class _EntryReadAhead:
    def __init__(self, topic: TopicLog, end: int) -> None:
        self._topic, self._end, self._many = topic, end, 1
        self._found: dict[int, Pending] = {}

    def take(self, sequence: int) -> Pending | None:
        if self._topic.storage.can_append or sequence >= self._end:
            return None
        if sequence not in self._found:
            wanted = range(sequence, min(sequence + self._many, self._end))
            self._found = {
                number: pending for number, (pending, _) in read_many(self._topic, wanted, inline=False).items()
            }
            self._many = min(self._many * 2, AT_ONCE)
        return self._found.pop(sequence, None)


def _put_here(topic: TopicLog, newest: Entry, oldest: int) -> dict[int, Entry]:
    own, entry = {newest.sequence: newest}, newest
    while entry.sequence > oldest and (before := topic.journal.put_before(entry)) is not None:
        own[before.sequence] = entry = before
    return own


def needed_chunks(extents: Iterable[Extent], settled: SettleState) -> set[int]:
    """Chunks with unsettled extents, `INLINE` for the entry itself (pure)."""
    return {extent.chunk for extent in extents if extent.end_offset > settled.partition(extent.partition).end_offset}


def sources_of(pending: Sequence[Pending], settled: SettleState, partitions: int) -> dict[int, list[Source | Hole]]:
    """Unsettled extents and holes per partition, by offset (pure)."""
    sources: dict[int, list[Source | Hole]] = {}
    ends = [settled.partition(partition).end_offset for partition in range(partitions)]
    why = "; ".join(entry.why for entry in pending if entry.why)

    def reach(partition: int, offset: int, epoch: int) -> None:
        if offset > ends[partition]:
            sources.setdefault(partition, []).append(Hole(partition, ends[partition], offset, why, epoch))
            ends[partition] = offset

    for entry in pending:
        for extent in entry.extents:
            if extent.end_offset > ends[extent.partition]:
                reach(extent.partition, extent.base_offset, entry.leader_epoch)
                assert entry.entry is not None
                source = Source(entry.entry, extent, extent.chunk_in(entry.chunks), entry.leader_epoch)
                sources.setdefault(extent.partition, []).append(source)
                ends[extent.partition] = extent.end_offset
    for partition, end in enumerate(pending[-1].log_end if pending else ()):
        reach(partition, end, pending[-1].leader_epoch)
    return sources


# --- frames -----------------------------------------------------------------------------------------------


class Unsettled(NamedTuple):
    """Whole unsettled frame, with its decoded bytes; the committing entry has its leader epoch."""

    frame: Frame
    payload: Payload
    base_offset: int
    decoded: int
    leader_epoch: int


class Gap(NamedTuple):
    """Voided offsets [start, end) between unsettled frames."""

    start: int
    end: int
    leader_epoch: int


def unsettled_frames(
    topic: TopicLog,
    topic_id: str,
    sources: Sequence[Source | Hole],
    from_offset: int,
    voids: Sequence[Void] = (),
    entries: Entries | None = None,
) -> Iterator[Unsettled | Gap]:
    """Yield a partition's unsettled frames, checked (R11), and voided ranges.

    `sources` and `voids` are by offset; `entries` reads inline bytes and whole chunks.
    """
    entries = entries or Entries(topic)
    for source in sources:
        if isinstance(source, Hole):
            start = max(source.start, from_offset)
            if not covered(voids, start, source.end):
                raise CorruptionError(
                    f"topic {topic.name!r} partition {source.partition} offsets {start} to {source.end - 1}: "
                    f"{source.why}. {WAY_OUT}"
                )
            yield Gap(start, source.end, source.leader_epoch)
        elif overlaps(voids, source.extent.base_offset, source.extent.end_offset):
            yield from _with_voids(topic, topic_id, source, from_offset, voids, entries)
        else:
            yield from _frames(topic, topic_id, source, from_offset, entries)


#: Advice for damaged unsettled records.
WAY_OUT = (
    "Restore it from a copy (`commitlog replicas repair` does, where the topic has replicas); if there is none, "
    "`commitlog void` gives it up"
)


def _frames(topic: TopicLog, topic_id: str, source: Source, from_offset: int, entries: Entries) -> Iterator[Unsettled]:
    extent = source.extent
    span = span_of(topic, topic_id, source, entries)
    offset = extent.base_offset
    try:
        if source.chunk is not None:
            span = replace(span, data=entries.chunk(source.chunk))
        for located in walk(topic.storage, span, neighbours_of(topic.storage, span)):
            offset = located.next_offset
            if located.base_offset >= from_offset:
                payload, decoded = check_whole(located, span)
                yield Unsettled(located.frame, payload, located.base_offset, decoded, source.leader_epoch)
    except FileNotFoundError as error:
        if topic.journal.await_election(0):
            raise ReplicaNotAvailableError(
                f"topic {topic.name!r} partition {extent.partition}: {span.path} is missing; an election was "
                "learned meanwhile that may have made it void: run this again"
            ) from error
        raise CorruptionError(
            f"topic {topic.name!r} partition {extent.partition} offsets {offset} to {extent.end_offset - 1}: "
            f"{span.path} is missing. {WAY_OUT}"
        ) from error
    if offset != extent.end_offset:
        raise CorruptionError(
            f"{span.path}: partition {extent.partition} has rows to offset {offset}, its entry says {extent.end_offset}"
        )


def _with_voids(
    topic: TopicLog, topic_id: str, source: Source, from_offset: int, voids: Sequence[Void], entries: Entries
) -> Iterator[Unsettled | Gap]:
    for fragment in scan(topic, topic_id, source, entries):
        start = max(fragment.start, from_offset)
        if start >= fragment.end:
            continue
        if covered(voids, start, fragment.end):
            yield Gap(start, fragment.end, source.leader_epoch)
        elif fragment.located is None:
            raise CorruptionError(
                f"topic {topic.name!r} partition {source.extent.partition} offsets {start} to {fragment.end - 1}: "
                f"{fragment.why}. {WAY_OUT}"
            )
        else:
            payload, decoded = check_whole(fragment.located, span_of(topic, topic_id, source, entries))
            yield Unsettled(fragment.located.frame, payload, start, decoded, source.leader_epoch)


def span_of(
    topic: TopicLog, topic_id: str, source: Source, entries: Entries | None = None, end_offset: int | None = None
) -> Span:
    """Span of an extent's frames."""
    extent = source.extent
    if source.chunk is None:
        path = f"inline frames of entry {source.entry.sequence} of {topic.name}"
        buffer = pa.py_buffer((entries or Entries(topic)).inline(source.entry))
    else:
        path, buffer = topic.paths(topic_id).chunk(source.chunk.name), None
    return Span(
        path=path,
        start=extent.position,
        end=extent.position + extent.length,
        base_offset=0,
        shift=extent.base_offset,
        topic_id=topic_id,
        partition=extent.partition,
        chunk=None if source.chunk is None else chunk_id(source.chunk.name),
        data=buffer,
        end_offset=end_offset,
    )


def is_whole(storage: Storage, path: str, chunk: ChunkRef) -> bool:
    """Whether a chunk's file is as written."""
    return storage.info(path).size == chunk.length and crc_of(storage, path, chunk.length) == chunk.crc


def scan(topic: TopicLog, topic_id: str, source: Source, entries: Entries | None = None) -> Iterator[Fragment]:
    """Yield an extent's fragments, damaged or not; see `fragments_of`."""
    extent = source.extent
    try:
        span = span_of(topic, topic_id, source, entries)
    except (FileNotFoundError, CorruptionError) as error:
        yield Fragment(extent.base_offset, extent.end_offset, None, str(error))
        return
    yield from fragments_of(topic.storage, span, extent.base_offset, extent.end_offset)


# --- ranges (pure) ----------------------------------------------------------------------------------------


def void_at(voids: Sequence[Void], offset: int) -> Void | None:
    """Void with an offset."""
    at = bisect_right(voids, offset, key=lambda void: void.start) - 1
    return voids[at] if at >= 0 and offset < voids[at].end else None


def covered(voids: Sequence[Void], start: int, end: int) -> bool:
    """Whether all of [start, end) is voided."""
    void = void_at(voids, start)
    return void is not None and end <= void.end


def overlaps(voids: Sequence[Void], start: int, end: int) -> bool:
    """Whether any of [start, end) is voided."""
    return any(void.start < end and start < void.end for void in voids)

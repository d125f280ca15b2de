"""Unsettled entries of one partition's reader."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.storage.shared.read_ahead import FileRange
from pyspark_commitlog.topic.read.prefetcher import RecordLocation
from pyspark_commitlog.topic.read.unsettled import AT_ONCE, Entries, Pending, lost_entry
from pyspark_commitlog.topic.state.topic_state import INLINE, ChunkRef, Extent
from pyspark_commitlog.topic.topic_log import TopicLog

#: Unsettled entries cached by a reader; a search among 2**32 visits 32.
_KNOWN = 64


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A partition's part of an unsettled entry; a lost one has `why`."""

    head: Entry | None
    log_end: int
    extents: tuple[Extent, ...]
    chunks: tuple[ChunkRef, ...]
    why: str

    def find_extent(self, offset: int) -> int | None:
        """Return the index of the extent with `offset`, or None."""
        at = bisect_right(self.extents, offset, key=lambda e: e.base_offset) - 1
        return at if at >= 0 and offset < self.extents[at].end_offset else None


class PartitionEntries:
    """Cache of unsettled entries."""

    def __init__(self, topic: TopicLog, topic_id: str, partition: int, stored: Entries) -> None:
        self._topic, self._id, self._partition, self._stored = topic, topic_id, partition, stored
        self._known: dict[int, PartitionEntry] = {}
        self._genuine: set[int] = set()
        self._last = 0  # number of the unsettled entry that was read last
        self._many = 1  # entries to read at a time

    def forget(self) -> None:
        """Read all entries again."""
        self._known.clear()
        self._genuine.clear()

    def forget_below(self, sequence: int) -> None:
        """Drop settled entries."""
        self._known = {n: entry for n, entry in self._known.items() if n >= sequence}

    def locate(self, offset: int, stop: int) -> RecordLocation | None:
        """Return the bytes of `offset` in a cached entry, with the extents after it in its chunk."""
        for entry in self._known.values():
            if (at := entry.find_extent(offset)) is not None:
                return self._staged_at(entry, at, stop)
        return None

    def _staged_at(self, entry: PartitionEntry, at: int, stop: int) -> RecordLocation:
        first = last = entry.extents[at]
        if first.chunk == INLINE:
            return RecordLocation(None, first.end_offset)
        for extent in entry.extents[at + 1 :]:
            follows = extent.chunk == last.chunk and extent.position == last.position + last.length
            if not follows or extent.base_offset >= stop:
                break
            last = extent
        path = self._topic.paths(self._id).chunk(entry.chunks[first.chunk].name)
        return RecordLocation(FileRange(path, first.position, last.position + last.length), last.end_offset)

    def assure_genuine(self, sequence: int) -> None:
        """Refuse a late put at a collected number (anchor rule)."""
        if sequence not in self._genuine:
            self._check_genuine(sequence)

    def _check_genuine(self, sequence: int) -> None:
        _, settle = self._topic.settled(self._id)
        if sequence < settle.oldest_unsettled:
            raise FileNotFoundError(f"entry {sequence} was settled meanwhile")
        self._genuine = {number for number in self._known if number >= settle.oldest_unsettled}

    def holding(self, offset: int, low: int, newest: Entry) -> PartitionEntry:
        """Entry from `low` on that appended `offset`: usually the next, else by bisection.

        Raises:
            FileNotFoundError: it is none of them.
        """
        high = newest.sequence
        last, self._last = self._last, self._last + 1
        if low <= last < high and self._load(last, newest).log_end <= offset:
            self._load_more(last + 1, high)
            low = last + 1
            while offset >= self._load(low, newest).log_end and low + 1 in self._known:
                low += 1
            if offset < self._load(low, newest).log_end:
                self._last = low
                return self._load(low, newest)
        candidates = range(low, high + 1)
        at = bisect_right(candidates, offset, key=lambda sequence: self._load(sequence, newest).log_end)
        if at == len(candidates):
            raise FileNotFoundError(f"no entry from {low} to {high} holds offset {offset}")
        self._last, self._many = candidates[at], 1
        return self._load(self._last, newest)

    def _load_more(self, sequence: int, high: int) -> None:
        if self._topic.storage.can_append or sequence in self._known or sequence >= high:
            return
        found = self._stored.read_many(range(sequence, min(sequence + self._many, high)))
        self._many = min(self._many * 2, AT_ONCE)
        for number, pending in found.items():
            self._keep(number, pending)

    def _load(self, sequence: int, newest: Entry) -> PartitionEntry:
        if sequence not in self._known:
            self._keep(sequence, self._pending(sequence, newest))
        return self._known[sequence]

    def _keep(self, sequence: int, pending: Pending) -> None:
        if len(self._known) >= _KNOWN:
            del self._known[next(iter(self._known))]
        self._genuine.discard(sequence)
        self._known[sequence] = PartitionEntry(
            head=pending.entry,
            log_end=pending.log_end[self._partition] if self._partition < len(pending.log_end) else 0,
            extents=pending.extents.of_partition(self._partition),
            chunks=pending.chunks,
            why=pending.why,
        )

    def _pending(self, sequence: int, newest: Entry) -> Pending:
        lost = list[tuple[int, Exception]]()
        for number in range(sequence, newest.sequence):
            try:
                pending = self._stored.read(number, None)
                break
            except (FileNotFoundError, CorruptionError) as error:
                self._check_genuine(number)
                lost.append((number, error))
        else:
            pending = self._stored.read(newest.sequence, newest)
        for number, cause in reversed(lost):
            pending = lost_entry(number, cause, pending)
        return pending

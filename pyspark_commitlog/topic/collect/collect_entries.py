"""Deletion of settled entries with their chunks and tables (rule R13).

An entry put at a collected number does not count, and its writer may have committed its chunks again: so only chunks
of entries go that the `prev` chain from an anchor, named by a settle entry, reaches. In a long backlog, entries met
become anchors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.journal.anchor import KEPT_ENTRIES, Moment
from pyspark_commitlog.storage.process import share_out
from pyspark_commitlog.topic.read.unsettled import covered
from pyspark_commitlog.topic.state.side_files import side_files
from pyspark_commitlog.topic.state.topic_state import ChunkRef, TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Entries of one step; if deleting is a request, their chunks are deleted by as many threads.
STEP = 8
#: Entries read at a time on the way down.
READ = 64
#: Maximum of anchors; a longer backlog rereads some entries.
_MOST_ANCHORS = 2**14
#: Stands for no write id: entries below a lost or late one are linked by none.
_NOTHING = ""


@dataclass(slots=True)
class CollectedEntries:
    """Numbers of deleted files; `whole` if nothing is left to delete."""

    chunks: int = 0
    entries: int = 0
    tables: int = 0
    whole: bool = False


def plan_entries(sequences: Sequence[int], below: int) -> list[int]:
    """Return the entries below `below`, ascending, without the newest two (pure)."""
    return [sequence for sequence in sorted(sequences)[:-KEPT_ENTRIES] if sequence < below]


def no_deadline() -> bool:
    """Never stop early."""
    return False


def collect_entries(
    topic: TopicLog,
    state: TopicState,
    gone: Sequence[int],
    anchors: dict[int, str],
    enough: Callable[[], bool] = no_deadline,
    least: int = 1,
) -> CollectedEntries:
    """Delete per entry, ascending: its chunks, itself, its tables (rule R13).

    Chunks of damaged or void entries are left to the sweep: a writer may name them again.

    Args:
        gone: settled numbers, ascending.
        anchors: write ids by entry number, from settle entries; updated for the next run.
        enough: whether to stop; asked before each entry and read.
        least: entries deleted regardless, unless four times as many must be read first.
    """
    return _Collector(topic, state, gone, anchors, enough, least).run()


class _Collector:
    def __init__(
        self,
        topic: TopicLog,
        state: TopicState,
        gone: Sequence[int],
        anchors: dict[int, str],
        enough: Callable[[], bool],
        least: int,
    ) -> None:
        self._topic, self._state, self._gone, self._enough, self._least = topic, state, gone, enough, least
        self._paths, self._anchors = topic.paths(state.topic_id), anchors
        self._order = sorted(anchors, reverse=True)  # the lowest is last
        self._numbers, self._known = range(0), dict[int, Stored]()
        self._seen = Moment.of(topic.storage.clock)
        self.done = CollectedEntries()

    def run(self) -> CollectedEntries:
        reads, least_reads = 0, 1 + 4 * (self._least - 1) // READ
        while self.done.entries < len(self._gone):
            first = self._gone[self.done.entries]
            at = self._anchor(first)
            if at is not None and at - first >= STEP and self._anchors[at] != _NOTHING:
                if self._is_over() or (not self.done.entries and reads >= least_reads and self._enough()):
                    return self.done
                self._read_down(first, at)
                reads += 1
            elif not self._delete(first, at):
                return self.done
        self._anchor((self._gone[-1] if self._gone else 0) + 1)
        self.done.whole = True
        return self.done

    def _anchor(self, first: int) -> int | None:
        order = self._order
        while order and order[-1] < first:
            del self._anchors[order.pop()]
        near = [number for number in order[-STEP:] if number - first < STEP]
        return near[0] if near else next(reversed(order), None)

    def _read_down(self, first: int, at: int) -> None:
        lowest = max(first, at - READ + 1)
        self._read(range(lowest, at + 1))
        expected = self._anchors[at]
        for number in range(at, lowest - 1, -1):
            _, expected = _linked(self._known.get(number), expected)
            below = number - 1
            near = lowest == first and (below - first + 1) % STEP == 0
            if below >= first and (number == lowest or near or expected == _NOTHING):
                self._add(below, expected)
            if expected == _NOTHING:
                return

    def _add(self, number: int, write_id: str) -> None:
        self._anchors[number] = write_id
        self._order.append(number)
        if len(self._order) > _MOST_ANCHORS:
            del self._anchors[self._order.pop(-2)]

    def _read(self, numbers: range) -> None:
        self._numbers, self._known = numbers, self._topic.journal.read_several(numbers)
        self._seen = Moment.of(self._topic.storage.clock)

    def _delete(self, first: int, at: int | None) -> bool:
        top = first + STEP - 1 if at is None else min(at, first + STEP - 1)
        if first not in self._numbers or top not in self._numbers:
            self._read(range(first, top + 1))
        begin, at_once = self.done.entries, not self._topic.storage.can_append
        step = self._gone[begin : min(begin + STEP, bisect_right(self._gone, top))]
        for batch in self._entry_batches(step, self._own_entries(first, top)):
            if self._is_over():
                return False
            if at_once:
                self._delete_chunks(batch)
            for number, chunks in batch:
                if self._is_over():
                    return False
                self._delete_one(number, chunks, chunks_too=not at_once)
        return True

    def _delete_chunks(self, batch: Sequence[tuple[int, Sequence[ChunkRef] | None]]) -> None:
        names = [chunk.name for _, chunks in batch for chunk in chunks or ()]
        share_out(lambda name: self._topic.storage.delete(self._paths.chunk(name)), names, STEP)

    def _is_over(self) -> bool:
        return self.done.entries >= self._least and self._enough()

    def _entry_batches(
        self, step: Sequence[int], own: set[int]
    ) -> Iterator[list[tuple[int, Sequence[ChunkRef] | None]]]:
        """Yield entries with their chunks (None if foreign), a few at a time.

        A run that stops in between deletes chunks again.
        """
        batch, many = list[tuple[int, Sequence[ChunkRef] | None]](), 0
        for number in step:
            chunks = self._chunks(self._known[number]) if number in own else None
            if batch and many + len(chunks or ()) > STEP:
                yield batch
                batch, many = [], 0
            batch.append((number, chunks))
            many += len(chunks or ())
        yield batch

    def _own_entries(self, first: int, top: int) -> set[int]:
        own, expected = set[int](), _NOTHING
        for number in range(top, first - 1, -1):
            is_own, expected = _linked(self._known.get(number), self._anchors.get(number, expected))
            if is_own:
                own.add(number)
        return own

    def _chunks(self, stored: Stored) -> Sequence[ChunkRef] | None:
        if stored.entry.topic_id != self._state.topic_id:
            return None
        return _readable_chunks(self._topic, self._state, stored)

    def _delete_one(self, number: int, chunks: Sequence[ChunkRef] | None, *, chunks_too: bool) -> None:
        topic, stored = self._topic, self._known.get(number)
        self.done.entries += 1
        if stored is not None and topic.storage.can_append and not topic.journal.stays(stored, self._seen):
            return
        tables = list[str]()
        if stored is not None and chunks is not None:
            for chunk in chunks if chunks_too else ():
                topic.storage.delete(self._paths.chunk(chunk.name))
            self.done.chunks += len(chunks)
            tables = _own_tables(topic, stored, self._known.get(number + 1))
        topic.journal.delete(number)
        for file in tables:  # last: an entry that survives a killed collector needs them
            topic.storage.delete(f"{self._paths.side}/{file}")
            self.done.tables += 1


def _linked(stored: Stored | None, expected: str) -> tuple[bool, str]:
    is_own = stored is not None and stored.entry.write_id == expected
    return is_own, stored.entry.prev if stored is not None and is_own else _NOTHING


def _own_tables(topic: TopicLog, stored: Stored, following: Stored | None) -> list[str]:
    files = side_files(stored.entry)
    if not files:
        return []
    try:
        following = following or topic.journal.read(stored.sequence + 1)
    except (FileNotFoundError, CorruptionError):
        return []
    if following.entry.prev != stored.entry.write_id:
        return []
    return [file for file in files if file not in side_files(following.entry)]


def _readable_chunks(topic: TopicLog, state: TopicState, stored: Stored) -> tuple[ChunkRef, ...]:
    try:
        if state.is_replicated and state.voids and _is_void(topic, state, stored):
            return ()
        return _chunks(topic, stored)
    except CorruptionError:  # voided, and settled; the sweep takes its chunks
        return ()


def _is_void(topic: TopicLog, state: TopicState, stored: Stored) -> bool:
    """Whether a writer may append an entry's chunks again."""
    with suppress(FileNotFoundError):  # another collector has removed entry and table meanwhile
        extents = topic.extents(stored.entry)
        return all(covered(state.voids_of(e.partition), e.base_offset, e.end_offset) for e in extents)
    return True


def _chunks(topic: TopicLog, stored: Stored) -> tuple[ChunkRef, ...]:
    try:
        return topic.chunks(stored.entry)
    except FileNotFoundError:
        return ()

"""Collect entries of the topic's journal that are settled, with the chunks and tables of theirs (rule R13).

A commit may wait for it: it is done in steps, and may end before each of them. A file that was put at a number
collected before (the anchor rule) goes without its chunks: its writer may have committed them under a later number.
So those go of entries only that are linked by ``prev`` from an anchor down: one that a settle entry names, which
settled it. Of many entries, as where nobody collected for days, some of the write ids met on the way down are anchors
from then on, and no more is held of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark_commitlog.anchor import KEPT_ENTRIES, Moment
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.read.unsettled import covered
from pyspark_commitlog.log.state import ChunkRef, TopicState
from pyspark_commitlog.log.tables import side_files
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.process import share_out

#: Entries that go in one step: where deleting is a request, their chunks are deleted at once, each by a thread.
STEP = 8
#: Entries that are read at a time on the way down.
READ = 64
#: Anchors that are held: of more entries than ``READ`` times this some are read once more.
_MOST_ANCHORS = 2**14
#: No write id: what is below an entry that is lost, or was put late, is linked by nothing.
_NOTHING = ""


@dataclass(slots=True)
class CollectedEntries:
    """How many files went. ``whole``: all that was to go."""

    chunks: int = 0
    entries: int = 0
    tables: int = 0
    whole: bool = False


def plan_entries(sequences: Sequence[int], below: int) -> list[int]:
    """Return the entries to delete, ascending: those below ``below``, never the newest two (pure)."""
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
    """Delete, for each entry in ascending order, its chunks, then itself, then its tables (rule R13).

    What nobody commits is the sweep's, as is what a damaged entry named, and one that an election made void: its writer
    may name it again. Where a look is no request an entry goes only as the file that was read, see ``collect``.

    Args:
        topic, state: whose.
        gone: the numbers to delete, ascending: all are settled.
        anchors: write ids of entries by number, which settle entries name. What is met on the way down is added, what
            is not needed any more removed: a later run begins with what is left of them.
        enough: whether to leave the rest; asked before each entry, and before more are read.
        least: so many go whatever ``enough`` says, unless four times as many have to be read first.
    """
    return _Collector(topic, state, gone, anchors, enough, least).run()


class _Collector:
    """One run; see ``collect_entries``."""

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
        """Delete what is to go, or as much as there is time for."""
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
        """Return the lowest anchor that is not below a number, or the highest that is near; forget those below it."""
        order = self._order
        while order and order[-1] < first:
            del self._anchors[order.pop()]
        near = [number for number in order[-STEP:] if number - first < STEP]
        return near[0] if near else next(reversed(order), None)

    def _read_down(self, first: int, at: int) -> None:
        """Read the entries from an anchor down, ``READ`` of them or to ``first``; add the anchors met."""
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
        """Delete some entries from ``first`` on, up to the anchor that is near; return whether all of them went."""
        top = first + STEP - 1 if at is None else min(at, first + STEP - 1)
        if first not in self._numbers or top not in self._numbers:
            self._read(range(first, top + 1))
        begin, at_once = self.done.entries, not self._topic.storage.can_append
        step = [number for number in self._gone[begin : begin + STEP] if number <= top]
        for batch in self._entry_batches(step, self._own_entries(first, top)):
            if self._is_over():
                return False
            if at_once:
                names = [chunk.name for _, chunks in batch for chunk in chunks or ()]
                share_out(lambda name: self._topic.storage.delete(self._paths.chunk(name)), names, STEP)
            for number, chunks in batch:
                if self._is_over():
                    return False
                self._delete_one(number, chunks, chunks_too=not at_once)
        return True

    def _is_over(self) -> bool:
        return self.done.entries >= self._least and self._enough()

    def _entry_batches(
        self, step: Sequence[int], own: set[int]
    ) -> Iterator[list[tuple[int, Sequence[ChunkRef] | None]]]:
        """Yield entries with their chunks, a few chunks at a time.

        If a run ends in between, these are deleted again. Chunks of an entry that is not the journal's own: None.
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
        """Return the numbers of the journal's entries, linked from an anchor down."""
        own, expected = set[int](), _NOTHING
        for number in range(top, first - 1, -1):
            is_own, expected = _linked(self._known.get(number), self._anchors.get(number, expected))
            if is_own:
                own.add(number)
        return own

    def _chunks(self, stored: Stored) -> Sequence[ChunkRef] | None:
        """Return the chunks of an entry that go; None where it is another incarnation's."""
        if stored.entry.topic_id != self._state.topic_id:
            return None
        return _readable_chunks(self._topic, self._state, stored)

    def _delete_one(self, number: int, chunks: Sequence[ChunkRef] | None, *, chunks_too: bool) -> None:
        """Delete an entry; its chunks, if it is believed (else None), went before or go now."""
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
        for file in tables:  # last: an entry that stayed, as of a collector that was killed, would lack them
            topic.storage.delete(f"{self._paths.side}/{file}")
            self.done.tables += 1


def _linked(stored: Stored | None, expected: str) -> tuple[bool, str]:
    """Return whether an entry is the one expected, and the write id of the one that it was built on (pure)."""
    is_own = stored is not None and stored.entry.write_id == expected
    return is_own, stored.entry.prev if stored is not None and is_own else _NOTHING


def _own_tables(topic: TopicLog, stored: Stored, following: Stored | None) -> list[str]:
    """Return the side files that an entry names and the one after it does not; none where that can't be read."""
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
    """Return whether all that an entry appended is void: its writer may append the same chunks once more."""
    with suppress(FileNotFoundError):  # another collector has removed entry and table meanwhile
        extents = topic.extents(stored.entry)
        return all(covered(state.voids_of(e.partition), e.base_offset, e.end_offset) for e in extents)
    return True


def _chunks(topic: TopicLog, stored: Stored) -> tuple[ChunkRef, ...]:
    """Return an entry's chunks; none when another collector has removed entry and table meanwhile."""
    try:
        return topic.chunks(stored.entry)
    except FileNotFoundError:
        return ()

"""Collect entries of the topic's journal that are settled, with the chunks and tables of theirs (rule R13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyspark_commitlog.anchor import KEPT_ENTRIES, Moment
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.log.read.unsettled import covered
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.state import ChunkRef, TopicState
from pyspark_commitlog.log.tables import side_files
from pyspark_commitlog.log.topic import TopicLog


def plan_entries(sequences: Sequence[int], below: int) -> list[int]:
    """Return the entries to delete, ascending: those below ``below``, never the newest two (pure)."""
    return [sequence for sequence in sorted(sequences)[:-KEPT_ENTRIES] if sequence < below]


def read_each(journal: Journal, sequences: Sequence[int], *, damaged_too: bool = False) -> Iterator[Stored]:
    for sequence in sequences:
        try:
            yield journal.read(sequence)
        except FileNotFoundError:  # another collector was here
            continue
        except CorruptionError:
            if not damaged_too:
                raise


def collect_entries(
    topic: TopicLog, state: TopicState, settled: SettleState, sequences: Sequence[int], below: int
) -> tuple[int, int, int]:
    """Delete, for each entry in ascending order, its chunks, then itself, then its tables (rule R13).

    A file that was put at a number collected before (the anchor rule) goes without these: its writer may have
    committed them under a later number. What nobody commits is the sweep's, as is what a damaged entry named, and one
    that an election made void: its writer may name it again. Where a look is no request it goes only as the file that
    was read, see ``collect``.

    Args:
        topic, state: whose.
        settled: what it does not need may go.
        sequences: the entries that there may be.
        below: what is at this number or above stays.

    Returns:
        How many chunks, entries and tables went: those that the next entry does not name.
    """
    topic_id, paths = state.topic_id, topic.paths(state.topic_id)
    gone = plan_entries(sequences, min(settled.oldest_unsettled, below))
    doomed = list(read_each(topic.journal, gone, damaged_too=True))
    genuine = _chain(topic.journal, settled.through, doomed)
    chunks = files = 0
    known = {stored.sequence: stored for stored in doomed}
    seen = Moment.now(topic.storage.clock)
    for sequence in gone:
        stored = known.get(sequence)
        if stored is not None and topic.storage.can_append and not topic.journal.stays(stored, seen):
            continue
        tables = list[str]()
        if stored is not None and stored.entry.topic_id == topic_id and stored.entry.write_id in genuine:
            for chunk in _readable_chunks(topic, state, stored):
                topic.storage.delete(paths.chunk(chunk.name))
                chunks += 1
            tables = _own_tables(topic, stored, known.get(sequence + 1))
        topic.journal.delete(sequence)
        for file in tables:  # last: an entry that stayed, as of a collector that was killed, would lack them
            topic.storage.delete(f"{paths.side}/{file}")
            files += 1
    return chunks, len(gone), files


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


def _chain(journal: Journal, through: tuple[int, str], doomed: Sequence[Stored]) -> set[str]:
    """Return the write ids of the journal's own entries, from ``through`` down to the first that is doomed."""
    sequence, write_id = through
    known = {stored.sequence: stored for stored in doomed}
    chain: set[str] = set()
    while doomed and sequence >= doomed[0].sequence:
        try:
            link = (known.get(sequence) or journal.read(sequence)).entry
        except (FileNotFoundError, CorruptionError):
            break
        if link.write_id != write_id:
            break
        chain.add(write_id)
        sequence, write_id = sequence - 1, link.prev
    return chain


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

"""Collect what nothing needs any more, and sweep what nobody committed.

Delays compare storage times with storage times (rule R10): a file that the newest settle entry does not need may go
once an entry that did not need it either is older than the delay (rule R13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import paths as names
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged
from pyspark_commitlog.log.read.unsettled import needed_chunks
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.state import ChunkRef, Mark, TopicState
from pyspark_commitlog.log.topic import TopicLog

#: How the names of the settle journal's side files end; all others belong to the topic's journal.
SETTLE_TABLES = (".partitions", ".damaged")
#: Earlier incarnations of a topic that are remembered: bounds an entry's size.
FORMER_INCARNATIONS = 200
#: Entries of a journal that are never collected, counted from the newest.
KEPT_ENTRIES = 2


@dataclass(frozen=True, slots=True)
class Collected:
    """How many files of each kind went."""

    chunks: int = 0
    entries: int = 0
    settle_entries: int = 0
    files: int = 0
    segments: int = 0


def plan_entries(sequences: Sequence[int], below: int) -> list[int]:
    """Return the entries to delete, ascending: those below ``below``, never the newest two (pure)."""
    return [sequence for sequence in sorted(sequences)[:-KEPT_ENTRIES] if sequence < below]


def plan_settled(settles: Sequence[Stored], now_ms: int, delay_ms: int) -> Stored | None:
    """Return the newest settle entry that is older than the delay: what it did not need may go (pure)."""
    old = [stored for stored in settles if stored.info.modified_ms + delay_ms <= now_ms]
    return old[-1] if old else None


def oldest_needed(entries: Iterable[tuple[int, int | None]], now_ms: int, delay_ms: int) -> int:
    """Return the newest of some entries that is older than the delay, 0 for none: those before it may go (pure).

    An entry from the future, of a clock that was ahead once, proves nothing, and stops nothing: what was put after it
    is as good a witness.

    Args:
        entries: ascending numbers, with storage times in ms; None where one is gone. Taken one by one, and no more
            of them than it needs.
        now_ms: the storage's time.
        delay_ms: how long what an entry replaced is still needed.
    """
    oldest = 0
    for sequence, at_ms in entries:
        if at_ms is None:
            continue
        if at_ms + delay_ms <= now_ms:
            oldest = sequence
        elif at_ms <= now_ms:  # those after it are younger still
            break
    return oldest


def plan_floor(marks: Sequence[Mark], now_ms: int, retention_ms: int) -> int:
    """Return the highest sequence whose entry is older than the retention, 0 for none (rule R1; pure)."""
    return max((mark.sequence for mark in marks if mark.at_ms + retention_ms <= now_ms), default=0)


def collect(topic: TopicLog, topic_id: str, *, thorough: bool = False) -> Collected:
    """Delete settled chunks, then their entries, old settle entries and files that only those named.

    Safe beside writers, readers and other collectors. ``thorough``: chunks too whose entries stay for a damaged
    partition, which hold nothing of it; that reads those entries.
    """
    storage, paths = topic.storage, topic.paths(topic_id)
    _, state = topic.newest(topic_id)
    journal = topic.settle_journal(topic_id)
    sequences = journal.sequences()
    retained = _read_all(journal, sequences, damaged_too=True)
    storage.sync_directory(paths.settle, fresh=True)
    now, delay = storage.now_ms(), topic.config(state).number("file.delete.delay.ms")
    proof = plan_settled(retained, now, delay)
    if proof is None:
        return Collected()
    settled = settle_state(topic, proof)
    if settled is None:
        return Collected()
    chunks, entries = _collect_entries(topic, topic_id, settled)
    chunks += _collect_ahead(topic, topic_id, settled) if thorough and settled.damaged else 0
    gone = plan_entries(sequences, proof.sequence)
    for sequence in gone:
        journal.delete(sequence)
    kept = [stored for stored in retained if stored.sequence not in set(gone)]
    files = _collect_files(topic, topic_id, kept)
    return Collected(chunks, entries, len(gone), files)


def read_retained(journal: Journal) -> list[Stored]:
    """Return all entries that a journal still has, ascending."""
    return _read_all(journal, journal.sequences())


def _read_all(journal: Journal, sequences: Sequence[int], *, damaged_too: bool = False) -> list[Stored]:
    entries = []
    for sequence in sequences:
        try:
            entries.append(journal.read(sequence))
        except FileNotFoundError:  # another collector was here
            continue
        except CorruptionError:
            if not damaged_too:
                raise
    return entries


def settle_state(topic: TopicLog, stored: Stored) -> SettleState | None:
    """Return what a settle entry says; None when another collector has removed entry and table meanwhile."""
    try:
        return topic.settle_state(stored.entry)
    except FileNotFoundError:
        return None


def _collect_entries(topic: TopicLog, topic_id: str, settled: SettleState) -> tuple[int, int]:
    """Delete, for each entry in ascending order, its chunks and then itself (rule R13).

    A file that was put at a number collected before (the anchor rule) goes without its chunks: its writer may have
    committed them under a later number. What nobody commits is the sweep's, as is what a damaged entry named.
    """
    paths = topic.paths(topic_id)
    gone = plan_entries(topic.journal.sequences(), settled.oldest_unsettled)
    doomed = _read_all(topic.journal, gone, damaged_too=True)
    genuine = _chain(topic.journal, settled.through, doomed)
    chunks = 0
    known = {stored.sequence: stored for stored in doomed}
    for sequence in gone:
        stored = known.get(sequence)
        if stored is not None and stored.entry.topic_id == topic_id and stored.entry.write_id in genuine:
            for chunk in _readable_chunks(topic, stored):
                topic.storage.delete(paths.chunk(chunk.name))
                chunks += 1
        topic.journal.delete(sequence)
    return chunks, len(gone)


def _collect_ahead(topic: TopicLog, topic_id: str, settled: SettleState) -> int:
    """Delete the chunks of entries that stay, ascending, because a partition is damaged (rule R13): of the others.

    What was read counts only if the newest settle entry still keeps it: then its number was never collected. Else it
    may be a file that was put after a collector, and its writer may have committed the chunks under a later number.
    """
    paths, gone = topic.paths(topic_id), 0
    there = set(topic.storage.names(paths.staged))
    unneeded: list[tuple[int, str]] = []
    for sequence in range(settled.oldest_unsettled, settled.others_from):
        try:
            entry = topic.journal.read(sequence).entry
            chunks, needed = topic.chunks(entry), needed_chunks(topic.extents(entry), settled)
        except (FileNotFoundError, CorruptionError):
            continue
        free = (chunk.name for number, chunk in enumerate(chunks) if number not in needed)
        unneeded += [(sequence, name) for name in free if name in there]
    kept_from = topic.settled(topic_id)[1].oldest_unsettled
    for sequence, name in unneeded:
        if sequence >= kept_from:
            topic.storage.delete(paths.chunk(name))
            gone += 1
    return gone


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


def _readable_chunks(topic: TopicLog, stored: Stored) -> tuple[ChunkRef, ...]:
    try:
        return _chunks(topic, stored)
    except CorruptionError:  # voided, and settled; the sweep takes its chunks
        return ()


def _chunks(topic: TopicLog, stored: Stored) -> tuple[ChunkRef, ...]:
    """Return an entry's chunks; none when another collector has removed entry and table meanwhile."""
    try:
        return topic.chunks(stored.entry)
    except FileNotFoundError:
        return ()


def _collect_files(topic: TopicLog, topic_id: str, settles: Sequence[Stored]) -> int:
    """Delete side files and manifests that no retained entry names and no attempt under way can still name."""
    storage, paths = topic.storage, topic.paths(topic_id)
    sides = storage.names(paths.side)
    entries = read_retained(topic.journal)
    if not entries or not settles:
        return 0
    named = {file for stored in (*entries, *settles) for file in _side_files(stored)}
    states = (settle_state(topic, stored) for stored in settles)
    try:
        manifests = {name for state in states if state for name in _manifest_files(topic, state)}
    except FileNotFoundError:  # another collector removed an entry and its manifest meanwhile
        return 0
    stale = _stale(sides, named, entries[-1].sequence, settles[-1].sequence)
    doomed = [f"{paths.side}/{name}" for name in stale]
    doomed += [
        f"{paths.manifests}/{name}"
        for name in storage.names(paths.manifests)
        if (parsed := names.parse_manifest(name)) and parsed[1] <= settles[-1].sequence and name not in manifests
    ]
    for path in doomed:
        storage.delete(path)
    return len(doomed)


def _manifest_files(topic: TopicLog, state: SettleState) -> Iterator[str]:
    """Yield the names of the manifests that a state names, and of their leaves."""
    for row in state.partitions:
        if row.manifest is not None:
            yield row.manifest.name
            yield from (leaf.name for leaf in topic.leaves(state.topic_id, row.manifest))


def _side_files(stored: Stored) -> list[str]:
    body = stored.entry.body
    tables = [body.get(kind) for kind in ("extents", "chunks", "partitions", "damaged")]
    if "state" in body:
        tables.append(body["state"]["writers"]["snapshot"])
    return [table["file"] for table in tables if isinstance(table, dict)]


def _stale(sides: Sequence[str], named: set[str], newest: int, newest_settle: int) -> list[str]:
    """Return the names that nobody names, and whose number no attempt can reach any more in its journal (pure)."""
    stale = []
    for name in sides:
        sequence = names.parse_side(name)
        bound = newest_settle if name.endswith(SETTLE_TABLES) else newest
        if sequence is not None and sequence <= bound and name not in named:
            stale.append(name)
    return stale


# --- the sweep --------------------------------------------------------------------------------------------


def sweep(topic: TopicLog, topic_id: str) -> int:
    """Raise the floor by a ``sweep`` entry, then delete the chunks below it that no entry names (rule R1).

    Temporary files of killed writers go too, when they are as old.

    Returns:
        The number of chunks deleted.
    """
    now = topic.storage.now_ms()

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        stored, state = topic.newest_at(base, topic_id)
        if state.is_copy:
            return Unchanged(None)
        marks = (*state.marks, Mark(stored.sequence, stored.info.modified_ms))
        floor = plan_floor(marks, now, topic.config(state).number("staged.retention.ms"))
        if floor <= state.staged_floor:
            return Unchanged(None)
        return Draft("sweep", topic_id, {"state": replace(state, staged_floor=floor).to_json()}, result=None)

    topic.journal.append(plan)
    _, state = topic.newest(topic_id)
    paths = topic.paths(topic_id)
    before = now - topic.config(state).number("staged.retention.ms")
    segments = [paths.partition(number) for number in range(state.partitions)]
    for directory in (names.journal(topic.name), paths.settle, paths.staged, paths.side, paths.manifests, *segments):
        topic.storage.remove_abandoned(directory, before)
    return _delete_orphans(topic, paths, state)


def _delete_orphans(topic: TopicLog, paths: TopicPaths, state: TopicState) -> int:
    staged = topic.storage.names(paths.staged)
    below = [n for n in staged if (s := names.parse_chunk(n)) is not None and s < state.staged_floor]
    if not below:
        return 0
    entries = read_retained(topic.journal)
    if entries and entries[-1].sequence - entries[0].sequence >= len(entries):
        return 0  # an entry is lost: what it named is no orphan while it may be restored
    named = {chunk.name for stored in entries for chunk in _chunks(topic, stored)}
    orphans = [name for name in below if name not in named]
    for name in orphans:
        topic.storage.delete(paths.chunk(name))
    return len(orphans)


def former_incarnations(newest: Stored, state: TopicState) -> tuple[tuple[str, int], ...]:
    """Return the topic ids that are over, newest last, with the storage time of the entry that ended each (pure)."""
    ended = ((state.topic_id, newest.info.modified_ms),) if state.deleted else ()
    return (*state.former_ids, *ended)[-FORMER_INCARNATIONS:]


def remove_former(topic: TopicLog, newest: Stored) -> int:
    """Remove the directories of earlier incarnations of the topic, after the delay, on every run (rule R14).

    Returns:
        The number of directories removed.
    """
    state = topic.state_of(newest.entry)
    now, delay = topic.storage.now_ms(), topic.config(state).number("file.delete.delay.ms")
    removed, over_ms = 0, newest.info.modified_ms
    for topic_id, ended_ms in reversed(former_incarnations(newest, state)):
        home = topic.paths(topic_id).home
        over_ms = min(over_ms, ended_ms)  # it ended before all that came later, whatever a clock said then
        if over_ms + delay <= now and topic.storage.names(home):
            topic.storage.delete_tree(home)
            removed += 1
    return removed

"""Garbage collection of unneeded files, and the sweep of uncommitted ones.

A file goes once a settle entry that does not need it is older than the delay (R13), by storage times alone (R10).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import paths as names
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged
from pyspark_commitlog.journal.anchor import Moment
from pyspark_commitlog.topic.budget import Budget
from pyspark_commitlog.topic.collect.collect_entries import STEP, collect_entries, plan_entries
from pyspark_commitlog.topic.collect.collect_settle_entries import SettleCollector, delay_ms, touch
from pyspark_commitlog.topic.collect.sweep_objects import retention_ms
from pyspark_commitlog.topic.read.unsettled import needed_chunks
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.side_files import SETTLE_TABLES, side_files
from pyspark_commitlog.topic.state.topic_state import Mark, TopicState, plan_floor
from pyspark_commitlog.topic.topic_log import TopicLog

#: Maximum of remembered earlier incarnations; bounds an entry's size.
FORMER_INCARNATIONS = 200


@dataclass(frozen=True, slots=True)
class Collected:
    """Numbers of deleted files; `whole` if nothing is left to delete."""

    chunks: int = 0
    entries: int = 0
    settle_entries: int = 0
    files: int = 0
    segments: int = 0
    whole: bool = True


def plan_settled(settles: Sequence[Stored], now_ms: int, delay_ms: int) -> Stored | None:
    """Return the newest settle entry older than the delay; None if none (pure)."""
    old = [stored for stored in settles if stored.info.modified_ms + delay_ms <= now_ms]
    return old[-1] if old else None


def collect(
    topic: TopicLog, topic_id: str, *, thorough: bool = False, budget_seconds: float | None = None, least: int = 1
) -> Collected:
    """Delete settled chunks and entries, and files named by no newer ones.

    Safe beside writers, readers and collectors. If a look is no request, an entry is deleted only as the file that was
    read, in case the root was restored meanwhile.

    Args:
        thorough: also unnamed tables, and chunks of entries kept for a damaged partition. Reads all retained entries;
            else only those it deletes, since a commit may wait.
        budget_seconds: limit of deletions if each is a request.
        least: entries deleted regardless of the budget.
    """
    if not topic.storage.can_append:
        return _collect_unlocked(topic, topic_id, thorough, budget_seconds, least)
    storage, paths = topic.storage, topic.paths(topic_id)
    _, state = topic.newest(topic_id)
    journal, seen = topic.settle_journal(topic_id), Moment.of(storage.clock)
    sequences = journal.sequences()
    retained = list(journal.read_several(sequences).values())
    storage.sync_directory(paths.settle, fresh=True)
    now, delay = storage.now_ms(), topic.config(state).number("file.delete.delay.ms")
    proof = plan_settled(retained, now, delay)
    if proof is None:
        return Collected()
    settled = settle_state(topic, proof)
    if settled is None:
        return Collected()
    below = kept_from(topic, state)
    doomed = plan_entries(topic.journal.sequences(), min(settled.oldest_unsettled, below))
    done = collect_entries(topic, state, doomed, dict([settled.through]))
    chunks = done.chunks + (_collect_ahead(topic, topic_id, settled, below) if thorough and settled.damaged else 0)
    gone, known = plan_entries(sequences, proof.sequence), {stored.sequence: stored for stored in retained}
    _delete_settle_entries(journal, gone, known, seen)
    kept = [stored for stored in retained if stored.sequence not in set(gone)]
    if not journal.stays(kept[-1], seen):  # restored, or overtaken by others
        return Collected(chunks, done.entries, len(gone), done.tables)
    files = _collect_files(topic, topic_id, kept, thorough=thorough)
    return Collected(chunks, done.entries, len(gone), done.tables + files)


def _delete_settle_entries(journal: Journal, gone: Sequence[int], known: Mapping[int, Stored], seen: Moment) -> None:
    for sequence in gone:
        if sequence not in known or journal.stays(known[sequence], seen):
            journal.delete(sequence)


def _collect_unlocked(
    topic: TopicLog, topic_id: str, thorough: bool, budget_seconds: float | None, least: int
) -> Collected:
    """Collect without a lock (rule O6): settled entries, then dropped files.

    Each journal is listed once per handle, or if `thorough`: a listing costs as much as a put.
    """
    stored, state = topic.newest(topic_id)
    config, memory = topic.config(state), topic.collecting(topic_id)
    if thorough:
        touch(topic, topic_id, config)
    run = SettleCollector(topic, topic_id, thorough=thorough)
    settled = run.prove(config)
    if settled is None:
        return Collected()
    topic.storage.sync_directory(topic.paths(topic_id).settle, fresh=True)
    if thorough or not memory.entries_from:
        sequences: Sequence[int] = topic.journal.sequences()
    else:
        sequences = range(memory.entries_from, stored.sequence + 1)
    before_ms = topic.storage.now_ms() - delay_ms(config)
    below = kept_from(topic, state)
    last = min(settled.oldest_unsettled, below)
    doomed = plan_entries(_followed(topic, sequences, last, before_ms), last)
    now = doomed if thorough or not memory.last else doomed[: bisect_right(doomed, memory.last)]
    throughs, budget = run.throughs(), Budget(topic.storage.clock, budget_seconds)
    anchors = memory.anchors | throughs
    done = collect_entries(topic, state, now, anchors, budget.spent, least)
    memory.anchors = {number: known for number, known in anchors.items() if known and number not in throughs}
    memory.entries_from = _lowest(set(sequences).difference(now[: done.entries]))
    memory.last = now[-1] if now else memory.last
    chunks = done.chunks + (_collect_ahead(topic, topic_id, settled, below) if thorough and settled.damaged else 0)
    left = doomed[done.entries] if done.entries < len(doomed) else None
    gone = run.let_go(budget.spent, left, max(1, least // STEP))
    whole = done.whole and gone.whole
    if whole:
        memory.last = 0
    if whole and left is None:
        run.is_done()
    return Collected(chunks, done.entries, gone.entries, done.tables + gone.tables, gone.objects, whole)


def _lowest(numbers: Collection[int]) -> int:
    lowest = min(numbers, default=0)
    return lowest if numbers and max(numbers) - lowest == len(numbers) - 1 else 0


def _followed(topic: TopicLog, sequences: Sequence[int], below: int, before_ms: int) -> Sequence[int]:
    """Filter out doomed entries whose successor is younger than `before_ms`.

    An anchor stays until its successor is old, as a put without its anchor does not count. More than the last doomed
    entry matter after a gap, at which a replica took over another's log.
    """
    gone = plan_entries(sequences, below)
    if not gone:
        return sequences
    journal, last, oldest = topic.journal, gone[-1], None
    with suppress(FileNotFoundError, CorruptionError):  # another collector was here, or it stays until more is settled
        stored = journal.read(last)
        oldest = last if stored.info.modified_ms <= before_ms else None
        if journal.read(stored.entry.following).info.modified_ms <= before_ms:
            return sequences
    if oldest is None:
        oldest = journal.older_than(before_ms)
    return [sequence for sequence in sequences if sequence < oldest or sequence > last]


def read_retained(journal: Journal) -> list[Stored]:
    """Return a journal's retained entries."""
    return list(_read_each(journal, journal.sequences()))


def _read_each(journal: Journal, sequences: Sequence[int]) -> Iterator[Stored]:
    for sequence in sequences:
        with suppress(FileNotFoundError):  # another collector was here
            yield journal.read(sequence)


def settle_state(topic: TopicLog, stored: Stored) -> SettleState | None:
    """Settle entry's state; None if its table is collected."""
    try:
        return topic.settle_state(stored.entry)
    except FileNotFoundError:
        return None


def kept_from(topic: TopicLog, state: TopicState) -> int:
    """Lowest entry that a replica or reader may need."""
    found = topic.journal.kept_from(_retention_ms(topic, state)) if state.is_replicated else None
    return LONG_MAX if found is None else found


def _collect_ahead(topic: TopicLog, topic_id: str, settled: SettleState, below: int) -> int:
    """Delete retained entries' chunks that no damaged partition needs (rule R13).

    Only if the newest settle entry still keeps what was read: else it may be a late put, whose writer may have
    committed the chunks under another number.
    """
    paths, gone = topic.paths(topic_id), 0
    there = set(topic.storage.names(paths.staged))
    unneeded: list[tuple[int, str]] = []
    for sequence in range(settled.oldest_unsettled, min(settled.others_from, below)):
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


def _collect_files(topic: TopicLog, topic_id: str, settles: Sequence[Stored], *, thorough: bool) -> int:
    """Delete settle tables and manifests that no entry names or may name.

    `thorough`: also the topic journal's tables, which usually go with their entries.
    """
    storage, paths = topic.storage, topic.paths(topic_id)
    sides = [name for name in storage.names(paths.side) if thorough or name.endswith(SETTLE_TABLES)]
    if not settles:
        return 0
    states = (settle_state(topic, stored) for stored in settles)
    try:
        manifests = {name for state in states if state for name in _manifest_files(topic, state)}
    except FileNotFoundError:  # another collector removed an entry and its manifest meanwhile
        return 0
    stale = _stale(topic.journal, sides, settles)
    doomed = _stale_manifests(storage.names(paths.manifests), manifests, settles[-1].sequence)
    return _delete(topic, paths.side, stale) + _delete(topic, paths.manifests, doomed)


def _delete(topic: TopicLog, directory: str, files: Sequence[str]) -> int:
    for name in files:
        topic.storage.delete(f"{directory}/{name}")
    return len(files)


def _manifest_files(topic: TopicLog, state: SettleState) -> Iterator[str]:
    for row in state.partitions:
        if row.manifest is not None:
            yield row.manifest.name
            yield from (leaf.name for leaf in topic.leaves(state.topic_id, row.manifest))


def _stale_manifests(there: Sequence[str], named: Collection[str], newest: int) -> list[str]:
    """Unnamed manifests of numbers that no attempt can reach (pure)."""
    numbers = ((name, names.parse_manifest(name)) for name in there)
    return [name for name, parsed in numbers if parsed and parsed[1] <= newest and name not in named]


def _stale(journal: Journal, sides: Sequence[str], settles: Sequence[Stored]) -> list[str]:
    """Unnamed side files of numbers that no attempt can reach.

    Without retained `settles` their files stay.
    """
    newest_settle, newest = settles[-1].sequence if settles else 0, 0
    named = {file for stored in settles for file in side_files(stored.entry)}
    if not all(name.endswith(SETTLE_TABLES) for name in sides):
        for stored in _read_each(journal, journal.sequences()):
            newest = stored.sequence
            named.update(side_files(stored.entry))
    stale = []
    for name in sides:
        sequence = names.parse_side(name)
        bound = newest_settle if name.endswith(SETTLE_TABLES) else newest
        if sequence is not None and sequence <= bound and name not in named:
            stale.append(name)
    return stale


# --- the sweep --------------------------------------------------------------------------------------------


def sweep(topic: TopicLog, topic_id: str) -> int:
    """Raise the staged floor, then delete unnamed chunks below it (rule R1); return their number.

    Also deletes temporary files of that age.
    """
    now = topic.storage.now_ms()

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        stored, state = topic.newest_at(base, topic_id)
        if state.is_copy:
            return Unchanged(None)
        marks = (*state.marks, Mark(*topic.journal.dated(stored)))
        floor = plan_floor(marks, now, _retention_ms(topic, state))
        if floor <= state.staged_floor:
            return Unchanged(None)
        return Draft("sweep", topic_id, {"state": replace(state, staged_floor=floor).to_json()}, result=None)

    _, found = topic.newest(topic_id)
    topic.journal.append(plan)
    _, state = topic.newest(topic_id)
    paths = topic.paths(topic_id)
    before = now - _retention_ms(topic, state)
    segments = [paths.partition(number) for number in range(state.partitions)]
    shared = (names.journal(topic.name), paths.settle, paths.staged, paths.side, paths.manifests, paths.objects)
    for directory in (*shared, *segments):
        topic.storage.remove_abandoned(directory, before)
    if not topic.storage.can_append and state.staged_floor == found.staged_floor:
        return 0  # all below is gone; a listing costs as much as a put
    return _delete_orphans(topic, paths, state)


def linked_from(entries: Sequence[Stored]) -> int:
    """Lowest entry linked by `prev` from the last (pure).

    Entries below follow a lost one or were put late.
    """
    lowest = entries[-1]
    for stored in reversed(entries[:-1]):
        if stored.sequence != lowest.sequence - 1 or stored.entry.write_id != lowest.entry.prev:
            break
        lowest = stored
    return lowest.sequence


def sweep_tables(topic: TopicLog, topic_id: str) -> int:
    """Delete tables of entries that were never put; return their number."""
    side = topic.paths(topic_id).side
    sides = [name for name in topic.storage.names(side) if not name.endswith(SETTLE_TABLES)]
    return _delete(topic, side, _stale(topic.journal, sides, ()))


def _retention_ms(topic: TopicLog, state: TopicState) -> int:
    config = topic.config(state)
    return config.number("staged.retention.ms") if topic.storage.can_append else retention_ms(config)


def _delete_orphans(topic: TopicLog, paths: TopicPaths, state: TopicState) -> int:
    staged = topic.storage.names(paths.staged)
    below = [n for n in staged if (s := names.parse_chunk(n)) is not None and s < state.staged_floor]
    if not below:
        return 0
    entries = read_retained(topic.journal)
    _, settled = topic.settled(state.topic_id)
    needed = max(settled.oldest_unsettled, state.created + 1)
    named = None if linked_from(entries) > needed else _named_chunks(topic, entries, needed)
    if named is None:
        return 0  # its chunks are no orphans while the entry or table may be restored
    orphans = [name for name in below if name not in named]
    for name in orphans:
        topic.storage.delete(paths.chunk(name))
    return len(orphans)


def _named_chunks(topic: TopicLog, entries: Sequence[Stored], needed: int) -> set[str] | None:
    named = set[str]()
    for stored in entries:
        try:
            named.update(chunk.name for chunk in topic.chunks(stored.entry))
        except FileNotFoundError:
            if stored.sequence >= needed:  # if it was settled and collected meanwhile, the next sweep goes on
                return None
    return named


def former_incarnations(newest: Stored, state: TopicState) -> tuple[tuple[str, int], ...]:
    """Return ended topic ids and storage times, newest last (pure)."""
    ended = ((state.topic_id, newest.info.modified_ms),) if state.deleted else ()
    return (*state.former_ids, *ended)[-FORMER_INCARNATIONS:]


def remove_former(topic: TopicLog, newest: Stored) -> int:
    """Remove directories of earlier incarnations after the delay (rule R14); return their number."""
    newest = topic.journal.timed(newest)
    state = topic.state_of(newest.entry)
    now, delay = topic.storage.now_ms(), topic.config(state).number("file.delete.delay.ms")
    removed, over_ms = 0, newest.info.modified_ms
    ended = former_incarnations(newest, state)
    there = set(topic.storage.names(names.topic(topic.name))) if ended else set()
    for topic_id, ended_ms in reversed(ended):
        over_ms = min(over_ms, ended_ms)  # it ended before later ones, whatever the clock was
        if over_ms + delay <= now and topic_id in there:
            topic.storage.delete_tree(topic.paths(topic_id).home)
            removed += 1
    return removed

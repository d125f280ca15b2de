"""Mend: fetch from other roots what is damaged or missing at one: entries of a unit, and the files that they need.

An entry is the same at every root, and is replaced whole, so readers see the damaged one or the right one. It is taken
only where the entries beside it link to it. Chunks and tables are named with length and CRC-32C.

The interleavings that it has to survive: an entry or chunk is collected meanwhile (it is not needed any more); two mend
at once (both put the same bytes); it is killed at any point (what is mended stays); the other root has another history,
or damage of its own (it is not taken from there). A sector that can't be read (EIO) is damage as any other: if all of
the root is gone, nothing can be put there either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replicas.learning import NowhereError, Replica, bring, is_whole
from pyspark_commitlog.replicas.learning import replace as replace_file
from pyspark_commitlog.replicas.places import Places
from pyspark_commitlog.replicas.unit import Needed
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio


@dataclass(frozen=True, slots=True)
class MendedFiles:
    """Files below the root that were fetched from others, and what is damaged still, and why.

    ``lost`` are the numbers of entries whose chunks no root has as files.
    """

    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()

    def __add__(self, other: MendedFiles) -> MendedFiles:
        return MendedFiles((*self.files, *other.files), (*self.left, *other.left), (*self.lost, *other.lost))


def mend_journal(places: Places) -> MendedFiles:
    """Fetch the entries of a unit that are damaged, or missing between others, at the root that is asked.

    Raises:
        CommitLogError, OSError: this root does not answer, or can't be written to.
    """
    own, others = places.at(places.roots.own_id()), other_places(places)[0]
    files, left = list[str](), list[str]()
    for sequence in _numbers(own):
        fault = _fault(own, sequence)
        if fault is None:
            continue
        fetched = _fetch(places, own, others, sequence)
        (files if fetched else left).append(fetched or fault)
    below = _below(own)
    for sequence in reversed(below):  # each is linked by the one after it
        fetched = _fetch(places, own, others, sequence)
        if fetched is None:
            left.append(f"entries {below.start} to {sequence} are missing, and not settled, and no other root has them")
            break
        files.append(fetched)
    if files:
        own.journal.forget()
    return MendedFiles(tuple(files), tuple(left))


def _fetch(places: Places, own: Replica, others: Sequence[Replica], sequence: int) -> str | None:
    """Fetch an entry, and before it what it needs: with it the root counts as one that has both.

    Returns:
        Its path; None where no other root has all of it.
    """
    found = next(_found(own, others, sequence), None)
    if found is None:
        return None
    entry, data = found
    files, donors = places.unit.files, [other.storage for other in others]
    try:
        for needed in files.tables(entry):
            bring(needed, own.storage, donors)
        if sequence > files.settled(own.storage, entry.topic_id):
            for needed in files.chunks(entry, _decided(places, entry), own.journal.side):
                bring(needed, own.storage, donors)
    except (NowhereError, CorruptionError):
        return None
    path = f"{places.unit.directory}/{paths.entry_name(sequence)}"
    own.storage.write_once(path, data)
    return path


def _decided(places: Places, entry: Entry) -> Entry:
    """Return the newest decided entry, which says what is void; the entry itself where nobody answers that decides."""
    try:
        return places.newest().entry
    except (CommitLogError, OSError):
        return entry


def _below(own: Replica) -> range:
    """Return the numbers below its first entry that a root needs: a process deleted them while it was restored."""
    own.journal.forget()
    try:
        newest, sequences = own.journal.newest(), own.journal.sequences()
        if newest is None or not sequences or not own.data or own.unit.whole:
            return range(0)
        if not _read(own, sequences[0]).entry.prev:  # the first of all, which a copied topic has at any number
            return range(0)
    except CorruptionError:  # it is named already
        return range(0)
    files, entry = own.unit.files, newest.entry
    return range(max(files.settled(own.storage, entry.topic_id) + 1, files.begins(entry)), sequences[0])


def mend_named(places: Places, settled: int) -> MendedFiles:
    """Fetch the tables and chunks that entries name and that are damaged, or missing, at the root that is asked.

    Args:
        places: where the unit is; its entries here are whole, or count as lost.
        settled: the number of the entry up to which this root has settled all: it needs no chunks up to there.

    Raises:
        CommitLogError, OSError: this root does not answer, or can't be written to.
    """
    own, (others, _) = places.at(places.roots.own_id()), other_places(places)
    donors = [other.storage for other in others]
    done = MendedFiles()
    newest = own.journal.newest()
    for stored in _readable(own):
        done += _mend(places.unit.files.tables(stored.entry), own.storage, donors)
        if newest is not None and stored.sequence > settled:
            with suppress(FileNotFoundError):  # collected meanwhile
                chunks = places.unit.files.chunks(stored.entry, newest.entry, own.journal.side)
                mended = _mend(chunks, own.storage, donors)
                done += replace(mended, lost=(stored.sequence,) if mended.left else ())
    return done


def other_places(places: Places) -> tuple[list[Replica], list[str]]:
    """Return the unit at the other roots that answer, those that decide first; and why others do not."""
    places.roots.compare()  # a root that was set back lists those of before
    listed = places.roots.listed()
    found, away = [], []
    for root in dict.fromkeys((*(each.id for each in listed.metadata), *(each.id for each in listed.data))):
        if root == places.roots.own_id():
            continue
        try:
            other = places.at(root)
            other.check()
            found.append(other)
        except (CommitLogError, OSError) as error:
            away.append(str(error))
    return found, away


def _numbers(own: Replica) -> Iterator[int]:
    """Yield the numbers from the first entry that is there to the last; each after the one before it was mended."""
    sequences = own.journal.sequences()
    if not sequences:
        return
    number, last, known = sequences[0], sequences[-1], set(sequences)
    while number <= last:
        yield number
        try:
            number = _read(own, number).entry.following
        except (FileNotFoundError, CorruptionError):
            number = min(each for each in (*known, last + 1) if each > number)


def _fault(own: Replica, sequence: int) -> str | None:
    """Return what is wrong with an entry; None where it is whole, or collected."""
    try:
        own.journal.bytes_of(_read(own, sequence).entry)
    except FileNotFoundError as error:
        left = own.journal.sequences()
        return f"{error.filename or error} is missing" if left and left[0] < sequence else None
    except CorruptionError as error:
        return str(error)
    return None


def _read(own: Replica, sequence: int) -> Stored:
    try:
        return own.journal.read(sequence)
    except OSError as error:
        if not is_eio(error):
            raise
        raise CorruptionError(f"entry {sequence} of {own.storage.url} can't be read: {error}") from error


def _found(own: Replica, others: Sequence[Replica], sequence: int) -> Iterator[tuple[Entry, bytes]]:
    """Yield an entry, and its bytes, at other roots that the entries beside it link to."""
    for other in others:
        with suppress(CommitLogError, OSError):
            entry = other.journal.read(sequence).entry
            if _is_linked(own, entry):
                yield entry, other.journal.bytes_of(entry)


def _is_linked(own: Replica, entry: Entry) -> bool:
    """Return whether an entry stands between those that this root has: one of them proves it, none contradicts it."""
    links = []
    for sequence in (entry.sequence - 1, entry.following):
        with suppress(FileNotFoundError, CorruptionError):
            beside = _read(own, sequence).entry
            if beside.following == entry.sequence:
                links.append(entry.prev == beside.write_id)
            elif sequence == entry.following:
                links.append(beside.prev == entry.write_id)
    return bool(links) and all(links)


def _readable(own: Replica) -> Iterator[Stored]:
    for sequence in own.journal.sequences():
        with suppress(FileNotFoundError, CorruptionError):
            yield _read(own, sequence)


def _is_whole(needed: Needed, own: Storage) -> bool:
    try:
        return is_whole(needed, own)
    except ReplicaNotAvailableError as error:
        if not is_eio(error):
            raise
        return False


def _mend(files: Sequence[Needed], own: Storage, donors: Sequence[Storage]) -> MendedFiles:
    mended, left = [], []
    for needed in files:
        if _is_whole(needed, own):
            continue
        try:
            replace_file(needed, own, donors)
            mended.append(needed.path)
        except NowhereError as error:
            left.append(str(error))
    return MendedFiles(tuple(mended), tuple(left))

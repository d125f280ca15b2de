"""Mend: fetch a root's damaged or missing entries, chunks and tables.

Entries count if their neighbours link to them, files by length and CRC-32C. It survives collection meanwhile, two mends
at once (same bytes), a kill, and damage or another history elsewhere (not taken). A bad sector (EIO) is damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replication.follower.fetching import (
    EntryRange,
    Fetching,
    by_threads,
    damaged,
    donors_of,
    read_undamaged,
)
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.learning import NowhereError, Replica, is_whole, replace as replace_file
from pyspark_commitlog.replication.protocol.unit import NeededFile
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio


@dataclass(frozen=True, slots=True)
class MendedFiles:
    """Outcome of a mend.

    `files` were fetched, `left` is remaining damage and why; no root has the chunks of the entries `lost` as files.
    """

    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()

    def __add__(self, other: MendedFiles) -> MendedFiles:
        return self.all((self, other))

    @classmethod
    def all(cls, parts: Sequence[MendedFiles]) -> MendedFiles:
        """Sum of several mends, in order."""
        return cls(
            tuple(file for each in parts for file in each.files),
            tuple(fault for each in parts for fault in each.left),
            tuple(number for each in parts for number in each.lost),
        )


def mend_journal(places: Places) -> MendedFiles:
    """Fetch the opened root's damaged or missing entries."""
    own, others = places.at(places.roots.own_id()), other_places(places)[0]
    sequences = own.journal.sequences()
    looked = dict(zip(sequences, by_threads(partial(_looked, own), sequences, own, others), strict=True))
    there = {number for number, found in looked.items() if isinstance(found, int)}
    runs = damaged(looked, next(iter(own.journal.sequences()), None))
    fetching = Fetching(places, own, others, there)
    fetching.fetch(runs)
    left = [
        run.fault or f"{own.storage.url}/{fetching.path(run.start)} is missing"
        for run in _unfetched_ranges(own, fetching, runs)
    ]
    below = _below(own)
    if below is not None:
        there.add(below.stop)
        fetching.fetch([below], descending=True)
        lacks = next((number for number in reversed(range(*below[:2])) if number not in fetching.fetched), None)
        if lacks is not None and _below(own) is not None:  # else it was settled meanwhile
            left.append(f"entries {below.start} to {lacks} are missing, and not settled, and no other root has them")
    if fetching.fetched:
        own.journal.forget()
    return MendedFiles(tuple(map(fetching.path, fetching.fetched)), tuple(left))


def _unfetched_ranges(own: Replica, fetching: Fetching, runs: Sequence[EntryRange]) -> list[EntryRange]:
    unfetched = [run for run in runs if not fetching.has(run)]
    first = next(iter(own.journal.sequences()), None) if unfetched else None
    return [run for run in unfetched if first is not None and first <= run.start]


def _looked(own: Replica, sequence: int) -> int | str | None:
    try:
        return read_undamaged(own, sequence).following
    except FileNotFoundError:
        return None
    except CorruptionError as error:
        return str(error)


def _below(own: Replica) -> EntryRange | None:
    own.journal.forget()
    try:
        newest, sequences = own.journal.newest(), own.journal.sequences()
        if newest is None or not sequences or not own.data or own.unit.whole:
            return None
        if not read_undamaged(own, sequences[0]).prev:  # the first of all, which a copied topic has at any number
            return None
    except (CorruptionError, FileNotFoundError):  # reported already, or collected: then all below is settled
        return None
    files, entry = own.unit.files, newest.entry
    # a process deleted them during a restore
    start = max(files.settled(own.storage, entry.topic_id) + 1, files.begins(entry))
    return EntryRange(start, sequences[0]) if start < sequences[0] else None


def mend_named(places: Places, settled: int) -> MendedFiles:
    """Fetch the opened root's damaged or missing tables and chunks.

    Entries up to `settled` need no chunks; damaged ones count as lost.
    """
    own, (others, _) = places.at(places.roots.own_id()), other_places(places)
    files, donors = places.unit.files, donors_of(others)
    newest = own.journal.newest()

    def mend(sequence: int) -> MendedFiles:
        try:
            entry = read_undamaged(own, sequence)
        except (FileNotFoundError, CorruptionError):
            return MendedFiles()
        done = _mend(files.tables(entry), own.storage, donors)
        if newest is not None and sequence > settled:
            with suppress(FileNotFoundError):  # collected meanwhile
                mended = _mend(files.chunks(entry, newest.entry, own.journal.side), own.storage, donors)
                done += replace(mended, lost=(sequence,) if mended.left else ())
        if done.left and not own.storage.exists(
            f"{places.unit.directory}/{paths.entry_name(sequence)}"
        ):  # collected meanwhile, with its files
            return MendedFiles(done.files)
        return done

    return MendedFiles.all(by_threads(mend, own.journal.sequences(), own, others))


def other_places(places: Places) -> tuple[list[Replica], list[str]]:
    """Return the unit at other roots, deciding ones first; and errors."""
    places.roots.compare()  # a root that was set back has an old list
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


def _is_whole(needed: NeededFile, own: Storage) -> bool:
    try:
        return is_whole(needed, own)
    except ReplicaNotAvailableError as error:
        if not is_eio(error):
            raise
        return False


def _mend(files: Sequence[NeededFile], own: Storage, donors: Sequence[Storage]) -> MendedFiles:
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

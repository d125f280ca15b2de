"""Fetch a unit's damaged or missing entries from other roots.

They are put in order, each after all that it needs: an entry proves its files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.learning import NowhereError, Replica, bring
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio
from pyspark_commitlog.storage.process import results_of

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Threads of a repair if a root bills requests: fewer than the parallel calls that a root takes.
THREADS = 6
#: Entries read ahead at other roots before they are put.
_HELD = 32


class EntryRange(NamedTuple):
    """Entries that a root lacks, below `stop`; `fault` of the first."""

    start: int
    stop: int
    fault: str | None = None


class _EntryCopy(NamedTuple):
    """Another root's entry, linked `by` a fetched one."""

    entry: Entry
    data: bytes
    by: int | None = None


def damaged(looked: Mapping[int, int | str | None], first: int | None) -> list[EntryRange]:
    """Entries that are damaged, or missing in between (pure).

    `looked`: for each number the one after it, its damage, or None if it was gone. Entries below `first`, the first
    number listed afterwards, were collected.
    """
    numbers, runs = sorted(looked), list[EntryRange]()
    following = numbers[0] if numbers else 0
    for at, number in enumerate(numbers):
        if following < number:
            runs.append(EntryRange(following, number))
        found = looked[number]
        if isinstance(found, int):
            following = found
        else:  # nobody knows what follows it
            following = numbers[at + 1] if at + 1 < len(numbers) else number + 1
            runs.append(EntryRange(number, following, found))
    return [run for run in runs if run.fault is not None or (first is not None and first < run.start)]


def is_linked(entry: Entry, before: Entry | None, after: Entry | None) -> bool:
    """Whether neighbours link an entry (pure)."""
    links = []
    if before is not None and before.following == entry.sequence:
        links.append(entry.prev == before.write_id)
    if after is not None:
        links.append(after.prev == entry.write_id)
    return bool(links) and all(links)


def read_undamaged(own: Replica, sequence: int) -> Entry:
    """Read an entry whole; a bad sector is damage."""
    try:
        return own.journal.read_whole(sequence)[0]
    except OSError as error:
        if not is_eio(error):
            raise
        raise CorruptionError(f"entry {sequence} of {own.storage.url} can't be read: {error}") from error


def by_threads(
    act: Callable[[_Item], _Result], items: Sequence[_Item], own: Replica, others: Sequence[Replica]
) -> list[_Result]:
    """Return results in order, threaded if roots bill requests."""
    bills = any(root.storage.bills_requests for root in (own, *others))
    return results_of(act, items, THREADS if bills else 1)


def donors_of(others: Sequence[Replica]) -> list[Storage]:
    """Donors, roots with records first."""
    return [other.storage for other in sorted(others, key=lambda other: not other.data)]


class Fetching:
    """Fetches entries for a root.

    `others` have the likeliest root first; `there` are the numbers of its whole entries.
    """

    def __init__(self, places: Places, own: Replica, others: Sequence[Replica], there: Collection[int]) -> None:
        self._places, self._own, self._others = places, own, others
        self._there = there
        #: Fetched entries: number -> the number that follows.
        self.fetched: dict[int, int] = {}

    def has(self, run: EntryRange) -> bool:
        """Whether all of a run was fetched."""
        number = run.start
        while number < run.stop and number in self.fetched:
            number = self.fetched[number]
        return number >= run.stop

    def path(self, sequence: int) -> str:
        """Path of an entry."""
        return f"{self._places.unit.directory}/{paths.entry_name(sequence)}"

    def fetch(self, runs: Sequence[EntryRange], *, descending: bool = False) -> None:
        """Fetch the entries of runs that link to stored ones.

        `descending`: from the last down, each linked by its successor.
        """
        listed = self._listed() if runs else []
        wanted = [
            number for run in runs for number in listed[bisect_left(listed, run.start) : bisect_left(listed, run.stop)]
        ]
        wanted = wanted[::-1] if descending else wanted
        for at in range(0, len(wanted), _HELD):
            self._fetch(wanted[at : at + _HELD])

    def _listed(self) -> list[int]:
        numbers = set[int]()
        for other in self._others:
            with suppress(CommitLogError, OSError):
                numbers.update(other.journal.sequences())
        return sorted(numbers)

    def _fetch(self, numbers: Sequence[int]) -> None:
        linked = self._linked(by_threads(self._first_copy, numbers, self._own, self._others))
        files, newest = self._places.unit.files, self._newest()
        settled = {topic: files.settled(self._own.storage, topic) for topic in {each.entry.topic_id for each in linked}}

        def bring_needed(copy: _EntryCopy) -> bool:
            return self._bring(copy.entry, newest or copy.entry, settled[copy.entry.topic_id])

        lacking = set[int]()
        for copy, complete in zip(linked, by_threads(bring_needed, linked, self._own, self._others), strict=True):
            number = copy.entry.sequence
            if complete and copy.by not in lacking:
                self._own.storage.write_once(self.path(number), copy.data)
                self.fetched[number] = copy.entry.following
            else:
                lacking.add(number)

    def _first_copy(self, sequence: int) -> tuple[_EntryCopy | None, Iterator[_EntryCopy]]:
        copies = self._copies(sequence)
        return next(copies, None), copies

    def _copies(self, sequence: int) -> Iterator[_EntryCopy]:
        for other in self._others:
            with suppress(CommitLogError, OSError):
                yield _EntryCopy(*other.journal.read_whole(sequence))

    def _linked(self, copies: Sequence[tuple[_EntryCopy | None, Iterator[_EntryCopy]]]) -> list[_EntryCopy]:
        linked = list[_EntryCopy]()
        for copy, more in copies:
            while copy is not None:
                last = linked[-1].entry if linked else None
                before, by_last = self._neighbour(copy.entry.sequence - 1, last)
                after, after_last = self._neighbour(copy.entry.following, last)
                if is_linked(copy.entry, before, after):
                    by = last.sequence if last is not None and (by_last or after_last) else None
                    linked.append(copy._replace(by=by))
                    break
                copy = next(more, None)
        return linked

    def _neighbour(self, sequence: int, last: Entry | None) -> tuple[Entry | None, bool]:
        if last is not None and last.sequence == sequence:
            return last, True
        if sequence in self._there or sequence in self.fetched:
            with suppress(FileNotFoundError, CorruptionError):
                return read_undamaged(self._own, sequence), False
        return None, False

    def _newest(self) -> Entry | None:
        try:
            return self._places.newest().entry
        except (CommitLogError, OSError):
            return None

    def _bring(self, entry: Entry, newest: Entry, settled: int) -> bool:
        files, donors = self._places.unit.files, donors_of(self._others)
        try:
            for needed in files.tables(entry):
                bring(needed, self._own.storage, donors)
            if entry.sequence > settled:
                for needed in files.chunks(entry, newest, self._own.journal.side):
                    bring(needed, self._own.storage, donors)
        except (NowhereError, CorruptionError):
            return False
        return True

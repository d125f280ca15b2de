"""Fetch entries of a unit from other roots, many at a time: those that are damaged at one, or missing.

They are read, and what they need is brought, by several threads where that takes requests. They are put by one, in
order, and each after all that it needs: with an entry the root counts as one that has both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.replicas.learning import NowhereError, Replica, bring
from pyspark_commitlog.replicas.replica_journals import Places
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio
from pyspark_commitlog.storage.process import results_of

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Threads of a repair, where a root bills requests: fewer than the calls that another root takes at a time.
THREADS = 6
#: Entries that are read at other roots, and held, before they are put.
_HELD = 32


class EntryRange(NamedTuple):
    """Range of entries that a root lacks, below ``stop``.

    ``fault`` is that of the first one, if that is there.
    """

    start: int
    stop: int
    fault: str | None = None


class _EntryCopy(NamedTuple):
    """Entry at another root, and its file.

    ``by`` is the number of the fetched entry that links it, if any.
    """

    entry: Entry
    data: bytes
    by: int | None = None


def damaged(looked: Mapping[int, int | str | None], first: int | None) -> list[EntryRange]:
    """Return which entries are damaged, or missing between others (pure).

    Args:
        looked: by the number of each entry that was listed: the number that follows it, what is wrong with it, or None
            where it was gone when it was read.
        first: the first number that is listed after that: what is gone before it was collected.
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
    """Return whether an entry stands between those that a root has: one proves it, none contradicts it (pure)."""
    links = []
    if before is not None and before.following == entry.sequence:
        links.append(entry.prev == before.write_id)
    if after is not None:
        links.append(after.prev == entry.write_id)
    return bool(links) and all(links)


def read_undamaged(own: Replica, sequence: int) -> Entry:
    """Return an entry, checked as by ``JournalReader.read_whole``.

    A sector that can't be read is damage.
    """
    try:
        return own.journal.read_whole(sequence)[0]
    except OSError as error:
        if not is_eio(error):
            raise
        raise CorruptionError(f"entry {sequence} of {own.storage.url} can't be read: {error}") from error


def by_threads(
    act: Callable[[_Item], _Result], items: Sequence[_Item], own: Replica, others: Sequence[Replica]
) -> list[_Result]:
    """Return the results of ``act`` for each item, in their order.

    Several threads run it if roots bill requests.
    """
    bills = any(root.storage.bills_requests for root in (own, *others))
    return results_of(act, items, THREADS if bills else 1)


def donors_of(others: Sequence[Replica]) -> list[Storage]:
    """Return whom to ask for files: those that hold the records first."""
    return [other.storage for other in sorted(others, key=lambda other: not other.data)]


class Fetching:
    """Fetches entries for a root.

    Args:
        places: where the unit is.
        own: the root.
        others: those that may have them, the likeliest first.
        there: the numbers of entries that are whole at the root.
    """

    def __init__(self, places: Places, own: Replica, others: Sequence[Replica], there: Collection[int]) -> None:
        self._places, self._own, self._others = places, own, others
        self._there = there
        #: By the number of each entry that was fetched: the number that follows it.
        self.fetched: dict[int, int] = {}

    def has(self, run: EntryRange) -> bool:
        """Return whether all entries of a run were fetched."""
        number = run.start
        while number < run.stop and number in self.fetched:
            number = self.fetched[number]
        return number >= run.stop

    def path(self, sequence: int) -> str:
        """Return the path of an entry, below the root."""
        return f"{self._places.unit.directory}/{paths.entry_name(sequence)}"

    def fetch(self, runs: Sequence[EntryRange], *, descending: bool = False) -> None:
        """Fetch what others have of some runs, as far as it is linked to what is there.

        Args:
            runs: in their order.
            descending: from the last number to the first: each is linked by the one after it.

        Raises:
            CommitLogError, OSError: this root can't be written to.
        """
        listed = self._listed() if runs else []
        wanted = [
            number for run in runs for number in listed[bisect_left(listed, run.start) : bisect_left(listed, run.stop)]
        ]
        wanted = wanted[::-1] if descending else wanted
        for at in range(0, len(wanted), _HELD):
            self._fetch(wanted[at : at + _HELD])

    def _listed(self) -> list[int]:
        """Return the numbers of all entries at the others that answer."""
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
        """Return an entry as the first root has it that has it whole; and as those after it have it."""
        copies = self._copies(sequence)
        return next(copies, None), copies

    def _copies(self, sequence: int) -> Iterator[_EntryCopy]:
        for other in self._others:
            with suppress(CommitLogError, OSError):
                yield _EntryCopy(*other.journal.read_whole(sequence))

    def _linked(self, copies: Sequence[tuple[_EntryCopy | None, Iterator[_EntryCopy]]]) -> list[_EntryCopy]:
        """Return those entries that are linked to what is there, or to the one before them in the list."""
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
        """Return the entry at a number, and whether it is ``last``.

        None if the root lacks it.
        """
        if last is not None and last.sequence == sequence:
            return last, True
        if sequence in self._there or sequence in self.fetched:
            with suppress(FileNotFoundError, CorruptionError):
                return read_undamaged(self._own, sequence), False
        return None, False

    def _newest(self) -> Entry | None:
        """Return the newest decided entry, which says what is void; None where nobody answers that decides."""
        try:
            return self._places.newest().entry
        except (CommitLogError, OSError):
            return None

    def _bring(self, entry: Entry, newest: Entry, settled: int) -> bool:
        """Bring what an entry needs that is to be put here; return whether all of it is here then."""
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

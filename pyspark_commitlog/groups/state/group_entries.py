"""Old entries of a group, and the files beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.format import paths
from pyspark_commitlog.journal.anchor import KEPT_ENTRIES
from pyspark_commitlog.journal.appending import Journal
from pyspark_commitlog.storage import Storage


class GroupEntries:
    """Entries and side files of a group at one root, to be collected."""

    def __init__(self, storage: Storage, journal: Journal, name: str) -> None:
        self._storage, self._journal, self._name = storage, journal, name
        self._directory, self._sides = paths.group_journal(name), paths.group_side(name)

    def collect(self, delay_ms: int, in_sync: Callable[[], int | None]) -> int:
        """Delete old entries, ascending, and what belonged to them; return how many.

        Args:
            delay_ms: the successor's age exceeds it.
            in_sync: returns the last entry that all in-sync replicas have learned; None without others.
        """
        sequences, now = self._journal.sequences(), self._storage.now_ms()
        needed = self._oldest_needed(sequences, now, delay_ms)
        gone = [sequence for sequence in sequences[:-KEPT_ENTRIES] if sequence < needed]
        if gone and (learned := in_sync()) is not None:
            gone = [sequence for sequence in gone if sequence <= learned]
        for sequence in gone:
            self._journal.delete(sequence)
        self.collect_sides()
        for directory in (self._directory, paths.group_members(self._name)):
            self._storage.remove_abandoned(directory, now - DAY_MS)
        return len(gone)

    def _oldest_needed(self, sequences: Sequence[int], now_ms: int, delay_ms: int) -> int:
        if not self._storage.can_append:
            return self._journal.older_than(now_ms - delay_ms)
        return oldest_needed(((sequence, self._stored_ms(sequence)) for sequence in sequences[1:]), now_ms, delay_ms)

    def _stored_ms(self, sequence: int) -> int | None:
        try:
            return self._storage.info(f"{self._directory}/{paths.entry_name(sequence)}").modified_ms
        except FileNotFoundError:
            return None

    def collect_sides(self) -> None:
        """Delete side files older than the oldest entry's."""
        made = {name: paths.parse_side(name) for name in self._storage.names(self._sides)}
        sequences = self._journal.sequences() if made else []
        if not sequences:  # none was put yet: files may be of one that is about to be
            return
        try:
            oldest = self._journal.read(sequences[0])
        except FileNotFoundError:  # collected concurrently
            return
        named = paths.parse_side(oldest.entry.body["state"].get("members", {}).get("file", ""))
        for name, sequence in made.items():
            if sequence is not None and sequence < (named or oldest.sequence):
                self._storage.delete(f"{self._sides}/{name}")


def oldest_needed(entries: Iterable[tuple[int, int | None]], now_ms: int, delay_ms: int) -> int:
    """Newest entry older than the delay; 0 if none: those before it may go (pure).

    Entries from the future, of a clock that was ahead, are ignored. `entries` ascend, with storage times in ms (None
    if gone), and are consumed lazily.
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

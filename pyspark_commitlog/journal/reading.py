"""Read side of a journal: find the newest entry, and keep its anchor.

The newest is reached from an anchor or by listing twice: ARCHITECTURE.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal.anchor import Moment, OwnPut, Reference
from pyspark_commitlog.journal.entries import Stored
from pyspark_commitlog.journal.entry_reader import Check, EntryReader, Sides
from pyspark_commitlog.storage import Clock, FileInfo, Storage

_TURN_SECONDS = 10.0
#: Rounds of listing without a turn.
_ROUNDS = 2


class ReaderState(NamedTuple):
    """State of a journal's reader, for another handle of the process.

    `synced`, `assured`: write ids of the entries last made durable; `complete`: no entry is missing.
    """

    anchor: Stored
    newest_at: Moment | None
    own: OwnPut | None
    synced: str
    assured: str
    complete: bool


class _Listed(NamedTuple):
    """Ascending numbers of a listing; and its start, if looks are requests."""

    sequences: list[int]
    began: Moment | None

    def is_fresh(self, clock: Clock) -> bool:
        """Whether the newest can't have been collected yet."""
        return self.began is not None and self.began.is_fresh(Moment.of(clock))


class JournalReader(EntryReader):
    """Read side of a journal: its newest entry, reached from an anchor or a listing."""

    def __init__(self, storage: Storage, directory: str, kind: str, sides: Sides, check: Check) -> None:
        super().__init__(storage, directory, kind, sides, check)
        self._anchor: Stored | None = None
        self._others: tuple[int, str] | None = None
        self._newest_at: Moment | None = None  # when the anchor certainly was the newest, if looks are requests
        self._own: OwnPut | None = None  # the anchor's put, if only its reply is known
        self._reference: Reference | None = None
        self._crowded = False  # others have put entries since our last two consecutive ones
        self._dated: tuple[int, int] | None = None  # number and time of the last entry of known time
        self._dated_at: Moment | None = None
        self._synced = self._assured = ""
        self._in_turn = False

    # --- reading -----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Newest entry; None if the journal is empty."""
        return self._storage.run_as_one_call(self._newest)

    def _newest(self) -> Stored | None:
        if self._anchor is None and self._others is not None:
            self._anchor, self._others = self._remembered(*self._others), None
        while self._anchor is not None:
            newest = self._probe(self._anchor)
            if newest is not None:
                return newest
            self.forget()  # the anchor is gone: entries reached from it prove nothing
        self.listings += 1
        return self._list_newest()

    def recent(self, seconds: float) -> Stored | None:
        """Newest entry, up to `seconds` old if looks are requests."""
        return self._anchor if self._was_newest(seconds) else self.newest()

    def _was_newest(self, seconds: float) -> bool:
        seen = self._newest_at
        return seen is not None and seen.seconds_until(Moment.of(self._storage.clock)) < seconds

    def stands_before(self, entry: Entry) -> Stored | None:
        """Newest entry if known and `entry` or its predecessor.

        Else None. Reads nothing.
        """
        anchor = self._anchor
        if anchor is None or anchor.entry.write_id not in (entry.write_id, entry.prev):
            return None
        return None if self.is_followed(anchor) else self._look(anchor)

    def resume(self, sequence: int, identity: str) -> None:
        """Adopt another process's anchor, if it is still the same file."""
        self._others = sequence, identity

    def reader_state(self) -> ReaderState | None:
        """State for another handle; None without an anchor."""
        if self._anchor is None:
            return None
        complete = self._complete == self.listings
        return ReaderState(self._anchor, self._newest_at, self._own, self._synced, self._assured, complete)

    def go_on_from(self, state: ReaderState) -> None:
        """Adopt another handle's state if this handle has no anchor."""
        if self._anchor is None:
            self._anchor, self._newest_at, self._own, self._synced, self._assured, complete = state
            self._complete = self.listings if complete else -1

    def _remembered(self, sequence: int, identity: str) -> Stored | None:
        try:
            stored = self.read(sequence)
        except (FileNotFoundError, CorruptionError):
            return None
        return stored if stored.info.identity == identity else None

    def _probe(self, anchor: Stored) -> Stored | None:
        latest, began = anchor, self._moment()
        with suppress(FileNotFoundError):  # nothing new, or collected together with the anchor
            latest = self._read_ahead(anchor.entry.following)
            while latest.entry.next is not None:
                latest = self._read_ahead(latest.entry.following)
        if not self._is_fresh(anchor):  # also when idle: the next number may be collected rather than not put yet
            there = self._look(anchor)
            if there is None:
                return None
            latest = there if latest is anchor else latest
        self._crowded = self._crowded or latest.entry is not anchor.entry
        return self._remember(latest, began, self._own if latest.entry is anchor.entry else None)

    def _read_ahead(self, sequence: int) -> Stored:
        """Newest entry from `sequence` on, past damaged ones."""
        try:
            first = self.read(sequence)
        except CorruptionError:
            last = self._last_number(sequence)
            if last == sequence:
                raise
            return self.read(last)
        last = self._last_number(sequence)
        return self.read(last) if last > sequence else first

    def _last_number(self, sequence: int) -> int:
        """Last number from `sequence` on, by exponential search.

        There are no gaps while the anchor is there.
        """
        step = 1
        while self._storage.exists(self._path(sequence + step)):
            sequence, step = sequence + step, step * 2
        while step > 1:
            step //= 2
            if self._storage.exists(self._path(sequence + step)):
                sequence += step
        return sequence

    def _list_newest(self) -> Stored | None:
        """Newest entry by listing.

        It may be collected and put again before it is read: list and look again, until nothing was put in between;
        after a few rounds, in a turn.
        """
        listed, rounds = self._listed(), 0
        while listed.sequences:
            if rounds < _ROUNDS:
                newest, listed = self._newest_listed(listed)
            else:
                with self._turn():
                    newest, listed = self._newest_listed(self._listed())
            if newest is not None:
                return newest
            rounds += 1
        return None

    def _newest_listed(self, listed: _Listed) -> tuple[Stored | None, _Listed]:
        """Return a listing's newest entry, None if unproven, and the next listing.

        If looks are requests, a fresh listing proves it.
        """
        newest: Stored | None = None
        with suppress(FileNotFoundError, IndexError):  # collected, or the journal is empty now
            newest = self.read(listed.sequences[-1])
        if newest is not None and listed.is_fresh(self._storage.clock):
            return self._remember(newest, listed.began), listed
        again = self._listed()
        if newest is None or again.sequences[-1:] != [newest.sequence] or not self._still_there(newest):
            return None, again
        return self._remember(newest, again.began), again

    def _listed(self) -> _Listed:
        began = self._moment()
        return _Listed(self.sequences(), began)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold a turn to put, or wait for it in vain; reentrant."""
        if self._in_turn:
            yield
            return
        self._in_turn = True
        try:
            with self._storage.turn(self._directory, _TURN_SECONDS):
                yield
        finally:
            self._in_turn = False

    def stays(self, stored: Stored, seen: Moment) -> bool:
        """Whether an entry is still the same file (the anchor rule).

        If looks are requests, none is made while `seen` is fresh.
        """
        if self._storage.bills_requests and seen.is_fresh(Moment.of(self._storage.clock)):
            return True
        if stored.info.modified_ms < 0:  # the put's reply lacks part of the identity
            return self._storage.exists(self._path(stored.sequence))
        return self._still_there(stored)

    def sync_exposed(self, stored: Stored) -> None:
        """Make a found entry durable, once, before readers see it (R5)."""
        if self._synced != stored.entry.write_id:  # a restored root has other entries at synced numbers
            self._storage.sync_directory(self._directory)
            self._synced = stored.entry.write_id

    def assure(self, stored: Stored) -> None:
        """Make an entry durable before it is acknowledged or deleted by (R5).

        Once per entry, by a fresh sync: after another process's failed one, a plain sync proves nothing.

        Raises:
            SyncFailedError, StorageDeniedError: it may not survive power loss.
        """
        if self._assured != stored.entry.write_id:
            self._storage.sync_directory(self._directory, fresh=True)
            self._synced = self._assured = stored.entry.write_id

    def is_followed(self, stored: Stored) -> bool:
        """Whether `stored` has a successor, by one look.

        False is certain only while `stored` is there.
        """
        return self._storage.exists(self._path(stored.entry.following))

    def forget(self) -> None:
        """Drop all state; the next read lists the directory."""
        self._anchor = self._newest_at = self._own = self._dated = self._dated_at = None

    def dated(self, stored: Stored) -> tuple[int, int]:
        """Return (number, storage time in ms) of `stored`, or an earlier entry.

        -1 if no time is known. Makes no look.
        """
        if stored.info.modified_ms >= 0:
            return stored.sequence, stored.info.modified_ms
        return self._dated or (stored.sequence, -1)

    def timed(self, stored: Stored) -> Stored:
        """Return an entry with its storage time, by a look if needed.

        Raises:
            FileNotFoundError: it is collected.
        """
        if stored.info.modified_ms >= 0:
            return stored
        there = self._look(stored)
        if there is None:
            raise FileNotFoundError(f"{self._path(stored.sequence)} is collected")
        return there

    # --- the anchor --------------------------------------------------------------------------------------

    def _still_there(self, anchor: Stored) -> bool:
        try:
            return self._storage.info(self._path(anchor.sequence)).identity == anchor.info.identity
        except FileNotFoundError:
            return False

    def _look(self, stored: Stored) -> Stored | None:
        own = self._own if self._own is not None and self._own.write_id == stored.entry.write_id else None
        try:
            found = self._storage.info(self._path(stored.sequence))
        except FileNotFoundError:
            return None
        if found.identity != stored.info.identity and (own is None or not own.is_file(found)):
            return None
        return stored if stored.info.modified_ms >= 0 else self._completed(stored.entry, found, own)

    def _completed(self, entry: Entry, found: FileInfo, own: OwnPut | None) -> Stored:
        self._dated, self._dated_at = (entry.sequence, found.modified_ms), self._moment()
        self._reference = (own.reference(found) if own is not None else None) or self._reference
        return Stored(entry, found)

    def _moment(self) -> Moment | None:
        return Moment.of(self._storage.clock) if self._storage.bills_requests else None

    def _is_fresh(self, base: Stored) -> bool:
        """Whether no number after `base` can have been collected yet."""
        if self._newest_at is None or self._anchor is None or self._anchor.entry is not base.entry:
            return False
        return self._newest_at.is_fresh(Moment.of(self._storage.clock))

    def _remember(self, newest: Stored, newest_at: Moment | None, own: OwnPut | None = None) -> Stored:
        self._anchor, self._newest_at, self._own = newest, newest_at, own
        if newest_at is not None and newest.info.modified_ms >= 0:
            self._dated, self._dated_at = (newest.sequence, newest.info.modified_ms), newest_at
        return newest

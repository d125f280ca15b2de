"""Read side of a journal: find, read and check entries.

The newest is reached from an anchor or by listing twice: ARCHITECTURE.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

from pyspark_commitlog.anchor import Moment, OwnPut, Reference
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    missing,
)
from pyspark_commitlog.format import entry as codec, paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal.entries import Stored
from pyspark_commitlog.storage import Clock, FileInfo, Storage, own_writes
from pyspark_commitlog.storage.process import results_of

_HEAD_BYTES = codec.MAX_LINE_BYTES * 2
#: A file no longer than this is kept until the next read: its inline frames are usually needed next.
_TAIL_BYTES = 8192
#: Maximum length of a line, in bytes.
LONGEST_LINE_BYTES = 4 * 2**20
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
        """Return whether the newest can't have been collected yet."""
        return self.began is not None and self.began.is_fresh(Moment.of(clock))


class JournalReader:
    """Read side of a journal."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        kind: str,
        sides: Callable[[str, str], str],
        check: Callable[[Json, str], object],
    ) -> None:
        self._storage, self._check = storage, check
        self._directory = directory
        self._kind = kind
        self._sides = sides
        self._anchor: Stored | None = None
        self._others: tuple[int, str] | None = None
        self._newest_at: Moment | None = None  # when the anchor certainly was the newest, if looks are requests
        self._own: OwnPut | None = None  # the anchor's put, if only its reply is known
        self._reference: Reference | None = None
        self._crowded = False  # others have put entries since our last two consecutive ones
        self._dated: tuple[int, int] | None = None  # number and time of the last entry of known time
        self._dated_at: Moment | None = None
        self._tail: tuple[str, bytes | None] = "", None  # write id and inline bytes of a small entry read last
        self._synced = self._assured = ""
        self._in_turn = False
        self.listings = 0
        self._complete = -1  # the listing after which no entry was missing

    # --- reading -----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Return the newest entry; None if the journal is empty."""
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
        """Return the newest entry, up to `seconds` old if looks are requests."""
        return self._anchor if self._was_newest(seconds) else self.newest()

    def _was_newest(self, seconds: float) -> bool:
        seen = self._newest_at
        return seen is not None and seen.seconds_until(Moment.of(self._storage.clock)) < seconds

    def stands_before(self, entry: Entry) -> Stored | None:
        """Return the newest entry if known and `entry` or its predecessor.

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
        """Return the state for another handle; None without an anchor."""
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
        """Return the newest entry from `sequence` on, past damaged ones."""
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
        """Return the last number from `sequence` on, by exponential search.

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
        """Return the newest entry by listing.

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

    def sequences(self) -> list[int]:
        """Return the stored numbers, ascending."""
        parsed = (paths.parse_entry(name) for name in self._storage.names(self._directory))
        return [sequence for sequence in parsed if sequence is not None]

    def missing(self, *, before: bool = False) -> int | None:
        """Return the last missing number between existing entries, else None.

        Checked once per listing. `before`: the first entry's predecessor counts, too.
        """
        if self._complete == self.listings:
            return None
        sequences = self.sequences()
        found: int | None = None
        if before and sequences:
            with suppress(FileNotFoundError):  # collected while it was listed
                found = sequences[0] - 1 if self.read(sequences[0]).entry.prev else None
        for _, after in self._gaps(sequences):
            found = after - 1
        if found is None:
            self.lacks_nothing()
        return found

    def before_gap(self) -> Stored | None:
        """Return the last entry before the first gap; None without gaps."""
        return next((before for before, _ in self._gaps(self.sequences())), None)

    def unbroken_from(self) -> int | None:
        """Return the first number after the last gap; None without entries."""
        sequences = self.sequences()
        return next((after for _, after in reversed(list(self._gaps(sequences)))), next(iter(sequences), None))

    def _gaps(self, sequences: list[int]) -> Iterator[tuple[Stored, int]]:
        for last, after in pairwise(sequences):
            if after == last + 1:
                continue
            with suppress(FileNotFoundError):  # collected while it was listed, and what came after it perhaps
                before = self.read(last)
                following = before.entry.following
                if following < after and not self._storage.exists(self._path(following)):
                    yield before, after

    def lacks_nothing(self) -> None:
        """Skip the check for gaps until the next listing."""
        self._complete = self.listings

    def stays(self, stored: Stored, seen: Moment) -> bool:
        """Return whether an entry is still the same file (the anchor rule).

        If looks are requests, none is made while `seen` is fresh.
        """
        if self._storage.bills_requests and seen.is_fresh(Moment.of(self._storage.clock)):
            return True
        if stored.info.modified_ms < 0:  # the put's reply lacks part of the identity
            return self._storage.exists(self._path(stored.sequence))
        return self._still_there(stored)

    def read(self, sequence: int) -> Stored:
        """Return the entry at a number.

        Raises:
            FileNotFoundError: not put yet, or collected.
            CorruptionError: the file is damaged.
        """
        path = self._path(sequence)
        head, info = self._storage.fetch(path, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and b"\n" not in head:  # thousands of partitions make a longer line
            head, info = self._storage.fetch(path, LONGEST_LINE_BYTES)
            if len(head) == LONGEST_LINE_BYTES and b"\n" not in head:
                raise CorruptionError(
                    f"{path}: its line is longer than {LONGEST_LINE_BYTES} bytes, the most that one may have; restore "
                    "the file"
                )
        entry = codec.decode(head, where=path, journal=self._kind, sequence=sequence)
        self._check(entry.body, path)
        kept = len(head) <= (
            _TAIL_BYTES if self._storage.can_append else _HEAD_BYTES - 1
        )  # elsewhere a look is a request
        self._tail = entry.write_id, head[entry.line_bytes :] if kept else None
        return Stored(entry, info)

    def read_several(self, sequences: Sequence[int]) -> dict[int, Stored]:
        """Return the intact entries among these numbers, read concurrently.

        `inline` reads all but one of them again.
        """

        def look(sequence: int) -> Stored | None:
            try:
                return self.read(sequence)
            except (FileNotFoundError, CorruptionError):
                return None

        found = results_of(look, sequences, self._storage.requests_at_once)
        return {stored.sequence: stored for stored in found if stored is not None}

    def put_before(self, entry: Entry) -> Entry | None:
        """Return an entry's predecessor if this process put it lately; no request."""
        sequence = entry.sequence - 1
        path = self._path(sequence)
        data = own_writes.recall(self._storage, path, entry.prev)
        return None if data is None else codec.decode(data, where=path, journal=self._kind, sequence=sequence)

    def bytes_of(self, entry: Entry) -> bytes:
        """Return an entry's file, checked, to put it elsewhere.

        Raises:
            FileNotFoundError: it is collected.
            CorruptionError: the file is damaged, or another entry's.
        """
        path = self._path(entry.sequence)
        own = own_writes.recall(self._storage, path, entry.write_id)
        if own is not None:  # read once before it was put
            return own
        data = self._storage.read(path)
        if self._entry_of(data, entry.sequence).write_id != entry.write_id:
            raise CorruptionError(f"{path}: holds another entry than before; look again")
        return data

    def read_whole(self, sequence: int) -> tuple[Entry, bytes]:
        """Return the entry at a number and its file, checked; thread-safe.

        Raises:
            FileNotFoundError: not put yet, or collected.
            CorruptionError: the file is damaged.
        """
        data = self._storage.read(self._path(sequence))
        entry = self._entry_of(data, sequence)
        self._check(entry.body, self._path(sequence))
        return entry, data

    def _entry_of(self, data: bytes, sequence: int) -> Entry:
        path = self._path(sequence)
        entry = codec.decode(data, where=path, journal=self._kind, sequence=sequence)
        if entry.inline is not None:
            entry.inline.check(data[entry.line_bytes :], f"inline frames of {path}")
        return entry

    def inline(self, entry: Entry) -> bytes:
        """Return an entry's inline bytes, checked.

        Raises:
            CorruptionError: length or CRC differ.
        """
        if entry.inline is None:
            return b""
        path, data = self._path(entry.sequence), self.at_hand(entry)
        if data is None:
            data = self._storage.read(path, entry.line_bytes, entry.inline.at_most)
        return entry.inline.check(data, f"inline frames of {path}")

    def at_hand(self, entry: Entry) -> bytes | None:
        """Return an entry's unchecked inline bytes; None if that takes a request."""
        write_id, data = self._tail
        if data is None or write_id != entry.write_id:
            own = own_writes.recall(self._storage, self._path(entry.sequence), entry.write_id)
            data = None if own is None else own[entry.line_bytes :]
        return data

    def side(self, topic_id: str, named: Json) -> bytes:
        """Return a side file that an entry names, checked.

        Raises:
            FileNotFoundError: collected with its entry.
            CorruptionError: length or CRC differ.
        """
        path, checked = self._sides(topic_id, named["file"]), codec.Checked.from_json(named)
        return checked.check(self._storage.read(path, 0, checked.at_most), path)

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
        """Return whether `stored` has a successor, by one look.

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

    def faults(self) -> list[str]:
        """Return the faults of existing entries."""

        def look(sequence: int) -> str | None:
            try:
                self.inline(self.read(sequence).entry)
            except FileNotFoundError as error:
                return str(missing(error)) if sequence in self.sequences() else None
            except CommitLogError as error:
                return str(error)
            return None

        found = results_of(look, self.sequences(), self._storage.requests_at_once)
        return [fault for fault in found if fault is not None]

    def older_than(self, before_ms: int) -> int:
        """Return the newest entry stored until `before_ms`; 0 if none.

        An older one if storage's clock was set back.
        """
        sequences, oldest = self.sequences(), 0
        low, high = 0, len(sequences)
        while low < high:
            middle = (low + high) // 2
            try:
                is_old = self._storage.info(self._path(sequences[middle])).modified_ms <= before_ms
                oldest = sequences[middle] if is_old else oldest
            except FileNotFoundError:  # another collector was here
                is_old = True
            low, high = (middle + 1, high) if is_old else (low, middle)
        return oldest

    def _path(self, sequence: int) -> str:
        return f"{self._directory}/{paths.entry_name(sequence)}"

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
        """Return whether no number after `base` can have been collected yet."""
        if self._newest_at is None or self._anchor is None or self._anchor.entry is not base.entry:
            return False
        return self._newest_at.is_fresh(Moment.of(self._storage.clock))

    def _remember(self, newest: Stored, newest_at: Moment | None, own: OwnPut | None = None) -> Stored:
        self._anchor, self._newest_at, self._own = newest, newest_at, own
        if newest_at is not None and newest.info.modified_ms >= 0:
            self._dated, self._dated_at = (newest.sequence, newest.info.modified_ms), newest_at
        return newest

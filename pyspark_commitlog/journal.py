"""The journal: numbered, write-once entries, and the one coordination primitive of a root.

All it asks of storage is an atomic put-if-absent. Everything else is care:

* An outcome other than "done" and "exists" is ambiguous: the same bytes are put at the same number again.
* "exists" is read back: our write id means that an earlier try landed.
* A number that was collected can be put again! So a put or a read at a number that was reached from a remembered
  entry N counts only if N is still there as the very file that we remembered (the anchor rule).

DESIGN notes and counter-examples: ARCHITECTURE.md, "Journal"; ``tests/model`` explores the protocol exhaustively.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pyspark_commitlog.anchor import KEPT_ENTRIES, Moment, OwnPut, Reference, stays_ms
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    CorruptionError,
    OutcomeUnknownError,
    StagedExpiredError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    SyncFailedError,
    UsageError,
    missing,
)
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.storage import FileInfo, NotPutError, Storage, own_writes

_HEAD_BYTES = codec.MAX_LINE_BYTES * 2
#: Of a file that has so few bytes, all are kept until the next is read: its inline frames are asked for next, mostly.
_TAIL_BYTES = 8192
_MAX_LINE_BYTES = 4 * 2**20
_MAX_ATTEMPTS = 500
_AMBIGUOUS_TRIES = 5
_BACKOFF_SECONDS = 0.002
_MAX_BACKOFF_SECONDS = 0.25
_TURN_SECONDS = 10.0
#: Where a look is a request: how many appends go by between two looks for what can be trimmed.
_TRIM_EVERY = 16
#: And how often a writer that goes on and on learns the time of one of its entries.
_DATE_SECONDS = 60.0
#: How many drafts of an operation may be in doubt before it is given up.
_DOUBTS = 5

#: What an operation comes to, for its caller.
Result = TypeVar("Result")
_Result = TypeVar("_Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it lies in storage.

    Of one that was just put, ``info`` may lack the time (``FileInfo``): ask ``Journal.dated``, or ``Journal.timed``.
    """

    entry: Entry
    info: FileInfo

    @property
    def sequence(self) -> int:
        """Return the entry's number."""
        return self.entry.sequence


@dataclass(frozen=True, slots=True)
class Draft(Generic[_Result]):
    """What an operation wants to put next, and ``result``: what it comes to when that is put.

    ``sides`` are tables that go to write-once files before the entry is put: kind -> bytes. ``lineage`` and ``next``
    are those of a copied topic's entries: the history of its source, and where the next entry goes.
    """

    kind: str
    topic_id: str
    body: Json
    inline: bytes = b""
    sides: Mapping[str, bytes] = field(default_factory=dict)
    lineage: Lineage | None = None
    next: int | None = None
    result: _Result = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[_Result]):
    """The answer of a plan that has nothing (left) to put, and what the operation comes to all the same."""

    result: _Result


@dataclass(frozen=True, slots=True)
class Landed:
    """The answer of a plan that finds its own write id in the newest entry: its draft landed, whose result counts."""


class Appended(NamedTuple, Generic[Result]):
    """What an append did: the entry as stored, None where there was nothing to put; and the operation's result."""

    stored: Stored | None
    result: Result


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a draft would go: its number, and a write id of its own."""

    sequence: int
    write_id: str


class _UndecidedError(Exception):
    """What is stored no longer shows whether a put landed."""


#: What a plan, or a look, that fails leaves open after a put in doubt.
_UNCERTAIN = (CorruptionError, FileNotFoundError, StagedExpiredError, StorageError, UsageError)


def _slot(entry: Entry) -> Slot:
    return Slot(entry.sequence, entry.write_id)


def _lineage(base: Stored | None, slot: Slot) -> Lineage:
    if base is None:
        return Lineage.superseding(slot.sequence, slot.write_id)
    return base.entry.lineage.advanced(slot.write_id)


#: Plans the next entry on top of the newest one. Called once per attempt.
Plan = Callable[[Stored | None, Slot], Draft[Result] | Unchanged[Result] | Landed]


def no_sides(topic_id: str, file: str) -> str:
    """Return where a journal without side files has them: nowhere, its entries are bounded."""
    raise AssertionError(f"an entry without side files names {file}")


class Journal:
    """One journal directory.

    Args:
        storage: the root.
        directory: where the entries lie; it must exist before an append.
        kind: the journal's kind, which every entry repeats (``topic``, ``settle``).
        sides: (topic id, file name) -> path of a side file.
        check: refuses what an entry of this journal can't be, whatever its CRC (``CorruptionError``): (body, path).

    Not safe for use by several threads at once. ``listings`` counts how often the newest entry was found without an
    anchor: while it stays, all that ``newest`` returns is of one history.

    Where files can't be appended to, a look is a request, and ``anchor`` says which ones can be spared: an idle poll is
    one request while polls are less than 5 s apart, and a small append one put and at most one look.
    """

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
        self._newest_at: Moment | None = None  # when the anchor was the newest for certain, where looks are requests
        self._own: OwnPut | None = None  # the anchor's put, where its reply is all that is known
        self._reference: Reference | None = None
        self._crowded = False  # others put entries since two of ours followed each other
        self._dated: tuple[int, int] | None = None  # the last entry whose time was seen: its number and that time
        self._dated_at: Moment | None = None
        self._tail: tuple[str, bytes | None] = "", None  # write id and inline bytes of a small entry read last
        self._synced = self._assured = ""
        self.listings = 0

    # --- reading -----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Return the newest entry; None when the journal is empty.

        From a remembered entry the numbers are followed; without one, the directory is listed.
        """
        if self._anchor is None and self._others is not None:
            self._anchor, self._others = self._remembered(*self._others), None
        while self._anchor is not None:
            newest = self._probe(self._anchor)
            if newest is not None:
                return newest
            self.forget()  # N is gone: what was reached from it proves nothing
        self.listings += 1
        return self._list_newest()

    def recent(self, seconds: float) -> Stored | None:
        """Return the newest entry, or what was that at most so long ago, where a look is a request.

        For what may be noticed late; what is put on top of it finds out.
        """
        if self._newest_at is not None and self._newest_at.seconds_until(Moment.now(self._storage.clock)) < seconds:
            return self._anchor
        return self.newest()

    def resume(self, sequence: int, identity: str) -> None:
        """Go on from an entry that another process remembers, while it is there as the file of that identity."""
        self._others = sequence, identity

    def _remembered(self, sequence: int, identity: str) -> Stored | None:
        """Return an entry, if it is that very file (the anchor rule)."""
        try:
            stored = self.read(sequence)
        except (FileNotFoundError, CorruptionError):
            return None
        return stored if stored.info.identity == identity else None

    def _probe(self, anchor: Stored) -> Stored | None:
        """Return the newest entry reached from ``anchor``; None when the anchor is gone."""
        latest, began = anchor, self._moment()
        with suppress(FileNotFoundError):  # nothing new, or what was seen is collected, and the anchor with it
            latest = self._read_ahead(anchor.entry.following)
            while latest.entry.next is not None:
                latest = self._read_ahead(latest.entry.following)
        if not self._is_fresh(anchor):  # also when idle: the next number may be gone rather than not put yet
            there = self._look(anchor)
            if there is None:
                return None
            latest = there if latest is anchor else latest
        self._crowded = self._crowded or latest.entry is not anchor.entry
        return self._remember(latest, began, self._own if latest.entry is anchor.entry else None)

    def _read_ahead(self, sequence: int) -> Stored:
        """Return the newest entry, which is at a number or above; damage of one below it is not the caller's."""
        try:
            first = self.read(sequence)
        except CorruptionError:
            furthest = self._furthest(sequence)
            if furthest == sequence:
                raise
            return self.read(furthest)
        furthest = self._furthest(sequence)
        return self.read(furthest) if furthest > sequence else first

    def _furthest(self, sequence: int) -> int:
        """Return the last number from ``sequence`` on, found in few looks: in steps that double, then halve.

        While the anchor is there none of the numbers after it was ever deleted, so none is missing in between.
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

        The listing is taken again after the read, and the file looked at once more: what was listed may have been
        collected and put again by a zombie before it was read.
        """
        sequences = self.sequences()
        while sequences:
            try:
                newest = self.read(sequences[-1])
            except FileNotFoundError:
                newest = None
            began = self._moment()
            again = self.sequences()
            if newest is not None and again and again[-1] == newest.sequence and self._still_there(newest):
                return self._remember(newest, began)
            sequences = again
        return None

    def sequences(self) -> list[int]:
        """Return the numbers that are stored now, ascending."""
        parsed = (paths.parse_entry(name) for name in self._storage.names(self._directory))
        return [sequence for sequence in parsed if sequence is not None]

    def read(self, sequence: int) -> Stored:
        """Return the entry at a number.

        Raises:
            FileNotFoundError: not put yet, or collected.
            CorruptionError: the file is not what was put.
        """
        path = self._path(sequence)
        head, info = self._storage.fetch(path, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and b"\n" not in head:  # thousands of partitions: the line is longer
            head, info = self._storage.fetch(path, _MAX_LINE_BYTES)
        entry = codec.decode(head, where=path, journal=self._kind, sequence=sequence)
        self._check(entry.body, path)
        kept = len(head) <= (
            _TAIL_BYTES if self._storage.can_append else _HEAD_BYTES - 1
        )  # elsewhere a look is a request
        self._tail = entry.write_id, head[entry.line_bytes :] if kept else None
        return Stored(entry, info)

    def put_before(self, entry: Entry) -> Entry | None:
        """Return the entry before one of this journal, without a request; None unless this process put it lately."""
        sequence = entry.sequence - 1
        path = self._path(sequence)
        data = own_writes.recall(self._storage, path, entry.prev)
        return None if data is None else codec.decode(data, where=path, journal=self._kind, sequence=sequence)

    def inline(self, entry: Entry) -> bytes:
        """Return an entry's inline bytes, checked.

        Raises:
            CorruptionError: length or CRC differ.
        """
        if entry.inline is None:
            return b""
        path, (write_id, data) = self._path(entry.sequence), self._tail
        if data is None or write_id != entry.write_id:
            own = own_writes.recall(self._storage, path, entry.write_id)
            data = None if own is None else own[entry.line_bytes :]
        if data is None:
            data = self._storage.read(path, entry.line_bytes, entry.inline.at_most)
        return entry.inline.check(data, f"inline frames of {path}")

    def side(self, topic_id: str, named: Json) -> bytes:
        """Return a side file that an entry names, checked.

        Raises:
            FileNotFoundError: collected together with its entry.
            CorruptionError: length or CRC differ.
        """
        path, checked = self._sides(topic_id, named["file"]), codec.Checked.from_json(named)
        return checked.check(self._storage.read(path, 0, checked.at_most), path)

    def sync_exposed(self, stored: Stored) -> None:
        """Make a newly found entry durable before it is exposed to readers (rule R5); once per entry."""
        if self._synced != stored.entry.write_id:  # a restored root has other entries at numbers that were synced once
            self._storage.sync_directory(self._directory)
            self._synced = stored.entry.write_id

    def assure(self, stored: Stored) -> None:
        """Make an entry and what it follows durable before a caller acknowledges it or deletes by it (rule R5); once.

        Its put may have failed to sync it, in another process: a sync alone may succeed then and prove nothing.

        Raises:
            SyncFailedError, StorageDeniedError: it may not survive power loss.
        """
        if self._assured != stored.entry.write_id:
            self._storage.sync_directory(self._directory, fresh=True)
            self._synced = self._assured = stored.entry.write_id

    def _acknowledge(self, stored: Stored | None) -> None:
        """Make durable what is there already, before it is reported as done.

        Raises:
            OutcomeUnknownError: it may not survive power loss.
        """
        if stored is None:
            return
        try:
            self.assure(stored)
        except OSError as error:
            raise self._unknown(_slot(stored.entry), stored.entry.kind, str(error)) from error

    def is_followed(self, stored: Stored) -> bool:
        """Return whether an entry follows ``stored``: one look, for a caller that waits for the next.

        No is certain only while ``stored`` is there (the anchor rule): ask ``newest`` now and then.
        """
        return self._storage.exists(self._path(stored.entry.following))

    def forget(self) -> None:
        """Drop what is remembered; the next read lists the directory."""
        self._anchor = self._newest_at = self._own = self._dated = self._dated_at = None

    def dated(self, stored: Stored) -> tuple[int, int]:
        """Return (number, storage time in ms) of an entry, or of the last one before it whose time is known.

        Without a look at storage; the time is -1 where none is known.
        """
        if stored.info.modified_ms >= 0:
            return stored.sequence, stored.info.modified_ms
        return self._dated or (stored.sequence, -1)

    def timed(self, stored: Stored) -> Stored:
        """Return an entry with its storage time, by a look where that is not known yet.

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
        """Return what is damaged of the entries that are there; not of those that are collected meanwhile."""
        faults = []
        for sequence in self.sequences():
            try:
                self.inline(self.read(sequence).entry)
            except FileNotFoundError as error:
                if sequence in self.sequences():
                    faults.append(str(missing(error)))
            except CommitLogError as error:
                faults.append(str(error))
        return faults

    def delete(self, sequence: int) -> None:
        """Remove an entry. Only the collector does, one by one and ascending (the anchor rule needs it)."""
        self._storage.delete(self._path(sequence))

    def _delete_all(self, sequences: list[int]) -> None:
        """Delete entries, but for those that others may go by without a look."""
        oldest: int | None = None
        if not self._storage.can_append:
            oldest = self.older_than(self._storage.now_ms() - stays_ms())
        for sequence in sequences:
            if oldest is None or sequence <= oldest:
                self.delete(sequence)

    def trim(self) -> None:
        """Remove all entries but the newest two, and what killed writers left: for journals nobody reads history of.

        Where a look is a request that is done now and then, and leaves those that no entry of the delay's age follows.
        """
        below: int | None = None
        if not self._storage.can_append:
            if self._anchor is not None and self._anchor.sequence % _TRIM_EVERY:
                return
            below = self.older_than(self._storage.now_ms() - stays_ms())
        for sequence in self.sequences()[:-KEPT_ENTRIES]:
            if below is None or sequence < below:
                self.delete(sequence)
        self._storage.remove_abandoned(self._directory, self._storage.clock.now_ms() - DAY_MS)

    def older_than(self, before_ms: int) -> int:
        """Return the newest entry that was stored at a time or before it, 0 for none, in few looks.

        An older one, where a clock of storage was set back.
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
        """Return an entry with what storage says of it now, if it is still there as that very file; else None."""
        own = self._own if self._own is not None and self._own.write_id == stored.entry.write_id else None
        try:
            found = self._storage.info(self._path(stored.sequence))
        except FileNotFoundError:
            return None
        if found.identity != stored.info.identity and (own is None or not own.is_file(found)):
            return None
        return stored if stored.info.modified_ms >= 0 else self._completed(stored.entry, found, own)

    def _completed(self, entry: Entry, found: FileInfo, own: OwnPut | None) -> Stored:
        """Return an own entry with what storage says of its file, and remember what the time of that says."""
        self._dated, self._dated_at = (entry.sequence, found.modified_ms), self._moment()
        self._reference = (own.reference(found) if own is not None else None) or self._reference
        return Stored(entry, found)

    def _moment(self) -> Moment | None:
        """Return this moment where looks are requests; None elsewhere: nothing is spared there."""
        return Moment.now(self._storage.clock) if self._storage.bills_requests else None

    def _is_fresh(self, base: Stored) -> bool:
        """Return whether no number after ``base`` can have been collected yet: it is the anchor, seen a moment ago."""
        if self._newest_at is None or self._anchor is None or self._anchor.entry is not base.entry:
            return False
        return self._newest_at.is_fresh(Moment.now(self._storage.clock))

    def _remember(self, newest: Stored, newest_at: Moment | None, own: OwnPut | None = None) -> Stored:
        """Make an entry the anchor, the newest at some moment from ``newest_at`` on; ``own``: by its put's reply."""
        self._anchor, self._newest_at, self._own = newest, newest_at, own
        if newest_at is not None and newest.info.modified_ms >= 0:
            self._dated, self._dated_at = (newest.sequence, newest.info.modified_ms), newest_at
        return newest

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry that ``plan`` makes on top of the newest; plan again whenever somebody else was first.

        ``plan`` re-checks its preconditions on every attempt (rule R9) and raises when they no longer hold.

        Args:
            plan: makes the entry; called on an entry that may not be the newest any more, too, but only what it answers
                or raises on the newest counts.
            repeatable: whether the preconditions of what was put can never hold again (rule O2): where the outcome of a
                put can't be known, the plan is made again on the newest entry, which shows it. The entry is not
                returned then.

        Returns:
            The entry as stored, None when ``plan`` answered that nothing is to be done; and the result of the answer
            that counts, of whatever attempt.

        Raises:
            OutcomeUnknownError: the put may have landed; retrying with the same writer id is safe.
            ConflictError: others were first, too many times.
            StorageError: certainly not put.
        """
        with self._storage.turn(self._directory, _TURN_SECONDS):  # for speed alone: safety is put_if_absent's
            return self._repeated(plan) if repeatable else self._append(plan)

    def _repeated(self, plan: Plan[Result]) -> Appended[Result]:
        """Append what may be planned again after doubt: each draft has a write id of its own, so both may be put."""
        doubt: OutcomeUnknownError | None = None
        for attempt in range(_DOUBTS):
            try:
                return self._append(plan)
            except OutcomeUnknownError as error:
                doubt = error
            except _UNCERTAIN as error:
                if doubt is None:
                    raise
                raise doubt from error
            self.forget()
            self._back_off(attempt)
        assert doubt is not None
        raise doubt

    def _append(self, plan: Plan[Result]) -> Appended[Result]:
        for attempt in range(_MAX_ATTEMPTS):
            base, certain = self._base(attempt)
            slot = Slot(1 if base is None else base.entry.following, self._storage.new_id())
            try:
                answer = plan(base, slot)
            except FileNotFoundError:  # a side file of the base was collected with it: plan on a newer one
                self.forget()
                if base is None or self.newest() == base:
                    raise
                continue
            except Exception:
                if certain or self._is_newest(base):
                    raise
                continue
            if isinstance(answer, Unchanged):
                if not certain and not self._is_newest(base):
                    continue
                self._acknowledge(base)
                return Appended(None, answer.result)
            assert isinstance(answer, Draft), "no attempt before this one may have landed"
            try:
                stored = self._attempt(base, slot, answer)
            except _UndecidedError as error:
                known = self._known(plan, slot, answer)
                if known is None:
                    raise self._unknown(slot, answer.kind, str(error)) from error
                return Appended(None, known.result)
            if stored is not None:
                return Appended(stored, answer.result)
            self._back_off(attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _base(self, attempt: int) -> tuple[Stored | None, bool]:
        """Return what to plan on, and whether it is the newest entry for certain.

        Where a look is a request, the first attempt goes by what is remembered: the put shows whether it is the newest.
        Where others put too, that would be a put in vain, mostly, or an entry at a number that was collected.
        """
        if attempt == 0 and self._anchor is not None and not self._crowded and not self._storage.can_append:
            return self._anchor, False
        return self.newest(), True

    def _is_newest(self, base: Stored | None) -> bool:
        newest = self.newest()
        return newest is not None and base is not None and newest.entry is base.entry

    def _known(self, plan: Plan[Result], slot: Slot, draft: Draft[Result]) -> Draft[Result] | Unchanged[Result] | None:
        """Return the answer that counts where the newest state shows that an undecided put landed; None where not.

        Where the plan can't be made any more (a chunk is collected, the disk does not answer) that proves nothing: if
        the put landed, it could be made then. What else it raises holds whether it landed or not.

        Raises:
            OutcomeUnknownError: the plan can't be made.
        """
        try:
            newest = self.newest()
            answer = plan(newest, slot)
            if isinstance(answer, Draft):
                return None
            self._acknowledge(newest)
            return draft if isinstance(answer, Landed) else answer
        except _UNCERTAIN as error:
            raise self._unknown(slot, draft.kind, str(error)) from error

    def supersede(self, make: Callable[[Slot], Draft[object]]) -> Stored:
        """Put an entry above all there are, whatever they hold, and remove those: what can't be read is given up.

        For deleting all that a journal holds. It follows no entry (``prev`` is ``""``); a process that remembered one
        finds it gone, and lists the directory (the anchor rule). What was put a moment ago stays where looks are
        requests: others may go by it without one.

        Raises:
            OutcomeUnknownError: the put may have landed; doing it again is safe.
            ConflictError: others were first, too many times.
            StorageError: certainly not put.
        """
        with self._storage.turn(self._directory, _TURN_SECONDS):
            for attempt in range(_MAX_ATTEMPTS):
                self.forget()
                below = self.sequences()
                slot = Slot(below[-1] + 1 if below else 1, self._storage.new_id())
                draft = make(slot)
                try:
                    stored = self._attempt(None, slot, draft)
                except _UndecidedError as error:
                    raise self._unknown(slot, draft.kind, str(error)) from error
                if stored is not None:
                    self._delete_all(below)
                    return stored
                self._back_off(attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _attempt(self, base: Stored | None, slot: Slot, draft: Draft[object]) -> Stored | None:
        entry = Entry(
            journal=self._kind,
            kind=draft.kind,
            topic_id=draft.topic_id,
            sequence=slot.sequence,
            write_id=slot.write_id,
            prev=base.entry.write_id if base else "",
            body=draft.body,
            lineage=draft.lineage or _lineage(base, slot),
            next=draft.next,
        )
        for kind, table in draft.sides.items():
            name = paths.side_name(slot.sequence, slot.write_id, kind)
            self._storage.write_once(self._sides(draft.topic_id, name), table)
        data = codec.encode(entry, draft.inline)
        stored = self._put(base, self._as_read(data, slot), data)
        if stored is not None:
            own_writes.remember(self._storage, self._path(slot.sequence), slot.write_id, data)
        return stored

    def _as_read(self, data: bytes, slot: Slot) -> Entry:
        """Return an entry as readers will find it.

        Raises:
            UsageError: they would take it for damage, which nobody could mend; nothing was put.
        """
        path = self._path(slot.sequence)
        try:
            entry = codec.decode(data, where=path, journal=self._kind, sequence=slot.sequence)
            self._check(entry.body, path)
        except CorruptionError as error:
            raise UsageError(f"{self._directory}: nothing was put, as nobody could read it: {error}") from error
        return entry

    def _put(self, base: Stored | None, entry: Entry, data: bytes) -> Stored | None:
        """Put until the outcome is certain; return the stored entry, or None when somebody else was first."""
        path, ambiguous, first = self._path(entry.sequence), False, self._moment()
        for attempt in range(_AMBIGUOUS_TRIES):
            began = self._moment() if attempt else first
            try:
                reply = self._storage.put_if_absent(path, data)
            except FileExistsError:
                with self._landed(entry, ambiguous):
                    if ambiguous:  # if it is ours, no try of ours came to its sync
                        self._storage.sync_directory(self._directory, fresh=True)
                    return self._read_back(base, entry, first, ambiguous)
            except SyncFailedError as error:
                raise self._unknown(_slot(entry), entry.kind, str(error)) from error
            except (NotPutError, StorageFullError, StorageDeniedError) as error:
                if ambiguous:
                    raise self._unknown(_slot(entry), entry.kind, str(error)) from error
                raise
            except OSError as error:
                ambiguous, last = True, error
                self._back_off(attempt)
            else:
                with self._landed(entry, True):
                    if base is None or reply is None or began is None:
                        return self._confirm(base, entry, first)
                    return self._confirm_reply(base, entry, reply, began, ambiguous)
        raise self._unknown(
            _slot(entry), entry.kind, f"{_AMBIGUOUS_TRIES} tries failed, the last with {last}"
        ) from last

    @contextmanager
    def _landed(self, entry: Entry, possible: bool) -> Iterator[None]:
        """Turn a failure after a put that may have landed into "outcome unknown": it must not read as "not put"."""
        try:
            yield
        except (CommitLogError, OSError) as error:
            if not possible:
                raise
            raise self._unknown(_slot(entry), entry.kind, str(error)) from error

    def _read_back(self, base: Stored | None, entry: Entry, first: Moment | None, ambiguous: bool) -> Stored | None:
        """Decide a put that was refused with "exists"; ``first``: when the first try began.

        Where files can be appended to, that is certain at the first try. Elsewhere a client library, a proxy or a mount
        may have put again by itself: the entry that exists may be, or may have been, ours (rule O9).
        """
        doubt = ambiguous or not self._storage.can_append
        try:
            stored = self.read(entry.sequence)
        except FileNotFoundError:  # put by somebody, and collected already
            return self._search(entry) if doubt else None
        if stored.entry.write_id == entry.write_id:
            return self._confirm(base, entry, first)
        if doubt and not self._anchored(base, entry):
            return self._search(entry)
        return None  # somebody else has the number; the next read checks the anchor

    def _confirm(self, base: Stored | None, entry: Entry, first: Moment | None) -> Stored | None:
        """Return the entry just put, if its number had not been collected before (the anchor rule)."""
        try:
            stored = Stored(entry, self._storage.info(self._path(entry.sequence)))
        except FileNotFoundError:
            return self._search(entry)
        if not self._anchored(base, entry) or not self._still_there(stored):
            return self._search(entry)
        return self._acknowledged(stored, first)

    def _confirm_reply(
        self, base: Stored, entry: Entry, reply: FileInfo, began: Moment, ambiguous: bool
    ) -> Stored | None:
        """Return the same of an entry whose put said what its file is: with one look at most, mostly.

        Its own file is looked at where its time is needed, and is not bounded by what is known of storage's clock; that
        is before the base is, which then shows that it was the very file that was put.
        """
        own = OwnPut.of(entry.write_id, reply, began, Moment.now(self._storage.clock), self._reference)
        stored, fresh = Stored(entry, reply), self._is_fresh(base)
        if not own.is_certain or (reply.modified_ms < 0 and fresh and self._wants_date(began)):
            try:
                found = self._storage.info(self._path(entry.sequence))
            except FileNotFoundError:
                return self._unanchored(entry, began, ambiguous)
            if not own.is_file_at_once(found):
                return self._unanchored(entry, began, ambiguous)
            stored, fresh = Stored(entry, found), self._is_fresh(base)
        if not fresh and self._look(base) is None:
            return self._unanchored(entry, began, ambiguous)
        self._crowded = self._crowded and self._own is None
        if stored.info is not reply:
            self._completed(entry, stored.info, own)
        return self._acknowledged(stored, began, own)

    def _unanchored(self, entry: Entry, began: Moment, ambiguous: bool) -> Stored | None:
        """Decide a put that was done, and whose anchor is gone: at once, where no other try of it may have landed.

        An anchor goes only after the entry after it was there for the delay, which ours was not: that was another.
        """
        if ambiguous or not began.is_fresh(Moment.now(self._storage.clock)):
            return self._search(entry)
        self.forget()
        return None

    def _wants_date(self, now: Moment) -> bool:
        return self._dated_at is None or self._dated_at.seconds_until(now) >= _DATE_SECONDS

    def _acknowledged(self, stored: Stored, newest_at: Moment | None, own: OwnPut | None = None) -> Stored:
        self._synced = self._assured = stored.entry.write_id
        return self._remember(stored, newest_at, own)

    def _anchored(self, base: Stored | None, entry: Entry) -> bool:
        if base is not None:
            return self._is_fresh(base) or self._look(base) is not None
        # Number 1 has no anchor. It counts if nothing is above it, or if entry 2 was built on it.
        above = [sequence for sequence in self.sequences() if sequence > entry.sequence]
        return not above or (above[0] == entry.following and self._follows(entry))

    def _follows(self, entry: Entry) -> bool:
        try:
            return self.read(entry.following).entry.prev == entry.write_id
        except FileNotFoundError:
            return False

    def _search(self, entry: Entry) -> Stored | None:
        """Decide a put whose anchor is gone, by the chain of ``prev`` from the newest entry down.

        Returns:
            The entry, when the chain holds it; None when the chain holds another at its number.

        Raises:
            _UndecidedError: the chain no longer reaches down to the number.
        """
        self.forget()
        link = self.newest()
        if link is not None and link.sequence == entry.sequence:
            return link if link.entry.write_id == entry.write_id else None
        while link is not None and link.sequence > entry.following:
            link = self._before(link)
        if link is None or link.sequence <= entry.sequence:
            raise _UndecidedError("the entries around its number are collected already")
        return Stored(entry, link.info) if link.entry.prev == entry.write_id else None

    def _before(self, link: Stored) -> Stored | None:
        try:
            before = self.read(link.sequence - 1)
        except FileNotFoundError:
            return None
        return before if before.entry.write_id == link.entry.prev else None

    def _unknown(self, slot: Slot, kind: str, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._path(slot.sequence)}: cannot tell whether this {kind!r} landed ({why}). "
            "Run it again with the same writer id (a streaming query: restart it; a batch: the same txnAppId and "
            "txnVersion): it will be committed once"
        )

    def _back_off(self, attempt: int) -> None:
        ceiling = min(_MAX_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2 ** min(attempt, 10))
        self._storage.clock.sleep(ceiling * self._storage.jitter())

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
_KEPT_ENTRIES = 2
_AMBIGUOUS_TRIES = 5
_BACKOFF_SECONDS = 0.002
_MAX_BACKOFF_SECONDS = 0.25
_TURN_SECONDS = 10.0

#: What an operation comes to, for its caller.
Result = TypeVar("Result")
_Result = TypeVar("_Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it lies in storage."""

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
    """Where a draft would go: its number and the operation's write id."""

    sequence: int
    write_id: str


class _UndecidedError(Exception):
    """What is stored no longer shows whether a put landed."""


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
            self._anchor = None  # N is gone: what was reached from it proves nothing
        self.listings += 1
        self._anchor = self._list_newest()
        return self._anchor

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
        latest, leaps = anchor, True
        with suppress(FileNotFoundError):  # nothing new, or what was seen is collected, and the anchor with it
            while leaps:
                latest = self.read(latest.entry.following)
                furthest = self._furthest(latest.sequence)
                if furthest > latest.sequence:
                    latest = self.read(furthest)
                leaps = latest.entry.next is not None
        if not self._still_there(anchor):  # also when idle: the next number may be gone rather than not put yet
            return None
        self._anchor = latest
        return latest

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
            again = self.sequences()
            if newest is not None and again and again[-1] == newest.sequence and self._still_there(newest):
                return newest
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
        self._anchor = None

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

    def trim(self) -> None:
        """Remove all entries but the newest two, and what killed writers left: for journals nobody reads history of."""
        for sequence in self.sequences()[:-_KEPT_ENTRIES]:
            self.delete(sequence)
        self._storage.remove_abandoned(self._directory, self._storage.clock.now_ms() - DAY_MS)

    def _path(self, sequence: int) -> str:
        return f"{self._directory}/{paths.entry_name(sequence)}"

    def _still_there(self, anchor: Stored) -> bool:
        try:
            return self._storage.info(self._path(anchor.sequence)).identity == anchor.info.identity
        except FileNotFoundError:
            return False

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result]) -> Appended[Result]:
        """Put one entry that ``plan`` makes on top of the newest; plan again whenever somebody else was first.

        ``plan`` re-checks its preconditions on every attempt (rule R9) and raises when they no longer hold.

        Returns:
            The entry as stored, None when ``plan`` answered that nothing is to be done; and the result of the answer
            that counts, of whatever attempt.

        Raises:
            OutcomeUnknownError: the put may have landed; retrying with the same writer id is safe.
            ConflictError: others were first, too many times.
            StorageError: certainly not put.
        """
        with self._storage.turn(self._directory, _TURN_SECONDS):  # for speed alone: safety is put_if_absent's
            return self._append(plan)

    def _append(self, plan: Plan[Result]) -> Appended[Result]:
        write_id = self._storage.new_id()
        for attempt in range(_MAX_ATTEMPTS):
            base = self.newest()
            slot = Slot(1 if base is None else base.entry.following, write_id)
            try:
                answer = plan(base, slot)
            except FileNotFoundError:  # a side file of the base was collected with it: plan on a newer one
                self.forget()
                if base is None or self.newest() == base:
                    raise
                continue
            if isinstance(answer, Unchanged):
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
        except (CorruptionError, FileNotFoundError, StagedExpiredError, StorageError, UsageError) as error:
            raise self._unknown(slot, draft.kind, str(error)) from error

    def supersede(self, make: Callable[[Slot], Draft[object]]) -> Stored:
        """Put an entry above all there are, whatever they hold, and remove those: what can't be read is given up.

        For deleting all that a journal holds. It follows no entry (``prev`` is ``""``); a process that remembered one
        finds it gone, and lists the directory (the anchor rule).

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
                    for sequence in below:
                        self.delete(sequence)
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
        path, ambiguous = self._path(entry.sequence), False
        for attempt in range(_AMBIGUOUS_TRIES):
            try:
                self._storage.put_if_absent(path, data)
            except FileExistsError:
                with self._landed(entry, ambiguous):
                    if ambiguous:  # if it is ours, no try of ours came to its sync
                        self._storage.sync_directory(self._directory, fresh=True)
                    return self._read_back(base, entry, ambiguous)
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
                    return self._confirm(base, entry)
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

    def _read_back(self, base: Stored | None, entry: Entry, ambiguous: bool) -> Stored | None:
        try:
            stored = self.read(entry.sequence)
        except FileNotFoundError:  # put by somebody, and collected already
            return self._search(entry) if ambiguous else None
        if stored.entry.write_id == entry.write_id:
            return self._confirm(base, entry)
        if ambiguous and not self._anchored(base, entry):
            return self._search(entry)
        return None  # somebody else has the number; the next read checks the anchor

    def _confirm(self, base: Stored | None, entry: Entry) -> Stored | None:
        """Return the entry just put, if its number had not been collected before (the anchor rule)."""
        try:
            stored = Stored(entry, self._storage.info(self._path(entry.sequence)))
        except FileNotFoundError:
            return self._search(entry)
        if not self._anchored(base, entry) or not self._still_there(stored):
            return self._search(entry)
        self._anchor, self._synced, self._assured = stored, entry.write_id, entry.write_id
        return stored

    def _anchored(self, base: Stored | None, entry: Entry) -> bool:
        if base is not None:
            return self._still_there(base)
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

"""Put an entry until its outcome is certain (O9), checking its anchor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pyspark_commitlog import metrics
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
    StorageDeniedError,
    StorageFullError,
    SyncFailedError,
    UsageError,
)
from pyspark_commitlog.format import entry as codec, paths
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.journal import own_writes
from pyspark_commitlog.journal.anchor import Moment, OwnPut
from pyspark_commitlog.journal.entries import Draft, Slot, Stored, slot_of
from pyspark_commitlog.journal.entry_reader import LONGEST_LINE_BYTES
from pyspark_commitlog.journal.reading import JournalReader
from pyspark_commitlog.storage import FileInfo, NotPutError
from pyspark_commitlog.storage.clock import Backoff
from pyspark_commitlog.storage.write_once import REQUEST_BACKOFF, REQUEST_SECONDS, REQUEST_TRIES

_AMBIGUOUS_TRIES = 5
RACE_BACKOFF = Backoff(0.002, 0.25, spread=1.0)
#: Interval at which a continuous writer learns the time of one of its entries.
_DATE_SECONDS = 60.0


class UndecidedError(Exception):
    """Storage no longer shows whether a put landed."""


def _lineage(base: Stored | None, slot: Slot) -> Lineage:
    if base is None:
        return Lineage.superseding(slot.sequence, slot.write_id)
    return base.entry.lineage.advanced(slot.write_id)


class JournalPutter(JournalReader):
    """Write side of a journal: put one entry at one number."""

    #: Whether to retry for seconds on a busy store; not if a majority can go on without it.
    is_patient = True
    _is_tried = False

    def _try_store(self) -> None:
        """Refuse a store that lets two handles put one name (`storage.race`)."""
        if not self._is_tried and self._storage.client and not self._storage.single_writer:
            from pyspark_commitlog.storage.race import check_store

            check_store(self._storage)
        self._is_tried = True

    def _attempt(self, base: Stored | None, slot: Slot, draft: Draft[object]) -> Stored | None:
        self._try_store()
        entry = self._composed(base, slot, draft)
        self.write_sides(slot, draft)
        data = codec.encode(entry, draft.inline)
        stored = self._put(base, self._as_read(data, slot), data)
        metrics.count_put(self._kind, draft.kind, won=stored is not None)
        if stored is not None:
            own_writes.remember(self._storage, self._path(slot.sequence), slot.write_id, data)
        return stored

    def write_sides(self, slot: Slot, draft: Draft[object]) -> None:
        """Write a draft's side files, before its entry is put."""
        for kind, table in draft.sides.items():
            name = paths.side_name(slot.sequence, slot.write_id, kind)
            self._storage.write_once(self._sides(draft.topic_id, name), table)

    def _composed(self, base: Stored | None, slot: Slot, draft: Draft[object]) -> Entry:
        return Entry(
            journal=self._kind,
            kind=draft.kind,
            topic_id=draft.topic_id,
            sequence=slot.sequence,
            write_id=slot.write_id,
            prev=base.entry.write_id if base else "",
            body=draft.body,
            lineage=draft.lineage or _lineage(base, slot),
            next=draft.next,
            features=codec.features_of(draft.body),
        )

    def learned(self, entry: Entry) -> None:
        """Make an entry decided elsewhere, just put here durably, the anchor.

        Raises:
            FileNotFoundError: it is gone.
        """
        began = self._moment()
        self._acknowledged(Stored(entry, self._storage.info(self._path(entry.sequence))), began)

    def _as_read(self, data: bytes, slot: Slot) -> Entry:
        """Entry as readers will decode it.

        Raises:
            UsageError: readers would report corruption; nothing was put.
        """
        path = self._path(slot.sequence)
        try:
            entry = codec.decode(data, where=path, journal=self._kind, sequence=slot.sequence)
            self._check(entry.body, path)
        except CorruptionError as error:
            raise UsageError(f"{self._directory}: nothing was put, as nobody could read it: {error}") from error
        if entry.line_bytes > LONGEST_LINE_BYTES:
            raise UsageError(
                f"{self._directory}: nothing was put, as nobody could read it: an entry's line has at most "
                f"{LONGEST_LINE_BYTES} bytes, this one has {entry.line_bytes}: list less in it (ranges of void "
                "offsets, rules, topics or partitions)"
            )
        return entry

    def _put(self, base: Stored | None, entry: Entry, data: bytes) -> Stored | None:
        """Put until the outcome is certain; return None if another entry won."""
        path, tries, ambiguous, first = self._path(entry.sequence), 0, False, self._moment()
        while True:
            began = self._moment() if tries else first
            try:
                reply, stored = self._storage.run_as_one_call(
                    partial(self._put_once, base, entry, path, data), changes=True
                )
            except FileExistsError:
                with self._report_unknown_outcome(entry, ambiguous):
                    if ambiguous:  # if the entry is ours, none of our tries synced it
                        self._storage.sync_directory(self._directory, fresh=True)
                    return self._read_back(base, entry, first, ambiguous)
            except SyncFailedError as error:
                raise self._unknown(slot_of(entry), entry.kind, str(error)) from error
            except (NotPutError, StorageFullError, StorageDeniedError) as error:
                if ambiguous:
                    raise self._unknown(slot_of(entry), entry.kind, str(error)) from error
                raise
            except OSError as error:
                tries, ambiguous = tries + 1, True
                if not self._pauses(tries, error, first):
                    why = f"{tries} tries failed, the last with {error}"
                    raise self._unknown(slot_of(entry), entry.kind, why) from error
            else:
                with self._report_unknown_outcome(entry, True):
                    if base is None or reply is None or began is None:
                        return self._confirmed(stored, entry, first)
                    return self._confirm_reply(base, entry, reply, began, ambiguous)

    def _put_once(
        self, base: Stored | None, entry: Entry, path: str, data: bytes
    ) -> tuple[FileInfo | None, Stored | None]:
        reply = self._storage.put_if_absent(path, data)
        if base is not None and reply is not None and self._storage.bills_requests:
            return reply, None
        with self._report_unknown_outcome(entry, True):
            return reply, self._anchored_entry(base, entry)

    def _pauses(self, tries: int, error: OSError, first: Moment | None) -> bool:
        """Wait before the next try; return False if there is none."""
        clock = self._storage.clock
        hangs = isinstance(error, ReplicaNotAvailableError)  # it already waited
        if first is None or hangs or not self.is_patient:
            if tries < _AMBIGUOUS_TRIES:
                self._storage.pause(RACE_BACKOFF, tries - 1)
                return True
            return False
        if tries >= REQUEST_TRIES or clock.monotonic() - first.monotonic > REQUEST_SECONDS:
            return False
        self._storage.pause(REQUEST_BACKOFF, tries - 1)
        return True

    @contextmanager
    def _report_unknown_outcome(self, entry: Entry, possible: bool) -> Iterator[None]:
        """Raise `OutcomeUnknownError` for failures after a possible put."""
        try:
            yield
        except (CommitLogError, OSError) as error:
            if not possible:
                raise
            raise self._unknown(slot_of(entry), entry.kind, str(error)) from error

    def _read_back(self, base: Stored | None, entry: Entry, first: Moment | None, ambiguous: bool) -> Stored | None:
        """Decide a put refused with "exists" (rule O9).

        Without append a client library, proxy or mount may have repeated it: the entry may be, or have been, ours.
        """
        doubt = ambiguous or not self._storage.can_append
        try:
            stored = self.read(entry.sequence)
        except FileNotFoundError:  # another entry, collected since
            return self._search(entry) if doubt else None
        if stored.entry.write_id == entry.write_id:
            return self._confirm(base, entry, first)
        if doubt and not self._anchored(base, entry):
            return self._search(entry)
        return None  # another entry has the number; the next read checks the anchor

    def _confirm(self, base: Stored | None, entry: Entry, first: Moment | None) -> Stored | None:
        return self._confirmed(self._storage.run_as_one_call(partial(self._anchored_entry, base, entry)), entry, first)

    def _confirmed(self, found: Stored | None, entry: Entry, first: Moment | None) -> Stored | None:
        return self._search(entry) if found is None else self._acknowledged(found, first)

    def _anchored_entry(self, base: Stored | None, entry: Entry) -> Stored | None:
        try:
            stored = Stored(entry, self._storage.info(self._path(entry.sequence)))
        except FileNotFoundError:
            return None
        return stored if self._anchored(base, entry) and self._still_there(stored) else None

    def _confirm_reply(
        self, base: Stored, entry: Entry, reply: FileInfo, began: Moment, ambiguous: bool
    ) -> Stored | None:
        """Confirm a put whose response identifies the file, usually by one look.

        If the file's time is needed, look at it before the base, which then proves that it is the one put.
        """
        own = OwnPut.of(entry.write_id, reply, began, Moment.of(self._storage.clock), self._reference)
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
        """Decide a put that succeeded but whose anchor is gone.

        The anchor is deleted when its successor is older than the delay. A single, fresh try is younger: it came
        after the successor, and lost.
        """
        if ambiguous or not began.is_fresh(Moment.of(self._storage.clock)):
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
        """Decide a put without anchor by walking `prev` from the newest entry.

        None if another entry has its number.

        Raises:
            UndecidedError: the chain ends above the number.
        """
        self.forget()
        link = self.newest()
        if link is not None and link.sequence == entry.sequence:
            return link if link.entry.write_id == entry.write_id else None
        while link is not None and link.sequence > entry.following:
            link = self._previous_entry(link)
        if link is None or link.sequence <= entry.sequence:
            raise UndecidedError("the entries around its number are collected already")
        return Stored(entry, link.info) if link.entry.prev == entry.write_id else None

    def _previous_entry(self, link: Stored) -> Stored | None:
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

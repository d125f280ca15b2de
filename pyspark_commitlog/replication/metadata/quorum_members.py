"""Seats of a quorum, and how each learns what is decided."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.protocol.ballots import Value
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import (
    Replica,
    RestoredError,
    bring,
    drop_below,
    is_there,
    put_bytes,
)
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage import Storage


class MovedError(Exception):
    """Other metadata roots decide now; `Places` finds them."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Metadata root: acceptor, and journal of decided entries."""

    acceptor: Acceptor
    replica: Replica


class SeatedJournal(Journal):
    """Journal of a unit at several seats; see `Quorum`."""

    def __init__(
        self,
        seats: Sequence[Seat],
        unit: Unit,
        check: Callable[[Json, str], object],
        is_last: Callable[[], bool],
        many: int,
    ) -> None:
        super().__init__(seats[0].replica.storage, unit.directory, unit.kind, unit.sides, check)
        self.seats, self._unit, self._is_last, self._many = list(seats), unit, is_last, many

    @property
    def first(self) -> Replica:
        """Metadata root that is read by number."""
        return self.seats[0].replica

    def assure(self, stored: Stored) -> None:
        """Make an entry durable at the first seat."""
        self.first.journal.assure(stored)

    def _check_last(self) -> None:
        if not self._is_last():
            raise MovedError

    def _catch_up(self, replica: Replica, write_id: str, *, until: int) -> None:
        last = self._last_of(replica)
        if last is None:
            replica.storage.make_directory(self._directory)
        while last is None or last.entry.following < until:
            following = 1 if last is None else last.entry.following
            entry, data = self._following(last, write_id) or self._resume_entry(
                replica, following, Value(until - 1, write_id)
            )
            self._bring_tables(entry, replica)
            put_bytes(replica, self._unit, entry, data)
            if entry.sequence > following:
                drop_below(entry.sequence, replica)
                replica.journal.forget()
            last = replica.journal.read(entry.sequence)
        if last.entry.write_id != write_id and last.entry.following == until:
            raise ReplicaNotAvailableError(
                f"{replica.storage.url}/{self._directory}: entry {last.sequence} is another than was decided"
            )

    def _takes(self, replica: Replica, entry: Entry, data: bytes) -> bool:
        last = replica.learned()
        if last is None or (last.entry.following, last.entry.write_id) != (entry.sequence, entry.prev):
            return False
        self._bring_tables(entry, replica)
        put_bytes(replica, self._unit, entry, data)
        return True

    def _bring_tables(self, entry: Entry, replica: Replica) -> None:
        for needed in self._unit.files.tables(entry):
            bring(needed, replica.storage, self._storages())

    def _last_of(self, replica: Replica) -> Stored | None:
        """Return a root's newest entry, or the last before a gap.

        Stopped processes may put entries at collected numbers.
        """
        try:
            return replica.learned()
        except RestoredError:
            before = replica.journal.before_gap()
            if before is None:
                raise
            replica.journal.assure(before)
            return before

    def _following(self, last: Stored | None, write_id: str) -> tuple[Entry, bytes] | None:
        """Entry after `last`; None if no seat has its number.

        Of registers only the decided `write_id` counts.
        """
        number, prev = (1, "") if last is None else (last.entry.following, last.entry.write_id)
        found = list(self._held(number, write_id))
        linked = next((each for each in found if each[0].prev == prev), None)
        if linked is None and found:
            raise ReplicaNotAvailableError(f"{self._directory}: entry {number} does not follow the one that a root has")
        return linked

    def _resume_entry(self, replica: Replica, following: int, value: Value) -> tuple[Entry, bytes]:
        """Return the entry to go on with beyond collected ones.

        The oldest elsewhere that links to the decided `value`, number by number, and not above `hw`: in-sync roots
        may lack what is above. What they or joining roots lack is collected nowhere.
        """
        newest = self._copy_of(value)
        if self._unit.whole:
            return newest
        others = [seat.replica for seat in self.seats if seat.replica.id != replica.id]
        chained = [first for other in others if (first := _oldest(other, newest[0])) is not None]
        needed = state_of(newest[0]).hw if newest[0].is_replicated else newest[0].sequence
        oldest = min(chained, key=lambda entry: entry.sequence, default=None)
        if oldest is None or not following < oldest.sequence <= needed:
            raise ReplicaNotAvailableError(
                f"{self._directory}: no metadata root that answers has entry {following}, nor all from "
                f"entry {needed} on, which replicas need: try again when all answer"
            )
        return newest if oldest is newest[0] else self._copy_of(Value(oldest.sequence, oldest.write_id))

    def _copy_of(self, value: Value) -> tuple[Entry, bytes]:
        for found in self._held(*value):
            if found[0].write_id == value.write_id:
                return found
        raise ReplicaNotAvailableError(f"{self._directory}: no metadata root that answers has entry {value.number}")

    def _held(self, number: int, write_id: str) -> Iterator[tuple[Entry, bytes]]:
        for seat in self.seats:
            with suppress(CommitLogError, OSError):
                journal = seat.replica.journal
                try:
                    entry = journal.read(number).entry
                    data = journal.bytes_of(entry)
                except FileNotFoundError:
                    register, data = seat.acceptor.held()
                    if register.value != Value(number, write_id):
                        continue
                    entry = self._decoded(data, register.value)
                    if not entry.prev:  # a first entry has no base that names its deciders
                        self._check_last()
                yield entry, data

    def _decoded(self, data: bytes, value: Value) -> Entry:
        where = f"{self._directory}, entry {value.number} as accepted"
        entry = codec.decode(data, where=where, journal=self._kind, sequence=value.number)
        if entry.write_id != value.write_id:
            raise ReplicaNotAvailableError(f"{where}: others went on meanwhile")
        return entry

    def write_sides(self, slot: Slot, draft: Draft[object]) -> None:
        """Write side files to one seat, from which others copy."""
        failures = list[Exception]()
        for seat in self.seats:
            try:
                seat.replica.journal.write_sides(slot, draft)
            except (CommitLogError, OSError) as error:
                failures.append(error)
            else:
                return
        raise failures[0]

    def _storages(self) -> list[Storage]:
        return [seat.replica.storage for seat in self.seats]


def _oldest(replica: Replica, newest: Entry) -> Entry | None:
    """Return a root's oldest entry that links to a decided one.

    None if that chain is broken. Entries without tables were collected, and put again by a stopped process.
    """
    if not newest.prev:
        return newest
    try:
        if replica.journal.read(newest.sequence - 1).entry.write_id != newest.prev:
            return None
        for number in leading_to(newest.sequence, replica.journal.sequences()):
            with suppress(FileNotFoundError):  # collected since it was listed
                entry = replica.journal.read(number).entry
                if all(is_there(table, replica.storage) for table in replica.unit.files.tables(entry)):
                    return entry
    except (CommitLogError, OSError):
        pass
    return None


def leading_to(number: int, sequences: Sequence[int]) -> range:
    """Consecutive numbers that end below one (pure)."""
    below = bisect_left(sequences, number)
    first = number
    while below and sequences[below - 1] == first - 1:
        below, first = below - 1, first - 1
    return range(first, number)

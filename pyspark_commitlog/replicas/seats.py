"""The seats of a quorum: metadata roots that decide together, and how each of them learns what is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.replicas.acceptor import Acceptor
from pyspark_commitlog.replicas.ballots import Value
from pyspark_commitlog.replicas.learning import Replica, bring, drop_below, put_bytes
from pyspark_commitlog.replicas.unit import Unit
from pyspark_commitlog.storage import Storage


class MovedError(Exception):
    """These metadata roots decide no more: one of them was replaced. Caught where the others are found (``Places``)."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A metadata root: its acceptor, and its journal of what is decided."""

    acceptor: Acceptor
    replica: Replica


class SeatedJournal(Journal):
    """The journal of a unit at several seats; see ``Quorum``."""

    def __init__(
        self,
        seats: Sequence[Seat],
        unit: Unit,
        check: Callable[[Json, str], object],
        is_last: Callable[[], bool],
    ) -> None:
        super().__init__(seats[0].replica.storage, unit.directory, unit.kind, unit.sides, check)
        self.seats, self._unit, self._is_last = list(seats), unit, is_last

    @property
    def first(self) -> Replica:
        """The metadata root that is read by number."""
        return self.seats[0].replica

    def _check_last(self) -> None:
        if not self._is_last():
            raise MovedError

    def _catch_up(self, replica: Replica, write_id: str, *, until: int) -> None:
        """Have a root's ``journal/`` hold all below a number, of which the last is a decided entry.

        Raises:
            ReplicaNotAvailableError: it holds something else, or what it lacks is nowhere.
            CommitLogError, OSError: it does not answer.
        """
        last = replica.learned()
        if last is None:
            replica.storage.make_directory(self._directory)
        while last is None or last.entry.following < until:
            entry, data = self._following(last, write_id) or self._newest_alone(Value(until - 1, write_id))
            for needed in self._unit.files.tables(entry):
                bring(needed, replica.storage, self._storages())
            put_bytes(replica, self._unit, entry, data)
            if last is not None and entry.sequence > last.entry.following:
                drop_below(entry.sequence, replica)
            last = replica.journal.read(entry.sequence)
        if last.entry.write_id != write_id and last.entry.following == until:
            raise ReplicaNotAvailableError(
                f"{replica.storage.url}/{self._directory}: entry {last.sequence} is another than was decided"
            )

    def _following(self, last: Stored | None, write_id: str) -> tuple[Entry, bytes] | None:
        """Return the entry that follows one, from a seat that has learned it; a decided one also from a register.

        None: none of those that answer has one of its number.

        Args:
            write_id: of the entry that is known to be decided: what else a register holds may never be.

        Raises:
            ReplicaNotAvailableError: what they have there follows another.
        """
        number, prev = (1, "") if last is None else (last.entry.following, last.entry.write_id)
        found = list(self._held(number, write_id))
        linked = next((each for each in found if each[0].prev == prev), None)
        if linked is None and found:
            raise ReplicaNotAvailableError(f"{self._directory}: entry {number} does not follow the one that a root has")
        return linked

    def _newest_alone(self, value: Value) -> tuple[Entry, bytes]:
        """Return a decided entry for a seat that can't learn those before it: they are collected.

        Each entry of such a unit says all there is. It alone is known to be decided, and none that lies before it.

        Raises:
            ReplicaNotAvailableError: the unit's entries are not whole, or none has it.
        """
        found = self._held(*value) if self._unit.whole else iter(())
        for entry, data in found:
            if entry.write_id == value.write_id:
                return entry, data
        raise ReplicaNotAvailableError(f"{self._directory}: no metadata root that answers has what comes next")

    def _held(self, number: int, write_id: str) -> Iterator[tuple[Entry, bytes]]:
        """Yield what the seats have as an entry of a number: in their journals, or as decided in their registers."""
        for seat in self.seats:
            with suppress(CommitLogError, OSError):
                journal = seat.replica.journal
                try:
                    entry = journal.read(number).entry
                    data = journal.bytes_of(entry)
                except FileNotFoundError:
                    value = seat.acceptor.read().value
                    if value != Value(number, write_id):
                        continue
                    data = seat.acceptor.data()
                    entry = self._decoded(data, value)
                    if not entry.prev:  # no base says that these decide it
                        self._check_last()
                yield entry, data

    def _decoded(self, data: bytes, value: Value) -> Entry:
        where = f"{self._directory}, entry {value.number} as accepted"
        entry = codec.decode(data, where=where, journal=self._kind, sequence=value.number)
        if entry.write_id != value.write_id:
            raise ReplicaNotAvailableError(f"{where}: others went on meanwhile")
        return entry

    def _storages(self) -> list[Storage]:
        return [seat.replica.storage for seat in self.seats]

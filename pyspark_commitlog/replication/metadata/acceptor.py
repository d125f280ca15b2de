"""Acceptor: a unit's register at one metadata root, as a journal.

Each promise or accept is a compare-and-set of the newest record. A record names the identity of the file before, which
shows a restored copy; for the first `births` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from pyspark_commitlog.errors import OutcomeUnknownError
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.shape import Id, Shape, Whole, check, damage
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged, no_sides
from pyspark_commitlog.replication.metadata.births import Births, identity, refuse_copy
from pyspark_commitlog.replication.protocol import ballots
from pyspark_commitlog.replication.protocol.ballots import NO_BALLOT, NO_VALUE, Ballot, Register, Value
from pyspark_commitlog.replication.protocol.roots import Address, check_identity
from pyspark_commitlog.storage import Storage

_BallotShape = tuple[Whole, Id]


class _RecordShape(Shape):
    promised: _BallotShape
    accepted: _BallotShape
    value: tuple[Whole, Id]
    ended: bool
    before: Annotated[str, Meta(max_length=1000)]


def _check_record(body: Json, where: str) -> None:
    record, has_file = check(body, _RecordShape, where), "inline" in body
    if has_file != (Value(*record.value) != NO_VALUE):
        expected = "the file of the entry that value names" if record.value[0] else "none, as value names no entry"
        raise damage(where, "inline", body.get("inline"), expected)


class RefusedBallotError(Exception):
    """A higher ballot was promised."""

    def __init__(self, register: Register) -> None:
        super().__init__(f"ballot {register.promised} was promised")
        self.register = register


class Acceptor:
    """Register of a unit at a root. Not thread-safe."""

    def __init__(self, root: str, storage: Storage, directory: str) -> None:
        self.root, self._storage, self.directory = root, storage, directory
        self._journal = Journal(storage, directory, "acceptor", no_sides, _check_record)
        self._journal.is_patient = False  # a majority suffices, and waits for each seat
        self._births = Births(storage)

    def read(self) -> Register:
        """Return the register, synced; refuse a restored copy."""
        stored = self._journal.newest()
        if stored is None:
            self._check()
            return Register()
        self._journal.assure(stored)
        self._refuse_copy(stored)
        return _register(stored)

    def held(self) -> tuple[Register, bytes]:
        """Register and entry's file from one record, not synced.

        The register must not count.
        """
        stored = self._journal.newest()
        if stored is None:
            return Register(), b""
        return _register(stored), self._journal.inline(stored.entry)

    def promise(self, ballot: Ballot) -> Register:
        """Promise nothing below a ballot; return the register.

        Raises:
            RefusedBallotError: one as high was promised.
            CommitLogError, OSError: unknown outcome.
        """
        return self._change("promise", lambda register: ballots.promise(register, ballot), None)

    def accept(
        self, ballot: Ballot, value: Value, data: bytes, *, ahead: Ballot = NO_BALLOT, ended: bool = False
    ) -> Register:
        """Accept an entry, and promise `ahead`; return the register.

        `ended`: this set decides nothing after it.

        Raises:
            RefusedBallotError: a higher ballot was promised.
            CommitLogError, OSError: unknown outcome.
        """
        return self._change(
            "accept", lambda register: ballots.accept(register, ballot, value, ahead=ahead, ended=ended), data
        )

    def _change(self, kind: str, change: Callable[[Register], Register | None], data: bytes | None) -> Register:
        def plan(base: Stored | None, slot: Slot) -> Draft[Register] | Unchanged[Register]:
            before = Register() if base is None else _register(base)
            if base is not None:
                self._refuse_copy(base)
            after = change(before)
            if after is None:
                raise RefusedBallotError(before)
            inline = data if data is not None else b"" if base is None else self._journal.inline(base.entry)
            body = {
                "promised": list(after.promised),
                "accepted": list(after.accepted),
                "value": list(after.value),
                "ended": after.ended,
                "before": "" if base is None else identity(self._storage, self.directory, base.sequence),
            }
            return Draft(kind, "", body, inline, result=after)

        if self._journal.newest() is None:
            self._check()
            self._births.put()
            self._storage.make_directory(self.directory)
        found = self._journal.append(plan)
        self._journal.trim()
        if found.stored is None:
            raise OutcomeUnknownError(f"{self._storage.url}/{self.directory}: it is not known what was put")
        if not found.stored.entry.body["before"]:  # a copy may have come since
            self._births.refuse_copy()
        return found.result

    def _check(self) -> None:
        check_identity(self._storage, Address(self.root, self._storage.url))
        self._births.refuse_copy()

    def _refuse_copy(self, stored: Stored) -> None:
        if stored.entry.body["before"]:
            refuse_copy(self._storage, self._journal, self.directory, stored)
        else:
            self._births.refuse_copy()


def _register(stored: Stored) -> Register:
    body = stored.entry.body
    promised, accepted = Ballot(*body["promised"]), Ballot(*body["accepted"])
    return Register(promised, accepted, Value(*body["value"]), body["ended"])

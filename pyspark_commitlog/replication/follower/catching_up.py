"""Catch up: begin a root later, with another's segments (rule 7).

The segments go up to a visible entry, which is put, and learning goes on. What the root learned before ends below, so
nothing seen of it is taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.journal.anchor import stays_ms
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import (
    Allowance,
    CollectedError,
    NowhereError,
    Replica,
    RestoredError,
    bring,
    learn,
    put_bytes,
)
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replication")

#: Attempts while its next entry is collected as it copies: each time less is left.
_TRIES = 5


class SettledLog(Protocol):
    """Log settled up to an entry."""

    @property
    def sequence(self) -> int:
        """Entry number."""

    @property
    def write_id(self) -> str:
        """Write id."""


class SegmentCopier(Protocol):
    """Copies a settled log to another root."""

    def settled(self, donor: Storage) -> SettledLog:
        """Settle all that readers see; return that."""

    def copy(self, donor: Storage, target: Storage, there: Any, moved: Callable[[Any], None]) -> tuple[int, str]:
        """Copy a settled log, checked and durable; return number and id.

        `moved` gets the later log copied instead, as the donor goes on. On errors nothing counts, or all.
        """


def learn_or_catch_up(
    places: Places, root: str, segments: SegmentCopier | None, newest: Stored, allowed: Allowance
) -> int:
    """Bring an out-of-sync root up to an entry; return the number.

    `allowed` bounds learning; segments are copied whole, unless it is stopped.
    """
    state = state_of(newest.entry)
    for _ in range(_TRIES):
        try:
            donors = places.donors(state)
            return learn(places.decider(), places.at(root), places.unit, donors, newest, allowed=allowed)
        except (CollectedError, NowhereError):
            if segments is None or root in (*state.isr, *state.joining):
                raise
            catch_up(places, root, segments, newest, allowed.is_stopped)
            allowed.renew()
            newest = places.newest()
            state = state_of(newest.entry)
        except RestoredError:
            if root in (*state.isr, *state.joining) or not _drop_late(places.at(root)):
                raise
    raise ReplicaNotAvailableError(
        f"{places.unit.directory}: root {root} can't catch up: what it needs next is collected each time. Raise "
        "`file.delete.delay.ms` of the topic"
    )


def catch_up(
    places: Places, root: str, segments: SegmentCopier, newest: Stored, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Begin a root at an entry that an in-sync root has settled.

    `stopped`: asked after a failure whether to give up.
    """
    state, failures = state_of(newest.entry), []
    if root in state.set.roots:  # its journal is the base of decisions
        raise ReplicaNotAvailableError(f"root {root} decides what comes next: it can't begin later than it did")
    for other in dict.fromkeys((state.leader, *state.isr)):
        try:
            number = _begin(places, places.at(other), places.at(root), segments)
        except (CommitLogError, OSError) as error:
            if stopped():
                raise
            failures.append(str(error))
            continue
        logger.warning(
            "%s: root %s lagged too far: it has the segments of root %s up to entry %d, and learns from there on",
            places.unit.directory, root, other, number,
        )  # fmt: skip
        return
    raise ReplicaNotAvailableError(
        f"{places.unit.directory}: root {root} lags too far, and no root in sync can give it its segments: "
        f"{'; '.join(failures)}"
    )


def _drop_late(target: Replica) -> bool:
    """Delete late writers' entries unless a root has begun."""
    target.journal.forget()
    late, sequences = target.journal.newest(), target.journal.sequences()
    if late is None or not target.journal.read(sequences[0]).entry.prev:
        return late is None
    if target.unit.files.settled(target.storage, late.entry.topic_id):
        return False
    for sequence in sequences:
        if sequence <= late.sequence:  # a concurrent beginning is above
            target.journal.delete(sequence)
    target.journal.forget()
    return True


def _begin(places: Places, donor: Replica, target: Replica, segments: SegmentCopier) -> int:
    there = segments.settled(donor.storage)
    stored, data = _decided(places, donor, there.sequence)
    target.journal.forget()
    last = target.learned()
    if last is not None and last.sequence >= there.sequence:
        raise ReplicaNotAvailableError(
            f"root {donor.id} at {donor.storage.url} has settled up to entry {there.sequence}, root {target.id} has "
            f"learned {last.sequence}: `commitlog maintain` settles more"
        )
    _bring_tables(places, donor, target, stored)  # while an entry names them

    def moved(later: SettledLog) -> None:
        nonlocal stored, data
        stored, data = _decided(places, donor, later.sequence)  # it may be collected during the copy
        _bring_tables(places, donor, target, stored)

    through, write_id = segments.copy(donor.storage, target.storage, there, moved)
    if (through, write_id) != (stored.sequence, stored.entry.write_id):  # an earlier run began further on
        stored, data = _decided(places, donor, through)
    _bring_tables(places, donor, target, stored)
    put_bytes(target, places.unit, stored.entry, data)
    _let_go(target, stored.sequence)
    target.journal.forget()
    return stored.sequence


def _decided(places: Places, donor: Replica, sequence: int) -> tuple[Stored, bytes]:
    stored = donor.journal.read(sequence)
    _check_decided(places.decider(), donor, stored)
    return stored, donor.journal.bytes_of(stored.entry)


def _bring_tables(places: Places, donor: Replica, target: Replica, stored: Stored) -> None:
    for needed in places.unit.files.tables(stored.entry):
        bring(needed, target.storage, [donor.storage, places.decider().storage])


def _check_decided(decider: Replica, donor: Replica, stored: Stored) -> None:
    try:
        decided = decider.journal.read(stored.sequence).entry.write_id
    except FileNotFoundError:
        try:
            decided = decider.journal.read(stored.entry.following).entry.prev
        except FileNotFoundError:
            raise ReplicaNotAvailableError(
                f"entry {stored.sequence}, up to which root {donor.id} has settled, is collected; run it again"
            ) from None
    if decided != stored.entry.write_id:
        raise ReplicaNotAvailableError(
            f"root {donor.id} at {donor.storage.url} has another entry {stored.sequence} than was decided: its history "
            "is another one. Nothing is copied from it"
        )


def _let_go(target: Replica, below: int) -> None:
    # a process anchored on an older entry would never find those beyond the gap
    journal, storage = target.journal, target.storage
    oldest = below if storage.can_append else journal.older_than(storage.now_ms() - stays_ms())
    for sequence in journal.sequences():
        if sequence < min(below, oldest):
            journal.delete(sequence)

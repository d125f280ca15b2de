"""Journal of several metadata roots, read through their majority.

It survives: a root that returns with an old journal learns before it counts; the root that is read goes away; a process
dies before anybody learned its commit, which the next look finds or has decided again; a root that lacks collected
entries goes on with the newest, a complete one, and deletes older ones, ascending, as readers would stand on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored, no_sides
from pyspark_commitlog.journal.entries import Appended, Plan, Result
from pyspark_commitlog.replication.leader.replicated_journal import ReplicatedJournal
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.replication.protocol.unit import NoAppends, Unit
from pyspark_commitlog.storage import Storage


class QuorumJournal(ReplicatedJournal):
    """Journal that a majority decides; all methods need one."""

    @property
    def _decider(self) -> Journal:
        return self.decided_log().places.decider().journal

    @property
    def is_replicated(self) -> bool:
        return True

    def newest(self) -> Stored | None:
        return self._visible(self.head())

    def head(self) -> Stored | None:
        """Newest decided entry."""
        return self.decided_log().places.decided()

    def recent(self, seconds: float) -> Stored | None:
        return self.newest()

    def is_followed(self, stored: Stored) -> bool:
        newest = self.newest()
        return newest is not None and newest.sequence > stored.sequence

    def read(self, sequence: int) -> Stored:
        return self._decider.read(sequence)

    def sequences(self) -> list[int]:
        return self._decider.sequences()

    def side(self, topic_id: str, named: Json) -> bytes:
        return self._decider.side(topic_id, named)

    def bytes_of(self, entry: Entry) -> bytes:
        return self._decider.bytes_of(entry)

    def sync_exposed(self, stored: Stored) -> None:
        """Do nothing: a majority has synced it."""

    def assure(self, stored: Stored) -> None:
        """Do nothing: a majority has synced it."""

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        return self.decided_log().append(plan, repeatable=repeatable)

    def supersede(self, make: object) -> Stored:
        """Refuse: that is for one root alone."""
        raise UnsupportedError(
            f"{self._directory}: several metadata roots decide it: what is damaged at one of them the others have. "
            "Bring those back that are away"
        )


def unit_journal(
    storage: Storage, unit: Unit, check: Callable[[Json, str], object], *, decided: bool
) -> ReplicatedJournal:
    """Return a unit's journal at a root; read where it is `decided`, or as the root has learned it."""
    return (QuorumJournal if decided else ReplicatedJournal)(storage, unit, check)


class SettingsJournal(Protocol):
    """What settings (defaults, access rules) need of a journal; see `Journal`."""

    def newest(self) -> Stored | None:
        """Return the newest entry."""

    def append(self, plan: Plan[Result]) -> Appended[Result]:
        """Put one entry."""

    def trim(self) -> None:
        """Delete old entries."""

    def faults(self) -> list[str]:
        """Return the faults of the entries."""


def settings_journal(
    storage: Storage, roots: Roots | None, directory: str, kind: str, check: Callable[[Json, str], object]
) -> SettingsJournal:
    """Return the journal of settings at a root, or, if several decide together, of those `roots`."""
    if roots is None:
        return Journal(storage, directory, kind, no_sides, check)
    return _DecidedSettings(Places(roots, Unit(directory, kind, no_sides, NoAppends(), whole=True), check))


class _DecidedSettings:
    def __init__(self, places: Places) -> None:
        self._places = places

    def newest(self) -> Stored | None:
        return self._places.decided()

    def append(self, plan: Plan[Result]) -> Appended[Result]:
        return self._places.decide(plan)

    def trim(self) -> None:
        self._places.decider().journal.trim()

    def faults(self) -> list[str]:
        return self._places.decider().journal.faults()

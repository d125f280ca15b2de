"""A journal as several metadata roots decide it, read through their majority: for what is asked where it is decided.

Each look asks a majority, whatever the root that was opened has learned. So it goes on while that root, and fewer than
half of those that decide, are away; and a reader never finds less than what was acknowledged before it looked.

Interleavings that it has to survive:

1. A metadata root that was away comes back with an old journal: it is not believed alone, and learns first.
2. The root that was opened goes away, or the metadata root that was read first: the next look goes to the others.
3. A process commits, and is killed before anybody has learned it: the next look finds it, or has it decided again.
4. A metadata root lags so far that what it needs next is collected: each entry of a group says all there is, so it goes
   on with the newest; what it had below goes then, ascending, or a reader there would stand on it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored, no_sides
from pyspark_commitlog.journal.entries import Appended, Plan, Result
from pyspark_commitlog.replicas.journal import ReplicatedJournal
from pyspark_commitlog.replicas.replica_journals import Places
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.replicas.unit import NoAppends, Unit


class DecidedJournal(ReplicatedJournal):
    """A journal that a majority decides; see ``ReplicatedJournal``.

    Raises:
        ReplicaNotAvailableError: of all of it: no majority answers, so nothing is known, and nothing can be decided.
    """

    @property
    def _decider(self) -> Journal:
        return self.order().places.decider().journal

    @property
    def is_replicated(self) -> bool:
        """Return True: what several roots decide has replicas."""
        return True

    def newest(self) -> Stored | None:
        """Return the newest entry that readers may see; of a group, which has no appends, that is what is decided."""
        return self._visible(self.head())

    def head(self) -> Stored | None:
        """Return the newest decided entry."""
        return self.order().places.decided()

    def recent(self, seconds: float) -> Stored | None:
        """Return the newest entry, as ``newest``."""
        return self.newest()

    def is_followed(self, stored: Stored) -> bool:
        """Return whether an entry follows this one."""
        newest = self.newest()
        return newest is not None and newest.sequence > stored.sequence

    def read(self, sequence: int) -> Stored:
        """Return the entry at a number; see ``Journal.read``."""
        return self._decider.read(sequence)

    def sequences(self) -> list[int]:
        """Return the numbers that are stored where it is read."""
        return self._decider.sequences()

    def side(self, topic_id: str, named: Json) -> bytes:
        """Return a side file that an entry names; see ``Journal.side``."""
        return self._decider.side(topic_id, named)

    def bytes_of(self, entry: Entry) -> bytes:
        """Return an entry's file; see ``Journal.bytes_of``."""
        return self._decider.bytes_of(entry)

    def sync_exposed(self, stored: Stored) -> None:
        """Do nothing: what a majority has shown it has synced."""

    def assure(self, stored: Stored) -> None:
        """Do nothing, as ``sync_exposed``."""

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Have one entry decided; see ``ReplicatedJournal.append``."""
        return self.order().append(plan, repeatable=repeatable)

    def supersede(self, make: object) -> Stored:
        """Refuse: entries that can't be read are given up at one root alone."""
        raise UnsupportedError(
            f"{self._directory}: several metadata roots decide it: what is damaged at one of them the others have. "
            "Bring those back that are away"
        )


def decided_settings(roots: Roots, directory: str, kind: str, check: Callable[[Json, str], object]) -> Journal:
    """Return a journal of settings as several metadata roots decide it; what is read there asks a majority.

    Args:
        roots: those that belong together.
        directory: of the journal, which has no side files, and whose entries say all there is.
        kind: see ``Journal``.
        check: likewise.

    Raises:
        ReplicaNotAvailableError: no majority answers.
    """
    return _SettingsJournal(Places(roots, Unit(directory, kind, no_sides, NoAppends(), whole=True), check))


class _SettingsJournal(Journal):
    """A journal of settings that a majority decides, wherever that is by now.

    Where none answers, all of it raises ``ReplicaNotAvailableError``.
    """

    def __init__(self, places: Places) -> None:
        self._places, self._directory = places, places.unit.directory

    def newest(self) -> Stored | None:
        """Return the newest decided entry."""
        return self._places.decided()

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Have one entry decided; see ``Journal.append``."""
        return self._places.decide(plan, repeatable=repeatable)

    def trim(self) -> None:
        """Remove all entries but the newest two."""
        self._places.decider().journal.trim()

    def faults(self) -> list[str]:
        """Return the faults of the entries that are still there."""
        return self._places.decider().journal.faults()

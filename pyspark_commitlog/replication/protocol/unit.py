"""Unit of replication: a journal and its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format.entry import Checked, Entry, Json
from pyspark_commitlog.journal import Draft, Journal
from pyspark_commitlog.storage import Storage


class NeededFile(NamedTuple):
    """File that an entry names."""

    path: str
    checked: Checked


#: Returns a side file that an entry names: (topic id, how it is named).
ReadSide = Callable[[str, Json], bytes]


class ReplicationLimits(NamedTuple):
    """`min.insync.replicas`, `replica.lag.time.max.ms`, and `unclean.leader.election.enable`."""

    min_insync: int
    lag_ms: int
    unclean: bool = False


class UncleanElection(NamedTuple):
    """Entry that may void read records; `root` leads."""

    entry: int
    epoch: int
    at_ms: int
    root: str


class UnitFiles(Protocol):
    """Meaning and files of a unit's entries."""

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Return an entry's configs."""

    def drafted(self, draft: Draft[Any]) -> Sequence[NeededFile]:
        """Chunks that a draft names."""

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Whether `newest` voids an append."""

    def elected(
        self,
        base: Entry,
        hw: int,
        above: Sequence[int],
        voids: Sequence[int],
        journal: Journal,
        election: UncleanElection | None = None,
    ) -> Json:
        """Body of an election's entry: void offsets, writers' rows.

        Of the living appends `above` `hw` the `voids` become void. `election` is the entry itself, if it voids what was
        read or promised.
        """

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Whether an entry is a living append, by `newest`."""

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Return an append's offsets: (partition, start, end)."""

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Side files that an entry names."""

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[NeededFile]:
        """Return an entry's chunks, none if `newest` voids it."""

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Return the number that a root has settled up to, or 0."""

    def begins(self, newest: Entry) -> int:
        """First entry number needed, after deleted incarnations."""

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make what an entry needs first, such as directories."""


class NoAppends:
    """`UnitFiles` without appends or files: settings, a group."""

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Built-in configs."""
        return ReplicationLimits(1, TopicConfig({}).number("replica.lag.time.max.ms"))

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Return nothing."""
        return []

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Return nothing."""
        return []

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[NeededFile]:
        """Return nothing."""
        return []

    def drafted(self, draft: Draft[Any]) -> Sequence[NeededFile]:
        """Return nothing."""
        return []

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Return 0."""
        return 0

    def begins(self, newest: Entry) -> int:
        """Newest number: each entry is complete."""
        return newest.sequence

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Do nothing."""

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False."""
        return False

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False."""
        return False

    def elected(
        self,
        base: Entry,
        hw: int,
        above: Sequence[int],
        voids: Sequence[int],
        journal: Journal,
        election: UncleanElection | None = None,
    ) -> Json:
        """Unchanged state."""
        return {"state": base.body["state"]}


class Unit(NamedTuple):
    """Replicated journal; `sides` as of `Journal`."""

    directory: str
    kind: str
    sides: Callable[[str, str], str]
    files: UnitFiles
    #: Whether each entry is complete: a root that lacks collected entries goes on with the oldest one that is left.
    whole: bool = False

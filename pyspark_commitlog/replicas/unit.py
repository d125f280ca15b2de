"""What is replicated as one: a journal, and the files that its entries need on a root that learns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format.entry import Checked, Entry, Json
from pyspark_commitlog.journal import Draft, Journal
from pyspark_commitlog.storage import Storage


class NeededFile(NamedTuple):
    """File that an entry names, with its length and CRC-32C."""

    path: str
    checked: Checked


#: Returns a side file that an entry names: (topic id, how it is named).
ReadSide = Callable[[str, Json], bytes]


class ReplicationLimits(NamedTuple):
    """``min.insync.replicas``, ``replica.lag.time.max.ms``, and ``unclean.leader.election.enable``."""

    min_insync: int
    lag_ms: int
    unclean: bool = False


class UncleanElection(NamedTuple):
    """Entry that may void records that were read.

    It has the number, the leader epoch, the time, and the root that leads.
    """

    entry: int
    epoch: int
    at_ms: int
    root: str


class UnitFiles(Protocol):
    """What entries of a unit need on a root, and what they mean to it; the log's knowledge."""

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Return the configs that go with an entry."""

    def drafted(self, draft: Draft[Any]) -> Sequence[NeededFile]:
        """Return the chunks that an append is to name."""

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return whether ``newest`` calls an append void."""

    def elected(
        self,
        base: Entry,
        hw: int,
        above: Sequence[int],
        voids: Sequence[int],
        journal: Journal,
        election: UncleanElection | None = None,
    ) -> Json:
        """Return the body of the entry that makes appends void: their offsets, and what is remembered of writers.

        Args:
            base: the newest entry.
            hw: the number at the high watermark.
            above: the numbers of the living appends above it.
            voids: those of them that become void.
            journal: where the entries are.
            election: the entry itself, where what it makes void may have been read, or was promised.
        """

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return whether an entry is an append that ``newest`` does not call void."""

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Return the offsets of an append: (partition, start, end)."""

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Return the side files that an entry names."""

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[NeededFile]:
        """Return the chunks of an entry that are needed by ``newest``: that is not void; ``side`` reads its tables."""

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Return the number of the entry below which a root has settled all, which readers may see; 0 for none."""

    def begins(self, newest: Entry) -> int:
        """Return the number of the first entry that a root needs: none of a life of before, nor of what is deleted."""

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make what a root has to have before it learns an entry: the directories of a topic that is created."""


class NoAppends:
    """What a unit says that has no appends, and no files but those that its entries name: settings, a group."""

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Return the built-in configs."""
        return ReplicationLimits(1, TopicConfig({}).number("replica.lag.time.max.ms"))

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Return nothing: all stands in the entry."""
        return []

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Return nothing, as ``chunks``."""
        return []

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[NeededFile]:
        """Return nothing: there are no appends."""
        return []

    def drafted(self, draft: Draft[Any]) -> Sequence[NeededFile]:
        """Return nothing, as ``chunks``."""
        return []

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Return 0: nothing is settled."""
        return 0

    def begins(self, newest: Entry) -> int:
        """Return the newest entry's number: it says all there is."""
        return newest.sequence

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make nothing."""

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False: there are no appends."""
        return False

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False: an election makes nothing void."""
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
        """Return the body of an entry that names another leader: all as it was."""
        return {"state": base.body["state"]}


class Unit(NamedTuple):
    """A journal by its directory and kind, where its side files are (see ``Journal``), and its files."""

    directory: str
    kind: str
    sides: Callable[[str, str], str]
    files: UnitFiles
    #: Whether each entry says all there is: a root that lags beyond what is kept goes on with what is left.
    whole: bool = False

"""What the entries of a group need on a root that learns them: the group's knowledge for ``replicas``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Checked, Entry, Json
from pyspark_commitlog.journal import Draft, Journal
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.replicas.unit import Limits, Needed, ReadSide, Uncleanly
from pyspark_commitlog.storage import Storage


class GroupFiles:
    """See ``replicas.unit.UnitFiles``; of one group, as asked at one root. No entry of a group is an append."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._name, self._defaults = name, RootDefaults(storage)

    def limits(self, entry: Entry) -> Limits:
        """Return the configs that go with an entry: the root's defaults."""
        config = TopicConfig(self._defaults.by_topic_name())
        return Limits(1, config.number("replica.lag.time.max.ms"))

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Return nothing, as ``chunks``."""
        return []

    def tables(self, entry: Entry) -> Sequence[Needed]:
        """Return the file of the members, where an entry names one."""
        members = entry.body["state"].get("members") or {}
        if "file" not in members:
            return []
        return [Needed(f"{paths.group_side(self._name)}/{members['file']}", Checked.from_json(members))]

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[Needed]:
        """Return nothing: offsets stand in the entries."""
        return []

    def drafted(self, draft: Draft[Any]) -> Sequence[Needed]:
        """Return nothing, as ``chunks``."""
        return []

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Return 0: nothing is settled."""
        return 0

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make the group's directories."""
        for directory in (paths.group_journal(self._name), paths.group_side(self._name)):
            storage.make_directory(directory)

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False: there are no appends."""
        return False

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Return False: an election makes no entry of a group void."""
        return False

    def elected(
        self,
        base: Entry,
        hw: int,
        above: Sequence[int],
        voids: Sequence[int],
        journal: Journal,
        uncleanly: Uncleanly | None = None,
    ) -> Json:
        """Return the body of an entry that names another leader: the group as it was."""
        return {"state": base.body["state"]}

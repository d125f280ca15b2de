"""Files that a group's entries need on a replica."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Checked, Entry
from pyspark_commitlog.replication.protocol.unit import NeededFile, NoAppends, ReplicationLimits
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.defaults import RootDefaults


class GroupFiles(NoAppends):
    """A group's `UnitFiles`, at one root; no entry is an append."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._name, self._defaults = name, RootDefaults(storage)

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Return an entry's configs: root defaults, or built-in ones during an outage."""
        try:
            config = TopicConfig(self._defaults.by_topic_name())
        except OSError:
            config = TopicConfig({})
        return ReplicationLimits(1, config.number("replica.lag.time.max.ms"))

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        members = entry.body["state"].get("members") or {}
        if "file" not in members:
            return []
        return [NeededFile(f"{paths.group_side(self._name)}/{members['file']}", Checked.from_json(members))]

    def prepare(self, storage: Storage, entry: Entry) -> None:
        for directory in (paths.group_journal(self._name), paths.group_side(self._name)):
            storage.make_directory(directory)

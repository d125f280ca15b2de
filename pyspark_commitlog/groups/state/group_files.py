"""What the entries of a group need on a root that learns them: the group's knowledge for ``replicas``."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Checked, Entry
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.replicas.unit import NeededFile, NoAppends, ReplicationLimits
from pyspark_commitlog.storage import Storage


class GroupFiles(NoAppends):
    """See ``replicas.unit.UnitFiles``; of one group, as asked at one root. No entry of a group is an append."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._name, self._defaults = name, RootDefaults(storage)

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Return the configs that go with an entry: the root's defaults; built-in ones while it does not answer."""
        try:
            config = TopicConfig(self._defaults.by_topic_name())
        except OSError:
            config = TopicConfig({})
        return ReplicationLimits(1, config.number("replica.lag.time.max.ms"))

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Return the file of the members, where an entry names one."""
        members = entry.body["state"].get("members") or {}
        if "file" not in members:
            return []
        return [NeededFile(f"{paths.group_side(self._name)}/{members['file']}", Checked.from_json(members))]

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make the group's directories."""
        for directory in (paths.group_journal(self._name), paths.group_side(self._name)):
            storage.make_directory(directory)

"""Root-wide defaults of topic configs, Kafka's broker configs.

The newest entry of their journal holds all of them; it may not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_commitlog.broker_config import check_defaults, topic_defaults
from pyspark_commitlog.config import check_together
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.shape import Shape, check, damage
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.leader.quorum_journal import settings_journal
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.state.shapes import check_topic_config


class RootDefaults:
    """Handle on a root's defaults, as of the newest entry.

    `roots` are the metadata roots that decide together, if any.
    """

    def __init__(self, storage: Storage, roots: Roots | None = None) -> None:
        self._storage, self._roots = storage, roots
        self._journal = settings_journal(storage, roots, paths.CONFIG_JOURNAL, "config", _check_entry)

    def faults(self) -> list[str]:
        """Faults of the retained entries."""
        return self._journal.faults()

    def as_given(self) -> Mapping[str, str]:
        """Defaults by the names they were set with.

        No fallback if damaged: retention would delete by it.
        """
        return _config(self._journal.newest())

    def by_topic_name(self) -> Mapping[str, str]:
        """Defaults by topic config; raises as `as_given`."""
        return topic_defaults(self.as_given())

    def alter(self, config: Mapping[str, object]) -> None:
        """Set defaults; None removes one. Keeps the newest two entries."""
        removed, checked = check_defaults(config)
        if self._roots is None:
            self._storage.make_directory(paths.CONFIG_JOURNAL)

        def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            before = _config(base)
            after = {**{name: value for name, value in before.items() if name not in removed}, **checked}
            check_together(topic_defaults(after), appends=self._storage.can_append)
            return Unchanged(None) if after == before else Draft("alter", "", {"config": after}, result=None)

        self._journal.append(plan)
        self._journal.trim()


class _DefaultsEntry(Shape):
    config: dict[str, str]


def _check_entry(body: Json, where: str) -> None:
    config = check(body, _DefaultsEntry, where).config
    try:
        by_topic_name = topic_defaults(config)
    except ValueError as error:
        raise damage(where, "config", config, "values that can be read") from error
    check_topic_config(dict(by_topic_name), where)


def _config(stored: Stored | None) -> Mapping[str, str]:
    config: Mapping[str, str] = {} if stored is None else stored.entry.body["config"]
    return config

"""`RootConfig`: root-wide defaults of topic configs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_commitlog.config import ALL
from pyspark_commitlog.format import paths
from pyspark_commitlog.replication.admin.settings import spread
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.defaults import RootDefaults


class RootConfig:
    """Root-wide defaults of topic configs (Kafka: cluster-wide broker configs)."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def get(self) -> dict[str, str]:
        """Defaults, by the names they were set with.

        Raises:
            RootNotFoundError: there is no root here.
            CorruptionError: they are damaged.
        """
        self._root.check()
        return dict(RootDefaults(self._root.storage).as_given())

    def alter(self, config: Mapping[str, object]) -> None:
        """Change defaults; running writers and settlers go by them from their next commit.

        A topic's own config precedes a default of the root, and that the built-in one.

        Args:
            config: Kafka's broker-wide names (`log.retention.hours`, `log.segment.bytes`, …) and those of topic
                configs; None removes a default.

        Raises:
            RootNotFoundError: there is no root here.
            ConfigError: nothing was changed.
        """
        root = self._root
        root.check()
        root.local_access.check(Operation.ADMIN, ALL)
        if not root.is_replicated:
            RootDefaults(root.storage).alter(config)
            return
        roots = Roots.of(root.storage)
        decided = RootDefaults(root.deciding) if root.deciders is None else RootDefaults(root.storage, roots)
        decided.alter(config)
        spread(roots, paths.CONFIG_JOURNAL)

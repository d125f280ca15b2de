"""The data source of Spark on a world's root, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.source import DefaultSource
from pyspark_commitlog.testing.faults import Hook
from tests.support.world import World


class Source(DefaultSource):
    """The data source with a driver whose storage is told to a hook."""

    world: World
    hook: Hook | None = None

    def open_log(self, path: str, storage: Mapping[str, str]) -> Root:
        """Return the log of the world."""
        return self.world.log(self.hook).root

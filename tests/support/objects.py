"""A small root on storage without append: what is settled lies in segment objects."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from tests.support.world import World


class UnknownMount(LocalStorage):
    """A directory of which nobody knows whether locks hold there."""

    can_append = False


@dataclass
class ObjectWorld(World):
    """A root on such a mount."""

    def storage(self, hook: Hook | None = None) -> LocalStorage | FaultyStorage:
        """Return a door to the root, told to ``hook``."""
        local = UnknownMount(self.path, clock=self.clock)
        return local if hook is None else FaultyStorage(local, hook)  # type: ignore[abstract]

    def settled(self, name: str = "t") -> SettleState:
        """Return the newest settle state, as another process reads it."""
        topic = self.handle(name=name)
        return topic.settled(topic.newest()[1].topic_id)[1]

    def objects(self) -> list[str]:
        """Return the names of all segment objects that are stored."""
        return [path.rpartition("/")[2] for path in self.files(".segment")]


def topic_id(topic: TopicLog) -> str:
    """Return the current incarnation."""
    return topic.newest()[1].topic_id

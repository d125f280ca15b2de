"""The stage: the topics, their roots by their names, and how each is opened, by every process that plays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage import Storage, open_peer
from pyspark_commitlog.topic.topic_log import TopicLog

#: The topics: what nothing is taken from; what is compacted; what retention, and people, take the oldest records of.
TOPIC, COMPACTED, RETAINED = "t", "k", "r"
TOPICS = (TOPIC, COMPACTED, RETAINED)
PARTITIONS = 2
GROUP = "g"
DATA = ("a", "b", "c")
METADATA = ("m", "n", "o")


@dataclass(frozen=True)
class Stage:
    """Where the roots are: directories of `home` by their names, but for those in a bucket.

    Args:
        home: the directory of all.
        buckets: URLs of roots in a bucket, by their names.
        options: the `storage_options` of these.
    """

    home: Path
    buckets: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, home: Path) -> Stage:
        """Return the stage that was set up in a directory."""
        return cls(home, **json.loads((home / "stage.json").read_text()))

    def set_up(self) -> None:
        """Have other processes find it."""
        told = {name: value for name, value in asdict(self).items() if name != "home"}
        (self.home / "stage.json").write_text(json.dumps(told))

    def url(self, root: str) -> str:
        """Return where a root is."""
        return self.buckets.get(root) or str(self.home / root)

    def urls(self, first: str) -> str:
        """Return all roots with data, as a client names them."""
        return ",".join(map(self.url, (first, *(each for each in DATA if each != first))))

    def storage(self, root: str) -> Storage:
        """Return the door to one root."""
        return open_peer(self.url(root), self.options, self.options)

    def log(self, root: str) -> CommitLog:
        """Return the log, opened at one root."""
        return CommitLog.on(self.storage(root))

    def topic(self, root: str, name: str = TOPIC) -> TopicLog:
        """Return a handle on a topic, to read with at one root."""
        return TopicLog(self.storage(root), name)

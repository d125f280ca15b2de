"""A small root with a clock that stands still, and several processes' handles on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.maintain.maintain import Maintained
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import read_topic

#: Chunks instead of inline frames; delays of a minute, orphans may go after an hour, records stay for ever.
CHUNKS = {
    "inline.max.bytes": 0,
    "file.delete.delay.ms": 60_000,
    "staged.retention.ms": 3_600_000,
    "retention.ms": -1,
}
DELAY_MS = 60_000
RETENTION_MS = 3_600_000


@dataclass
class World:
    """A root; `handle` and `log` stand for one process each."""

    path: Path
    clock: ManualClock = field(default_factory=ManualClock)

    def storage(self, hook: Hook | None = None) -> LocalStorage | FaultyStorage:
        """Return a door to the root, told to `hook`."""
        local = LocalStorage(self.path, clock=self.clock)
        return local if hook is None else FaultyStorage(local, hook)  # type: ignore[abstract]

    def log(self, hook: Hook | None = None) -> CommitLog:
        """Return another process' log."""
        return CommitLog.on(self.storage(hook))

    def handle(self, hook: Hook | None = None, name: str = "t") -> TopicLog:
        """Return another process' handle on a topic."""
        return TopicLog(self.storage(hook), name)

    def create(
        self, partitions: int = 1, config: Mapping[str, object] = CHUNKS, name: str = "t", **declared: Any
    ) -> TopicLog:
        """Create a topic and return a handle on it; `declared` is its schema."""
        self.log().create_topic(name, partitions, config, **declared)
        return self.handle(name=name)

    def maintain(self, name: str = "t") -> Maintained:
        """Maintain as one more process."""
        return self.log().topic(name).maintain()

    def collect_all(self, name: str = "t") -> None:
        """Settle, wait for the delay, collect: entries and chunks but the newest two entries are gone."""
        self.maintain(name)
        self.clock.advance(DELAY_MS)
        self.maintain(name)

    def values(self, name: str = "t") -> list[bytes | None]:
        """Return what a fresh process reads."""
        return [record.value for record in read_topic(self.handle(name=name))]

    def files(self, part: str = "", *, root: str = "topics") -> list[str]:
        """Return the paths of all files whose path contains `part`, temporary ones too."""
        found = (str(p.relative_to(self.path)) for p in (self.path / root).rglob("*") if p.is_file())
        return sorted(path for path in found if part in path)

    def group_offsets(self, group: str = "g") -> list[int | None]:
        """Return what a group has committed, partition by partition; nothing if it is not there."""
        groups = self.log().groups
        return [row.offset for row in groups.describe(group).partitions] if group in groups.list() else []

    def entries(self, name: str = "t") -> list[int]:
        """Return the numbers in a topic's journal."""
        return self.handle(name=name).journal.sequences()


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Return a function that acts at its first call only."""
    done: list[bool] = []

    def call() -> None:
        if not done:
            done.append(True)
            act()

    return call


def raising(error: Exception) -> Callable[[], None]:
    """Return a function that raises."""

    def call() -> None:
        raise error

    return call


def failing(message: str = "injected") -> Callable[[], None]:
    """Return a function that raises a storage error."""
    return raising(StorageError(message))


def several(*hooks: Hook) -> Hook:
    """Return a hook that tells several."""

    def hook(operation: str, path: str, moment: str) -> None:
        for each in hooks:
            each(operation, path, moment)

    return hook


@dataclass
class Recorder:
    """A hook that writes down operations, in order."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, operation: str, path: str, moment: str) -> None:
        """Write down what was done."""
        if moment == "after":
            self.calls.append((operation, path))

    def paths(self, operation: str) -> list[str]:
        """Return the paths of one operation, in order."""
        return [path for found, path in self.calls if found == operation]

    def first(self, operation: str, part: str = "") -> int:
        """Return the position of the first such operation."""
        return next(i for i, (found, path) in enumerate(self.calls) if found == operation and part in path)


def many(count: int, prefix: bytes = b"v") -> Sequence[bytes]:
    """Return `count` different values."""
    return [prefix + b"%06d" % n for n in range(count)]

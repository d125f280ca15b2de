"""A root in a bucket, with the face of `tests.support.world.World`, so that scenes of local roots can be played on it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import obstore

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import SystemClock
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.storage.race import record_path
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.object_stores.servers import Bucket
from tests.support.world import World


class ShiftedClock(SystemClock):
    """This machine's clock, and what a test adds; a pause that a retry asks for takes a hundredth, and is added up."""

    def __init__(self) -> None:
        self.shift_ms = 0
        self.slept = 0.0

    def now_ms(self) -> int:
        """Return the time that the test wants it to be."""
        return super().now_ms() + self.shift_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.shift_ms += ms

    def sleep(self, seconds: float) -> None:
        """Wait a little."""
        self.slept += seconds
        super().sleep(seconds / 100)


class ShiftedStorage(ObjectStorage):
    """A bucket whose time is moved by its clock's shift: servers stamp files with their own."""

    def now_ms(self) -> int:
        """Return storage's time, moved."""
        assert isinstance(self.clock, ShiftedClock)
        return super().now_ms() + self.clock.shift_ms


class ObjectWorld(World):
    """A root at `<bucket>/<prefix>`; handles, logs and storages are of processes of their own, as in `World`."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.path = Path(prefix)
        self.bucket = bucket
        self.clock = ShiftedClock()  # type: ignore[assignment]

    @property
    def url(self) -> str:
        """Return the root's URL."""
        return f"{self.bucket.url}/{self.path}"

    def through(self, bucket: Bucket) -> ObjectWorld:
        """Return the same root, and clock, as reached by another endpoint."""
        other = copy.copy(self)
        other.bucket = bucket
        return other

    def tried(self, bucket: Bucket) -> ObjectWorld:
        """Return the same root as reached by another endpoint; where it is there, it says that this one is safe: no race."""
        other = self.through(bucket)
        if self.objects():
            self.storage().write_once(record_path(other.storage().client), b"{}\n")
        return other

    def storage(self, hook: Hook | None = None) -> Any:
        """See `World.storage`."""
        storage: Storage = ShiftedStorage(self.url, self.bucket.options, clock=self.clock)
        return storage if hook is None else FaultyStorage(storage, hook)  # type: ignore[abstract]

    def log(self, hook: Hook | None = None) -> CommitLog:
        """See `World.log`."""
        return CommitLog.on(self.storage(hook))

    def handle(self, hook: Hook | None = None, name: str = "t") -> TopicLog:
        """See `World.handle`."""
        return TopicLog(self.storage(hook), name)

    def objects(self) -> list[str]:
        """Return the names of all objects below the root."""
        listing = obstore.list(self.storage()._client())
        return sorted(one["path"] for page in listing for one in page)

    def files(self, part: str = "", *, root: str = "topics") -> list[str]:
        """See `World.files`."""
        return [path for path in self.objects() if path.startswith(f"{root}/") and part in path]

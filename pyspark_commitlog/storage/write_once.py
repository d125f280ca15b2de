"""Base of write-once backends: no locks, no directories, time from replies."""

from __future__ import annotations

import random
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.clock import FRESH_SECONDS, StoreTime

#: Directory of short-lived files that reveal storage's time; older ones are a killed process's.
CLOCK = "clock"
_LEFT_MS = 3_600_000


class WriteOnceStorage(Storage):
    """Storage whose files are put whole, as durable as it makes them."""

    can_append = False

    #: Storage's time from replies, and the monotonic time of the last probe.
    _time: StoreTime
    _asked_at: float

    @abstractmethod
    def _path(self, path: str) -> str:
        """Return the full path; raise `UsageError` if it leaves the root."""

    def _forget_time(self) -> None:
        self._time, self._asked_at = StoreTime(), float("-inf")

    def make_directory(self, directory: str) -> None:
        """Do nothing: names imply their directories."""
        self._path(directory)

    def sync_file(self, path: str) -> None:
        """Check only that the file exists."""
        self.info(path)

    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        """Do nothing: puts are durable."""
        self._path(directory)

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        """Return 0: there are no temporary files."""
        self._path(directory)
        return 0

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Yield False: there are no locks."""
        self._path(path)
        yield False

    def now_ms(self) -> int:
        """Return the bound from replies, refreshed by a small file if stale."""
        seconds = self.clock.monotonic()
        if not self._time.is_near(seconds) and seconds - self._asked_at > FRESH_SECONDS:
            self._asked_at = seconds
            with suppress(StorageError, FileNotFoundError):  # read-only users have replies only
                self._ask_time(f"{CLOCK}/{self.new_id()}")
        return self._time.at_least(self.clock.monotonic())

    def _ask_time(self, path: str) -> None:
        self.write_once(path, b"time\n")
        try:
            now_ms = self.info(path).modified_ms
        finally:
            self.delete(path)
        for name in self.names(CLOCK):
            if self.info(f"{CLOCK}/{name}").modified_ms + _LEFT_MS < now_ms:
                self.delete(f"{CLOCK}/{name}")

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return random.random()

"""Base of write-once backends: no locks, no directories, time from replies."""

from __future__ import annotations

import random
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.clock import FRESH_SECONDS, Backoff, StoreTime
from pyspark_commitlog.storage.per_process import PerProcess

#: Of a request to an object store: a busy one refuses for seconds. No retry after `REQUEST_SECONDS`: each try on a
#: hanging server takes the full timeout.
REQUEST_TRIES = 8
REQUEST_SECONDS = 90.0
REQUEST_BACKOFF = Backoff(0.2, 5.0, spread=0.5)
#: Directory of short-lived files that reveal storage's time; older ones are a killed process's.
CLOCK = "clock"
_LEFT_MS = 3_600_000


class WriteOnceStorage(Storage):
    """Storage whose files are put whole, as durable as it makes them."""

    can_append = False

    #: Storage's time from replies.
    _time: PerProcess[StoreTime]

    @abstractmethod
    def _path(self, path: str) -> str:
        """Full path; raise `UsageError` if it leaves the root."""

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
        """0: there are no temporary files."""
        self._path(directory)
        return 0

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Yield False: there are no locks."""
        self._path(path)
        yield False

    def now_ms(self) -> int:
        """Bound from replies, refreshed by a small file if stale."""
        time, seconds = self._time.value, self.clock.monotonic()
        if not time.is_near(seconds) and seconds - time.asked_at > FRESH_SECONDS:
            time.asked_at = seconds
            with suppress(StorageError, FileNotFoundError):  # read-only users have replies only
                self._ask_time(f"{CLOCK}/{self.new_id()}")
        return time.at_least(self.clock.monotonic())

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

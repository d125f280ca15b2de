"""What the doors to storage without append share: no locks, directories or temporary names; time from its replies."""

from __future__ import annotations

import random
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.object_clock import FRESH_SECONDS, StoreTime

#: Where files lie for a moment that storage's time is read from; one that lies there longer is a killed process's.
CLOCK = "clock"
_LEFT_MS = 3_600_000


class WriteOnceStorage(Storage):
    """Storage whose files are put whole; what is there is as durable as storage makes it."""

    can_append = False

    #: What replies say of storage's time in this process, and when it was last asked for (monotonic, seconds).
    _time: StoreTime
    _asked_at: float

    @abstractmethod
    def _path(self, path: str) -> str:
        """Return where a path below the root is; raise ``UsageError`` where it leads out of it."""

    def _forget_time(self) -> None:
        self._time, self._asked_at = StoreTime(), float("-inf")

    def make_directory(self, directory: str) -> None:
        """Do nothing: a name makes its directories."""
        self._path(directory)

    def sync_file(self, path: str) -> None:
        """See ``Storage.sync_file``: it is looked for alone."""
        self.info(path)

    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        """Do nothing: see the class."""
        self._path(directory)

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        """Return 0: nothing is written under a temporary name."""
        self._path(directory)
        return 0

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Yield False: there are no locks here."""
        self._path(path)
        yield False

    def now_ms(self) -> int:
        """See ``Storage.now_ms``: from replies; where none is near, a file is put and looked at."""
        seconds = self.clock.monotonic()
        if not self._time.is_near(seconds) and seconds - self._asked_at > FRESH_SECONDS:
            self._asked_at = seconds
            with suppress(StorageError, FileNotFoundError):  # who may only read has what replies say
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
        """See ``Storage.new_id``."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """See ``Storage.jitter``."""
        return random.random()

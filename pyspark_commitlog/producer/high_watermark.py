"""Background updates of the high watermark after a producer's commits.

With acks=all a record is acknowledged when all in-sync replicas have it, and visible when that is stated: by the next
commit, or an entry from here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Lock
from typing import Any

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.producer.pools import process_pools
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import Backoff, monotonic
from pyspark_commitlog.topic.topic_log import TopicLog

log = logging.getLogger("pyspark_commitlog.producer")

#: Time for a next commit to state it; seconds.
LINGER_SECONDS = 0.02
#: While the metadata root does not answer.
_BACKOFF = Backoff(1.0, 60.0)


class HighWatermark:
    """High watermark statements of one topic; a job of the process."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.root: object = storage.url
        self._storage, self._name = storage, name
        self._topic: TopicLog | None = None
        self._handed: Mapping[str, Any] | None = None
        self._pool, self._lock = process_pools.value.watermarks, Lock()
        self._is_due = self._stating = self._committing = False
        self._since, self._failures = 0.0, 0
        self._flushing: list[Event] = []

    def begins(self) -> None:
        """Record the start of a commit, which states what is due."""
        self._committing = True

    def ends(self, *, committed: bool, known: Mapping[str, Any] | None = None) -> None:
        """Record the end of a commit; if `committed`, a statement is due."""
        self._is_due, self._since = self._is_due or committed, monotonic()
        if self._topic is None:
            self._handed = known
        self._committing = False
        if self._is_due:
            self._ask(LINGER_SECONDS)

    @property
    def is_stated(self) -> bool:
        """Whether readers see all that was committed."""
        return not (self._is_due or self._stating)

    def flush(self, seconds: float) -> bool:
        """State what is due within `seconds`; return success.

        While an in-sync root is away this covers what that root has; the rest follows.
        """
        if self.is_stated:
            return True
        stated = Event()
        self._flushing.append(stated)
        self._ask(0.0)
        try:
            return stated.wait(seconds)
        finally:
            self._flushing.remove(stated)

    def run(self) -> None:
        """State what is due, unless a commit is near or in progress."""
        flushing = list(self._flushing)
        if not flushing:
            left = self._since + LINGER_SECONDS - monotonic()
            if self._committing or left > 0:
                if not self._committing:
                    self._ask(left)
                return
        if self._state():
            for stated in flushing:
                stated.set()

    def _ask(self, seconds: float) -> None:
        with suppress(RuntimeError):  # no thread: the next commit states it
            self._pool.schedule(self, seconds)

    def _state(self) -> bool:
        if not self._is_due:
            return True
        self._stating = True  # first: a flush must see one of the flags
        self._is_due = False  # before the read: later commits are due again
        try:
            with self._lock:
                if self._topic is None:
                    self._topic = TopicLog(self._storage, self._name)
                    self._topic.journal.go_on_with(self._handed or {})
                    self._handed = None
                stated = self._topic.journal.decided_log().state_hw()
            if stated:
                self._failures = 0
            else:  # it comes back or leaves the ISR; flushes do not wait
                self._retry_after(self._failures)
        except (CommitLogError, OSError) as error:
            log.info("topic %r: the high watermark is not stated yet: %s", self._name, error)
            self._retry_after(0 if self._flushing else self._failures)
            return False
        finally:
            self._stating = False
        return True

    def _retry_after(self, failures: int) -> None:
        self._is_due = True
        self._ask(_BACKOFF.after(failures))
        self._failures += 1

    def rest(self) -> None:
        """Drop caches, unless in use."""
        if self._lock.acquire(blocking=False):
            try:
                self._topic = self._handed = None
            finally:
                self._lock.release()

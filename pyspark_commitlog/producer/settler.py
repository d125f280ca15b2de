"""Background settling of a producer's commits."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

from pyspark_commitlog.producer.pools import process_pools
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.settle.settle_load import is_look_due
from pyspark_commitlog.topic.topic_log import TopicLog

#: Delay in seconds of a look at pending bytes, shared by the commits in it: a look takes a third of a commit's time,
#: and delays the next one.
LOOK_SECONDS = 0.1
#: Committed bytes that cause a look at once.
LOOK_BYTES = 8 * 2**20


class Settler:
    """Settling of one topic; a job of the process' settlers."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.root: object = storage.url
        self._storage, self._name = storage, name
        self._topic: TopicLog | None = None
        self._topic_id: str | None = None
        self._pool, self._lock = process_pools.value.settlers, Lock()
        self._bytes = 0
        self._joined = False

    def committed(self, topic_id: str, size_bytes: int) -> None:
        """Schedule a look at what is due, shared by commits until then.

        `size_bytes` is the `weight` of the commit's extents.
        """
        if not is_look_due(self._storage, topic_id, size_bytes):
            return
        self._topic_id = topic_id
        self._bytes += size_bytes
        self._ask(LOOK_SECONDS if self._bytes < LOOK_BYTES else 0.0)

    def moved(self, storage: Storage) -> Settler:
        """Return a settler at the topic's new leader, with pending work.

        A run in progress ends at its root.
        """
        moved, topic_id = Settler(storage, self._name), self._topic_id
        self._topic_id = None
        if topic_id is not None:
            moved.committed(topic_id, self._bytes)
        return moved

    def _ask(self, seconds: float) -> None:
        with suppress(RuntimeError):  # no thread: the next commit asks again
            self._pool.schedule(self, seconds)

    def run(self) -> None:
        """Settle what is due, at most for `settle.budget.ms`."""
        topic_id, self._topic_id, self._bytes = self._topic_id, None, 0
        if topic_id is None:
            return
        with self._lock:
            if self._topic is None:
                self._topic = TopicLog(self._storage, self._name)
            self._topic.forget_defaults(kept=True)
            settle_after_commit(self._topic, topic_id, self._hurries)

    def _hurries(self) -> bool:
        return self._joined or self._bytes >= LOOK_BYTES or self._pool.is_wanted(self)

    def join(self, seconds: float) -> bool:
        """Look now; return whether all is settled within `seconds`."""
        self._joined = True
        return self._pool.wait(self, seconds)

    def rest(self) -> None:
        """Drop caches, unless in use."""
        if self._lock.acquire(blocking=False):
            try:
                self._topic = None
            finally:
                self._lock.release()

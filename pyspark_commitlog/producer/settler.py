"""Settles what a topic's producer commits, beside it: records do not wait for it."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

from pyspark_commitlog.log.maintain.settle import settle_after_commit
from pyspark_commitlog.log.settling.settle_load import is_look_due
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.producer.pools import of_process
from pyspark_commitlog.storage import Storage

#: Within so long of a commit it is looked how much waits, together with those that follow it: a look takes as long as
#: a third of a commit, and holds the next one up; seconds.
LOOK_SECONDS = 0.1
#: Once so much was committed it is looked at once.
LOOK_BYTES = 8 * 2**20


class Settler:
    """One topic's settling; a job of the process' settlers.

    Args:
        storage: the root.
        name: of the topic.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.root: object = storage.url
        self._storage, self._name = storage, name
        self._topic: TopicLog | None = None
        self._topic_id: str | None = None
        self._pool, self._lock = of_process().settlers, Lock()
        self._bytes = 0
        self._joined = False

    def committed(self, topic_id: str, size_bytes: int) -> None:
        """Schedule a look whether enough is due; commits until then share it.

        Args:
            topic_id: whose commit it was.
            size_bytes: the ``weight`` of its extents.
        """
        if not is_look_due(self._storage, topic_id, size_bytes):
            return
        self._topic_id = topic_id
        self._bytes += size_bytes
        self._ask(LOOK_SECONDS if self._bytes < LOOK_BYTES else 0.0)

    def moved(self, storage: Storage) -> Settler:
        """Return a settler at the topic's new leader; what is due moves there.

        A run that is under way ends at the root where it began, with a handle of its own.
        """
        moved, topic_id = Settler(storage, self._name), self._topic_id
        self._topic_id = None
        if topic_id is not None:
            moved.committed(topic_id, self._bytes)
        return moved

    def _ask(self, seconds: float) -> None:
        with suppress(RuntimeError):  # no thread for it: the next commit asks again
            self._pool.schedule(self, seconds)

    def run(self) -> None:
        """Settle what is due, at most for ``settle.budget.ms``."""
        topic_id, self._topic_id, self._bytes = self._topic_id, None, 0
        if topic_id is None:
            return
        with self._lock:
            if self._topic is None:
                self._topic = TopicLog(self._storage, self._name)
            self._topic.forget_defaults(kept=True)
            settle_after_commit(self._topic, topic_id, self._hurries)

    def _hurries(self) -> bool:
        """Return whether a run is waited for, or holds up another topic's, or much came meanwhile."""
        return self._joined or self._bytes >= LOOK_BYTES or self._pool.is_wanted(self)

    def join(self, seconds: float) -> bool:
        """Look now, and wait until all is settled that is due; return whether that is so."""
        self._joined = True
        return self._pool.wait(self, seconds)

    def rest(self) -> None:
        """Let go of what is remembered of the topic, unless it is at work."""
        if self._lock.acquire(blocking=False):
            try:
                self._topic = None
            finally:
                self._lock.release()

"""Settles what a topic's producer commits, in a thread of its own: records do not wait for it."""

from __future__ import annotations

from threading import Condition, Thread

from pyspark_commitlog.log.settle import settle_after_commit
from pyspark_commitlog.log.topic import TopicLog


class Settler:
    """One topic's settling. ``topic`` is a handle that nobody else uses."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._changed = Condition()
        self._topic_id: str | None = None
        self._ended = False
        self._thread = Thread(target=self._work, name=f"commitlog-settler-{topic.name}", daemon=True)
        self._thread.start()

    def committed(self, topic_id: str) -> None:
        """Have it looked whether enough is due; what is committed while it settles is looked at together."""
        with self._changed:
            self._topic_id = topic_id
            self._changed.notify()

    def end(self) -> None:
        """Settle what is due, at most for ``settle.budget.ms``, and end."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (topic_id := self._next()) is not None:
            self._topic.forget_defaults()
            settle_after_commit(self._topic, topic_id)

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._topic_id is not None or self._ended)
            topic_id, self._topic_id = self._topic_id, None
            return topic_id

"""Lock of a consumer, valid in its process until it is closed."""

from __future__ import annotations

from threading import RLock

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage.process import process_id


class ConsumerGuard:
    """Guard of a consumer (Kafka: `KafkaConsumer.acquireAndEnsureOpen`)."""

    def __init__(self, name: str) -> None:
        self._name, self._process, self._lock = name, process_id(), RLock()
        self.closed = False

    @property
    def is_over(self) -> bool:
        """Whether the consumer is closed, or another process'."""
        return self.closed or self._process != process_id()

    def check_open(self) -> None:
        """Refuse work after `close`."""
        if self.closed:
            raise UsageError(f"{self._name} is closed: make another")

    @property
    def lock(self) -> RLock:
        """Lock; a forked child might find it held."""
        if self._process != process_id():
            raise UsageError(
                f"{self._name} was made in the process that this one was forked from, and both would read the same "
                "records: make another one here"
            )
        return self._lock

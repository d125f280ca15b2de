"""Lock of a consumer, valid in its process until it is closed."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import ParamSpec, TypeVar

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage.process import process_id

_P = ParamSpec("_P")
_T = TypeVar("_T")


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

    def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function under the lock of the consumer, which must be open."""
        with self.lock:
            self.check_open()
            return function(*args, **kwargs)

    @property
    def lock(self) -> RLock:
        """Lock; a forked child might find it held."""
        if self._process != process_id():
            raise UsageError(
                f"{self._name} was made in the process that this one was forked from, and both would read the same "
                "records: make another one here"
            )
        return self._lock

"""Clock that a test moves forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from pyspark_commitlog.storage.clock import Clock, SystemClock
from pyspark_commitlog.storage.local.local import LocalStorage


class ShiftedClock(SystemClock):
    """The system's clock, and ahead of it by what a test has advanced it."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now_ms(self) -> int:
        """Ms since 1970."""
        return super().now_ms() + self._ahead // timedelta(milliseconds=1)

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return super().monotonic() + self._ahead.total_seconds()

    def advance(self, **duration: float) -> None:
        """Move it forward, by the arguments of `datetime.timedelta`, as in `advance(days=8)`."""
        self._ahead += timedelta(**duration)


@contextmanager
def clock_of_local_roots(clock: Clock) -> Iterator[None]:
    """Give a clock to every local root that this process opens in the context; it stamps their files, too."""
    begin = LocalStorage.__init__

    def begin_with_clock(storage: LocalStorage, root: Any, *, clock: Clock = clock) -> None:
        begin(storage, root, clock=clock)

    with patch.object(LocalStorage, "__init__", begin_with_clock):
        yield

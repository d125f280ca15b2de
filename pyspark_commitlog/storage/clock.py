"""The system clock, and an object store's time, estimated from its replies."""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock

#: Seconds for which a bound counts as near; older bounds expire, as the clocks drift apart.
FRESH_SECONDS = 600.0
#: Maximum seconds from an own put to its look for a near bound.
_SOON_SECONDS = 5.0
#: Capacity for own puts without a look.
_AWAITED = 64


def monotonic() -> float:
    """Return monotonic seconds, for waits within this process.

    freezegun stops `time.monotonic`, so waits would never end.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class SystemClock:
    """The system clock, on local disks also that of the files."""

    def now_ms(self) -> int:
        """Return ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class StoreTime:
    """Lower bound of storage's current time.

    A reply that shows modification time L came at L or later, so L plus the time since never runs ahead. A look soon
    after an own put brings it *near*.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        #: Highest storage time at monotonic 0, in ms, of this window and the previous one.
        self._best: float | None = None
        self._before: float | None = None
        self._since = self._near_at = float("-inf")
        self._awaited: OrderedDict[str, float] = OrderedDict()

    def put(self, path: str, seconds: float) -> None:
        """Record the start of an own put, in monotonic seconds."""
        with self._lock:
            self._awaited[path] = seconds
            while len(self._awaited) > _AWAITED:
                self._awaited.popitem(last=False)

    def observe(self, path: str, modified_ms: int, seconds: float) -> None:
        """Record a modification time from a reply at monotonic `seconds`."""
        with self._lock:
            if seconds - self._since > FRESH_SECONDS:
                before = self._best if seconds - self._since <= 2 * FRESH_SECONDS else None
                self._before, self._best, self._since = before, None, seconds
            at_zero = modified_ms - seconds * 1000
            self._best = at_zero if self._best is None else max(self._best, at_zero)
            if seconds - self._awaited.pop(path, float("-inf")) <= _SOON_SECONDS:
                self._near_at = seconds

    def is_near(self, seconds: float) -> bool:
        """Return whether an own put was looked at within `FRESH_SECONDS`."""
        return seconds - self._near_at <= FRESH_SECONDS

    def at_least(self, seconds: float) -> int:
        """Return the lower bound in ms since 1970; 0 without replies."""
        with self._lock:
            known = [best for best in (self._best, self._before) if best is not None]
        return max(0, int(max(known) + seconds * 1000)) if known else 0

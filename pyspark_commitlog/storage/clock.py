"""Clocks, waits by them, and an object store's time, estimated from its replies."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

#: Seconds for which a bound counts as near; older bounds expire, as the clocks drift apart.
FRESH_SECONDS = 600.0
#: Maximum seconds from an own put to its look for a near bound.
_SOON_SECONDS = 5.0
#: Capacity for own puts without a look.
_AWAITED = 64
#: Steps after which a pause no longer grows.
_MOST_STEPS = 64


def monotonic() -> float:
    """Monotonic seconds, for waits within this process.

    freezegun stops `time.monotonic`, so waits would never end.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Wall and monotonic time; tests pass a manual clock."""

    def now_ms(self) -> int:
        """Ms since 1970, as storage would stamp a file now."""

    def monotonic(self) -> float:
        """Monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The system clock, on local disks also that of the files."""

    def now_ms(self) -> int:
        """Ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow from `first` to `most` seconds; a part `spread` of each is random."""

    first: float
    most: float
    spread: float = 0.0
    factor: float = 2.0

    def after(self, pauses: int, jitter: float = 1.0) -> float:
        """Next pause after a number of others; `jitter` is in [0, 1)."""
        longest = min(self.most, self.first * self.factor ** min(pauses, _MOST_STEPS))
        return longest * (1 - self.spread * (1 - jitter))


class Deadline:
    """A time limit from now on; None: unlimited."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._until = math.inf if seconds is None else clock.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left."""
        return max(0.0, self._until - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether none is left."""
        return self._clock.monotonic() >= self._until

    def extend(self, seconds: float) -> None:
        """Add seconds."""
        self._until += seconds


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
        #: Monotonic time of the last probe.
        self.asked_at = float("-inf")

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
        """Whether an own put was looked at within `FRESH_SECONDS`."""
        return seconds - self._near_at <= FRESH_SECONDS

    def at_least(self, seconds: float) -> int:
        """Lower bound in ms since 1970; 0 without replies."""
        with self._lock:
            known = [best for best in (self._best, self._before) if best is not None]
        return max(0, int(max(known) + seconds * 1000)) if known else 0

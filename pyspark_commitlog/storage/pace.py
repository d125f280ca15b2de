"""Pacing of polls when each look is a billed request (pure).

Looks follow news quickly, then ever less often. Empty ones stay within a budget, plus ten per success: S3 bills a
commit as much.
"""

from __future__ import annotations

from pyspark_commitlog.errors import UsageError

#: Empty looks' requests per hour and topic.
DEFAULT_PER_HOUR = 3600
LEAST_PER_HOUR = 60
#: Weight of a listing: S3 bills it as twelve reads.
LIST_REQUESTS = 12
_HOUR_SECONDS = 3600.0
#: Empty looks earned by each successful one.
EARNED = 10
#: First pause after news in seconds, and its growth factor.
FIRST_PAUSE = 0.02
_GROWTH = 1.2
#: Divisor of the hourly budget that gives the burst.
_AT_ONCE = 60
#: Stretch of the longest pause: it saves budget for the next records.
_SAVES = 1.1


def check_per_hour(name: str, value: object) -> int:
    """Return a budget.

    Raises:
        UsageError: not a whole number, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < LEAST_PER_HOUR:
        raise UsageError(f"{name}={value!r} is not allowed: it takes {LEAST_PER_HOUR} requests an hour or more")
    return value


class Pace:
    """Token bucket for one caller's looks at one topic.

    Empty looks take at most ``per_hour`` requests in any hour, plus ``EARNED`` per success. A record is seen up to
    ``longest_pause`` seconds late, unless a look took several requests.
    """

    def __init__(self, per_hour: int = DEFAULT_PER_HOUR) -> None:
        self._per_hour = per_hour
        self._left = self._burst
        self._filled_at: float | None = None
        self._pause, self._next = FIRST_PAUSE, 0.0

    @property
    def per_hour(self) -> int:
        """Return the budget."""
        return self._per_hour

    def allow(self, per_hour: int) -> None:
        """Raise the budget; a smaller one changes nothing."""
        if per_hour > self._per_hour:
            self._per_hour = per_hour
            self._pause, self._next = min(self._pause, self.longest_pause), 0.0

    @property
    def _burst(self) -> float:
        return self._per_hour / _AT_ONCE

    @property
    def _rate(self) -> float:
        return (self._per_hour - self._burst) / _HOUR_SECONDS

    @property
    def longest_pause(self) -> float:
        """Return the longest pause between looks, in seconds."""
        return _SAVES / self._rate

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the next look, from monotonic ``now``."""
        return max(0.0, self._next - now)

    def looked(self, now: float, requests: int, *, news: bool) -> None:
        """Record a look of ``requests`` requests; one that found news is free."""
        if self._filled_at is not None:
            self._left += max(0.0, now - self._filled_at) * self._rate
        self._filled_at = now
        if news:
            self._pause = FIRST_PAUSE
        self._left = min(self._burst, self._left + (EARNED if news else -requests))
        lacking = max(0.0, 1 - self._left) / self._rate
        self._next = now + max(self._pause, lacking)
        if not news:
            self._pause = min(self._pause * _GROWTH, self.longest_pause)

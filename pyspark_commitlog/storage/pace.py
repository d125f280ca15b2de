"""When a caller that waits looks again, where nothing reports news and each look is a request that is paid for.

Looks come soon after news, and less and less often the longer nothing comes; those that find nothing stay within a
budget, and ten more for each that finds something: S3 bills the commit as much. No I/O, no clock: the caller says what
time it is.
"""

from __future__ import annotations

from pyspark_commitlog.errors import UsageError

#: Requests in an hour for one topic, of those that find nothing.
DEFAULT_PER_HOUR = 3600
LEAST_PER_HOUR = 60
#: What a listing counts for: S3 bills it as twelve reads.
LIST_REQUESTS = 12
_HOUR_SECONDS = 3600.0
#: Looks that may find nothing for each that finds something.
EARNED = 10
#: The first pause after news, seconds, and how it grows.
FIRST_PAUSE = 0.02
_GROWTH = 1.2
#: The part of an hour's requests that may be used at any speed.
_AT_ONCE = 60
#: Looks are so much further apart, after a long silence, than the budget asks: what is saved is for the next records.
_SAVES = 1.1


def check_per_hour(name: str, value: object) -> int:
    """Return a budget.

    Raises:
        UsageError: it is no whole number, or too small to find anything.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < LEAST_PER_HOUR:
        raise UsageError(f"{name}={value!r} is not allowed: it takes {LEAST_PER_HOUR} requests an hour or more")
    return value


class Pace:
    """The looks of one caller at one topic: a bucket of requests that fills as time goes.

    In any hour those that find nothing take no more than ``per_hour`` requests, and ``EARNED`` for each that finds
    something; a record is seen at most ``longest_pause`` seconds late, unless a look took several requests.
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
        """Have a larger budget; a smaller one changes nothing."""
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
        """Return the seconds between two looks, of one request each, when nothing has come for long."""
        return _SAVES / self._rate

    def seconds_left(self, now: float) -> float:
        """Return how long to wait for the next look, from ``now`` on by the monotonic clock."""
        return max(0.0, self._next - now)

    def looked(self, now: float, requests: int, *, news: bool) -> None:
        """Take a look into account, of so many requests: what found something costs nothing here."""
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

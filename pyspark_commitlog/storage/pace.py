"""Pacing of polls when each look is a billed request (pure).

Looks follow news quickly, then ever less often. Empty ones stay within a budget, plus ten per success: S3 bills a
commit as much.
"""

from __future__ import annotations

from pyspark_commitlog.errors import UsageError

#: Mean interval between requests for one topic that find nothing, ms.
DEFAULT_IDLE_POLL_INTERVAL_MS = 1000
MAX_IDLE_POLL_INTERVAL_MS = 60_000
#: What a listing counts for: S3 bills it as twelve reads.
LIST_REQUESTS = 12
#: Looks that may find nothing for each that finds something.
EARNED = 10
#: First pause after news in seconds, and its growth factor.
FIRST_PAUSE = 0.02
_GROWTH = 1.2
#: The requests of so long may be made at any speed, of each hour.
_BURST_MS = 60_000
_HOUR_MS = 3_600_000
#: Looks are so much further apart, after a long silence, than the interval asks: what is saved is for the next records.
_SAVES = 1.1


def check_idle_poll_interval(name: str, value: object) -> int:
    """Return an interval.

    Raises:
        UsageError: it is no whole number of milliseconds, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_IDLE_POLL_INTERVAL_MS:
        raise UsageError(f"{name}={value!r} is not allowed: it takes 1 to {MAX_IDLE_POLL_INTERVAL_MS} ms")
    return value


class Pace:
    """Token bucket for one caller's looks at one topic.

    In any hour those that find nothing take no more than one request per `interval_ms`, and `EARNED` for each that
    finds something; a record is seen at most `longest_pause` seconds late, unless a look took several requests.
    """

    def __init__(self, interval_ms: int = DEFAULT_IDLE_POLL_INTERVAL_MS) -> None:
        self._interval_ms = interval_ms
        self._left = self._burst
        self._filled_at: float | None = None
        self._pause, self._next = FIRST_PAUSE, 0.0

    @property
    def interval_ms(self) -> int:
        """Mean interval between requests that find nothing."""
        return self._interval_ms

    def shorten(self, interval_ms: int) -> None:
        """Shorten the interval; a longer one changes nothing."""
        if interval_ms < self._interval_ms:
            self._interval_ms = interval_ms
            self._pause, self._next = min(self._pause, self.longest_pause), 0.0

    @property
    def _burst(self) -> float:
        return _BURST_MS / self._interval_ms

    @property
    def _rate(self) -> float:
        """Requests per second that are added, so that those of an hour include a burst."""
        return (1000 - 1000 * _BURST_MS / _HOUR_MS) / self._interval_ms

    @property
    def longest_pause(self) -> float:
        """Longest pause between looks, in seconds."""
        return _SAVES / self._rate

    def seconds_left(self, now: float) -> float:
        """Seconds until the next look, from monotonic `now`."""
        return max(0.0, self._next - now)

    def looked(self, now: float, requests: int, *, news: bool) -> None:
        """Record a look of `requests` requests; one that found news is free."""
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

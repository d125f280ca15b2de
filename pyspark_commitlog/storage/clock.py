"""This machine's clock."""

from __future__ import annotations

import time


def monotonic() -> float:
    """Return seconds that never go back: for waits of this process alone.

    freezegun stops ``time.monotonic``, as of tests that the application's own programs have; waits would never end.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class SystemClock:
    """This machine's clock; on a local disk also the clock of the files."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

"""The system clock."""

from __future__ import annotations

import time


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

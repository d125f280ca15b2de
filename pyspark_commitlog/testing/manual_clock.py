"""Time that a test moves by hand."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until ``advance``; with it, files are stamped with its time too."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting."""
        self._now_ms += max(1, int(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms

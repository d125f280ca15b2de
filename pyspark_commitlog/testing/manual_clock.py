"""Clock that a test moves by hand."""

from __future__ import annotations


class ManualClock:
    """Clock that stands still until `advance`; it stamps files too."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Time."""
        return self._now_ms

    def monotonic(self) -> float:
        """Time in seconds."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Advance instead of waiting."""
        self._now_ms += max(1, int(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Advance by `ms`."""
        self._now_ms += ms

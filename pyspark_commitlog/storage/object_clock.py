"""An object store's time, from what its replies say."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

#: Seconds for which a bound is taken as near enough, and after which an older one goes: a clock that counts seconds and
#: storage's drift apart.
FRESH_SECONDS = 600.0
#: Seconds from an own put to the look at it, for a bound that is near.
_SOON_SECONDS = 5.0
#: Own puts whose first look is awaited.
_AWAITED = 64


class StoreTime:
    """A lower bound of storage's time now.

    A reply that shows an object last modified at L was given at L or later. L plus the seconds since that reply is thus
    never ahead of storage. It is near where the object was put shortly before, so own puts are remembered: the first
    look at one, if it comes soon, makes the bound *near*.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        #: Of this window of time and of the one before: the highest storage's time at second 0, milliseconds.
        self._best: float | None = None
        self._before: float | None = None
        self._since = self._near_at = float("-inf")
        self._awaited: OrderedDict[str, float] = OrderedDict()

    def put(self, path: str, seconds: float) -> None:
        """Remember that this process began to put an object, at this time of the monotonic clock."""
        with self._lock:
            self._awaited[path] = seconds
            while len(self._awaited) > _AWAITED:
                self._awaited.popitem(last=False)

    def observe(self, path: str, modified_ms: int, seconds: float) -> None:
        """Record the time of a reply.

        Args:
            path: of the object.
            modified_ms: when it was last modified, by storage's clock.
            seconds: the monotonic clock's time when the reply was here.
        """
        with self._lock:
            if seconds - self._since > FRESH_SECONDS:
                before = self._best if seconds - self._since <= 2 * FRESH_SECONDS else None
                self._before, self._best, self._since = before, None, seconds
            at_zero = modified_ms - seconds * 1000
            self._best = at_zero if self._best is None else max(self._best, at_zero)
            if seconds - self._awaited.pop(path, float("-inf")) <= _SOON_SECONDS:
                self._near_at = seconds

    def is_near(self, seconds: float) -> bool:
        """Return whether an own put was looked at in the last 10 minutes."""
        return seconds - self._near_at <= FRESH_SECONDS

    def at_least(self, seconds: float) -> int:
        """Return what storage's time is at least, milliseconds since the epoch; 0 where no reply was seen."""
        with self._lock:
            known = [best for best in (self._best, self._before) if best is not None]
        return max(0, int(max(known) + seconds * 1000)) if known else 0

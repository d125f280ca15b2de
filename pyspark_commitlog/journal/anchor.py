"""Rules for skipping looks at an anchor and recognizing own files (pure).

On storage without append every look is a request, and an entry is deleted only once its successor is `MIN_DELAY_MS`
old. For half of that time (the rest allows for clock skew):

* No number after the newest entry seen can have been collected, so a put there counts.
* A put whose anchor is gone went to a number that was collected before.

Files of the same bytes at one number differ by at least that delay. See docs/explanation/design/anchor-identity.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.config import MIN_DELAY_MS
from pyspark_commitlog.storage import Clock, FileInfo

#: The newest entries of a journal, which are never collected.
KEPT_ENTRIES = 2
#: Seconds for which an observation holds without another look.
FRESH_SECONDS = MIN_DELAY_MS / 2 / 1000

#: Suffix of the identity in a reply that lacks the file's time, which is a part of it (`FileInfo`).
_NO_TIME = "@"
#: File times may be truncated to whole seconds; a collector adds this to the delay.
TICK_MS = 1000
#: Maximum skew between two clocks of one storage.
_SKEW_MS = 2000
#: A longer put says too little about storage's clock.
_QUICK_SECONDS = 0.5
#: For so long the local clock drifts by less than one second (NTP slews by at most 500 ppm).
_STEADY_SECONDS = 1800.0


def stays_ms(delay_ms: int = 0) -> int:
    """Minimum lifetime of an entry after its successor's put (pure).

    In ms of storage time; `delay_ms` is `file.delete.delay.ms`, raised to `MIN_DELAY_MS`.
    """
    return max(MIN_DELAY_MS, delay_ms) + TICK_MS


@dataclass(frozen=True, slots=True)
class Moment:
    """Monotonic time in seconds and wall-clock time in ms since 1970."""

    monotonic: float
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        """Present moment of a clock."""
        return cls(clock.monotonic(), clock.now_ms())

    def seconds_until(self, later: Moment) -> float:
        """Larger of both clocks' intervals: either may stop in sleep."""
        return max(later.monotonic - self.monotonic, abs(later.wall_ms - self.wall_ms) / 1000)

    def is_fresh(self, now: Moment) -> bool:
        """Whether an observation made at this moment still holds."""
        return self.seconds_until(now) < FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class Reference:
    """Upper bound of storage's clock at the start of an own put."""

    began: Moment
    at_most_ms: int

    def at_most(self, ended: Moment) -> int | None:
        """Latest file time of a put that ended at `ended`.

        None if the reference is too old. A stopped monotonic clock makes it too low, which costs a listing.
        """
        seconds = ended.monotonic - self.began.monotonic
        return self.at_most_ms + int(seconds * 1000) + _SKEW_MS if seconds < _STEADY_SECONDS else None


@dataclass(frozen=True, slots=True)
class OwnPut:
    """A successful put of this process.

    Attributes:
        is_quick: Short enough for its file's time to show storage's clock.
        latest_ms: Upper bound of the file's time; None if unknown.
    """

    write_id: str
    reply: FileInfo
    began: Moment
    is_quick: bool
    latest_ms: int | None

    @classmethod
    def of(cls, write_id: str, reply: FileInfo, began: Moment, ended: Moment, reference: Reference | None) -> OwnPut:
        """Return a put that just ended."""
        quick = began.seconds_until(ended) < _QUICK_SECONDS
        return cls(write_id, reply, began, quick, reference.at_most(ended) if reference is not None and quick else None)

    @property
    def is_certain(self) -> bool:
        """Whether its file is always distinguishable from a later copy."""
        return not self.reply.identity.endswith(_NO_TIME) or self.latest_ms is not None

    def is_file(self, found: FileInfo) -> bool:
        """Whether the file at its number is the one put.

        A proxy may repeat the request, but an equal file can only follow the first one's collection: it is younger by
        the delay.
        """
        if found.identity == self.reply.identity:
            return True
        in_time = self.latest_ms is not None and found.modified_ms <= self.latest_ms
        return in_time and self.is_file_at_once(found)

    def is_file_at_once(self, found: FileInfo) -> bool:
        """Like `is_file`, if the file was certainly not collected in between."""
        reply = self.reply.identity
        return found.identity in (reply, f"{reply}{found.modified_ms}" if reply.endswith(_NO_TIME) else reply)

    def reference(self, found: FileInfo) -> Reference | None:
        """Clock reference of its file; None after a slow put."""
        return Reference(self.began, found.modified_ms + TICK_MS) if self.is_quick else None

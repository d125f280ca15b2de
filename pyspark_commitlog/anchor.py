"""Which looks at an anchor can be spared, and which file is that of an own put: pure, for ``journal``.

Where files can't be appended to, each look is a request. There no entry of a journal is deleted before the one after it
was there for ``MIN_DELAY_MS``, by storage's clock. So for half of that time

* no number after an entry that was seen as the newest can have been collected: what is not there was not put, and a put
  there counts;
* a put whose anchor is gone was put at a number that had been collected before: else the anchor would still be there.

The other half is for what clocks may differ by. And two files of the same bytes at one number are the whole of it
apart, by the times that storage gives them. docs/explanation/design/anchor-identity.md has the interleavings.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.config import MIN_DELAY_MS
from pyspark_commitlog.storage import Clock, FileInfo

#: Entries that are never collected, counted from the newest.
KEPT_ENTRIES = 2
#: How long what was seen holds without another look.
FRESH_SECONDS = MIN_DELAY_MS / 2 / 1000

#: How the identity ends that a reply gives without the time which is a part of it (``FileInfo``).
_NO_TIME = "@"
#: Times of files may be cut to whole seconds. A collector, which goes by them, adds that to the delay.
TICK_MS = 1000
#: What two clocks of one storage may differ by.
_SKEW_MS = 2000
#: A put that took longer says too little of storage's clock.
_QUICK_SECONDS = 0.5
#: This process's clock runs wrong by less than one second in this time (NTP corrects it by 500 ppm at most).
_STEADY_SECONDS = 1800.0


def stays_ms(delay_ms: int = 0) -> int:
    """Return how long an entry stays at least after the one after it was put, by the times that storage gives (pure).

    Args:
        delay_ms: what ``file.delete.delay.ms`` says; less than ``MIN_DELAY_MS`` counts as that.
    """
    return max(MIN_DELAY_MS, delay_ms) + TICK_MS


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by this process's clocks: the monotonic one in seconds, the other in ms since the epoch."""

    monotonic: float
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        """Return the present moment of a clock."""
        return cls(clock.monotonic(), clock.now_ms())

    def seconds_until(self, later: Moment) -> float:
        """Return the time that passed by the clock that says more: one of them stands still in a sleeping machine."""
        return max(later.monotonic - self.monotonic, abs(later.wall_ms - self.wall_ms) / 1000)

    def is_fresh(self, now: Moment) -> bool:
        """Return whether what was seen at this moment holds without another look."""
        return self.seconds_until(now) < FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class Reference:
    """What storage's clock showed at most when an own put began, as the time of its file says."""

    began: Moment
    at_most_ms: int

    def at_most(self, ended: Moment) -> int | None:
        """Return the latest time of a file that was put until ``ended``; None where this is too old to say.

        By the monotonic clock: where that stood still this is too low, and costs a listing.
        """
        seconds = ended.monotonic - self.began.monotonic
        return self.at_most_ms + int(seconds * 1000) + _SKEW_MS if seconds < _STEADY_SECONDS else None


@dataclass(frozen=True, slots=True)
class OwnPut:
    """A put of ours that storage said was done: what it says of the file, and what bounds the time of that.

    ``latest_ms`` is None where nothing does. ``is_quick``: it took so little that its file's time says what storage's
    clock was.
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
        """Return whether its file can be known from a later one at any time, by what is known already."""
        return not self.reply.identity.endswith(_NO_TIME) or self.latest_ms is not None

    def is_file(self, found: FileInfo) -> bool:
        """Return whether the file that was found at its number is the one that was put.

        The same bytes can stand there once more, by a copy of the request that a proxy held back; but not before the
        file was collected, so that one is later by the delay.
        """
        if found.identity == self.reply.identity:
            return True
        in_time = self.latest_ms is not None and found.modified_ms <= self.latest_ms
        return in_time and self.is_file_at_once(found)

    def is_file_at_once(self, found: FileInfo) -> bool:
        """Return the same for a caller that knows that the file was not collected before it was found."""
        reply = self.reply.identity
        return found.identity in (reply, f"{reply}{found.modified_ms}" if reply.endswith(_NO_TIME) else reply)

    def reference(self, found: FileInfo) -> Reference | None:
        """Return what its file says of storage's clock; None where the put took too long."""
        return Reference(self.began, found.modified_ms + TICK_MS) if self.is_quick else None

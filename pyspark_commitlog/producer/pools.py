"""The threads that all producers of a process share: one topic after the other is committed, encoded and settled.

Four pools, so that none of them ever waits for itself: what commits waits for what encodes (or does that itself), and
for nothing else of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_commitlog.storage.pool import HelperThreads, Pool
from pyspark_commitlog.storage.process import after_fork


@dataclass(frozen=True, slots=True)
class Pools:
    """Of the threads that the limits allow, less some for others: a third commits, an eighth each does the others."""

    senders: Pool = field(default_factory=lambda: Pool("commitlog-producer", 3))
    settlers: Pool = field(default_factory=lambda: Pool("commitlog-settler", 8))
    watermarks: Pool = field(default_factory=lambda: Pool("commitlog-watermark", 8))
    encoders: HelperThreads = field(default_factory=lambda: HelperThreads("commitlog-encoder", 8))


_process = Pools()


def of_process() -> Pools:
    """Return the pools of this process."""
    return _process


def _begin_again() -> None:
    """Make pools again in a forked child, which has none of these threads."""
    global _process
    _process = Pools()


after_fork(_begin_again)

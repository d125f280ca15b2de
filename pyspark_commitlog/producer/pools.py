"""Thread pools shared by a process' producers.

Four pools, so that none waits for itself: senders wait for encoders only, or encode themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.shared.pool import HelperThreads, Pool


@dataclass(frozen=True, slots=True)
class Pools:
    """Pools of threads: a third commits, an eighth each does the rest."""

    senders: Pool = field(default_factory=lambda: Pool("commitlog-producer", 3))
    settlers: Pool = field(default_factory=lambda: Pool("commitlog-settler", 8))
    watermarks: Pool = field(default_factory=lambda: Pool("commitlog-watermark", 8))
    encoders: HelperThreads = field(default_factory=lambda: HelperThreads("commitlog-encoder", 8))


process_pools = PerProcess(Pools)

"""Timeouts of a group member."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pyspark_commitlog.errors import UsageError

MIN_SESSION_MS = 100
MAX_SESSION_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Kafka's consumer configs of a member; `initial_rebalance_delay_ms` is the broker's.

    Args:
        session_timeout_ms: a member without a heartbeat is removed. 100 to 1,800,000 (Kafka:
            `group.max.session.timeout.ms`). Default: 45,000.
        heartbeat_interval_ms: below the session timeout. Default: 3,000.
        max_poll_interval_ms: a member without a poll leaves. Default: 300,000.
        initial_rebalance_delay_ms: how long a joining member waits for others. Default: 200.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    initial_rebalance_delay_ms: int = 200

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name}={value!r} is not allowed: it takes a whole number, ms")
        if not MIN_SESSION_MS <= self.session_timeout_ms <= MAX_SESSION_MS:
            raise UsageError(f"session_timeout_ms={self.session_timeout_ms}: {MIN_SESSION_MS} to {MAX_SESSION_MS}")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise UsageError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms}: above 0 and below session_timeout_ms="
                f"{self.session_timeout_ms}, best a third of it"
            )
        if self.max_poll_interval_ms <= 0 or self.initial_rebalance_delay_ms < 0:
            raise UsageError("max_poll_interval_ms must be above 0, initial_rebalance_delay_ms not below 0")

"""Time limit of work on a topic, and its pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.clock import Deadline


@dataclass(frozen=True, slots=True)
class SettleThrottle:
    """Pauses that keep settling from starving its process.

    `seconds` before each entry, at most `in_all` per run, which holds the lock; none once it `hurries` for a caller.
    """

    seconds: float
    in_all: float
    hurries: Callable[[], bool]


class Budget:
    """Time limit of a run, without its pauses; None: unlimited."""

    def __init__(self, clock: Clock, seconds: float | None, throttle: SettleThrottle | None = None) -> None:
        self._clock, self._throttle, self._rested = clock, throttle, 0.0
        self._deadline = Deadline(clock, seconds)

    def spent(self) -> bool:
        """Whether the time is over; thread-safe."""
        return self._deadline.is_over

    def rest(self) -> None:
        """Pause before an entry is read; called by one thread."""
        throttle = self._throttle
        if throttle is None or self._rested + throttle.seconds > throttle.in_all or throttle.hurries():
            return
        began = self._clock.monotonic()
        self._clock.sleep(throttle.seconds)
        slept = self._clock.monotonic() - began
        self._rested += slept
        self._deadline.extend(slept)

"""Timeouts for storage calls that hang, and retirement of idle topics.

Such a call keeps its thread; only its futures can fail (Kafka: `delivery.timeout.ms`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event

from pyspark_commitlog.producer.accumulator import RecordAccumulator
from pyspark_commitlog.producer.buffer_pool import Buffer
from pyspark_commitlog.producer.pools import process_pools
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import WhileNeeded, start_thread

#: Shortest interval, seconds.
_SHORTEST = 0.02


class Watchdog:
    """Watchdog of one producer, while it has pending records or caches."""

    def __init__(
        self, buffer: Buffer, clock: Clock, options: ProducerConfig, accumulators: dict[str, RecordAccumulator]
    ) -> None:
        self._buffer, self._clock, self._accumulators = buffer, clock, accumulators
        self.tick = max(options.together_seconds, _SHORTEST)

    def start(self) -> None:
        """Start watching; the buffer's lock is held."""
        _process.value.add(self)

    def look(self) -> None:
        """Check once, and stop after the last pending record and cache."""
        with self._buffer.lock:
            now = self._clock.monotonic()
            callbacks = [
                callback for accumulator in self._accumulators.values() for callback in accumulator.overdue(now)
            ]
            for name, accumulator in list(self._accumulators.items()):
                if accumulator.rest(now):
                    del self._accumulators[name]
            if not any(
                accumulator.busy or not (self._buffer.closed or accumulator.is_resting)
                for accumulator in self._accumulators.values()
            ):
                _process.value.remove(self)
        if callbacks:
            self._call(callbacks)

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        def call_back() -> None:
            with self._buffer.calling():
                for callback in callbacks:
                    callback()

        try:
            start_thread("commitlog-producer-callbacks", call_back)
        except RuntimeError:
            call_back()


class _Watchdogs:
    def __init__(self) -> None:
        self._all: set[Watchdog] = set()
        self._thread = WhileNeeded("commitlog-producer-watchdog", self._work)
        self._sooner = Event()

    def add(self, watchdog: Watchdog) -> None:
        with self._thread.lock:
            new = watchdog not in self._all
            self._all.add(watchdog)
        self._thread.ensure_running()
        if new:
            self._sooner.set()

    def remove(self, watchdog: Watchdog) -> None:
        with self._thread.lock:
            self._all.discard(watchdog)

    def _work(self) -> None:
        while True:
            with self._thread.lock:
                watched = list(self._all)
                if not watched:
                    self._thread.mark_ending()
                    return
            self._sooner.wait(min(watchdog.tick for watchdog in watched))
            self._sooner.clear()
            for watchdog in watched:
                watchdog.look()
            with suppress(RuntimeError):
                process_pools.value.senders.attend()


_process = PerProcess(_Watchdogs)

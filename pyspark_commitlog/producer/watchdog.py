"""Looks now and then whether storage answers a producer, so that nobody waits longer than was asked for.

A call of a filesystem that hangs can be neither stopped nor tried beside itself: it keeps its thread. What can be done
is to fail the futures (Kafka: ``delivery.timeout.ms`` bounds the time until a future is done). The same looks find
the topics that a producer has not written to for a while: what is remembered of them goes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event

from pyspark_commitlog.producer.accumulator import RecordAccumulator
from pyspark_commitlog.producer.buffer import Buffer
from pyspark_commitlog.producer.pools import of_process
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.process import WhileNeeded, after_fork, start_thread

#: It looks not more often, in seconds.
_SHORTEST = 0.02


class Watchdog:
    """Looks after one producer, as long as it has records under way, or topics to let go of.

    Args:
        buffer: lock and memory of the producer.
        accumulators: its topics, as they come; changed under the buffer's lock.
    """

    def __init__(
        self, buffer: Buffer, clock: Clock, options: ProducerConfig, accumulators: dict[str, RecordAccumulator]
    ) -> None:
        self._buffer, self._clock, self._accumulators = buffer, clock, accumulators
        self.tick = max(options.together_seconds, _SHORTEST)

    def start(self) -> None:
        """Start looking; the buffer's lock is held."""
        _process.add(self)

    def look(self) -> None:
        """Look once; it ends with the last that there is to look after."""
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
                _process.remove(self)
        if callbacks:
            self._call(callbacks)

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        """Call back, in a thread of its own: the others are looked after meanwhile."""

        def call_back() -> None:
            with self._buffer.calling():
                for callback in callbacks:
                    callback()

        try:
            start_thread("commitlog-producer-callbacks", call_back)
        except RuntimeError:
            call_back()


class _Watchdogs:
    """One thread for all producers of a process, and none where there is nothing to look after."""

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
                    self._thread.ends()
                    return
            self._sooner.wait(min(watchdog.tick for watchdog in watched))
            self._sooner.clear()
            for watchdog in watched:
                watchdog.look()
            with suppress(RuntimeError):
                of_process().senders.attend()


_process = _Watchdogs()


def _begin_again() -> None:
    """Begin again in a forked child, which has no such thread."""
    global _process
    _process = _Watchdogs()


after_fork(_begin_again)

"""Looks now and then whether storage answers a producer, so that nobody waits longer than was asked for.

A call of a filesystem that hangs can be neither stopped nor tried beside itself: it keeps the topic's thread. What can
be done is to tell whoever waits (Kafka: ``delivery.timeout.ms`` bounds the time until a future is done).
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread

from pyspark_commitlog.producer.buffer import Buffer
from pyspark_commitlog.producer.options import ProducerOptions
from pyspark_commitlog.producer.sender import Sender
from pyspark_commitlog.storage import Clock

#: How often it looks, in seconds: this part of the delivery timeout, within bounds.
_PART = 1 / 20
_SHORTEST, _LONGEST = 0.02, 1.0


class Watchdog:
    """One thread for all topics of a producer, from the first on until the producer is closed and nobody waits.

    Args:
        buffer: lock and memory of the producer.
        senders: its topics, as they come; changed under the buffer's lock.
    """

    def __init__(self, buffer: Buffer, clock: Clock, options: ProducerOptions, senders: Mapping[str, Sender]) -> None:
        self._buffer, self._clock, self._senders = buffer, clock, senders
        self._tick = min(max(options.delivery_timeout_ms / 1000 * _PART, _SHORTEST), _LONGEST)
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None:
            thread = Thread(target=self._work, name="commitlog-producer-watchdog", daemon=True)
            thread.start()
            self._thread = thread
            self._buffer.threads.add(thread)

    def join(self) -> None:
        """Wait for the thread to end; the producer is closed, and nobody waits."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._buffer.lock:
                if self._buffer.closed and not any(sender.busy for sender in self._senders.values()):
                    return
                self._buffer.ended.wait(self._tick)
                now = self._clock.monotonic()
                told = [tell for sender in self._senders.values() for tell in sender.overdue(now)]
            for tell in told:
                tell()

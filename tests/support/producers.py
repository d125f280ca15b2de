"""Producers on a world's root, and a storage operation that waits until a test lets it go."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any

from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.producer_config import ProducerConfig
from pyspark_commitlog.testing.faults import Hook, io_error
from tests.support.world import World

#: Nothing lingers; times go by the world's clock, which backing off moves on.
DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "linger_ms": 0,
    "batch_size": 2**20,
    "buffer_memory": 2**26,
    "compression": None,
    "partitioner": "murmur2",
    "producer_id": None,
    "request_timeout_ms": 30_000,
    "delivery_timeout_ms": 120_000,
    "max_block_ms": 60_000,
}


def options(**changed: Any) -> ProducerConfig:
    """Return options, not checked yet."""
    return ProducerConfig(**{**DEFAULTS, **changed})


def producer_on(world: World, hook: Hook | None = None, **changed: Any) -> Producer:
    """Return a producer of a process of its own."""
    return Producer.on(world.storage(hook), options(**changed))


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def lost_reply(then: Any = None) -> Hook:
    """Return a hook under which the first put of an entry lands, and whoever put it can't tell.

    `then` happens before it tries again.
    """
    landed: list[bool] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "topics/t/journal/" in path and moment == "after" and not landed:
            landed.append(True)
            raise io_error()
        if operation == "fetch" and "topics/t/journal/" in path and moment == "before" and landed == [True]:
            landed.append(True)
            if then is not None:
                then()
            raise io_error()

    return hook


class Gate:
    """A hook that holds the first put of an entry until `release`; `reached` tells that it is there."""

    def __init__(self, part: str = "/journal/") -> None:
        self.reached, self._go, self._part = Event(), Event(), part

    def __call__(self, operation: str, path: str, moment: str) -> None:
        """Wait, once."""
        if operation == "put_if_absent" and moment == "before" and self._part in path and not self.reached.is_set():
            self.reached.set()
            assert self._go.wait(60)

    def release(self) -> None:
        """Let it go."""
        self._go.set()

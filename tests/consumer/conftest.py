"""What tests of consumers read from."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pyspark_commitlog.consumer.shared import watcher as module
from pyspark_commitlog.consumer.shared.watcher import Watcher
from tests.support.consumers import SMALL, numbered, put
from tests.support.world import World


@pytest.fixture
def numbered_records(world: World) -> None:
    """A topic of two partitions with 20 records each."""
    world.create(2, SMALL)
    put(world, numbered(0, 20))
    put(world, numbered(50, 70), 1)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:
    """A watcher whose thread ends with the test: it would wait for as long as the test makes `RECHECK_SECONDS`."""
    before = set(threading.enumerate())
    watcher = Watcher()
    yield watcher
    monkeypatch.setattr(module, "RECHECK_SECONDS", 0.01)  # if it has yet to read them
    monkeypatch.setattr(module, "_LINGER_SECONDS", -1.0)
    watcher._stopped.set()
    with watcher._lock:
        if watcher._events is not None:
            watcher._events.wake()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "commitlog-watcher":
            thread.join(30)
            assert not thread.is_alive()

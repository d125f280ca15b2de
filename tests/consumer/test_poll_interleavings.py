"""What others may do between two steps of a consumer, and to what the consumers of a process share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyspark_commitlog.consumer.consumer import Consumer
from pyspark_commitlog.consumer.shared.shared_topic import Fetched, FrameCache, FrameKey
from pyspark_commitlog.consumer.shared.watcher import SharedRoot, Waiter, Watcher
from pyspark_commitlog.errors import AccessDeniedError
from pyspark_commitlog.storage import limits, process
from pyspark_commitlog.storage.local.turns import Turns
from pyspark_commitlog.storage.shared import caches
from pyspark_commitlog.topic.read.reader import Rows
from tests.support.records import append, batch_of
from tests.support.world import World


def test_frames_without_columns_are_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`poll_arrow(columns=["offset"])` decodes nothing, and such frames took no room: none was ever dropped."""
    monkeypatch.setattr(limits, "_limits", limits.ProcessLimits(cache_bytes=32 * 2**20))
    cache = FrameCache()
    for number in range(100_000):
        cache.put(FrameKey("id", 0, 0, (), number), Fetched(Rows(1, number, None, None, 0), number + 1))
    kept = caches.process_cache.value
    assert len(kept._items) < 100_000
    assert kept.size_bytes <= 32 * 2**20


def test_a_watcher_that_could_not_start_is_started_by_the_next(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = process.Thread

    def no_thread(*_: object, **__: object) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process, "Thread", no_thread)
    with pytest.raises(RuntimeError):
        watcher.add(Waiter(lambda: None))
    started: list[int] = []

    def counted(*args: object, **more: object) -> threading.Thread:
        started.append(1)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "Thread", counted)
    watcher.add(Waiter(lambda: None))
    assert started


def test_a_turn_that_needs_a_thread_and_gets_none_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the interpreter's end (3.12 and later), while another process has the turn."""
    mine, other = Turns(), Turns()
    held = other.take(str(tmp_path), 1)
    assert held is not None

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert mine.take(str(tmp_path), 1) is None
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # a watcher of a test before may end meanwhile
    other.give(held)


_HOLDER = """
import os, sys, time
from pyspark_commitlog.storage import process
from pyspark_commitlog.storage.local.turns import Turns
from tests.support.records import append, batch_of
from tests.support.world import World
assert Turns().take(sys.argv[1], 1) is not None
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""


def test_a_forked_child_does_not_keep_its_killed_parents_turn(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        holder.kill()
        holder.wait()
        assert Turns().take(str(tmp_path), 2) is not None
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


def test_a_consumer_needs_the_right_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "root")
    append(world.create(), batch_of([b"a"]))
    world.log().acting_as("ops").access.allow("ops", "admin")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "nobody")
    with pytest.raises(AccessDeniedError):
        Consumer(SharedRoot.on(world.storage()), "t", auto_offset_reset="earliest").poll()

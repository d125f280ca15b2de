"""Consumers that wait: they are woken, they share what they read, tasks are not held up, children of a fork begin anew."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from pyspark_commitlog import CommitLog, Consumer, Record
from pyspark_commitlog.consumer.shared import watcher
from pyspark_commitlog.consumer.shared.shared_topic import ENTRY_BYTES, Fetched, FrameCache, FrameKey
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.shared.caches import ITEM_BYTES, Cache
from pyspark_commitlog.topic.read.reader import Rows
from tests.support.consumers import SMALL, at, drain, numbered, values
from tests.support.records import append, batch_of

#: Longer than any of these waits takes, and after how long a test gives up.
LONG = 3600.0
LIMIT = 30.0


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A topic of one partition, on the real clock."""
    CommitLog(str(tmp_path / "root")).create_topic("t", 1, SMALL)
    return str(tmp_path / "root")


def put(root: str, first: int, last: int) -> None:
    append(CommitLog(root).root.topic("t"), batch_of(numbered(first, last)))


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def joined(thread: threading.Thread) -> bool:
    """Return whether a thread has ended."""
    thread.join(LIMIT)
    return not thread.is_alive()


def waiting(consumer: Consumer) -> None:
    """Return once somebody waits for the consumer's topics."""
    while not consumer._metadata.seen:
        pass


def test_a_poll_that_waits_is_woken_by_a_commit(root: str) -> None:
    each = Consumer(root, "t", auto_offset_reset="earliest")
    found: list[Record] = []
    thread = in_thread(lambda: found.extend(each.poll(LONG)))
    waiting(each)
    put(root, 0, 3)
    assert joined(thread)
    assert values(found) == numbered(0, 3)
    assert each.poll(0.01) == []


def test_a_poll_that_waits_is_woken_by_a_partition_that_is_added(root: str) -> None:
    each = Consumer(root, "t")
    thread = in_thread(lambda: each.poll(LONG, max_records=1))
    waiting(each)
    CommitLog(root).topic("t").add_partitions(2)
    append(CommitLog(root).root.topic("t"), batch_of(numbered(0, 1), partition=[1]))
    assert joined(thread)
    assert each.position(at(1)) == 1


def test_nobody_is_woken_by_nothing(root: str) -> None:
    put(root, 0, 3)
    each = Consumer(root, "t", auto_offset_reset="earliest")
    assert len(each.poll()) == 3
    with mock.patch.object(each._poller._fetcher, "take", wraps=each._poller._fetcher.take) as take:
        assert each.poll(0.2) == []
    assert take.call_count == 2


def test_iteration_waits_for_what_comes(root: str) -> None:
    put(root, 0, 3)
    each = Consumer(root, "t", auto_offset_reset="earliest")
    assert values([next(each) for _ in range(3)]) == numbered(0, 3)
    thread = in_thread(lambda: put(root, 3, 4))
    assert next(each).offset == 3
    assert joined(thread)


def test_consumers_of_a_process_read_and_decode_a_frame_once(root: str) -> None:
    put(root, 0, 100)
    CommitLog(root).topic("t").maintain()
    many = [Consumer(root, "t", auto_offset_reset="earliest", max_poll_records=n) for n in (1, 7, 500, 500, 500)]
    with mock.patch.object(untyped, "decode", wraps=untyped.decode) as decode:
        first = drain(many[0])
        frames = decode.call_count
        assert all(drain(each) == first for each in many[1:])
        assert decode.call_count == frames
    assert values(first) == numbered(0, 100)


def test_what_consumers_share_goes_with_the_last_of_them(root: str) -> None:
    put(root, 0, 100)
    first, second = (Consumer(root, "t", auto_offset_reset="earliest") for _ in range(2))
    drain(first)
    shared = weakref.ref(first._metadata.topic("t"))
    second.poll()
    first.close()
    assert shared() is second._metadata.topic("t")
    second.close()
    assert shared() is None


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    most = 3000 + 3 * (ENTRY_BYTES + ITEM_BYTES)
    kept = Cache(lambda: most)
    cache = FrameCache(kept)

    def key(start: int) -> FrameKey:
        return FrameKey("id", 0, 0, ("value",), start)

    def fetched(start: int, size: int) -> Fetched:
        return Fetched(Rows(1, start, None, batch_of([b"x" * size]), False), start + 1)

    for start in range(3):
        cache.put(key(start), fetched(start, 900))
    assert cache.get(key(0)) == fetched(0, 900) or cache.get(key(0)) is not None
    cache.put(key(3), fetched(3, 900))
    assert [cache.get(key(n)) is not None for n in range(4)] == [True, False, True, True]
    cache.put(key(4), fetched(4, 1000 + most))
    assert cache.get(key(4)) is None
    cache.put(key(3), fetched(3, 100))
    assert kept.size_bytes <= most
    assert cache.get(FrameKey("other", 0, 0, ("value",), 3)) is None


# --- tasks --------------------------------------------------------------------------------------------------


def test_tasks_wait_for_records_without_holding_up_each_other(root: str) -> None:
    """Twenty consumers in one loop, more than its executor has threads, and the writer is a task behind them."""

    async def read(each: Consumer) -> list[bytes | None]:
        async with each:
            found: list[Record] = []
            while len(found) < 5:
                found += await each.apoll(LONG)
            return values(found)

    async def all_of_it() -> list[list[bytes | None]]:
        readers = [asyncio.create_task(read(Consumer(root, "t", auto_offset_reset="earliest"))) for _ in range(20)]
        for n in range(5):
            await asyncio.to_thread(put, root, n, n + 1)
        return await asyncio.gather(*readers)

    assert asyncio.run(all_of_it()) == [numbered(0, 5)] * 20


def test_a_task_iterates(root: str) -> None:
    put(root, 0, 25)

    async def read() -> list[Record]:
        settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 0, "initial_rebalance_delay_ms": 0}
        async with Consumer(root, "t", group_id="g", **settings) as each:  # type: ignore[arg-type]
            found = [record async for record in each]
            await each.acommit({at(): 7})
            assert (await each.apoll_arrow(columns=["offset"])).num_rows == 0
            return found

    assert values(asyncio.run(read())) == numbered(0, 25)
    assert CommitLog(root).groups.describe("g").partitions[0].offset == 25


def test_a_poll_that_is_cancelled_has_handed_nothing_out(root: str) -> None:
    put(root, 0, 25)
    read, go_on = threading.Event(), threading.Event()
    real = untyped.decode

    def slow(*args: object, **kwargs: object) -> object:
        read.set()
        go_on.wait(LIMIT)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    async def cancel() -> list[Record]:
        each = Consumer(root, "t", auto_offset_reset="earliest")
        with mock.patch.object(untyped, "decode", slow):
            task = asyncio.create_task(each.apoll(LONG))
            await asyncio.to_thread(read.wait, LIMIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
        assert each.position(at()) == 0
        return await each.apoll()

    assert values(asyncio.run(cancel())) == numbered(0, 25)


def test_a_loop_that_was_closed_while_it_waited_hinders_nobody_else(root: str) -> None:
    each = Consumer(root, "t", auto_offset_reset="earliest")
    each.poll()
    loop = asyncio.new_event_loop()
    loop.close()
    for _ in range(20):
        each._root.watch(each._metadata.seen, lambda: loop.call_soon_threadsafe(print))
    for n in range(2):
        thread = in_thread(lambda: each.poll(LONG))
        put(root, n, n + 1)
        assert joined(thread)


# --- fork ---------------------------------------------------------------------------------------------------


def test_a_child_of_a_fork_makes_its_own_consumer_and_refuses_the_parents(root: str) -> None:
    put(root, 0, 3)
    each = Consumer(root, "t", auto_offset_reset="earliest")
    assert len(each.poll()) == 3
    thread = in_thread(lambda: each.poll(LONG))  # the watcher runs, and holds what a fork copies
    waiting(each)
    while (events := watcher._process.value.watcher._events) is None:
        pass
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not the parent's handler
        signal.alarm(int(LIMIT))
        os._exit(_in_child(root, each, events))
    put(root, 3, 4)
    assert joined(thread)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _in_child(root: str, inherited: Consumer, events: Events) -> int:
    """Return 0 if all is well: the parent's events are closed, its consumer refuses, an own one reads and is woken."""
    try:
        events.wake()
        return 3
    except OSError:
        pass
    try:
        inherited.poll()
    except UsageError as error:
        if "forked" not in str(error):
            return 1
    inherited.close()
    own = Consumer(root, "t", auto_offset_reset="earliest")
    seen = own.poll()
    while len(seen) < 4:
        seen += own.poll(LONG)
    return 0 if values(seen) == numbered(0, 4) else 2

"""What a consumer that follows a topic keeps of it in memory, and that the cache counts what it really takes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog, Consumer, ConsumerRebalanceListener
from pyspark_commitlog.consumer.shared.shared_topic import Fetched, FrameCache, FrameKey
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.storage.shared.caches import Cache
from pyspark_commitlog.topic.read.reader import Rows
from tests.support.records import append, batch_of

NAMES = tuple(untyped.SCHEMA.names)


class _Heap(ctypes.Structure):
    """Of glibc's malloc.h: `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "in_use",
            "free_bytes",
            "keepcost",
        ]
    ]


def taken() -> int:
    """Return the bytes that C and C++ have in use, and Arrow's pool; of another C library than glibc the pool's alone."""
    found = getattr(ctypes.CDLL(None), "mallinfo2", None)
    heap = 0
    if found is not None:
        found.restype = _Heap
        heap = found().in_use
    return int(heap) + pa.total_allocated_bytes()


def lineages() -> int:
    """Return how many histories of entries are in memory."""
    gc.collect()
    return sum(isinstance(each, Lineage) for each in gc.get_objects())


@pytest.mark.parametrize("group", [None, "g"])
def test_who_follows_a_topic_keeps_no_history_of_each_entry(tmp_path: Path, group: str | None) -> None:
    CommitLog(str(tmp_path)).create_topic("t", 1)
    topic = CommitLog(str(tmp_path)).root.topic("t")
    with Consumer(
        str(tmp_path), "t", group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        before = 0
        for number in range(60):
            append(topic, batch_of([b"%d" % number]))
            while not consumer.poll(0.2):
                pass
            if group is not None:
                consumer.commit()
            before = before or lineages()
        assert lineages() - before < 10  # each has up to a hundred marks: 10 KB once they are looked at


#: So that a member that fell silent is soon out of its group.
QUICK: dict[str, Any] = {"session_timeout_ms": 400, "heartbeat_interval_ms": 50}


def left_for_the_garbage_collection(act: Callable[[], object]) -> set[str]:
    """Return of which classes of the package objects are left in cycles."""
    act()  # imports, and what is made once
    gc.collect()
    gc.disable()
    try:
        act()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return {type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("pyspark_commitlog")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("group", [None, "g"])
def test_what_a_closed_consumer_held_goes_at_once(tmp_path: Path, group: str | None) -> None:
    CommitLog(str(tmp_path)).create_topic("t", 2)

    class Listener(ConsumerRebalanceListener):
        """As an application's, which holds its consumer."""

        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

    def visit() -> None:
        append(CommitLog(str(tmp_path)).root.topic("t"), batch_of([b"x"]))
        with Consumer(str(tmp_path), group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"], listener=Listener(consumer))
            while not consumer.poll(0.2):
                pass

    assert left_for_the_garbage_collection(visit) == set()


@pytest.mark.parametrize("group", [None, "g"])
def test_what_a_consumer_held_goes_with_it_though_nobody_closed_it(tmp_path: Path, group: str | None) -> None:
    CommitLog(str(tmp_path)).create_topic("t", 1)

    def visit() -> None:
        append(CommitLog(str(tmp_path)).root.topic("t"), batch_of([b"x"]))
        consumer = Consumer(str(tmp_path), "t", group_id=group, auto_offset_reset="earliest", **QUICK)
        while not consumer.poll(0.2):
            pass

    assert left_for_the_garbage_collection(visit) == set()


def test_what_topics_are_handled_by_goes_at_once(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))

    def come_and_go() -> None:
        log.create_topic("t", 2)
        append(log.root.topic("t"), batch_of([b"x"]))
        log.topic("t").maintain()
        log.topic("t").delete()

    assert left_for_the_garbage_collection(come_and_go) == set()


@pytest.mark.parametrize("rows", [1, 5, 50])
def test_the_cache_counts_what_a_small_frame_takes(rows: int) -> None:
    now = datetime.now(UTC)
    stored = [{"key": b"k", "value": b"%d" % n * 100, "headers": [], "timestamp": now} for n in range(rows)]
    message = untyped.encode(pa.RecordBatch.from_pylist(stored, schema=untyped.SCHEMA), "zstd")
    kept = Cache(lambda: 2**40)
    cache = FrameCache(kept)
    gc.collect()
    before = taken()
    for start in range(0, 2000 * rows, rows):
        batch = untyped.decode(message, sparse=False, names=NAMES)
        rest = Fetched(Rows(rows, start, None, batch.slice(0, rows), False), start + rows)
        cache.put(FrameKey("an id", 0, 0, NAMES, start), rest)
    real = taken() - before
    assert real <= kept.size_bytes

"""What a process may take: how it is set, and what holds to it (docs/reference/limits.md)."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_commitlog import set_process_limits
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.storage import limits, process
from pyspark_commitlog.storage.limits import ProcessLimits
from pyspark_commitlog.storage.local import mapping
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.shared import caches, pool
from pyspark_commitlog.storage.shared.caches import ITEM_BYTES, Cache, Reported, Shelf
from pyspark_commitlog.storage.shared.pool import Pool


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of this test alone."""
    monkeypatch.setattr(limits, "_limits", None)
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.2)


def test_the_environment_sets_them_and_a_call_changes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLOG_MAX_THREADS", "9")
    monkeypatch.setenv("COMMITLOG_MAX_CACHE_BYTES", "0")
    assert limits.limits() == ProcessLimits(9, 256, 0)
    assert set_process_limits(files=16) == limits.limits() == ProcessLimits(9, 16, 0)


@pytest.mark.parametrize("text", ["7", "-1", "8.5", "many", "²"])
def test_a_variable_that_is_not_allowed_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("COMMITLOG_MAX_THREADS", text)
    with pytest.raises(OptionError, match=r"COMMITLOG_MAX_THREADS.*8 or more"):
        limits.limits()


@pytest.mark.parametrize("wrong", [{"threads": 7}, {"files": 15}, {"cache_bytes": -1}, {"threads": True}])
def test_what_is_not_allowed_changes_nothing(wrong: dict[str, int]) -> None:
    before = limits.limits()
    with pytest.raises(OptionError, match="or more"):
        set_process_limits(**wrong)
    assert limits.limits() == before


def test_a_cache_is_never_beyond_its_bound_not_even_while_it_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, seen = caches.Cache(lambda: 5000), list[int]()
    take = cache._take

    def watched(shelf: int, key: object) -> object:
        seen.append(cache.size_bytes)
        return take(shelf, key)

    monkeypatch.setattr(cache, "_take", watched)
    for number in range(20):
        cache.put(1, number, b"", 700)
    assert max(seen) == cache.size_bytes == 4 * (700 + caches.ITEM_BYTES)
    assert [cache.get(1, number) is not None for number in range(20)] == [False] * 16 + [True] * 4


def test_all_shelves_of_a_cache_share_its_bytes_and_go_with_their_owners() -> None:
    cache = Cache(lambda: 10 * (100 + ITEM_BYTES))
    first, second = Shelf[int, bytes](cache), Shelf[int, bytes](cache)
    for number in range(8):
        first.put(number, b"1", 100)
        second.put(number, b"2", 100)
    assert cache.size_bytes == 10 * (100 + ITEM_BYTES)
    assert [first.get(number) for number in range(8)] == [None] * 3 + [b"1"] * 5
    del second
    gc.collect()
    assert cache.size_bytes == 5 * (100 + ITEM_BYTES)
    first.clear()
    assert (cache.size_bytes, cache._items, cache._shelves) == (0, {}, {})


def test_a_shelf_that_goes_while_the_cache_is_at_work_is_cleared_behind_that() -> None:
    """A finalizer comes at any moment, also in the thread that holds the lock."""
    cache = Cache(lambda: 10**6)
    kept, gone = Shelf[int, bytes](cache), Shelf[int, bytes](cache)
    gone.put(1, b"", 100)
    with cache._lock:
        del gone
        gc.collect()
    assert kept.get(1) is None
    assert cache.size_bytes == 0


def test_texts_that_were_told_are_remembered_within_bounds() -> None:
    told = Reported()
    assert [told.is_new("a"), told.is_new("a")] == [True, False]
    for number in range(5000):
        told.is_new(number)
    assert len(told._texts) == caches.REPORTED


def test_mapped_pieces_hold_no_descriptor_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held one: a consumer of 1,024 uncompressed pieces could open no file any more."""
    monkeypatch.setattr(mapping, "MOST_PIECES", len(mapping._held) + 50)
    storage = LocalStorage(tmp_path)
    data = os.urandom(300_000)
    storage.write_once("f", data)
    before = len(os.listdir("/proc/self/fd"))
    held = [storage.map("f", 1000 * number, 1000) for number in range(200)]
    assert len(os.listdir("/proc/self/fd")) <= before, "those of earlier tests may be closed meanwhile"
    assert len(mapping._held) == mapping.MOST_PIECES
    assert b"".join(piece.to_pybytes() for piece in held) == data[:200_000]
    most = mapping.MOST_PIECES - 50
    del held
    gc.collect()
    assert len(mapping._held) == most


def test_files_that_are_being_filled_share_their_descriptors(tmp_path: Path) -> None:
    set_process_limits(files=16)
    storage = LocalStorage(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    outputs = [storage.create(f"d/{number}") for number in range(40)]
    for turn in range(3):
        for number, output in enumerate(outputs):
            output.write(b"%d-%d " % (number, turn))
            if turn:
                assert len(os.listdir("/proc/self/fd")) <= before + 9
    for output in outputs:
        output.close()
    assert [storage.read(f"d/{number}") for number in range(40)] == [
        b"%d-0 %d-1 %d-2 " % (number, number, number) for number in range(40)
    ]


def test_no_more_threads_are_started_than_the_limit_allows() -> None:
    set_process_limits(threads=process.RESERVED + process._threads.value.running + 2)
    go = threading.Event()
    started = [process.start_thread("commitlog-test", go.wait) for _ in range(2)]
    with pytest.raises(RuntimeError, match="max_threads"):
        process.start_thread("commitlog-test", go.wait)
    go.set()
    for thread in started:
        thread.join(60)
    process.start_thread("commitlog-test", go.wait).join(60)


def test_many_that_need_a_thread_at_once_do_not_take_its_place_from_each_other() -> None:
    set_process_limits(threads=process.RESERVED + process._threads.value.running + 2)
    go, ran = threading.Event(), threading.Event()
    for _ in range(process.RESERVED + 2):  # as if all of them had started one
        process.start_thread("commitlog-test", go.wait, reserved=True)
    with pytest.raises(RuntimeError, match="max_threads"):
        process.start_thread("commitlog-test", go.wait, reserved=True)
    thread = process.WhileNeeded("commitlog-needed", ran.set)
    threading.Timer(0.1, go.set).start()
    thread.ensure_running()
    assert ran.wait(60)


class Work:
    """A job that notes when it runs."""

    def __init__(self, root: str, act: object = None) -> None:
        self.root: object = root
        self.ran, self.act, self.together, self.most = 0, act, 0, 0

    def run(self) -> None:
        """Run."""
        self.together += 1
        self.most = max(self.most, self.together)
        if callable(self.act):
            self.act()
        self.ran += 1
        self.together -= 1


def until(true: object) -> None:
    end = time.monotonic() + 60
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_pool_does_many_jobs_with_few_threads_and_none_of_them_twice_at_a_time() -> None:
    shared = Pool("commitlog-test-pool", 8)
    jobs = [Work(f"root {number}", lambda: time.sleep(0.001)) for number in range(100)]
    for _ in range(3):
        for job in jobs:
            shared.schedule(job)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, sum(each.name == "commitlog-test-pool" for each in threading.enumerate()))
        return all(shared.wait(job, 0) for job in jobs)

    until(done)
    assert 1 <= most <= (limits.limits().threads - process.RESERVED) // 8
    assert all(job.ran and job.most == 1 for job in jobs)
    until(lambda: not shared._threads)
    assert not shared._when
    assert not shared._busy


def test_a_root_that_hangs_leaves_threads_to_the_others() -> None:
    shared, go = Pool("commitlog-test-pool", 3), threading.Event()
    stuck = [Work("hangs", lambda: go.wait(60)) for _ in range(50)]
    for job in stuck:
        shared.schedule(job)
    until(lambda: sum(job.together for job in stuck) == 6)
    other = Work("works")
    shared.schedule(other)
    until(lambda: other.ran)
    go.set()
    until(lambda: all(job.ran for job in stuck))


def test_a_job_that_waits_for_something_else_lends_its_thread() -> None:
    shared, go = Pool("commitlog-test-pool", 26), threading.Event()
    went: list[bool] = []
    first, second = Work("a", lambda: went.append(go.wait(10))), Work("a", go.set)
    shared.schedule(first)
    until(lambda: first.together)
    shared.schedule(second)
    time.sleep(0.1)
    assert not second.ran
    shared.lend(first)
    until(lambda: first.ran and second.ran)
    assert went == [True]  # the second ran while the first waited


def test_a_job_is_done_when_it_is_due_or_earlier_if_that_is_asked() -> None:
    shared = Pool("commitlog-test-pool", 8)
    soon, late = Work("a"), Work("b")
    shared.schedule(late, 60)
    shared.schedule(soon, 0.05)
    until(lambda: soon.ran)
    assert not late.ran
    shared.schedule(late)
    until(lambda: late.ran)
    assert shared.wait(late, 0)


def test_what_whoever_waited_has_done_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread may start, whoever waits does the things itself; their results are its own."""
    set_process_limits(threads=8)
    over = threading.Event()
    busy: list[threading.Thread] = []
    with suppress(RuntimeError):
        while len(busy) < 8:
            busy.append(process.start_thread("busy", over.wait))
    assert len(busy) < 8
    try:
        aside = pool.HelperThreads("aside", 8)
        results = [aside.begin(lambda: bytes(2**20)) for _ in range(8)]
        assert [len(result()) for result in reversed(results)] == [2**20] * 8
        assert not aside._waiting
    finally:
        over.set()
        for thread in busy:
            thread.join(30)

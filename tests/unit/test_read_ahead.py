"""Reading ahead where files can't be mapped: what is asked for, how much of it at once, and what is held."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog.storage import limits, process
from pyspark_commitlog.storage.limits import ProcessLimits
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.shared import read_ahead
from pyspark_commitlog.storage.shared.pool import HelperThreads
from pyspark_commitlog.storage.shared.read_ahead import (
    LEAST_BYTES,
    FileRange,
    ReadAhead,
    ReadAheadBudget,
    ahead_of,
    block_bytes,
)
from pyspark_commitlog.topic.segments.frames import crc_of
from tests.support.producers import wait_until
from tests.support.remote import RemoteStorage

KIB, MIB = 2**10, 2**20


def held_bytes() -> int:
    """Return how many bytes all readers of this process hold."""
    return read_ahead._shared.value.budget.used


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes a thousandth of the real ones, so that files are small."""
    monkeypatch.setattr(limits, "_limits", ProcessLimits(read_ahead_bytes=128 * KIB))
    sizes = {"BLOCK_BYTES": 8, "LONG_BLOCK_BYTES": 16, "_LONG_BYTES": 64, "FIRST_BYTES": 1, "MOST_CAREFUL_BYTES": 32}
    for name, size in {**sizes, "LEAST_BYTES": 1}.items():
        monkeypatch.setattr(read_ahead, name, size * KIB)
    shared = read_ahead._Shared()
    shared.threads = read_ahead._shared.value.threads  # those of the test before may still wait for something to do
    monkeypatch.setattr(read_ahead._shared, "value", shared)


def a_file(storage: LocalStorage, size: int, name: str = "file") -> bytes:
    data = random.Random(size).randbytes(size)
    storage.write_once(name, data)
    return data


def reading(storage: RemoteStorage, *ranges: FileRange, careful: bool = False) -> ReadAhead:
    left = list(ranges)

    def more() -> Sequence[FileRange]:
        return [left.pop(0)] if left else ()

    return ReadAhead(storage, more, careful=careful)


def all_of(ahead: ReadAhead, path: str, start: int, end: int, step: int) -> bytes:
    """Return bytes as one who walks frames of `step` bytes reads them."""
    got = b""
    while start < end:
        needed = min(step, end - start)
        got += ahead.window(path, start, needed, end).slice(0, needed).to_pybytes()
        start += needed
    return got


def overlap(fetched: Sequence[tuple[str, int, int]]) -> int:
    """Return how many bytes were fetched more than once."""
    ordered, twice = sorted(fetched), 0
    for (path, _, end), (next_path, start, _) in pairwise(ordered):
        twice += max(0, end - start) if path == next_path else 0
    return twice


@pytest.mark.parametrize("step", [61, 1000, 4096, 5 * KIB, 20 * KIB])
def test_a_file_is_fetched_once_and_in_blocks(tmp_path: Path, step: int) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 300 * KIB + 17)
    ahead = reading(storage, FileRange("file", 0, len(data)))
    assert all_of(ahead, "file", 0, len(data), step) == data
    assert overlap(storage.fetched) == 0
    assert sum(end - start for _, start, end in storage.fetched) == len(data)
    assert storage.requests["GET"] <= len(data) // (8 * KIB)
    ahead.close()
    assert held_bytes() == 0


def test_a_small_range_is_one_request(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 9 * KIB)
    assert all_of(reading(storage, FileRange("file", 0, len(data))), "file", 0, len(data), 100) == data
    assert storage.fetched == [("file", 0, 9 * KIB)]


def test_what_comes_next_is_under_way_in_several_requests_also_across_files(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path, seconds=0.05)
    names = [f"file{number}" for number in range(6)]
    files = {name: a_file(storage, 3 * KIB + number, name) for number, name in enumerate(names)}
    ahead = reading(storage, *(FileRange(name, 0, len(data)) for name, data in files.items()))
    for name, data in files.items():
        assert all_of(ahead, name, 0, len(data), KIB) == data
    assert storage.most_at_once >= 4
    assert storage.requests["GET"] == 6
    ahead.close()


def test_who_may_stop_anywhere_begins_with_little(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 200 * KIB)
    ahead = reading(storage, FileRange("file", 0, len(data)), careful=True)
    ahead.window("file", 0, 61, len(data))
    assert storage.fetched == [("file", 0, KIB)]
    assert all_of(ahead, "file", 0, len(data), 500) == data
    assert max(end - start for _, start, end in storage.fetched) == 8 * KIB, "the further it reads, the more at once"
    ahead.close()


def test_all_readers_of_a_process_hold_no_more_than_the_limit(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 300 * KIB)
    readers = [reading(storage, FileRange("file", 0, len(data))) for _ in range(20)]
    for position in range(0, 200 * KIB, 2 * KIB):
        for ahead in readers:
            ahead.window("file", position, KIB, len(data))
        assert held_bytes() <= 128 * KIB + 20 * KIB
    for ahead in readers:
        ahead.close()
    wait_until(lambda: held_bytes() == 0)


def test_a_budget_gives_what_is_left_and_the_least_of_it_whatever_is_left() -> None:
    budget = ReadAheadBudget()
    assert [budget.take(100 * KIB, 0), budget.take(100 * KIB, 0), budget.take(100 * KIB, KIB)] == [
        100 * KIB,
        0,
        28 * KIB,
    ]
    assert [budget.take(8 * KIB, 0), budget.take(8 * KIB, KIB), budget.used] == [0, KIB, 129 * KIB]
    budget.give_back(100 * KIB)
    assert budget.take(64 * KIB, 0) == 64 * KIB
    budget.join()
    budget.join()
    assert budget.share() == 64 * KIB
    budget.leave()
    assert budget.share() == 128 * KIB


def test_a_reader_holds_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_limits", ProcessLimits(read_ahead_bytes=40 * KIB))
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 300 * KIB)
    readers = [reading(storage, FileRange("file", 0, len(data))) for _ in range(2)]
    readers[0].window("file", 0, 61, len(data))
    assert held_bytes() == 8 * KIB, "of the 10 KiB that it begins with one whole block"
    assert all_of(readers[0], "file", 0, 100 * KIB, KIB) == data[: 100 * KIB]
    assert held_bytes() == 16 * KIB, "of its 20 KiB two whole blocks"


def test_readers_that_begin_one_after_the_other_get_as_much(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 300 * KIB)
    held, readers = [0], []
    for _ in range(4):
        readers.append(reading(storage, FileRange("file", 0, len(data))))
        readers[-1].window("file", 0, 61, len(data))
        held.append(held_bytes())
    assert [after - before for before, after in pairwise(held)] == [32 * KIB] * 4
    for ahead in readers:
        ahead.close()
    ahead = reading(storage, FileRange("file", 0, len(data)))
    assert all_of(ahead, "file", 0, 100 * KIB, KIB) == data[: 100 * KIB]
    assert held_bytes() > 100 * KIB, "one that reads alone holds what all may"
    ahead.close()


def test_without_a_limit_s_room_a_reader_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_limits", ProcessLimits(read_ahead_bytes=0))
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 20 * KIB)
    assert all_of(reading(storage, FileRange("file", 0, len(data))), "file", 0, len(data), 3000) == data
    assert held_bytes() <= 4 * KIB


def test_what_nobody_expected_is_fetched_too(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data, other = a_file(storage, 40 * KIB), a_file(storage, 5 * KIB, "other")
    ahead = reading(storage, FileRange("other", 0, len(other)))
    assert all_of(ahead, "file", 7, len(data), 900) == data[7:]
    assert all_of(ahead, "other", 0, len(other), 900) == other
    assert storage.requests["GET"] <= 40 // 8 + 3


def test_a_range_that_ends_inside_a_frame_is_gone_on_with(tmp_path: Path) -> None:
    """The next blocks are of another file by then."""
    storage = RemoteStorage(tmp_path)
    data, other = a_file(storage, 20 * KIB), a_file(storage, 5 * KIB, "other")
    ahead = reading(storage, FileRange("file", 0, 10 * KIB), FileRange("other", 0, len(other)))
    assert ahead.window("file", 9 * KIB, 3 * KIB, len(data)).to_pybytes()[: 3 * KIB] == data[9 * KIB : 12 * KIB]


def test_a_file_that_is_shorter_gives_what_there_is(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 10 * KIB)
    ahead = reading(storage, FileRange("file", 0, 50 * KIB))
    assert ahead.window("file", 9 * KIB, 4 * KIB, 50 * KIB).to_pybytes() == data[9 * KIB :]
    assert ahead.window("file", 10 * KIB, 61, 50 * KIB).size == 0


def test_a_file_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    ahead = reading(storage, FileRange("none", 0, 50 * KIB))
    with pytest.raises(FileNotFoundError):
        ahead.window("none", 0, 61, 50 * KIB)
    ahead.close()
    wait_until(lambda: held_bytes() == 0)  # blocks after the first may still be under way


def test_what_is_under_way_counts_until_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, begun, may = RemoteStorage(tmp_path), threading.Event(), threading.Event()
    data = a_file(storage, 100 * KIB)
    real = storage.map

    def late(path: str, start: int, length: int) -> pa.Buffer:
        if start:
            begun.set()
            may.wait(30)
        return real(path, start, length)

    monkeypatch.setattr(storage, "map", late)
    ahead = reading(storage, FileRange("file", 0, len(data)))
    ahead.window("file", 0, 61, len(data))
    assert begun.wait(30)
    ahead.close()
    assert held_bytes() > 0
    may.set()
    wait_until(lambda: held_bytes() == 0)


def test_a_reader_that_is_let_go_of_gives_back_what_it_held(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 100 * KIB)
    ahead = reading(storage, FileRange("file", 0, len(data)))
    ahead.window("file", 0, 61, len(data))
    assert held_bytes() > 0
    del ahead
    gc.collect()
    wait_until(lambda: held_bytes() == 0)
    assert read_ahead._shared.value.budget.share() == 128 * KIB


def test_a_forked_child_fetches_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = RemoteStorage(tmp_path)
    data = a_file(storage, 100 * KIB)
    real, parent, begun, may = storage.map, os.getpid(), threading.Event(), threading.Event()

    def late(path: str, start: int, length: int) -> pa.Buffer:
        if start and os.getpid() == parent:
            begun.set()
            may.wait(30)
        return real(path, start, length)

    monkeypatch.setattr(storage, "map", late)
    ahead = reading(storage, FileRange("file", 0, len(data)))
    ahead.window("file", 0, 61, len(data))
    assert begun.wait(30), "a thread is fetching, which is not there in the child"
    child = os.fork()
    if not child:
        signal.alarm(30)  # if it waits for its parent's threads
        os._exit(int(all_of(ahead, "file", 100, len(data), 900) != data[100:]))
    exited = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    may.set()
    assert exited == 0


def test_local_disks_are_mapped_as_ever(tmp_path: Path) -> None:
    assert ahead_of(LocalStorage(tmp_path), lambda: ()) is None


def test_a_checksum_is_read_in_blocks_ahead(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path, seconds=0.02)
    data = a_file(storage, 100 * KIB)
    assert crc_of(storage, "file", len(data)) == crc_of(LocalStorage(tmp_path), "file", len(data))
    assert storage.most_at_once > 1
    assert overlap(storage.fetched) == 0


@pytest.mark.parametrize(
    ("length", "allowed", "size"),
    [
        (100, 10**6, 100),
        (8192, 65_535, 8192),
        (10_240, 65_535, 10_240),
        (10_241, 65_535, 8192),
        (10_241, 65_536, 10_241),
        (20_480, 10**6, 20_480),
        (20_481, 10**6, 16_384),
        (65_536, 10**6, 16_384),
    ],
)
def test_how_long_a_block_is(length: int, allowed: int, size: int) -> None:
    assert block_bytes(length, allowed) == size


def test_a_block_is_no_longer_than_is_allowed() -> None:
    assert block_bytes(10**6, LEAST_BYTES // KIB) <= 320


def test_what_begins_at_once_has_a_thread_each_though_one_waits_for_something_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = process._threads.value.running  # threads that earlier tests left count, too
    monkeypatch.setattr(limits, "_limits", ProcessLimits(threads=others + process.RESERVED + 8))
    aside, done, all_there = HelperThreads("test-reader", 2), threading.Event(), threading.Barrier(4)
    aside.begin(done.set)
    assert done.wait(30)
    wait_until(lambda: aside._idle == 1)
    for _ in range(3):
        aside.begin(lambda: all_there.wait(30))
    all_there.wait(5)

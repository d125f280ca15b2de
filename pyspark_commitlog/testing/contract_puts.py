"""Contract of put-if-absent: one of many wins, whole or not at all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import pytest

from pyspark_commitlog.storage import NotPutError, Storage
from pyspark_commitlog.testing.contract_base import WAIT_SECONDS, Opener, StorageCase

_RACES = 60


class PutContract(StorageCase):
    """Puts of absent files."""

    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[Executor]:
        """Yield four processes, started once: each imports the package."""
        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as started:
            yield started

    @pytest.mark.parametrize("size", [0, 1, 5_000_000])
    def test_put_stores_the_whole_content(self, storage: Storage, size: int) -> None:
        data = bytes(i % 251 for i in range(size))

        storage.make_directory("journal")
        storage.put_if_absent("journal/1", data)

        assert self.raw_read(storage, "journal/1") == data

    def test_put_at_the_root(self, storage: Storage) -> None:
        storage.make_directory("")
        storage.put_if_absent("marker", b"1")

        assert self.raw_read(storage, "marker") == b"1"

    def test_a_second_put_is_refused_and_changes_nothing(self, storage: Storage) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"first")

        for data in (b"second", b"first"):
            with pytest.raises(FileExistsError):
                storage.put_if_absent("journal/1", data)
        assert self.raw_read(storage, "journal/1") == b"first"

    def test_put_never_overwrites_what_others_stored(self, storage: Storage) -> None:
        self.raw_write(storage, "journal/1", b"theirs")

        with pytest.raises(FileExistsError):
            storage.put_if_absent("journal/1", b"ours")
        assert self.raw_read(storage, "journal/1") == b"theirs"

    def test_what_the_reply_to_a_put_says_is_so(self, storage: Storage) -> None:
        storage.make_directory("journal")

        said, info = storage.put_if_absent("journal/1", b"bytes"), storage.info("journal/1")

        if said is not None:
            assert said.size == info.size
            lacks_time = said.identity.endswith("@")
            assert f"{said.identity}{info.modified_ms if lacks_time else ''}" == info.identity
            assert said.modified_ms in (-1, info.modified_ms)

    def test_put_makes_no_directory(self, storage: Storage) -> None:
        if not self.has_directories:  # nothing to make
            storage.put_if_absent("deleted/journal/1", b"1")
            assert storage.names("deleted") == ["journal"]
            return
        with pytest.raises(NotPutError):
            storage.put_if_absent("deleted/journal/1", b"1")

        assert self.raw_names(storage, "") == []

    def test_put_leaves_nothing_else_behind(self, storage: Storage) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"1")
        with pytest.raises(FileExistsError):
            storage.put_if_absent("journal/1", b"2")

        assert self.raw_names(storage, "journal") == ["1"]

    def test_a_file_put_again_after_its_deletion_is_another(self, storage: Storage) -> None:
        """Older kernels stamp by ticks up to 10 ms, and reuse inodes."""
        storage.make_directory("journal")
        identities = []
        for _ in range(3):
            storage.put_if_absent("journal/1", b"same bytes")
            identities.append(storage.info("journal/1").identity)
            storage.delete("journal/1")
            time.sleep(self.tick_ms / 1000)

        assert all(one != following for one, following in pairwise(identities))

    def test_one_of_8_threads_wins(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("journal")
        start = threading.Barrier(8)

        def race(racer: int) -> list[str]:
            own = opener()
            won = []
            for name in map(str, range(12)):
                start.wait(WAIT_SECONDS)
                won += _put(own, f"journal/{name}", racer)
            return won

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))

        self._check_race(storage, won, 12)

    def test_one_of_4_processes_wins(self, storage: Storage, opener: Opener, pool: Executor) -> None:
        storage.make_directory("journal")
        if not self.is_shared:
            assert list(pool.map(_names, [opener] * 4)) == [[]] * 4
            return

        won = list(pool.map(_race_of_processes, [opener] * 4, range(4)))

        self._check_race(storage, won, _RACES)

    def _check_race(self, storage: Storage, won: list[list[str]], names: int) -> None:
        assert self.raw_names(storage, "journal") == sorted(map(str, range(names)))
        assert sorted(path for paths in won for path in paths) == sorted(f"journal/{n}" for n in range(names))
        for racer, paths in enumerate(won):
            assert all(self.raw_read(storage, path) == _content(racer) for path in paths)

    def test_what_is_put_is_seen_whole_or_not_at_all(self, storage: Storage) -> None:
        storage.make_directory("journal")
        data, stop, seen = os.urandom(4_000_000), threading.Event(), set[int]()

        def look() -> None:
            while not stop.is_set():
                content = self.raw_read(storage, "journal/1")
                seen.add(-1 if content is None else len(content))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            for _ in range(5):
                storage.put_if_absent("journal/1", data)
                storage.delete("journal/1")
        finally:
            stop.set()
            watcher.join()

        assert seen <= {-1, len(data)}


def _content(racer: int) -> bytes:
    return b"%d" % racer * 50_000


def _put(storage: Storage, path: str, racer: int) -> list[str]:
    try:
        storage.put_if_absent(path, _content(racer))
    except FileExistsError:
        return []
    return [path]


def _names(opener: Opener) -> list[str]:
    return opener().names("")


def _race_of_processes(opener: Opener, racer: int) -> list[str]:
    storage, won = opener(), list[str]()
    for number in range(_RACES):
        storage.write_once(f"ready/{number}/{racer}", b"")
        until = time.monotonic() + WAIT_SECONDS
        while len(storage.names(f"ready/{number}")) < 4:
            assert time.monotonic() < until, "the other racers did not come"
        won += _put(storage, f"journal/{number}", racer)
    return won
